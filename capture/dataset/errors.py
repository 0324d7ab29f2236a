"""The error every refused dataset raises."""


class DatasetError(ValueError):
    """A captured dataset, or a sample meant for one, is not what it must be.

    The message names the file and the sample, shows what was found and says what is accepted.
    """

"""The least each decoding config needs, for tests of configs."""

from draftsmith.configs import (
    DecodingBaseConfig,
    DFlashDecodingConfig,
    DSparkDecodingConfig,
    EagleDecodingConfig,
    SaveHiddenStatesDecodingConfig,
)

NEEDED = {
    DecodingBaseConfig: {},
    SaveHiddenStatesDecodingConfig: {"output_directory": "out"},
    EagleDecodingConfig: {"max_draft_len": 4, "speculative_model": "drafter"},
    DFlashDecodingConfig: {},
    DSparkDecodingConfig: {"max_draft_len": 4},
}
TAGS = {
    SaveHiddenStatesDecodingConfig: "SaveState",
    EagleDecodingConfig: "Eagle",
    DFlashDecodingConfig: "DFlash",
    DSparkDecodingConfig: "DSpark",
}


def make(kind, **settings):
    """A config with these settings and, where they leave it out, what the class needs."""
    return kind(**{**NEEDED[kind], **settings})

"""Any decoding config, told apart by its `decoding_type`."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError

from draftsmith.configs.base import ConfigError
from draftsmith.configs.decoding.base import DecodingBaseConfig
from draftsmith.configs.decoding.dflash import DFlashDecodingConfig
from draftsmith.configs.decoding.dspark import DSparkDecodingConfig
from draftsmith.configs.decoding.eagle import EagleDecodingConfig
from draftsmith.configs.decoding.save_hidden_states import SaveHiddenStatesDecodingConfig
from draftsmith.configs.fields import settings_by_key
from draftsmith.configs.loading import misplaced_booleans
from draftsmith.configs.problems import show, translate

TAG = "decoding_type"

DecodingConfig = Annotated[
    SaveHiddenStatesDecodingConfig
    | EagleDecodingConfig
    | DFlashDecodingConfig
    | DSparkDecodingConfig,
    Field(discriminator=TAG),
]

BY_TAG: dict[str, type[DecodingBaseConfig]] = {
    "SaveState": SaveHiddenStatesDecodingConfig,
    "Eagle": EagleDecodingConfig,
    "DFlash": DFlashDecodingConfig,
    "DSpark": DSparkDecodingConfig,
}


def read_decoding_config(mapping: Mapping[str, Any]) -> DecodingBaseConfig:
    """The config that a parsed YAML or JSON mapping describes.

    Raises ConfigError with one line a problem, each with the field, its value and what fits.
    """
    accepted = f"accepted: {' | '.join(BY_TAG)}"
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{show(mapping)}: accepted: a mapping with {TAG}, {accepted}")
    tag = mapping.get(TAG)
    if tag is None:
        raise ConfigError(f"{TAG}: required; {accepted}")
    if not isinstance(tag, str) or tag not in BY_TAG:
        raise ConfigError(f"{TAG}={show(tag)}: {accepted}")
    model = BY_TAG[tag]
    data = dict(mapping)
    settings = settings_by_key(model)
    problems = misplaced_booleans(settings, data)
    if not problems:
        try:
            return model.model_validate(data)
        except ValidationError as error:
            problems = translate(model, settings, data, error, {})
    raise ConfigError("\n".join(dict.fromkeys(problems)))

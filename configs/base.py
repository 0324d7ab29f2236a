"""The model every config is made of, and the error every bad config raises."""

from pydantic import BaseModel, ConfigDict


class ConfigError(ValueError):
    """A setting or an input the user must change; named, shown, with what fits."""


class Config(BaseModel):
    """A frozen, typed description: unknown keys are errors, field docstrings are the help text."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True
    )

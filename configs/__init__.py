"""Every job as a typed model, and the command line that fills them in; nothing here needs torch."""

from draftsmith.configs.decoding import (
    AdvancedSamplingMode,
    DecodingBaseConfig,
    DecodingConfig,
    DFlashDecodingConfig,
    DSparkDecodingConfig,
    EagleDecodingConfig,
    MoeBackend,
    SaveHiddenStatesDecodingConfig,
    SpecDecMode,
    read_decoding_config,
)

__all__ = [
    "AdvancedSamplingMode",
    "DFlashDecodingConfig",
    "DSparkDecodingConfig",
    "DecodingBaseConfig",
    "DecodingConfig",
    "EagleDecodingConfig",
    "MoeBackend",
    "SaveHiddenStatesDecodingConfig",
    "SpecDecMode",
    "read_decoding_config",
]

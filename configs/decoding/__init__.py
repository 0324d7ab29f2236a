"""How a request is decoded: one config a method, with the names and rules of TensorRT-LLM's."""

from draftsmith.configs.decoding.base import DecodingBaseConfig
from draftsmith.configs.decoding.dflash import DFlashDecodingConfig
from draftsmith.configs.decoding.dspark import DSparkDecodingConfig
from draftsmith.configs.decoding.eagle import EagleDecodingConfig
from draftsmith.configs.decoding.enums import AdvancedSamplingMode, MoeBackend, SpecDecMode
from draftsmith.configs.decoding.save_hidden_states import SaveHiddenStatesDecodingConfig
from draftsmith.configs.decoding.union import DecodingConfig, read_decoding_config

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

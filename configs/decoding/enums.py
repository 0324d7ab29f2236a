"""The closed sets of names that decoding configs use."""

from enum import StrEnum


class AdvancedSamplingMode(StrEnum):
    """Which filters the sampler applies; the members that leave one out skip its cost."""

    FULL = "full"
    NO_TOPK = "no_topk"
    NO_TOPP = "no_topp"
    NO_TOPK_NO_TOPP = "no_topk_no_topp"


class MoeBackend(StrEnum):
    """What computes the expert layers of a draft model."""

    AUTO = "AUTO"
    CUTLASS = "CUTLASS"
    CUTEDSL = "CUTEDSL"
    CUTEDSL_FC12 = "CUTEDSL_FC12"
    TRTLLM = "TRTLLM"
    DEEPGEMM = "DEEPGEMM"
    DENSEGEMM = "DENSEGEMM"
    VANILLA = "VANILLA"
    TRITON = "TRITON"
    MARLIN = "MARLIN"
    MEGAMOE_DEEPGEMM = "MEGAMOE_DEEPGEMM"
    MEGAMOE_CUTEDSL = "MEGAMOE_CUTEDSL"


class SpecDecMode(StrEnum):
    """The method a decoding config asks for; NONE is the common base, which asks for none."""

    NONE = "none"
    SAVE_HIDDEN_STATES = "save_hidden_states"
    EAGLE3 = "eagle3"
    DFLASH = "dflash"
    DSPARK = "dspark"

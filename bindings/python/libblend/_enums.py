"""Choices, by name or number. Wherever one is expected its lower-case name does as well: "hkvd"."""

from enum import IntEnum, IntFlag
from typing import Type, TypeVar, Union

from . import raw


class SegmentKind(IntEnum):
    """What a segment of a prompt is."""

    PREFIX = raw.SEGMENT_PREFIX  #: reused exactly: a system prompt; before all other kinds
    CHUNK = raw.SEGMENT_CHUNK  #: stored by itself, reused anywhere
    TEXT = raw.SEGMENT_TEXT  #: new text: always computed, never stored
    QUESTION = raw.SEGMENT_QUESTION  #: always computed; must come last


class Policy(IntEnum):
    """Which rows of reused chunks are computed again."""

    FULL = raw.POLICY_FULL  #: full prefill: nothing is reused; the reference
    REUSE = raw.POLICY_REUSE  #: none: stored rows as they are; the lower bound
    HKVD = raw.POLICY_HKVD  #: those of highest KV deviation (CacheBlend 4.2-4.3)
    FIRST_K = raw.POLICY_FIRST_K  #: the first of every chunk (EPIC's LegoLink)
    RANDOM = raw.POLICY_RANDOM  #: any, by seed: the control
    QUESTION = raw.POLICY_QUESTION  #: deviation times the question's attention
    CALLBACK = raw.POLICY_CALLBACK  #: those that ``score`` gives the largest scores
    UNION = raw.POLICY_UNION  #: ``terms``: several of these, each with its share
    CONTEXT_IMPACT = raw.POLICY_CONTEXT_IMPACT  #: by statistics kept with the chunk (Cache-Craft)
    APE = raw.POLICY_APE  #: none: stored rows attended to at a temperature and a scale


class Metric(IntEnum):
    """What a deviation is measured on."""

    V = raw.METRIC_V
    K = raw.METRIC_K
    KV = raw.METRIC_KV
    V_WEIGHED = raw.METRIC_V_WEIGHED  #: times the attention that the row gets inside its chunk
    K_WEIGHED = raw.METRIC_K_WEIGHED
    KV_WEIGHED = raw.METRIC_KV_WEIGHED


class Norm(IntEnum):
    """How a deviation is summed."""

    L2 = raw.NORM_L2
    L1 = raw.NORM_L1


class Miss(IntEnum):
    """What becomes of a chunk that the store does not have."""

    PRECOMPUTE = raw.MISS_PRECOMPUTE  #: prefill it, store it in the background, fuse it
    COMPUTE = raw.MISS_COMPUTE  #: treat it as new text: exact, nothing is stored
    FAIL = raw.MISS_FAIL  #: NotFoundError
    COMPUTE_STORE = raw.MISS_COMPUTE_STORE  #: COMPUTE, and prefilled and stored behind the fuse


class Correction(IntEnum):
    """Whether rows that are not recomputed take the profile's drift correction."""

    AUTO = raw.CORRECTION_AUTO
    OFF = raw.CORRECTION_OFF
    ON = raw.CORRECTION_ON


class KvDtype(IntEnum):
    """Element types of K and V."""

    AUTO = raw.KV_AUTO  #: bf16 for a bf16 model, otherwise f16
    F32 = raw.KV_F32
    F16 = raw.KV_F16
    BF16 = raw.KV_BF16


class Weights(IntEnum):
    """How the weights of a model are kept in memory."""

    AUTO = raw.WEIGHTS_AUTO  #: MAPPED where they are quantized, else PACKED
    PACKED = raw.WEIGHTS_PACKED  #: in the form that is computed with fastest
    MAPPED = raw.WEIGHTS_MAPPED  #: as the file has them, decoded as they are used
    INT8 = raw.WEIGHTS_INT8  #: 8 bits a weight, and activations too: faster, answers differ a little


class Codec(IntEnum):
    """How the bytes of K and V are kept."""

    DEFAULT = raw.CODEC_DEFAULT  #: of a store: NONE; of a put: the store's
    NONE = raw.CODEC_NONE
    ZSTD = raw.CODEC_ZSTD  #: lossless
    INT8 = raw.CODEC_INT8
    INT4 = raw.CODEC_INT4


class ReadMode(IntEnum):
    """How layers are read from the disk."""

    AUTO = raw.READ_AUTO
    URING = raw.READ_URING
    THREADS = raw.READ_THREADS
    MAPPED = raw.READ_MAPPED


class Eviction(IntEnum):
    """Which chunk leaves a full store first."""

    LRU = raw.EVICT_LRU  #: the one that was unused longest
    FIFO = raw.EVICT_FIFO  #: the one that was put first
    REUSE = raw.EVICT_REUSE  #: LRU, but what was hit n times gets log2(n) further chances
    NEVER = raw.EVICT_NEVER  #: none: a put past the quota raises FullError


class RopeLayout(IntEnum):
    """Which elements of a head rotate together."""

    INTERLEAVED = raw.ROPE_INTERLEAVED  #: (0,1), (2,3), ...: GGUF ``llama`` files
    HALF_SPLIT = raw.ROPE_HALF_SPLIT  #: (0,d/2), (1,d/2+1), ...: Hugging Face transformers


class Source(IntEnum):
    """Where a segment's rows came from."""

    NONE = raw.SOURCE_NONE
    STORE = raw.SOURCE_STORE
    PRECOMPUTED = raw.SOURCE_PRECOMPUTED
    COMPUTED = raw.SOURCE_COMPUTED


class FusionFlags(IntFlag):
    """Of FusionInfo.flags."""

    UNCALIBRATED = raw.FUSION_UNCALIBRATED
    EDITED = raw.FUSION_EDITED
    CORRECTED = raw.FUSION_CORRECTED
    UNTRUSTED = raw.FUSION_UNTRUSTED
    RATIO_CHOSEN = raw.FUSION_RATIO_CHOSEN
    RESTORED = raw.FUSION_RESTORED


class DriftInputs(IntFlag):
    """Inputs of the drift maps."""

    DEVIATION = raw.DRIFT_DEVIATION
    FRESH = raw.DRIFT_FRESH
    CONSTANT = raw.DRIFT_CONSTANT


class AdviceFlags(IntFlag):
    """Of Advice.flags."""

    NO_DELAY = raw.ADVICE_NO_DELAY
    CHEAPEST = raw.ADVICE_CHEAPEST
    SLOWER_THAN_PREFILL = raw.ADVICE_SLOWER_THAN_PREFILL


#: A ``ratio`` that lets the controller choose (CacheBlend 5.1).
RATIO_AUTO: float = raw.RATIO_AUTO

E = TypeVar("E", bound=IntEnum)


def choice(kind: Type[E], value: Union[E, int, str]) -> int:
    """The number of a choice; ValueError names those there are."""
    if isinstance(value, str):
        try:
            return int(kind[value.upper()])
        except KeyError:
            known = ", ".join(repr(member.name.lower()) for member in kind)
            raise ValueError(f"{value!r} is no {kind.__name__}: there are {known}") from None
    return int(value)

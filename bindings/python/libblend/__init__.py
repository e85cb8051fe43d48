"""libblend: KV-cache fusion for prompts made of retrieved chunks (CacheBlend, EuroSys '25).

    import libblend

    with libblend.Context() as ctx:
        model = libblend.Model(ctx, "model.gguf")
        store = libblend.Store(ctx, "store")
        fusion = model.fuse_texts(store, ["A passage.", "Another."], "Who signs the invoices?")
        for token in fusion.generate():
            print(token.text, end="", flush=True)

context -> model, store -> precompute (chunk -> store) -> fuse (prompt -> fusion) -> generate.

Every object may be used from several threads; the interpreter's lock is let go of while the library
works. On the main thread Ctrl-C stops a call. Errors are :class:`BlendError`, one subclass a code, in
:mod:`libblend.errors`. Arrays are numpy's; those that show the library's memory own a lease on it.
"""

from . import errors, raw as _raw
from ._call import Cancel
from ._calls import CallReader
from ._context import Context
from ._enums import (RATIO_AUTO, RATIO_FIDELITY, AdviceFlags, Codec, Correction, DriftInputs, Eviction, FusionFlags,
                     Dtype, GrammarLanguage, LogLevel, Metric, Miss, Norm, OnUntrusted, Policy, Pooling,
                     ReadMode, RecordKind, RopeLayout, SegmentKind, Source, Weights)
from ._error import BlendError
from ._fusion import FuseArguments, Fusion, Generation, Token
from ._grammar import Grammar
from ._infos import (Advice, CallInfo, ChunkInfo, CodecCost, CodecStat, FusionInfo, LayerInfo, MachineInfo, Measurement,
                     LoraInfo, ModelInfo, ProfileInfo, SegmentInfo, StoreStat, TemplateInfo, Verdict)
from ._missing import MissingFileError
from ._model import CorpusChunk, CorpusRecord, Model, Stored
from ._model_base import Lora
from ._layerwise import Layerwise
from ._log import LogRecord, to_logging
from ._profile import Machine, Profile
from ._prompt import Prompt, PromptSegment
from ._store import Metric as StoreMetric, RemoteChunk, Store, TenantUse
from .errors import *  # noqa: F401,F403

#: "major.minor.patch" of the library that is loaded.
__version__: str = _raw.version()

__all__ = [
    "Advice", "AdviceFlags", "BlendError", "CallInfo", "CallReader", "Cancel", "ChunkInfo", "Codec", "CodecCost", "CodecStat", "Context",
    "CorpusChunk", "CorpusRecord", "Correction", "DriftInputs", "Eviction", "FuseArguments", "Fusion", "FusionFlags", "FusionInfo",
    "Generation", "Dtype", "Grammar", "GrammarLanguage", "LayerInfo", "LogLevel", "LogRecord", "Machine", "MachineInfo", "Measurement", "Metric", "Miss",
    "MissingFileError", "Model", "ModelInfo", "Norm", "OnUntrusted", "Layerwise", "Policy", "Pooling", "Profile", "ProfileInfo", "Prompt", "PromptSegment",
    "RATIO_AUTO", "RATIO_FIDELITY", "ReadMode", "RecordKind", "RemoteChunk", "RopeLayout", "SegmentInfo", "SegmentKind", "Source", "Store", "StoreMetric", "StoreStat", "Stored", "TemplateInfo",
    "TenantUse", "Token", "Verdict", "Weights", "errors", "to_logging",
]
__all__ += errors.__all__

"""A model's weights, tokenizer and shape: what prompts, profiles and machines need of it."""

import os
from typing import Any, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Type, TypeVar, Union

from . import _enums, raw
from ._arrays import Tokens, copy_out, tokens_in
from ._call import Cancel, Progress, watched
from ._context import Closable, Context
from ._enums import choice
from ._infos import LoraInfo, ModelInfo, TemplateInfo
from ._missing import files
from ._types import Array, Path

M = TypeVar("M", bound="ModelBase")


class Lora(NamedTuple):
    """A LoRA adapter that a model is opened with."""

    path: Path
    """a GGUF file, or a PEFT directory (adapter_config.json and adapter_model.safetensors)"""
    scale: float = 1.0
    """of what it adds, besides its own alpha"""


class ModelBase(Closable):
    """What a :class:`Model` is before anything is made of it: weights, tokenizer, shape. Prompts, profiles and
    machines need no more of a model than this."""

    def __init__(self, ctx: Context, path: Path, *,
                 loras: "Iterable[Union[Path, Lora]]" = (),
                 # blend:parameters model_options
                 progress: Optional[Progress] = None, cancel: Optional[Cancel] = None) -> None:
        options = raw.ModelOptions()
        # blend:set model_options
        for lora in _enums.listed(loras, "loras"):
            adapter = lora if isinstance(lora, Lora) else Lora(lora)
            if adapter.scale == 0:
                raise ValueError("a LoRA adapter of scale 0 has no effect: leave it out")
            options.add_lora(os.fsencode(adapter.path), adapter.scale)
        with files(path), watched(options, progress, cancel):
            self._raw = raw.Model.open(ctx._raw, os.fsencode(path), options)
        self._name = os.fsdecode(path)
        self._context = ctx

    @classmethod
    def create_from_description(cls: "Type[M]", ctx: Context, *,
                 # blend:parameters model_description
                 rope_freq_factors: Sequence[float] = ()) -> "M":
        """A model that the host runs itself: no weights, no tokenizer. For :meth:`put_chunk`,
        :meth:`find_chunk` and :class:`Layerwise`. Weights that differ must differ in `name` or `fingerprint`
        (64 hexadecimal digits). Raises InvalidArgumentError, which names the member.

        # blend:documentation model_description
        rope_freq_factors: [rotary_dim / 2]
        """
        options = raw.ModelDescription()
        # blend:set model_description
        for factor in rope_freq_factors:
            options.add_rope_freq_factor(factor)
        model = cls.__new__(cls)
        model._raw = raw.Model.create_from_description(ctx._raw, options)
        model._context = ctx
        model._name = ""
        return model

    @property
    def info(self) -> ModelInfo:
        """Shape and names."""
        return ModelInfo._of(self._raw.info())

    @property
    def loras(self) -> List[LoraInfo]:
        """The LoRA adapters that it was opened with."""
        return [LoraInfo._of(self._raw.lora(i)) for i in range(self.info.n_loras)]

    def template_info(self, template_source: str = "") -> TemplateInfo:
        """What a chat template has a place for, and how calls of functions are written by it; "": the model's own.
        Raises NotFoundError where there is none, FormatError, UnsupportedError."""
        return TemplateInfo._of(self._raw.template_info(template_source))

    def tokenize(self, text: Union[str, bytes], *, bos: bool = False, special: bool = False,
                 raw_text: bool = False) -> Array:
        """Tokens of a text, int32 [n]. Invalid UTF-8 becomes byte tokens.

        bos: put BOS in front, if the model expects it there (``info.add_bos``).  special: recognise special tokens
        such as "</s>"; without it they are plain text, which is what untrusted input wants.
        raw_text: do not add the space that SentencePiece puts before a text."""
        flags = ((raw.TOKENIZE_BOS if bos else 0) | (raw.TOKENIZE_SPECIAL if special else 0)
                 | (raw.TOKENIZE_RAW if raw_text else 0))
        return copy_out(self._raw.tokenize(text, flags))

    def detokenize_bytes(self, tokens: Tokens, *, special: bool = False,
                         raw_text: bool = False) -> bytes:
        """Bytes of the tokens' text, which may be cut inside a UTF-8 sequence. The space before the
        first token is dropped unless `raw_text`; control tokens give nothing unless `special`.
        Raises InvalidArgumentError for a token outside the vocabulary."""
        flags = (raw.TOKENIZE_SPECIAL if special else 0) | (raw.TOKENIZE_RAW if raw_text else 0)
        return bytes(self._raw.detokenize(tokens_in(tokens), flags))

    def detokenize(self, tokens: Tokens, *, special: bool = False, raw_text: bool = False) -> str:
        """Text of the tokens; bytes that are not UTF-8 become U+FFFD."""
        return self.detokenize_bytes(tokens, special=special, raw_text=raw_text).decode(
            "utf-8", "replace")

    def default_check_layers(self, ratio: float, first_layer: int = 1,
                             n: int = 4) -> List[Tuple[int, float]]:
        """A schedule for gradual filtering: at most `n` (layer, ratio), evenly spaced from
        `first_layer` on, whose ratios fall and have the mean `ratio`."""
        layers = self._raw.default_check_layers(ratio, first_layer, n)
        return [(layers.layer(i), layers.ratio(i)) for i in range(layers.size())]

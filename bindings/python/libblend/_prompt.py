"""Prompts: segments in their order."""

from typing import Any, List, NamedTuple, Optional, Union

import numpy as np

from . import raw
from ._arrays import Tokens, copy_out, tokens_in
from ._enums import SegmentKind
from ._model_base import ModelBase
from ._types import Array, ChunkId


class PromptSegment(NamedTuple):
    """A part of a prompt."""

    kind: SegmentKind
    tokens: Array
    """int32 [n]; none of a chunk given by its id"""
    id: ChunkId
    """of a chunk given by it, else \"\""""


class Prompt:
    """The segments of one prompt, in order; every method returns the prompt, to be chained.

    Tokens are copied. With a model a str is tokenized, each by itself, as the library wants it: a
    chunk's tokens must not depend on what stands before it. Not thread-safe while it is built.
    """

    def __init__(self, model: Optional[ModelBase] = None) -> None:
        self._raw = raw.Prompt()
        self._model = model

    @classmethod
    def _of(cls, model: ModelBase, made: Any) -> "Prompt":
        prompt = cls.__new__(cls)
        prompt._raw = made
        prompt._model = model
        return prompt

    def _add(self, kind: int, tokens: Any) -> "Prompt":
        if isinstance(tokens, str):
            if self._model is None:
                raise TypeError("a str needs Prompt(model), whose tokenizer takes it")
            tokens = self._model.tokenize(tokens)
        self._raw.add(kind, tokens_in(tokens))
        return self

    def bos(self) -> "Prompt":
        """The BOS token, if the model expects it (``info.add_bos``); else nothing."""
        if self._model is None:
            raise TypeError("bos() needs Prompt(model)")
        tokens = self._model.tokenize("", bos=True)
        return self._add(raw.SEGMENT_PREFIX, tokens) if len(tokens) else self

    def prefix(self, tokens: Union[str, Tokens]) -> "Prompt":
        """Reused exactly, such as a system prompt; before all other kinds."""
        return self._add(raw.SEGMENT_PREFIX, tokens)

    def chunk(self, tokens: Union[str, Tokens]) -> "Prompt":
        """Stored after the prompt's head, reused anywhere. White space at its ends is part of it: "Ada.\\n" is
        another chunk than "Ada.". (:meth:`Model.text_prompt` and :meth:`Model.fuse_texts` take that away.)"""
        return self._add(raw.SEGMENT_CHUNK, tokens)

    def chunk_id(self, id: ChunkId) -> "Prompt":
        """A chunk that the store has, by its id."""
        self._raw.add_chunk_id(id)
        return self

    def text(self, tokens: Union[str, Tokens]) -> "Prompt":
        """New text: always computed, never stored."""
        return self._add(raw.SEGMENT_TEXT, tokens)

    def question(self, tokens: Union[str, Tokens]) -> "Prompt":
        """Always computed; must come last."""
        return self._add(raw.SEGMENT_QUESTION, tokens)

    def head(self) -> Array:
        """The tokens before the first chunk, int32 [n]: chunks are precomputed after them. None where
        there is no chunk."""
        return copy_out(self._raw.head())

    @property
    def segments(self) -> List[PromptSegment]:
        """What was added, copied."""
        made = []
        for i in range(len(self)):
            id = str(self._raw.chunk_id(i))
            tokens = np.empty(0, np.int32) if id else copy_out(self._raw.tokens(i))
            made.append(PromptSegment(SegmentKind(self._raw.kind(i)), tokens, id))
        return made

    def __repr__(self) -> str:
        names = {raw.SEGMENT_PREFIX: "prefix", raw.SEGMENT_CHUNK: "chunk", raw.SEGMENT_TEXT: "text",
                 raw.SEGMENT_QUESTION: "question"}
        kinds = [names.get(self._raw.kind(i), "?") for i in range(min(len(self), 8))]
        more = ", ..." if len(self) > 8 else ""
        return f"<libblend.Prompt of {self.n_tokens} tokens: {', '.join(kinds)}{more}>"

    def __len__(self) -> int:
        return int(self._raw.size())

    @property
    def n_tokens(self) -> int:
        """Tokens of the segments that were given as tokens."""
        return int(self._raw.n_tokens())

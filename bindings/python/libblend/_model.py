"""Models, their tokenizer, and what is made of them."""

import json
import os
from typing import TYPE_CHECKING, Any, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import _enums, raw
from ._arrays import Tokens, copy_out, tokens_in
from ._call import POLL_MS, Cancel, Listener, OnMeasurement, Progress, raise_own, raw_cancel, watched
from ._enums import Dtype, Metric, Policy, Pooling, choice
from ._error import BlendError
from ._fusion import FuseArguments, Fusion, fuse_options
from ._infos import Verdict
from ._kv import KvLayer, raw_view
from ._model_base import ModelBase
from ._profile import Profile
from ._prompt import Prompt
from ._store import Store, raw_store
from ._types import Array, ChunkId, Path
from .errors import CallbackError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._fusion import FuseKeywords


def _samples(prompts: Iterable[Prompt]) -> Any:
    samples = raw.Samples()
    for prompt in prompts:
        samples.add(prompt._raw)
    return samples


def _messages(messages: "Iterable[Mapping[str, Any]]") -> List[Tuple[str, str, str]]:
    """(role, content, JSON of what else it has) of each."""
    given: List[Any] = [messages] if isinstance(messages, str) else list(messages)
    for message in given:
        says = isinstance(message, Mapping) and ("content" in message or "tool_calls" in message)
        if not says or "role" not in message:
            raise TypeError('messages are a list of {"role": ..., "content": ...}, and this is ' + repr(message)[:80])
    return [(message["role"], message.get("content") or "", _members(message)) for message in given]


def _members(message: "Mapping[str, Any]") -> str:
    # OpenAI's client writes what is not there as None.
    more = {name: value for name, value in message.items() if name not in ("role", "content") and value is not None}
    return json.dumps(more) if more else ""


def _documents(documents: "Iterable[Union[str, Mapping[str, str]]]") -> "Iterable[Union[str, Mapping[str, str]]]":
    return _enums.listed(documents, "documents")


def _passage(document: "Union[str, Mapping[str, str]]") -> Tuple[str, str]:
    """(text, title) of a document."""
    if isinstance(document, str):
        return document, ""
    if not isinstance(document, Mapping) or "text" not in document:
        raise TypeError('a document is a str or {"text": ..., "title": ...}, and this is ' + repr(document)[:80])
    return _enums.text(document["text"], "text"), _enums.text(document.get("title", ""), "title")


class Stored(NamedTuple):
    """A chunk that was stored or looked up."""

    id: ChunkId
    existed: bool
    """precompute: it was in the store already, nothing was computed; find: the store has it"""


class CorpusChunk(NamedTuple):
    """One text of a corpus, with what it is called."""

    tokens: Tokens
    label: Optional[str] = None
    """by custom "document#part"; None leaves the label that it has, "" removes it"""
    tags: Optional[str] = None
    """words with one space between; likewise"""


class CorpusRecord(NamedTuple):
    """What became of one text of a corpus."""

    id: ChunkId
    """of the contextual record, or of the one after the head alone"""
    existed: bool
    """nothing was computed"""
    n_contexts: int
    """passages of the contextual record; 0: there is none, since no other chunk is similar"""


class Model(ModelBase):
    """Weights, tokenizer and description of one model. Immutable, thread-safe.

    path: a GGUF file (v2 or v3) or a Hugging Face directory; docs/models.md says which there are.
    loras: LoRA adapters, paths or :class:`Lora`; they add up, and chunks that are stored with them are found with them alone
    # blend:documentation model_options
    progress: bytes of weights read

    Raises MissingFileError (a FileNotFoundError), IoError, FormatError (names the offset or tensor), UnsupportedError (names
    what was met), NumericError, MismatchError (a LoRA adapter of another model), OutOfMemoryError, CancelledError.
    """

    def precompute(self, store: Store, tokens: Tokens, *, chunk_prefix: Optional[Tokens] = None,
                   contexts: Iterable[Tokens] = (), predecessor: Optional[Tokens] = None,
                   # blend:parameters precompute_options
                   progress: Optional[Progress] = None,
                   cancel: Optional[Cancel] = None) -> Stored:
        """Prefills one chunk and stores its K (before RoPE) and V; it is on disk on return.

        chunk_prefix: prefilled before the chunk and not stored; part of the id. Give the head of the
            prompts that will hold the chunk, :meth:`Prompt.head`; None: nothing
        contexts: passages, the most similar first. Each stands before the chunk in one of the prefills.
            The record is contextual: it keeps the mean of the chunk's K and V over the prefills, and
            not the passages. :meth:`precompute_corpus` finds them
        predecessor: what stands directly before the chunk in the prompts that the record is for: the
            chunk before it and what stands between. It follows chunk_prefix and the passages, is not
            stored, and is part of the id. A fuse takes the record where these tokens stand directly
            before the chunk. Give other texts of such prompts in contexts: if it is short, the chunk
            is prefilled after some of them too
        # blend:documentation precompute_options
        progress: layers

        Raises InvalidArgumentError, ContextLengthError, FullError, ReadOnlyError, IoError,
        NumericError, CancelledError."""
        options = raw.PrecomputeOptions()
        # blend:set precompute_options
        if chunk_prefix is not None:
            options.set_chunk_prefix(tokens_in(chunk_prefix))
        for passage in contexts:
            options.add_context(tokens_in(passage))
        if predecessor is not None:
            options.set_predecessor(tokens_in(predecessor))
        with watched(options, progress, cancel):
            done = self._raw.precompute(store._raw, tokens_in(tokens), options)
        return Stored(done.id, done.existed)

    def precompute_corpus(self, store: Store, chunks: "Iterable[Union[Tokens, CorpusChunk]]", *,
                          chunk_prefix: Optional[Tokens] = None,
                          # blend:parameters corpus_options
                          progress: Optional[Progress] = None,
                          cancel: Optional[Cancel] = None) -> List[CorpusRecord]:
        """Stores the chunks of a corpus so that they serve each other as context: each after
        chunk_prefix alone, and in the context of the chunks that are most similar to it.
        A call that was stopped goes on where it ended when it is made again.

        chunks: tokens each, or a :class:`CorpusChunk`
        chunk_prefix: the head of the prompts that will hold them, :meth:`Prompt.head`
        # blend:documentation corpus_options
        progress: records; a chunk has several

        Raises what :meth:`precompute` raises; errors name the chunk."""
        options = raw.CorpusOptions()
        # blend:set corpus_options
        if chunk_prefix is not None:
            options.set_chunk_prefix(tokens_in(chunk_prefix))
        corpus = raw.Corpus()
        for chunk in chunks:
            tokens, label, tags = chunk if isinstance(chunk, CorpusChunk) else (chunk, None, None)
            corpus.add(tokens_in(tokens))
            if label is not None:
                corpus.set_label(_enums.text(label, "label"))
            if tags is not None:
                corpus.set_tags(_enums.text(tags, "tags"))
        with watched(options, progress, cancel):
            made = self._raw.precompute_corpus(store._raw, corpus, options)
        return [CorpusRecord(made.id(i), made.existed(i), made.n_contexts(i)) for i in range(made.size())]

    def find_chunk(self, store: Store, tokens: Tokens, *, chunk_prefix: Optional[Tokens] = None,
             contexts: Iterable[Tokens] = (), predecessor: Optional[Tokens] = None,
             tenant: str = "") -> Stored:
        """Whether the store has a chunk: the look-up that a fuse would do, without counting it. The
        id is given either way. With contexts, whichever they are, it is that of the contextual record;
        predecessor is as in :meth:`precompute`."""
        options = raw.PrecomputeOptions()
        options.tenant = _enums.text(tenant, "tenant")
        if chunk_prefix is not None:
            options.set_chunk_prefix(tokens_in(chunk_prefix))
        for passage in contexts:
            options.add_context(tokens_in(passage))
        if predecessor is not None:
            options.set_predecessor(tokens_in(predecessor))
        found = self._raw.find_chunk(store._raw, tokens_in(tokens), options)
        return Stored(found.id, found.existed)

    def put_chunk(self, store: Store, tokens: Tokens, layers: Iterable[KvLayer], *,
               first_position: int = 0, unrotated: bool = False,
               dtype: Optional[Union[Dtype, str]] = None, chunk_prefix: Optional[Tokens] = None,
               # blend:parameters precompute_options
               progress: Optional[Progress] = None,
               cancel: Optional[Cancel] = None) -> ChunkId:
        """Stores a chunk whose K and V the host's own engine computed.

        layers: (k, v) a layer, arrays [n_tokens, n_kv_heads, head_dim] of float32 or float16, or of
        uint16 with dtype="bf16"; read without a copy, whatever the strides of the first two axes (the
        last must be contiguous). K is rotated to the positions `first_position`, ..., unless
        `unrotated`. The others are those of :meth:`precompute`. Raises InvalidArgumentError,
        NumericError (names layer and row), FullError, ReadOnlyError, IoError."""
        options = raw.PrecomputeOptions()
        # blend:set precompute_options
        if chunk_prefix is not None:
            options.set_chunk_prefix(tokens_in(chunk_prefix))
        views = raw.KvLayers()
        kept: List[Tuple[Array, Array]] = []
        for k, v in layers:
            views.add(raw_view(k, v, dtype, unrotated, writable=False))
            kept.append((k, v))
        with watched(options, progress, cancel):
            return str(self._raw.put_chunk(store._raw, tokens_in(tokens), views, first_position,
                                        options))

    def calibrate(self, samples: Iterable[Prompt], path: Optional[Path] = None, *,
                  chunk_prefixes: Optional[Iterable[Tokens]] = None,
                  policies: Iterable[Union[Policy, str]] = (), metrics: Iterable[Union[Metric, str]] = (),
                  check_layers: Iterable[int] = (), ratios: Iterable[float] = (),
                  # blend:parameters calibrate_options
                  on_measurement: Optional[OnMeasurement] = None,
                  progress: Optional[Progress] = None, cancel: Optional[Cancel] = None) -> bool:
        """Measures sample prompts (whose chunks are tokens) and writes a profile to `path`
        (None: beside the model), atomically. False: written, but no ratio kept the limits `max_kl` (nats) and `min_top1`.
        Options that are not given have the library's defaults.

        chunk_prefixes, policies, metrics, check_layers, ratios: what is tried, all with all
        # blend:documentation calibrate_options
        """
        options = raw.CalibrateOptions()
        # blend:set calibrate_options
        for prefix in chunk_prefixes or ():
            options.add_chunk_prefix(tokens_in(prefix))
        for policy in _enums.listed(policies, "policies"):
            options.add_policy(choice(Policy, policy))
        for layer in check_layers:
            options.add_check_layer(layer)
        for metric in _enums.listed(metrics, "metrics"):
            options.add_metric(choice(Metric, metric))
        for ratio in ratios:
            options.add_ratio(ratio)
        with watched(options, progress, cancel, on_measurement=on_measurement):
            return bool(raw.Profile.calibrate(self._raw, _samples(samples), options,
                                              os.fsencode(path or "")))

    def verify(self, profile: Profile, samples: Iterable[Prompt], *, ratios: Iterable[float] = (),
               # blend:parameters verify_options
               on_measurement: Optional[OnMeasurement] = None,
               progress: Optional[Progress] = None, cancel: Optional[Cancel] = None) -> Verdict:
        """Measures a profile's choice on samples that it was not made from.

        # blend:documentation verify_options
        """
        options = raw.VerifyOptions()
        # blend:set verify_options
        for ratio in ratios:
            options.add_ratio(ratio)
        with watched(options, progress, cancel, on_measurement=on_measurement):
            return Verdict._of(profile._raw.verify(self._raw, _samples(samples), options))

    def embed(self, texts: "Iterable[Union[str, Tokens]]", *,
              # blend:parameters embed_options
              progress: Optional[Progress] = None, cancel: Optional[Cancel] = None) -> Array:
        """Vectors of texts, by which documents are found: float32 [texts, dimensions].

        texts: str, with what the tokenizer puts around a text; or tokens each, which are taken as they are
        # blend:documentation embed_options
        progress: texts

        Instructions that the model wants before a question or a document are the caller's to put there.
        Raises InvalidArgumentError (a text without tokens), ContextLengthError (names the text),
        UnsupportedError (the file asks for a pooling that is not known), NumericError, CancelledError."""
        options = raw.EmbedOptions()
        # blend:set embed_options
        inputs = raw.EmbedInputs()
        for text in _enums.listed(texts, "texts"):
            if isinstance(text, str):
                inputs.add_text(text)
            else:
                inputs.add_tokens(tokens_in(text))
        n = inputs.size()
        with watched(options, progress, cancel):
            values = copy_out(self._raw.embed(inputs, options))
        if n == 0:
            return np.empty((0, n_dimensions or self.info.d_model), np.float32)
        return values.reshape(n, -1)

    def prompt(self) -> Prompt:
        """An empty prompt that takes text as well as tokens."""
        return Prompt(self)

    def chat(self, messages: "Iterable[Mapping[str, Any]]", *,
             documents: "Iterable[Union[str, Mapping[str, str]]]" = (),
             # blend:parameters chat_options
             cancel: Optional[Cancel] = None) -> Prompt:
        """A conversation as the model's chat template puts it, for :meth:`fuse`.

        messages: of "role" and "content", as {"role": "user", "content": "Who signs?"}; and of "tool_calls",
        "tool_call_id" and the like, as OpenAI's API has them
        documents: what the answer is to be found in, each a chunk: a str, or {"text", "title"}, or
        {"id"} of a stored chunk. Where the template has no place for them they stand before the
        last message of the role "user".
        # blend:documentation chat_options

        Control tokens are recognized in what the template writes; the texts of messages and documents
        are text, whatever they contain. Raises NotFoundError (the model has no template),
        InvalidArgumentError (also what the template says is wrong), UnsupportedError (names what of
        Jinja is not known), FormatError, CancelledError."""
        options = raw.ChatOptions()
        # blend:set chat_options
        return Prompt._of(self, self._raw.chat(self._chat(messages, documents), options, raw_cancel(cancel)))

    def chat_text(self, messages: "Iterable[Mapping[str, Any]]", *,
                  documents: "Iterable[Union[str, Mapping[str, str]]]" = (),
                  # blend:parameters chat_options
                  cancel: Optional[Cancel] = None) -> str:
        """What :meth:`chat` renders, before it is tokenized; U+FFFC for a stored chunk."""
        options = raw.ChatOptions()
        # blend:set chat_options
        return str(self._raw.chat_text(self._chat(messages, documents), options, raw_cancel(cancel)))

    @staticmethod
    def _chat(messages: "Iterable[Mapping[str, Any]]",
              documents: "Iterable[Union[str, Mapping[str, str]]]") -> Any:
        chat = raw.Chat()
        for role, content, members in _messages(messages):
            chat.add_message(role, content, members)
        for document in _documents(documents):
            if isinstance(document, Mapping) and "id" in document:
                chat.add_stored_document(document["id"])
            else:
                chat.add_document(*_passage(document))
        return chat

    def fuse_texts(self, store: Optional[Store], documents: "Iterable[Union[str, Mapping[str, str]]]",
                   question: str, *,
                   # blend:parameters text_options but tenant
                   **fuse: "Unpack[FuseKeywords]") -> Fusion:
        """Fuses documents and a question, all of them text: BOS, the chat template, tokens, chunks and what
        they are looked for after are the library's. What :meth:`precompute_texts` stored is loaded; another
        document is computed, and stored afterwards.

        store: None: all is computed, nothing stored
        documents: a str each, or {"text", "title"}: passages of a few hundred tokens. White space at their
            ends does not count
        # blend:documentation text_options but tenant
        The others are those of :meth:`fuse`.

        Raises InvalidArgumentError (names a document that has no text; or what the template says is wrong),
        ContextLengthError (too much text), FormatError and UnsupportedError (of the template), and
        what :meth:`fuse` raises."""
        options = raw.TextOptions()
        # blend:set text_options but tenant
        texts = self._texts(documents)
        texts.set_question(_enums.text(question, "question"))
        return self._fuse_texts(raw.Fusion.fuse_texts, store, texts, options, FuseArguments(**fuse))

    def fuse_messages(self, store: Optional[Store], messages: "Iterable[Mapping[str, Any]]",
                      documents: "Iterable[Union[str, Mapping[str, str]]]" = (), *,
                      # blend:parameters text_options but tenant question_template plain special
                      **fuse: "Unpack[FuseKeywords]") -> Fusion:
        """The same of a conversation, as the chat template puts it: `messages` of "role" and "content". Where the
        template has no place for documents they stand before the last message of the role "user"; in
        later turns too they are found after what :meth:`precompute_texts` stored them after.

        system: a message before all others. The others are those of :meth:`fuse_texts`.

        Raises NotFoundError (there is no chat template), and what :meth:`fuse_texts` raises."""
        options = raw.TextOptions()
        # blend:set text_options but tenant question_template plain special
        texts = self._texts(documents)
        for role, content, members in _messages(messages):
            texts.add_message(role, content, members)
        return self._fuse_texts(raw.Fusion.fuse_messages, store, texts, options, FuseArguments(**fuse))

    def _fuse_texts(self, call: Any, store: Optional[Store], texts: Any, options: Any,
                    arguments: FuseArguments) -> Fusion:
        with watched(fuse_options(arguments), arguments.progress, arguments.cancel,
                     arguments.score) as fuse:
            return Fusion(call(self._raw, raw_store(store), texts, options, fuse))

    def text_prompt(self, documents: "Iterable[Union[str, Mapping[str, str]]]", question: str, *,
                    # blend:parameters text_options but tenant
                    cancel: Optional[Cancel] = None) -> Prompt:
        """The prompt of :meth:`fuse_texts`, for :meth:`fuse_batch`, :meth:`Fusion.extend` and :class:`Layerwise`."""
        options = raw.TextOptions()
        # blend:set text_options but tenant
        texts = self._texts(documents)
        texts.set_question(_enums.text(question, "question"))
        return Prompt._of(self, self._raw.text_prompt(texts, options, raw_cancel(cancel)))

    def precompute_texts(self, store: Store, documents: "Iterable[Union[str, Mapping[str, str]]]", *,
                         # blend:parameters text_options but tenant question_template
                         # blend:parameters corpus_options
                         progress: Optional[Progress] = None,
                         cancel: Optional[Cancel] = None) -> List[CorpusRecord]:
        """Stores documents for :meth:`fuse_texts` and :meth:`fuse_messages`, so that they serve each other as
        context (:meth:`precompute_corpus`). Give `system` and the template that prompts will have. A call that
        was stopped goes on where it ended when it is made again.

        documents: as in :meth:`fuse_texts`; a title becomes the chunk's label
        # blend:documentation text_options but tenant question_template
        # blend:documentation corpus_options
        progress: records; a chunk has several

        Raises UnsupportedError where the template changes every document, and what :meth:`fuse_texts` and
        :meth:`precompute` raise."""
        options = raw.TextOptions()
        # blend:set text_options but tenant question_template
        texts, how = self._texts(documents), options
        options = raw.CorpusOptions()
        # blend:set corpus_options
        with watched(options, progress, cancel):
            made = self._raw.precompute_texts(store._raw, texts, how, options)
        return [CorpusRecord(made.id(i), made.existed(i), made.n_contexts(i)) for i in range(made.size())]

    @staticmethod
    def _texts(documents: "Iterable[Union[str, Mapping[str, str]]]") -> Any:
        texts = raw.Texts()
        for document in _documents(documents):
            texts.add_document(*_passage(document))
        return texts

    def fuse(self, store: Optional[Store], prompt: Prompt, **options: "Unpack[FuseKeywords]") -> Fusion:
        """Fuses a prompt into one KV cache and computes the logits of its last row.

        `store` may be None with policy "full" or on_miss "compute". Options: see
        :class:`FuseArguments`, whose members they are.

        Raises InvalidArgumentError (names the segment), ContextLengthError, NotFoundError,
        MismatchError, IoError, NumericError, OutOfMemoryError, CancelledError, ForkedError."""
        arguments = FuseArguments(**options)
        raw_options = fuse_options(arguments)
        tells = arguments.progress is not None
        listener: Optional[Listener] = None
        if tells or arguments.score is not None:
            listener = Listener(arguments.progress, arguments.score, None)
        if arguments.cancel is not None:
            raw_options.set_cancel(arguments.cancel._raw)
        try:  # as watched() does it
            return Fusion(raw.fuse_watched(self._raw, raw_store(store), prompt._raw, raw_options,
                                           listener, tells, POLL_MS))
        except CallbackError:
            if listener is not None:
                raise_own(listener.check)
            raise

    def fuse_batch(self, store: Optional[Store], requests: "Iterable[Union[Prompt, Tuple[Prompt, FuseKeywords]]]",
                   ) -> "List[Union[Fusion, BlendError]]":
        """Fuses several prompts together, so that chunks which they share are read once. Requests are
        prompts, or (prompt, options of :meth:`fuse`). The result has, for each, its fusion or the
        error that it alone met; what fails the whole batch is raised."""
        batch = raw.Batch()
        watches = []
        for request in requests:
            options: "FuseKeywords"
            prompt, options = request if isinstance(request, tuple) else (request, {})
            arguments = FuseArguments(**options)
            raw_options = fuse_options(arguments)
            watch = watched(raw_options, arguments.progress, arguments.cancel, arguments.score)
            watches.append(watch)
            batch.add(prompt._raw, watch.__enter__())
        try:
            batch.fuse(self._raw, raw_store(store))
        finally:
            for watch in watches:
                watch.check()
        results: List[Union[Fusion, BlendError]] = []
        for i in range(batch.size()):
            try:
                results.append(Fusion(batch.take(i)))
            except BlendError as error:
                results.append(error)
        return results

    def restore(self, store: Store, id: ChunkId, *, tenant: str = "", reserve_tokens: int = 256,
                cancel: Optional[Cancel] = None) -> Fusion:
        """Brings back what :meth:`Fusion.save` kept for `tenant`, with `reserve_tokens` free rows after it.
        Raises NotFoundError, MismatchError, CorruptError, ContextLengthError, IoError."""
        return Fusion(raw.Fusion.restore(self._raw, store._raw, id, tenant, reserve_tokens,
                                         raw_cancel(cancel)))

    def __repr__(self) -> str:
        return f"<libblend.Model {self._name or 'described'!r}>"

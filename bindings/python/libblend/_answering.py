"""What the adapters to frameworks share: a question with its passages in, text out."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from ._call import Cancel
from ._context import Context
from ._enums import SegmentKind
from ._fusion import Generation
from ._grammar import Grammar
from ._infos import FusionInfo
from ._model import Model
from ._prompt import Prompt
from ._store import Store
from ._tools import CallForm, ToolCall, ToolCallReader, Tools, kept_grammars
from ._types import Path

if TYPE_CHECKING:
    from ._fusion import FuseKeywords


class Answer(Iterator[str]):
    """The pieces of one answer's text, as they come. Closed at its end, or by :meth:`close`. Text that is a call of
    a function is not among them."""

    def __init__(self, engine: "Engine", prompt: Prompt, fuse: "FuseKeywords", generate: Mapping[str, Any],
                 reader: Optional[ToolCallReader] = None, parallel: bool = True) -> None:
        self._reader, self._parallel, self._ended = reader, parallel, False
        self._cancel = Cancel()
        most = generate.get("max_tokens", 256)
        self._fusion = engine.model.fuse(engine.store, prompt,
                                         **{"reserve_tokens": most, "cancel": self._cancel, **fuse})
        #: The account of the fuse.
        self.info: FusionInfo = self._fusion.info
        self._generation: Generation = self._fusion.generate(**{"max_tokens": most, "cancel": self._cancel, **generate})

    def __next__(self) -> str:
        try:
            if self._reader is None:
                return next(self._generation).text
            for token in self._generation:
                return self._reader.take(token.text, token.id)
            rest = "" if self._ended else self._reader.end()
            self._ended = True
            if rest:
                return rest
            raise StopIteration
        except BaseException:
            self.close()
            raise

    @property
    def n_tokens(self) -> int:
        """Generated so far."""
        return self._generation.n_tokens

    @property
    def calls(self) -> List[ToolCall]:
        """So far. All of them at the end."""
        calls = self._reader.calls if self._reader else []
        return calls if self._parallel else calls[:1]

    @property
    def finish_reason(self) -> str:
        """As OpenAI's API has it: "stop", "length" or "tool_calls"."""
        if not self._generation.stopped:
            return "length"
        return "tool_calls" if self.calls else "stop"

    def account(self) -> Dict[str, Any]:
        """What was reused and computed, and how long the first token took."""
        return {"finish_reason": self.finish_reason, "rows_reused": self.info.n_rows_reused,
                "rows_recomputed": self.info.n_rows_selected, "ttft_ms": self.info.ttft_ns / 1e6}

    def close(self) -> None:
        """Ends the generation, and lets the cache go."""
        self._generation.close()
        self._fusion.close()


def opened_model(model: Union[Model, Path], context: Optional[Context]) -> Model:
    return model if isinstance(model, Model) else Model(context or Context(), model)


class Engine:
    """A model and a store. Thread-safe."""

    def __init__(self, model: Union[Model, Path], store: Union[Store, Path], context: Optional[Context]) -> None:
        opens = not (isinstance(model, Model) and isinstance(store, Store))
        self.context = context or (Context() if opens else None)
        self.model = model if isinstance(model, Model) else Model(self._ctx(), model)
        self.store = store if isinstance(store, Store) else Store(self._ctx(), store)
        opened = self.model
        self._grammars = grammars = kept_grammars(opened)
        self._form = lru_cache(4)(lambda template_source: CallForm(opened, template_source, grammars))

    def _ctx(self) -> Context:
        assert self.context is not None
        return self.context

    def completion(self, text: str, documents: Sequence[str]) -> Prompt:
        """BOS, if the model expects it, the passages and the text."""
        prompt = self.model.prompt().bos()
        for document in documents:
            prompt.chunk(passage(document))
        return prompt.question(text)

    def has_template(self, options: Mapping[str, Any]) -> bool:
        return bool(options.get("template_source") or self.model.info.chat_template)

    def conversation(self, messages: Sequence[Mapping[str, Any]], documents: Sequence[str], options: Mapping[str, Any],
                     tools: Optional[Tools] = None) -> Prompt:
        """By the chat template; of a model that has none, what the messages say, line by line."""
        if self.has_template(options):
            given = {"tools": tools.json, "must_call": tools.must_call} if tools else {}
            return self.model.chat(messages, documents=[passage(document) for document in documents],
                                   **{**options, **given})
        if tools:
            raise ValueError("the model has no chat template, which tools need: give one, "
                             'chat_options={"template_source": ...}')
        return self.completion("\n".join(message["content"] for message in messages), documents)

    def _call_form(self, options: Mapping[str, Any]) -> CallForm:
        return self._form(options.get("template_source") or "")

    def opening(self, system: str, documents: Sequence[str], options: Mapping[str, Any],
                functions: Sequence[Mapping[str, Any]] = ()) -> Prompt:
        """A conversation that begins with these documents."""
        messages = [{"role": "system", "content": system}] * bool(system) + [{"role": "user", "content": "?"}]
        return self.conversation(messages, documents, options, Tools(functions) if functions else None)

    def precompute(self, prompt: Prompt) -> int:
        """Stores the prompt's chunks as a corpus, after its head. How many were new."""
        chunks = [segment.tokens for segment in prompt.segments if segment.kind == SegmentKind.CHUNK]
        records = self.model.precompute_corpus(self.store, chunks, chunk_prefix=prompt.head())
        return sum(not record.existed for record in records)

    def answer(self, prompt: Prompt, fuse: "FuseKeywords", generate: Mapping[str, Any], *,
               tools: Optional[Tools] = None, options: Mapping[str, Any] = {}) -> Answer:  # noqa: B006
        """Fuses; the text is generated as it is asked for. tools, options: those of the conversation."""
        if not tools:
            return Answer(self, prompt, fuse, generate)
        form = self._call_form(options)
        reader = form.reader(tools)
        generate = dict(generate)
        if tools.must_call:
            generate["grammar"] = form.grammar(tools)
        elif not tools.parallel and form.info.call_close:
            generate["stop"] = [*generate.get("stop", ()), form.info.call_close]  # the end of the first call
        return Answer(self, prompt, fuse, generate, reader, tools.parallel)

    def grammar(self, schema: str) -> Grammar:
        """Of answers that satisfy a JSON schema."""
        return self._grammars(language="json_schema", text=schema)


def passage(text: str) -> str:
    """A document as fuse_texts and the command have it, so that a text is the same chunk however it was read:
    without the white space at its ends, and one new line."""
    return text.strip() + "\n" if text.strip() else text


def stops(*given: Union[str, Iterable[str], None]) -> List[str]:
    """Stop texts from several places."""
    found: List[str] = []
    for some in given:
        found += [some] if isinstance(some, str) else list(some or ())
    return found

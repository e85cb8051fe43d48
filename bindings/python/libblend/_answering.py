"""What the adapters to frameworks share: a question with its passages in, text out."""

from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from ._call import Cancel
from ._context import Context
from ._enums import SegmentKind
from ._fusion import Generation
from ._infos import FusionInfo
from ._model import Model
from ._prompt import Prompt
from ._store import Store
from ._types import Path

if TYPE_CHECKING:
    from ._fusion import FuseKeywords


class Answer(Iterator[str]):
    """The pieces of one answer's text, as they come. Closed at its end, or by :meth:`close`."""

    def __init__(self, engine: "Engine", prompt: Prompt, fuse: "FuseKeywords", generate: Mapping[str, Any]) -> None:
        self._cancel = Cancel()
        most = generate.get("max_tokens", 256)
        self._fusion = engine.model.fuse(engine.store, prompt,
                                         **{"reserve_tokens": most, "cancel": self._cancel, **fuse})
        #: The account of the fuse.
        self.info: FusionInfo = self._fusion.info
        self._generation: Generation = self._fusion.generate(**{"max_tokens": most, "cancel": self._cancel, **generate})

    def __next__(self) -> str:
        try:
            return next(self._generation).text
        except BaseException:
            self.close()
            raise

    @property
    def n_tokens(self) -> int:
        """Generated so far."""
        return self._generation.n_tokens

    @property
    def finish_reason(self) -> str:
        """As OpenAI's API has it: "stop" or "length"."""
        return "stop" if self._generation.stopped else "length"

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

    def _ctx(self) -> Context:
        assert self.context is not None
        return self.context

    def completion(self, text: str, documents: Sequence[str]) -> Prompt:
        """BOS, if the model expects it, the passages and the text."""
        prompt = self.model.prompt().bos()
        for document in documents:
            prompt.chunk(passage(document))
        return prompt.question(text)

    def conversation(self, messages: List[Dict[str, str]], documents: Sequence[str], options: Mapping[str, Any]) -> Prompt:
        """By the chat template; of a model that has none, what the messages say, line by line."""
        if options.get("template_source") or self.model.info.chat_template:
            return self.model.chat(messages, documents=[passage(document) for document in documents], **options)
        return self.completion("\n".join(message["content"] for message in messages), documents)

    def opening(self, system: str, documents: Sequence[str], options: Mapping[str, Any]) -> Prompt:
        """A conversation that begins with these documents."""
        messages = [{"role": "system", "content": system}] * bool(system) + [{"role": "user", "content": "?"}]
        return self.conversation(messages, documents, options)

    def precompute(self, prompt: Prompt) -> int:
        """Stores the prompt's chunks as a corpus, after its head. How many were new."""
        chunks = [segment.tokens for segment in prompt.segments if segment.kind == SegmentKind.CHUNK]
        records = self.model.precompute_corpus(self.store, chunks, chunk_prefix=prompt.head())
        return sum(not record.existed for record in records)

    def answer(self, prompt: Prompt, fuse: "FuseKeywords", generate: Mapping[str, Any]) -> Answer:
        """Fuses; the text is generated as it is asked for."""
        return Answer(self, prompt, fuse, generate)


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

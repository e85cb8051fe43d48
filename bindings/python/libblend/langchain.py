"""libblend as a chat model of LangChain, which takes retrieved documents as chunks.

    from libblend.langchain import ChatBlend, answering

    llm = ChatBlend(model="model.gguf", store="chunks")
    llm.invoke("Who signs the invoices?", documents=retriever.invoke("Who signs the invoices?"))
    chain = answering(llm, retriever)          # the same, from the question alone
    for piece in chain.stream("Who signs the invoices?"):
        print(piece.content, end="", flush=True)

    llm.precompute(documents)                  # before that, once: the corpus

Documents are not pasted into the prompt's text: each is prefilled once, stored, and fused.
`pip install libblend[langchain]`.
"""

from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableLambda
from pydantic import ConfigDict, Field, PrivateAttr

from ._answering import Answer, Engine, opened_model, stops
from ._context import Context
from ._model import Model
from ._store import Store

__all__ = ["BlendEmbeddings", "ChatBlend", "answering"]

_ROLES = {"human": "user", "ai": "assistant", "system": "system"}


class ChatBlend(BaseChatModel):
    """A model that libblend runs.

    Besides what every chat model of LangChain takes, ``invoke``, ``stream`` and ``batch`` take
    ``documents``: LangChain's documents or strings, a chunk each, and the options of
    :meth:`libblend.Fusion.generate`. If a model has no chat template the messages' texts are the
    prompt. An answer's ``response_metadata`` says how many rows were reused and recomputed, and its
    ``usage_metadata`` counts reused ones as read from a cache. Thread-safe.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    model: Union[str, Model]
    """a GGUF file, a Hugging Face directory, or a :class:`libblend.Model`"""
    store: Union[str, Store]
    """the directory of a store, or a :class:`libblend.Store`"""
    context: Optional[Context] = Field(default=None, exclude=True)
    """for what is opened here; None: one of its own"""
    fuse: Dict[str, Any] = Field(default_factory=dict)
    """options of :meth:`libblend.Model.fuse`, such as {"ratio": 0.3}"""
    generate_options: Dict[str, Any] = Field(default_factory=dict)
    """options of :meth:`libblend.Fusion.generate`, such as {"max_tokens": 100, "temperature": 0.7}"""
    chat_options: Dict[str, Any] = Field(default_factory=dict)
    """options of :meth:`libblend.Model.chat`, such as {"template_source": ...}"""
    stop: Optional[List[str]] = None
    """texts before which every answer ends"""

    _engine: Engine = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._engine = Engine(self.model, self.store, self.context)

    @property
    def _llm_type(self) -> str:
        return "libblend"

    @property
    def _identifying_params(self) -> Dict[str, Any]:
        return {"model": str(self.model), "fuse": self.fuse, **self.generate_options}

    def precompute(self, documents: Sequence[Union[str, Document]], *, system: str = "") -> int:
        """Stores the documents of a corpus, each with similar ones as its context: do this once, before
        questions come. How many were new. Documents that were not stored so are prefilled by the answer that
        needs them, with no context. system: what conversations begin with, if they do, since chunks belong
        to what precedes them."""
        return self._engine.precompute(self._engine.opening(system, _texts(documents), self.chat_options))

    def _answer(self, messages: List[BaseMessage], stop: Optional[List[str]], kwargs: Dict[str, Any]) -> Answer:
        options = {**self.generate_options, **kwargs}
        documents = _texts(options.pop("documents", ()))
        fuse = {**self.fuse, **options.pop("fuse", {})}
        options["stop"] = stops(options.get("stop"), self.stop, stop)
        said = []
        for message in messages:
            if message.type not in _ROLES:
                raise ValueError(f"messages of the system, of people and of the model are taken, not of type {message.type!r}")
            said.append({"role": _ROLES[message.type], "content": str(message.text)})
        prompt = self._engine.conversation(said, documents, self.chat_options)
        return self._engine.answer(prompt, fuse, options)  # type: ignore[arg-type]

    def _generate(self, messages: List[BaseMessage], stop: Optional[List[str]] = None,
                  run_manager: Optional[CallbackManagerForLLMRun] = None, **kwargs: Any) -> ChatResult:
        answer = self._answer(messages, stop, kwargs)
        message = AIMessage("".join(answer), response_metadata=answer.account(), usage_metadata=_usage(answer))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, messages: List[BaseMessage], stop: Optional[List[str]] = None,
                run_manager: Optional[CallbackManagerForLLMRun] = None, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        answer = self._answer(messages, stop, kwargs)
        try:
            for text in answer:
                chunk = ChatGenerationChunk(message=AIMessageChunk(content=text))
                if run_manager:
                    run_manager.on_llm_new_token(text, chunk=chunk)
                yield chunk
            yield ChatGenerationChunk(message=AIMessageChunk(
                content="", response_metadata=answer.account(), usage_metadata=_usage(answer)))
        finally:
            answer.close()


class BlendEmbeddings(Embeddings):
    """Vectors of texts, by a model that libblend runs. Thread-safe.

    model: a GGUF file, a Hugging Face directory, or a :class:`libblend.Model`
    query_prefix: what stands before a question, such as "Instruct: ...\\nQuery: "
    document_prefix: what stands before a document
    context: for what is opened here; None: one of its own
    options: of :meth:`libblend.Model.embed`, such as n_dimensions=256
    """

    def __init__(self, model: Union[str, Model], *, query_prefix: str = "", document_prefix: str = "",
                 context: Optional[Context] = None, **options: Any) -> None:
        self.model = opened_model(model, context)
        self.query_prefix = query_prefix
        self.document_prefix = document_prefix
        self.options = options

    def embed_documents(self, texts: List[str]) -> List[List[float]]:
        return self._embed([self.document_prefix + text for text in texts])

    def embed_query(self, text: str) -> List[float]:
        return self._embed([self.query_prefix + text])[0]

    def _embed(self, texts: List[str]) -> List[List[float]]:
        vectors: List[List[float]] = self.model.embed(texts, **self.options).tolist()
        return vectors


def answering(llm: ChatBlend, retriever: Runnable[str, List[Document]], **options: Any) -> Runnable[str, AIMessage]:
    """A chain from a question to its answer out of what the retriever finds. options: of ``invoke``."""
    def ask(question: str) -> Any:
        return llm.bind(documents=retriever.invoke(question), **options)

    async def aask(question: str) -> Any:
        return llm.bind(documents=await retriever.ainvoke(question), **options)
    return RunnableLambda(ask, afunc=aask)


def _texts(documents: Sequence[Union[str, Document]]) -> List[str]:
    return [document if isinstance(document, str) else document.page_content for document in documents]


def _usage(answer: Answer) -> UsageMetadata:
    n_in, n_out = answer.info.n_rows, answer.n_tokens
    return UsageMetadata(input_tokens=n_in, output_tokens=n_out, total_tokens=n_in + n_out,
                         input_token_details={"cache_read": answer.info.n_rows_reused})

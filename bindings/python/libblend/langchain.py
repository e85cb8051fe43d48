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

import json
from operator import itemgetter
from typing import Any, Callable, Dict, Iterator, List, Literal, Optional, Sequence, Union

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableLambda, RunnableMap, RunnablePassthrough
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from ._answering import Answer, Engine, opened_model, stops
from ._context import Context
from ._model import Model
from ._store import Store
from ._tools import ToolCall, Tools, chosen

__all__ = ["BlendEmbeddings", "ChatBlend", "answering"]

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


class ChatBlend(BaseChatModel):
    """A model that libblend runs.

    Besides what every chat model of LangChain takes, ``invoke``, ``stream`` and ``batch`` take
    ``documents``: LangChain's documents or strings, a chunk each, and the options of
    :meth:`libblend.Fusion.generate`. If a model has no chat template the messages' texts are the
    prompt. An answer's ``response_metadata`` says how many rows were reused and recomputed, and its
    ``usage_metadata`` counts reused ones as read from a cache. :meth:`bind_tools` and
    :meth:`with_structured_output` keep the answer to schemas by a grammar. Thread-safe.
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

    def precompute(self, documents: Sequence[Union[str, Document]], *, system: str = "",
                   tools: Sequence[Union[Dict[str, Any], type, Callable[..., Any], BaseTool]] = ()) -> int:
        """Stores the documents of a corpus, each with similar ones as its context: do this once, before
        questions come. How many were new. Documents that were not stored so are prefilled by the answer that
        needs them, with no context. system, tools: what conversations begin with, if they do, since chunks
        belong to what precedes them."""
        functions = [convert_to_openai_tool(tool) for tool in tools]
        return self._engine.precompute(self._engine.opening(system, _texts(documents), self.chat_options, functions))

    def bind_tools(self, tools: Sequence[Union[Dict[str, Any], type, Callable[..., Any], BaseTool]], *,
                   tool_choice: Optional[Union[str, bool, Dict[str, Any]]] = None, parallel_tool_calls: bool = True,
                   **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """This model with tools: an answer's ``tool_calls`` are its calls of them, which the chat template asks for.

        tool_choice: None or "auto": the model decides. "any", "required" or True: the answer is a call, which a
        grammar made of the tools' schemas sees to. A tool's name, also as OpenAI's API has it: a call of that one.
        "none": none is offered. A call that ``max_tokens`` cuts is text, and the ``finish_reason`` says "length"."""
        choice = chosen(tool_choice)
        if choice == "none":
            return self.bind(**kwargs)
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], tool_choice=choice,
                            parallel_tool_calls=parallel_tool_calls, **kwargs)

    def with_structured_output(self, schema: Union[Dict[str, Any], type], *, include_raw: bool = False,
                               method: Literal["json_schema", "function_calling"] = "json_schema",
                               **kwargs: Any) -> Runnable[LanguageModelInput, Union[Dict[str, Any], BaseModel]]:
        """This model with answers that are JSON by a schema (pydantic's class, TypedDict's, or JSON schema), which a
        grammar sees to, read: an object of the class, or a dict. The model is not told the schema: say what is wanted.

        method: "function_calling" instead has the model call a function with these parameters; it needs a chat
        template, which then tells the schema. include_raw: {"raw": the message, "parsed", "parsing_error"}"""
        if method == "function_calling":
            return super().with_structured_output(schema, include_raw=include_raw, **kwargs)
        if method != "json_schema":
            raise ValueError(f"method is 'json_schema' or 'function_calling', not {method!r}")
        kwargs.pop("strict", None)  # it always is
        model = self.bind(json_schema=json.dumps(_schema(schema)), **kwargs)
        parser: Runnable[AIMessage, Any] = RunnableLambda(lambda message: _read(message, schema))
        if not include_raw:
            return model | parser
        parsed = RunnablePassthrough.assign(parsed=itemgetter("raw") | parser, parsing_error=lambda _: None)
        failed = RunnablePassthrough.assign(parsed=lambda _: None)
        return RunnableMap(raw=model) | parsed.with_fallbacks([failed], exception_key="parsing_error")

    def _answer(self, messages: List[BaseMessage], stop: Optional[List[str]], kwargs: Dict[str, Any]) -> Answer:
        options = {**self.generate_options, **kwargs}
        documents = _texts(options.pop("documents", ()))
        fuse = {**self.fuse, **options.pop("fuse", {})}
        options["stop"] = stops(options.get("stop"), self.stop, stop)
        functions, choice = options.pop("tools", None), options.pop("tool_choice", "auto")
        parallel = options.pop("parallel_tool_calls", True)
        tools = Tools(functions, choice, parallel) if functions else None
        if "json_schema" in options:
            options["grammar"] = self._engine.grammar(options.pop("json_schema"))
        options.pop("ls_structured_output_format", None)
        prompt = self._engine.conversation([_said(message) for message in messages], documents, self.chat_options, tools)
        return self._engine.answer(prompt, fuse, options, tools=tools, options=self.chat_options)  # type: ignore[arg-type]

    def _generate(self, messages: List[BaseMessage], stop: Optional[List[str]] = None,
                  run_manager: Optional[CallbackManagerForLLMRun] = None, **kwargs: Any) -> ChatResult:
        answer = self._answer(messages, stop, kwargs)
        text = "".join(answer)
        calls = [tool_call(name=call.name, args=dict(call.arguments), id=call.id) for call in answer.calls]
        message = AIMessage(text, tool_calls=calls, response_metadata=answer.account(), usage_metadata=_usage(answer))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, messages: List[BaseMessage], stop: Optional[List[str]] = None,
                run_manager: Optional[CallbackManagerForLLMRun] = None, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        answer = self._answer(messages, stop, kwargs)
        try:
            told = 0
            for text in answer:
                calls = answer.calls
                chunk = ChatGenerationChunk(message=AIMessageChunk(content=text, tool_call_chunks=_chunks(calls, told)))
                told = len(calls)
                if run_manager:
                    run_manager.on_llm_new_token(text, chunk=chunk)
                yield chunk
            yield ChatGenerationChunk(message=AIMessageChunk(
                content="", tool_call_chunks=_chunks(answer.calls, told), response_metadata=answer.account(),
                usage_metadata=_usage(answer)))
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


def _schema(schema: Union[Dict[str, Any], type]) -> Dict[str, Any]:
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return schema.model_json_schema()
    # A function's description has the schema inside.
    is_schema = isinstance(schema, dict) and "function" not in schema and "parameters" not in schema
    return schema if is_schema else convert_to_json_schema(schema)  # type: ignore[return-value]


def _read(message: AIMessage, schema: Union[Dict[str, Any], type]) -> Union[Dict[str, Any], BaseModel]:
    """What a structured answer says. LangChain's own parsers would complete one that was cut."""
    text = str(message.text)
    try:
        made = isinstance(schema, type) and issubclass(schema, BaseModel)
        return schema.model_validate_json(text) if made else json.loads(text)  # type: ignore[union-attr, no-any-return]
    except ValueError as error:
        why = "; it was cut: give more max_tokens" if message.response_metadata.get("finish_reason") == "length" else ""
        raise OutputParserException(f"the answer is not what the schema wants{why}: {error}", llm_output=text) from error


def _said(message: BaseMessage) -> Dict[str, Any]:
    """As OpenAI's API has it."""
    if message.type not in _ROLES:
        raise ValueError(f"messages of the system, of people, of the model and of tools are taken, not of type {message.type!r}")
    said: Dict[str, Any] = {"role": _ROLES[message.type], "content": str(message.text)}
    if isinstance(message, AIMessage) and message.tool_calls:
        said["tool_calls"] = [{"id": call["id"] or "", "type": "function",
                               "function": {"name": call["name"], "arguments": json.dumps(call["args"])}}
                              for call in message.tool_calls]
    if isinstance(message, ToolMessage):
        said["tool_call_id"] = message.tool_call_id
        if message.name:
            said["name"] = message.name
    return said


def _chunks(calls: Sequence[ToolCall], first: int) -> List[Any]:
    """The calls from `first` on, each whole, as parts of a stream."""
    return [tool_call_chunk(name=call.name, args=json.dumps(call.arguments), id=call.id, index=i)
            for i, call in enumerate(calls) if i >= first]


def _usage(answer: Answer) -> UsageMetadata:
    n_in, n_out = answer.info.n_rows, answer.n_tokens
    return UsageMetadata(input_tokens=n_in, output_tokens=n_out, total_tokens=n_in + n_out,
                         input_token_details={"cache_read": answer.info.n_rows_reused})

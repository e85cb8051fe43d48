"""libblend as an LLM of LlamaIndex, and a synthesizer that hands it retrieved nodes as chunks.

    from libblend.llama_index import BlendLLM, BlendSynthesizer

    llm = BlendLLM(model="model.gguf", store="chunks")
    engine = index.as_query_engine(llm=llm, response_synthesizer=BlendSynthesizer(llm))
    print(engine.query("Who signs the invoices?"))

    llm.precompute(nodes)                      # before that, once: the corpus

Nodes are not pasted into the prompt's text: each is prefilled once, stored, and fused.
`pip install libblend[llama-index]`.
"""

import json
from typing import Any, Dict, List, Optional, Sequence, Union

from llama_index.core.base.llms.types import (ChatMessage, ChatResponse, ChatResponseGen, CompletionResponse,
                                              CompletionResponseGen, LLMMetadata, MessageRole)
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import ConfigDict, Field, PrivateAttr
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.custom import CustomLLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.response_synthesizers.base import BaseSynthesizer
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore
from llama_index.core.tools.types import BaseTool
from llama_index.core.types import RESPONSE_TEXT_TYPE

from ._answering import Answer, Engine, opened_model, stops
from ._context import Context
from ._model import Model
from ._store import Store
from ._tools import ToolCall, Tools, chosen

__all__ = ["BlendEmbedding", "BlendLLM", "BlendSynthesizer"]

_ROLES = {MessageRole.USER: "user", MessageRole.ASSISTANT: "assistant", MessageRole.SYSTEM: "system",
          MessageRole.TOOL: "tool"}


class BlendLLM(CustomLLM, FunctionCallingLLM):
    """A model that libblend runs. ``complete``, ``chat`` and their streams take ``documents``: nodes or
    strings, a chunk each, and the options of :meth:`libblend.Fusion.generate`. What is said of rows and
    times is in the ``additional_kwargs`` of a completion and of a chat response. A model with a chat template calls
    functions: ``chat_with_tools``, ``predict_and_call``, agents, and ``structured_predict``, whose answers a grammar
    keeps to their class. A call that ``max_tokens`` cuts is text. Thread-safe."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    model: Union[str, Model] = Field(description="a GGUF file, a Hugging Face directory, or a libblend.Model")
    store: Union[str, Store] = Field(description="the directory of a store, or a libblend.Store")
    context: Optional[Context] = Field(default=None, exclude=True)
    fuse: Dict[str, Any] = Field(default_factory=dict, description="options of libblend.Model.fuse")
    generate_options: Dict[str, Any] = Field(default_factory=dict, description="options of libblend.Fusion.generate")
    chat_options: Dict[str, Any] = Field(default_factory=dict, description="options of libblend.Model.chat")

    _engine: Engine = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._engine = Engine(self.model, self.store, self.context)

    @classmethod
    def class_name(cls) -> str:
        return "BlendLLM"

    @property
    def metadata(self) -> LLMMetadata:
        info = self._engine.model.info
        return LLMMetadata(context_window=info.context_length, num_output=self.generate_options.get("max_tokens", 256),
                           is_chat_model=self._engine.has_template(self.chat_options),
                           is_function_calling_model=self._engine.has_template(self.chat_options),
                           model_name=info.name or str(self.model))

    def precompute(self, documents: Sequence[Union[str, BaseNode, NodeWithScore]], *, system: str = "",
                   tools: Sequence[BaseTool] = ()) -> int:
        """Stores the nodes of a corpus, each with similar ones as its context: do this once, before
        questions come. How many were new. Nodes that were not stored so are prefilled by the answer that
        needs them, with no context. system, tools: what conversations begin with, if they do, since chunks
        belong to what precedes them."""
        return self._engine.precompute(self._engine.opening(system, _texts(documents), self.chat_options, _functions(tools)))

    def _answer(self, said: Union[str, Sequence[ChatMessage]], kwargs: Dict[str, Any]) -> Answer:
        options = {**self.generate_options, **kwargs}
        documents = _texts(options.pop("documents", ()))
        fuse = {**self.fuse, **options.pop("fuse", {})}
        options["stop"] = stops(options.get("stop"))
        functions, choice = options.pop("tools", None), options.pop("tool_choice", "auto")
        parallel = options.pop("parallel_tool_calls", True)
        tools = Tools(functions, choice, parallel) if functions else None
        if isinstance(said, str):
            prompt = self._engine.completion(said, documents)
        else:
            prompt = self._engine.conversation([_said(message) for message in said], documents, self.chat_options, tools)
        return self._engine.answer(prompt, fuse, options, tools=tools, options=self.chat_options)  # type: ignore[arg-type]

    def _prepare_chat_with_tools(self, tools: Sequence[BaseTool], user_msg: Optional[Union[str, ChatMessage]] = None,
                                 chat_history: Optional[List[ChatMessage]] = None, verbose: bool = False,
                                 allow_parallel_tool_calls: bool = False, tool_required: bool = False,
                                 tool_choice: Optional[Union[str, Dict[str, Any]]] = None,
                                 **kwargs: Any) -> Dict[str, Any]:
        choice = chosen(tool_choice or tool_required)
        messages = list(chat_history or [])
        if user_msg is not None:
            asked = user_msg if isinstance(user_msg, ChatMessage) else ChatMessage(role=MessageRole.USER, content=user_msg)
            messages.append(asked)
        return {"messages": messages, "tools": [] if choice == "none" else _functions(tools), "tool_choice": choice,
                "parallel_tool_calls": allow_parallel_tool_calls, **kwargs}

    def get_tool_calls_from_response(self, response: ChatResponse, error_on_no_tool_call: bool = True,
                                     **kwargs: Any) -> List[ToolSelection]:
        """The calls of an answer. Raises ValueError where there are none, unless told not to."""
        calls = response.message.additional_kwargs.get("tool_calls", [])
        if not calls and error_on_no_tool_call:
            raise ValueError(f"the answer has no call of a tool: {response.message.content!r}")
        return [ToolSelection(tool_id=call["id"], tool_name=call["function"]["name"],
                              tool_kwargs=json.loads(call["function"]["arguments"])) for call in calls]

    @llm_completion_callback()  # type: ignore[untyped-decorator, unused-ignore]
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        answer = self._answer(prompt, kwargs)
        return CompletionResponse(text="".join(answer), additional_kwargs=_account(answer))

    @llm_completion_callback()  # type: ignore[untyped-decorator, unused-ignore]
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        answer = self._answer(prompt, kwargs)

        def pieces() -> CompletionResponseGen:
            text = ""
            try:
                for piece in answer:
                    text += piece
                    yield CompletionResponse(text=text, delta=piece)
                yield CompletionResponse(text=text, delta="", additional_kwargs=_account(answer))
            finally:
                answer.close()
        return pieces()

    @llm_chat_callback()  # type: ignore[untyped-decorator, unused-ignore]
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        answer = self._answer(messages, kwargs)
        text = "".join(answer)
        return ChatResponse(message=_message(text, answer), additional_kwargs=_account(answer))

    @llm_chat_callback()  # type: ignore[untyped-decorator, unused-ignore]
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        answer = self._answer(messages, kwargs)

        def pieces() -> ChatResponseGen:
            text = ""
            try:
                for piece in answer:
                    text += piece
                    yield ChatResponse(message=_message(text, answer), delta=piece)
                yield ChatResponse(message=_message(text, answer), delta="", additional_kwargs=_account(answer))
            finally:
                answer.close()
        return pieces()


class BlendSynthesizer(BaseSynthesizer):
    """Answers a query from retrieved nodes in one prompt, each node a chunk of its own.

    question: asked after the nodes; {query} is the query. system: what the conversation begins
    with, for a model with a chat template."""

    def __init__(self, llm: BlendLLM, *, streaming: bool = False, question: str = "{query}", system: str = "",
                 **options: Any) -> None:
        super().__init__(llm=llm, streaming=streaming)
        self._blend, self._question, self._system, self._options = llm, question, system, options

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        if prompts:
            raise ValueError("prompts are templates of pasted text, and nodes are not pasted: give `question`")

    def get_response(self, query_str: str, text_chunks: Sequence[str], **kwargs: Any) -> RESPONSE_TEXT_TYPE:
        asked = self._question.replace("{query}", query_str)
        options = {**self._options, "documents": list(text_chunks)}
        llm = self._blend
        if not llm.metadata.is_chat_model:
            if self._streaming:
                return (piece.delta or "" for piece in llm.stream_complete(asked, **options))
            return str(llm.complete(asked, **options).text)
        said = [ChatMessage(role=MessageRole.SYSTEM, content=self._system)] * bool(self._system)
        said.append(ChatMessage(role=MessageRole.USER, content=asked))
        if self._streaming:
            return (piece.delta or "" for piece in llm.stream_chat(said, **options))
        return str(llm.chat(said, **options).message.content)

    async def aget_response(self, query_str: str, text_chunks: Sequence[str], **kwargs: Any) -> RESPONSE_TEXT_TYPE:
        return self.get_response(query_str, text_chunks, **kwargs)


class BlendEmbedding(BaseEmbedding):
    """Vectors of texts, by a model that libblend runs. Thread-safe."""

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    model: Union[str, Model] = Field(description="a GGUF file, a Hugging Face directory, or a libblend.Model")
    context: Optional[Context] = Field(default=None, exclude=True)
    query_instruction: str = Field(default="", description='before a question, such as "Instruct: ...\\nQuery: "')
    text_instruction: str = Field(default="", description="before a node's text")
    options: Dict[str, Any] = Field(default_factory=dict, description="options of libblend.Model.embed")

    _opened: Model = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._opened = opened_model(self.model, self.context)

    @classmethod
    def class_name(cls) -> str:
        return "BlendEmbedding"

    def _embed(self, texts: List[str]) -> List[List[float]]:
        vectors: List[List[float]] = self._opened.embed(texts, **self.options).tolist()
        return vectors

    def _get_query_embedding(self, query: str) -> List[float]:
        return self._embed([self.query_instruction + query])[0]

    async def _aget_query_embedding(self, query: str) -> List[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> List[float]:
        return self._embed([self.text_instruction + text])[0]

    def _get_text_embeddings(self, texts: List[str]) -> List[List[float]]:
        return self._embed([self.text_instruction + text for text in texts])


def _texts(documents: Sequence[Union[str, BaseNode, NodeWithScore]]) -> List[str]:
    return [document if isinstance(document, str) else document.get_content(metadata_mode=MetadataMode.LLM)
            for document in documents]


def _functions(tools: Sequence[BaseTool]) -> List[Dict[str, Any]]:
    return [tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools]


def _said(message: ChatMessage) -> Dict[str, Any]:
    """As OpenAI's API has it."""
    if message.role not in _ROLES:
        raise ValueError(f"messages of the roles system, user, assistant and tool are taken, not of {message.role.value!r}")
    said: Dict[str, Any] = {"role": _ROLES[message.role], "content": message.content or ""}
    for name in ("tool_calls", "tool_call_id", "name"):
        if message.additional_kwargs.get(name):
            said[name] = message.additional_kwargs[name]
    blocks = [block for block in message.blocks if block.block_type == "tool_call"]
    if blocks and "tool_calls" not in said:  # other models' messages have them so
        said["tool_calls"] = [{"id": block.tool_call_id or "", "type": "function", "function": {
            "name": block.tool_name, "arguments": _json(block.tool_kwargs)}} for block in blocks]
    return said


def _message(text: str, answer: Answer) -> ChatMessage:
    more = {"tool_calls": [_call(call) for call in answer.calls]} if answer.calls else {}
    return ChatMessage(role=MessageRole.ASSISTANT, content=text, additional_kwargs=more)


def _call(call: ToolCall) -> Dict[str, Any]:
    return {"id": call.id, "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}


def _json(arguments: Union[str, Dict[str, Any]]) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _account(answer: Answer) -> Dict[str, Any]:
    return {**answer.account(), "prompt_tokens": answer.info.n_rows, "completion_tokens": answer.n_tokens,
            "total_tokens": answer.info.n_rows + answer.n_tokens}

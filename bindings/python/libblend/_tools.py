"""Functions that a model may call, and its calls as the frameworks have them."""

import json
import secrets
from functools import lru_cache
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence, Union

from ._calls import CallReader
from ._grammar import Grammar
from ._infos import TemplateInfo
from ._model_base import ModelBase


class ToolCall(NamedTuple):
    """A call of a function, as a model wrote it."""

    id: str
    name: str
    arguments: Mapping[str, Any]


class Tools:
    """The functions of one conversation.

    functions: in the form of OpenAI's API, [{"type": "function", "function": {"name", "description", "parameters"}}]
    choice: "auto", the model decides; "required", the answer is a call; or the name of the function that it calls
    parallel: an answer may have several calls
    """

    def __init__(self, functions: Sequence[Mapping[str, Any]], choice: str = "auto", parallel: bool = True) -> None:
        #: The functions, for the library.
        self.json = json.dumps(list(functions))
        self.parallel = parallel
        self.must_call = choice != "auto"
        #: The only one that may be called; "": any.
        self.only = "" if choice in ("auto", "required") else choice
        names = [str(function["function"]["name"]) for function in functions]
        if choice not in ("auto", "required", *names):
            raise ValueError(f"the tool {choice!r} is not among the tools: {', '.join(names) or 'there are none'}")


def chosen(choice: Optional[Union[str, bool, Mapping[str, Any]]]) -> str:
    """A choice of tools as OpenAI's clients and the frameworks have it, for :class:`Tools`; "none" is left to the caller."""
    if isinstance(choice, Mapping):
        return str(choice["function"]["name"])
    if choice is None or isinstance(choice, bool):
        return "required" if choice else "auto"
    return "required" if choice == "any" else choice


def kept_grammars(model: ModelBase) -> Callable[..., Grammar]:
    """Compiles grammars of these options. The 16 used last are kept."""
    return lru_cache(16)(lambda **options: Grammar(model, **options))


class CallForm:
    """How a model writes calls by a chat template. grammars: those that are kept, where they are others' too"""

    def __init__(self, model: ModelBase, template_source: str, grammars: Optional[Callable[..., Grammar]] = None) -> None:
        self.info: TemplateInfo = model.template_info(template_source)
        self._model, self._template_source = model, template_source
        self._grammars = grammars or kept_grammars(model)

    def grammar(self, tools: Tools) -> Grammar:
        """Of answers that are a call."""
        return self._grammars(language="call", text=tools.json, function=tools.only, template_source=self._template_source)

    def reader(self, tools: Tools) -> "ToolCallReader":
        """Of one answer."""
        return ToolCallReader(CallReader(self._model, template_source=self._template_source, must_call=tools.must_call,
                                         tools=tools.json), self.new_id)

    def new_id(self) -> str:
        length = self.info.call_id_length
        return secrets.token_hex(16)[:length] if length else "call_" + secrets.token_hex(12)


class ToolCallReader:
    """A :class:`CallReader` whose calls have ids and their arguments as objects, as the frameworks have them."""

    def __init__(self, reader: CallReader, new_id: Callable[[], str]) -> None:
        self.take, self.end = reader.add, reader.end
        self._reader, self._new_id = reader, new_id
        self._calls: List[ToolCall] = []

    @property
    def calls(self) -> List[ToolCall]:
        """All so far. An id stays that of its call."""
        for call in self._reader._calls_from(len(self._calls)):
            self._calls.append(ToolCall(self._new_id(), call.name, json.loads(call.arguments)))
        return self._calls

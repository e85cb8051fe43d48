"""Functions that a model may call: what an answer must be to be a call, and which of its text is calls."""

import json
import secrets
from typing import Any, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from ._enums import SegmentKind
from ._infos import TemplateInfo
from ._model_base import ModelBase
from ._prompt import Prompt

# Where a schema keeps parts that its references name, and how their names begin in the whole.
_PLACES = {"$defs": ".", "definitions": ":"}


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
        self.functions = list(functions)
        self.parallel = parallel
        self.must_call = choice != "auto"
        self.names = [str(function["function"]["name"]) for function in functions]
        if choice in ("auto", "required"):
            self._callable = self.functions
        else:
            self._callable = [f for f in functions if f["function"]["name"] == choice]
            if not self._callable:
                raise ValueError(f"the tool {choice!r} is none of {', '.join(self.names) or 'no tools'}")

    def schema(self, arguments: str) -> str:
        """Of one call. arguments: the name of that member."""
        calls, definitions = [], {}
        for i, function in enumerate(self._callable):
            root = f"f{i}"
            given = function["function"].get("parameters") or {"type": "object", "additionalProperties": False}
            own = _moved(given, root)
            for place, mark in _PLACES.items():
                for name, part in own.pop(place, {}).items():
                    definitions[root + mark + name] = part
            if "$ref" not in own:
                own.setdefault("type", "object")  # else any JSON would satisfy it
            definitions[root] = own
            calls.append({"type": "object", "required": ["name", arguments], "additionalProperties": False,
                          "properties": {"name": {"const": function["function"]["name"]},
                                         arguments: {"$ref": "#/$defs/" + root}}})
        return json.dumps({"anyOf": calls, "$defs": definitions})


def chosen(choice: Optional[Union[str, bool, Mapping[str, Any]]]) -> str:
    """A choice of tools as OpenAI's clients and the frameworks have it, for :class:`Tools`; "none" is left to the caller."""
    if isinstance(choice, Mapping):
        return str(choice["function"]["name"])
    if choice is None or isinstance(choice, bool):
        return "required" if choice else "auto"
    return "required" if choice == "any" else choice


def _moved(schema: Any, root: str, has_names: bool = False) -> Any:
    """A schema whose references to its own parts name where these stand in the whole. What is data, not a schema,
    is left alone. has_names: its members are not keywords but names of schemas."""
    if isinstance(schema, list):
        return [_moved(item, root) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {}
    for name, value in schema.items():
        if has_names:
            made[name] = _moved(value, root)
        elif name == "$ref" and isinstance(value, str):
            made[name] = _reference(value, root)
        elif name in ("const", "enum", "default", "examples"):
            made[name] = value
        else:
            made[name] = _moved(value, root, name in ("properties", "patternProperties", *_PLACES))
    return made


def _reference(to: str, root: str) -> str:
    for place, mark in _PLACES.items():
        if to.startswith(f"#/{place}/"):
            return f"#/$defs/{root}{mark}{to[len(place) + 3:]}"
    return "#/$defs/" + root if to == "#" else to


class ToolForm:
    """How a model writes calls by a chat template."""

    def __init__(self, model: ModelBase, template_source: str) -> None:
        self.info: TemplateInfo = model.template_info(template_source)
        self._model = model
        tokens = model.tokenize(self.info.call_open, special=True).tolist() if self.info.call_open else []
        # A control token has no text in an answer: its number tells where a call begins.
        silent = len(tokens) == 1 and not model.detokenize_bytes(tokens, raw_text=True)
        self.open_token: Optional[int] = tokens[0] if silent else None

    def call_prompt(self, prompt: Prompt) -> Prompt:
        """What the prompt becomes if the answer must be a call."""
        if not self.info.call_begin:
            return prompt
        begin = self._model.tokenize(self.info.call_begin, special=True).tolist()
        made, question = Prompt(self._model), []  # the question must be one segment
        for segment in prompt.segments:
            if segment.id:
                made.chunk_id(segment.id)
            elif segment.kind == SegmentKind.QUESTION:
                question = segment.tokens.tolist()
            else:
                made._add(int(segment.kind), segment.tokens)
        return made.question(question + begin)

    def new_id(self) -> str:
        length = self.info.call_id_length
        return secrets.token_hex(16)[:length] if length else "call_" + secrets.token_hex(12)


class ToolCallReader:
    """Finds calls in a text that comes in pieces. Text that may become a call is held back; what is no call of a
    known function stays text. is_call: the whole text is one call."""

    def __init__(self, form: ToolForm, names: Iterable[str], is_call: bool) -> None:
        self._form, self._names, self._in_call = form, frozenset(names), is_call
        self._open, self._close = ("", "") if is_call else (form.info.call_open, form.info.call_close)
        self._held, self._shown = "", False
        #: All so far.
        self.calls: List[ToolCall] = []

    def take(self, token: int, piece: str) -> str:
        """What of it is text for the reader of the answer. token: the piece's; -1: none."""
        self._held += self._open + piece if token == self._form.open_token else piece
        if not self._open and not self._in_call and not self._shown:
            if not self._held.strip():
                return ""
            self._in_call = self._held.lstrip().startswith("{")
        shown = ""
        while self._held:
            if not self._in_call:
                at = self._held.find(self._open) if self._open else -1
                end = len(self._held[:at].rstrip()) if at >= 0 else self._sure()
                shown, self._held = shown + self._held[:end], self._held[end:]
                if at < 0:
                    break
                self._in_call = True
            found = self._whole_call()
            if found is None:
                break
            text, after = found
            if not self._read(text):
                shown += self._held[:after]
            self._held, self._in_call = self._held[after:], False
        self._shown = self._shown or bool(shown)
        return shown

    def end(self) -> str:
        """The same at the end of the answer. A call that was cut is text."""
        rest, self._held = self._held, ""
        if self._in_call:
            call = rest.partition(self._open)[2] if self._open and self._open in rest else rest
            return "" if self._read(call) else rest
        return "" if self.calls and not rest.strip() else rest

    def _sure(self) -> int:
        """How much of what is held can be no beginning of a call, nor white space before one."""
        text, mark = self._held, self._open
        if not mark:
            return len(text)
        n = next((n for n in range(min(len(text), len(mark) - 1), 0, -1) if text.endswith(mark[:n])), 0)
        return len(text[:len(text) - n].rstrip())

    def _whole_call(self) -> "Optional[Tuple[str, int]]":
        """The text between the marks, and where the second one ends; None: it has not come yet."""
        if not self._close or self._close not in self._held:
            return None
        begin = self._held.find(self._open) + len(self._open)
        at = _outside_strings(self._held, self._close, begin)
        return None if at < 0 else (self._held[begin:at], at + len(self._close))

    def _read(self, text: str) -> bool:
        try:
            given = json.loads(text)
        except ValueError:
            return False
        found = [self._call(item) for item in (given if isinstance(given, list) else [given])]
        calls = [call for call in found if call is not None]
        if not calls or len(calls) < len(found):
            return False
        self.calls += calls
        return True

    def _call(self, item: Any) -> Optional[ToolCall]:
        if not isinstance(item, dict) or item.get("name") not in self._names:
            return None
        arguments = item.get("arguments", item.get("parameters"))
        if isinstance(arguments, str):  # as a text of JSON
            try:
                arguments = json.loads(arguments)
            except ValueError:
                return None
        arguments = {} if arguments is None else arguments
        return ToolCall(self._form.new_id(), item["name"], arguments) if isinstance(arguments, dict) else None


def _outside_strings(text: str, mark: str, at: int) -> int:
    """Where the mark stands in JSON from `at` on, outside of strings; -1: nowhere. A string ends with its line."""
    in_string = False
    while at < len(text):
        if in_string and text[at] == "\\":
            at += 1
        elif text[at] == '"':
            in_string = not in_string
        elif text[at] == "\n":
            in_string = False
        elif not in_string and text.startswith(mark, at):
            return at
        at += 1
    return -1

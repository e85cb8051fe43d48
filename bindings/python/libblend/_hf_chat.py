"""Prompts by a Hugging Face tokenizer's chat template."""

import re
import secrets
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Sequence, Set, Tuple, Union

from ._prompt import Prompt

Document = Union[str, Mapping[str, str]]

#: Roles that templates know. Others are refused unless the template or the host names them: a template
#: that writes "<|" + role + "|>" would make a control token of any other name.
ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function", "ipython", "model"))


def chat_prompt(tokenizer: Any, messages: Sequence[Mapping[str, Any]], documents: Sequence[Document],
                variables: Dict[str, Any], bos: List[int], roles: Iterable[str] = ()) -> Prompt:
    """The template is rendered with a mark in the place of every text. Its own text around them is
    trusted: its control tokens are. Texts are text, and are tokenized together with what stands around
    them, so that without documents the ids are those of the whole where no text has a control token.
    It is rendered twice, however many messages there are: with the marks, and to see that it does with
    the texts what it did with the marks."""
    if tokenizer is None:
        raise TypeError("chat() needs Blender(model, tokenizer)")
    control = {str(token): i for i, token in tokenizer.added_tokens_decoder.items()}
    _check_roles(tokenizer, messages, variables, set(roles))
    special = [str(token) for token in tokenizer.added_tokens_decoder.values() if getattr(token, "special", True)]
    _check_variables(variables, special)
    options = {"tokenize": False, "add_generation_prompt": True, **variables}
    marks = _Marks()
    marked, given = [], []
    for i, message in enumerate(messages):
        one, other = {}, {}
        for name, value in message.items():
            _check_member(i, name, value)
            is_text = isinstance(value, str) and name != "role"
            one[name], other[name] = (marks.of(value, i), value) if is_text else (value, value)
        marked.append(one)
        given.append(other)
    chunks: Set[str] = set()
    if documents:
        asked = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=None)
        if asked is None:
            raise ValueError("documents stand before a message of the user, and there is none")
        before = ""
        for document in documents:
            text, title = (document, "") if isinstance(document, str) else (document["text"], document.get("title", ""))
            chunk = marks.whole(text)
            chunks.add(chunk)
            before += (marks.whole(title) + "\n" if title else "") + chunk + "\n\n"
        for one in (marked[asked], given[asked]):
            one["content"] = before + one["content"]

    def render(conversation: List[Dict[str, Any]]) -> str:
        return str(tokenizer.apply_chat_template(conversation, **options))

    pieces = marks.split(render(marked))
    marks.check(pieces, render(given))
    return _prompt(tokenizer, pieces, marks.texts, chunks, bos, control)


def _check_roles(tokenizer: Any, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any],
                 named: Set[str]) -> None:
    source = variables.get("chat_template") or tokenizer.chat_template
    for i, message in enumerate(messages):
        role = message["role"]
        known = isinstance(role, str) and (role in ROLES or role in named or _names(source, role))
        if not known:
            raise ValueError(f"message {i} has the role {role!r:.80}, which the chat template does not name: if it is "
                             "not a client's word, give it among `roles`")


def _names(source: Any, role: str) -> bool:
    """Whether the role stands in the template as a string of its own."""
    return bool(re.fullmatch(r"[\w-]{1,64}", role)) and any(f"{q}{role}{q}" in str(source) for q in "'\"")


def _check_member(i: int, name: Any, value: Any) -> None:
    if not (isinstance(name, str) and name.isidentifier()):
        raise ValueError(f"message {i} has a member {name!r:.80}: their names are words")
    if name == "content" and not isinstance(value, str):
        raise ValueError(f"message {i} has a content that is not a str")
    if not (value is None or isinstance(value, (str, bool, int, float))):
        raise ValueError(f"message {i} has a {name!r} of {type(value).__name__}: what messages have beside a role and "
                         "a content must be texts or numbers")


def _check_variables(variables: Mapping[str, Any], control: Sequence[str]) -> None:
    """They are rendered as they are: none may have a control token, which a client could have sent."""
    found = re.compile("|".join(re.escape(t) for t in control)) if control else None
    for name, value in variables.items():
        if name == "chat_template" or found is None:
            continue
        for text in _strings(value):
            token = found.search(text)
            if token:
                raise ValueError(f"the variable {name!r} has the control token {token[0]!r}: what a template is to "
                                 "write belongs into the template")


def _strings(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset)):
            waiting += one


class _Marks:
    """What stands for texts while a template is rendered. Nobody can know them beforehand."""

    def __init__(self) -> None:
        self._begin = f"mark{secrets.token_hex(16)}n"
        self._find = re.compile(f"({self._begin}[0-9]+e)")
        self.texts: Dict[str, str] = {}  # by mark
        self._message: Dict[str, int] = {}  # by mark, of those that are checked

    def whole(self, text: str) -> str:
        made = f"{self._begin}{len(self.texts)}e"
        self.texts[made] = text
        return made

    def of(self, text: str, message: int) -> str:
        """A mark with the white space of the text's ends around it, which some templates take away."""
        inside = text.strip()
        if not inside:
            return text
        made = self.whole(inside)
        self._message[made] = message
        begin = text.index(inside)
        return text[:begin] + made + text[begin + len(inside):]

    def split(self, rendered: str) -> List[str]:
        """What the template wrote, and the marks."""
        return self._find.split(rendered)

    def check(self, pieces: Sequence[str], rendered: str) -> None:
        """That the template did with the texts what it did with the marks in their places."""
        at, seen = 0, set()
        missing = None
        for piece in pieces:
            is_mark = piece in self.texts
            said = self.texts[piece] if piece in self._message else piece
            if is_mark and piece in seen or not rendered.startswith(said, at):
                missing = self._message.get(piece, missing)
                break
            at += len(said)
            if is_mark:
                seen.add(piece)
                missing = self._message.get(piece, missing)
        else:
            if at == len(rendered) and len(seen) == len(self.texts):
                return
            missing = min((self._message.get(mark, 0) for mark in self.texts if mark not in seen), default=missing)
        raise ValueError(f"the chat template leaves out, repeats or changes what message {missing or 0} says: its prompt "
                         "cannot be cut into segments")


def _prompt(tokenizer: Any, pieces: Sequence[str], texts: Mapping[str, str], chunks: Set[str], bos: List[int],
            control: Mapping[str, int]) -> Prompt:
    split = re.compile("(" + "|".join(re.escape(t) for t in sorted(control, key=len, reverse=True)) + ")")
    segments: List[Tuple[bool, List[int]]] = [(False, [])]  # whether it is a chunk, its tokens
    run: List[str] = []  # text that is not tokenized yet

    def ids(text: str) -> List[int]:
        return list(tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]) if text else []

    def end_run() -> None:
        segments[-1][1].extend(ids("".join(run)))
        run.clear()

    for piece in pieces:
        if piece in chunks:
            end_run()
            segments += [(True, ids(texts[piece])), (False, [])]
        elif piece in texts:
            run.append(texts[piece])
        else:
            for part in split.split(piece) if control else [piece]:
                if part in control:
                    end_run()
                    segments[-1][1].append(control[part])
                else:
                    run.append(part)
    end_run()

    prompt = Prompt()
    first = segments[0][1]
    if bos and first[:len(bos)] == bos:
        prompt.prefix(bos)
        segments[0] = (False, first[len(bos):])
    for is_chunk, tokens in segments[:-1]:
        if tokens:
            (prompt.chunk if is_chunk else prompt.text)(tokens)
    return prompt.question(segments[-1][1])

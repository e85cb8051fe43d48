"""Prompts by a Hugging Face tokenizer's chat template."""

import re
import secrets
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple, Union

from ._prompt import Prompt

Document = Union[str, Mapping[str, str]]


def chat_prompt(tokenizer: Any, messages: Sequence[Mapping[str, str]], documents: Sequence[Document],
                variables: Dict[str, Any], bos: List[int]) -> Prompt:
    """The template is rendered with a mark in the place of every text. What it writes around them is
    trusted: its control tokens are. Texts are text, and are tokenized together with what stands around
    them, so that without documents the ids are those of the whole where no text has a control token."""
    if tokenizer is None:
        raise TypeError("chat() needs Blender(model, tokenizer)")
    options = {"tokenize": False, "add_generation_prompt": True, **variables}
    texts: Dict[str, str] = {}  # by mark

    def mark(text: str) -> str:
        made = f"mark{secrets.token_hex(8)}"
        texts[made] = text
        return made

    def render(contents: Iterable[str]) -> str:
        said = [{**message, "content": content} for message, content in zip(messages, contents)]
        return str(tokenizer.apply_chat_template(said, **options))

    marks = [mark(message["content"]) for message in messages]
    marked = render(marks)
    for i, one in enumerate(marks):  # some templates trim what some messages say
        given = texts[one]
        said = render([*marks[:i], given, *marks[i + 1:]])
        kept = [text for text in (given, given.strip()) if said == marked.replace(one, text)]
        if marked.count(one) != 1 or not kept:
            raise ValueError(f"the chat template leaves out, repeats or changes what message {i} says: "
                             "its prompt cannot be cut into segments")
        texts[one] = kept[0]
    chunks = []
    if documents:
        asked = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=None)
        if asked is None:
            raise ValueError("documents stand before a message of the user, and there is none")
        before = ""
        for document in documents:
            text, title = (document, "") if isinstance(document, str) else (document["text"], document.get("title", ""))
            chunks.append(mark(text))
            before += (mark(title) + "\n" if title else "") + chunks[-1] + "\n\n"
        marks[asked] = before + marks[asked]
    return _prompt(tokenizer, _cut(render(marks), texts), texts, chunks, bos)


def _cut(rendered: str, texts: Mapping[str, str]) -> List[str]:
    """What the template wrote, and the marks."""
    return re.split(f"({'|'.join(texts)})", rendered) if texts else [rendered]


def _prompt(tokenizer: Any, pieces: Sequence[str], texts: Mapping[str, str], chunks: Sequence[str],
            bos: List[int]) -> Prompt:
    control = {str(token): i for i, token in tokenizer.added_tokens_decoder.items()}
    split = re.compile("(" + "|".join(re.escape(t) for t in sorted(control, key=len, reverse=True)) + ")")
    segments: List[Tuple[bool, List[int]]] = [(False, [])]  # whether it is a chunk, its tokens
    run = ""  # text that is not tokenized yet

    def ids(text: str) -> List[int]:
        return list(tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]) if text else []

    for piece in pieces:
        if piece in chunks:
            segments[-1][1].extend(ids(run))
            segments += [(True, ids(texts[piece])), (False, [])]
            run = ""
        elif piece in texts:
            run += texts[piece]
        else:
            for part in split.split(piece) if control else [piece]:
                if part in control:
                    segments[-1][1].extend([*ids(run), control[part]])
                    run = ""
                else:
                    run += part
    segments[-1][1].extend(ids(run))

    prompt = Prompt()
    first = segments[0][1]
    if bos and first[:len(bos)] == bos:
        prompt.prefix(bos)
        segments[0] = (False, first[len(bos):])
    for is_chunk, tokens in segments[:-1]:
        if tokens:
            (prompt.chunk if is_chunk else prompt.text)(tokens)
    return prompt.question(segments[-1][1])

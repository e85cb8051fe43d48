#!/usr/bin/env python3
"""Counts turns of phrase that had to be read twice, in comments, help texts and documents.

    python3 tests/english.py                every room: words, hits, hits per 1,000 words, limit
    python3 tests/english.py --show ROOM    each hit of a room with its file and line

It fails if a room has more hits per 1,000 words than LIMIT, which may only be lowered. The patterns are
rough: a hit is not always wrong, which is why the limit is not 0. Code blocks of markdown are left out,
and so are names in backticks.
"""

import argparse
import io
import pathlib
import re
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[1]

LIMIT = 1.5  # hits per 1,000 words in any room

FOLDERS = ("include", "src", "kernels", "bindings", "tools", "tests", "bench", "docs", "examples", "scripts",
           "cmake", "packaging")
README = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
SCRIPTS = ("scripts/", "cmake/", "packaging/", "CMakeLists.txt")

# ---- What is counted.

FINITE = (  # verbs that can only be the verb of a clause, not its participle
    r"(?:(?:can|may|must|will|would|could|should|might)(?: not)?(?: have| do| need| be)?|cannot|can't|"
    r"is|are|was|were|isn't|aren't|has|have|had|does|do|did|needs?|takes|took|gives|gave|comes|came|goes|"
    r"went|stands|stood|lies|costs|holds|keeps|reads|writes|wrote|says|makes|gets|begins|began|ends|stays|"
    r"hangs|fits|fills|belongs|follows|counts|runs|ran|fails|waits|asks|wants|knows|knew|finds|becomes|"
    r"became|remains|depends|tells|shows|means|leads|starts|stops|uses|sees|saw|calls|returns|computes|"
    r"ignores|leaves)"
)
SUBORDINATE = (
    r"(?:that|which|who|whose|where|when|if|while|because|as|than|until|unless|before|after|since|so|and|"
    r"or|but|what|how|whether|though|once|without|to)"
)
FINITE = re.compile(rf"\b{FINITE}\b")
SUBORDINATE = re.compile(rf"\b{SUBORDINATE}\b")

PATTERNS = {
    "behind": r"\bbehind\b",
    "anew": r"\banew\b",
    "hang on": r"\b(?:hangs?|hung|hanging) (?:\w+ )?(?:up)?on\b(?! to\b)",
    "foretell": r"\bforet(?:ell|ells|old|elling)\b",
    "is none": r"(?<!there )(?<!codec )\b(?:is|are|was|were|be|been) (?-i:none)\b(?! of\b| the)",
    "is no": r"(?<!there )\b(?:is|are|was|were) no "
             r"(?!longer\b|more\b|less\b|other\b|better\b|worse\b|\w+er\b)(?=\w)",
    "so many": r"\bso (?:many|much)\b(?![^.]*\bthat\b| as\b| for\b)",
    "so long": r"\bso long\b(?! as\b|[^.]*\bthat\b)",
}
PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in PATTERNS.items()}

# Uses of "behind" that mean a place, or being late.
SPATIAL = re.compile(
    r"(?:left|leaves?|leaving|stays?|lags?|lagging|falls?|hides?|hidden) (?:\w+ )?behind"
    r"|behind (?:the scenes|loading|\S+ API|(?:a|an|the|one|its|this|that) (?:\w+ )?(?:network|proxy|"
    r"firewall|lock|mutex|fence|macro|flag|ABI|interface|API|facade|balancer|server|switch|barrier))",
    re.IGNORECASE)


def odd_sentence(sentence):
    """The name of what is odd about a sentence as a whole; None: nothing is."""
    first = re.match(r"\W*(\w+)", sentence)
    if not first or sentence.rstrip().endswith("?"):
        return None
    word, rest = first[1], sentence[first.end():]
    if word in ("Who", "Whose", "Whom"):
        return "Who-subject"
    if word in ("What", "Where", "Which", "How", "Whether") or re.match(
            r"\W*That (?:a|an|the|it|they|this|these|every|each|no|nobody|nothing|what|one)\b", sentence):
        clause = re.split(r"[,:;(]| - ", rest)[0]
        if word == "Where" and re.search(r"\b(?:it|they|this|there) " + FINITE.pattern, clause):
            return None
        n = len(FINITE.findall(clause)) - len(SUBORDINATE.findall(clause))
        return f"{word}-subject" if n >= 2 else None
    if word == "Of":
        return None if re.match(r" (?:these|those|course|the \w+ \w+,)", rest) else "Of-fragment"
    if word in ("By", "With"):
        odd = not FINITE.search(rest) and not re.search(r"[,:]|\bheld\b", rest) and " default" not in rest
        return f"{word}-fragment" if odd else None
    return None


def hits(text):
    """(position, name) of each hit in a paragraph."""
    spatial = [(m.start(), m.end()) for m in SPATIAL.finditer(text)]
    for name, pattern in PATTERNS.items():
        for match in pattern.finditer(text):
            if name != "behind" or not any(a <= match.start() < b for a, b in spatial):
                yield match.start(), name
    begin = 0
    ends = [m.end() for m in re.finditer(r"[.!?][\"')]*\s+(?=[\"'(]?[A-Z])", text)]
    for end in [*ends, len(text)]:
        name = odd_sentence(text[begin:end])
        if name:
            yield begin, name
        begin = end


# ---- Where prose is found. Each of these gives (line, column, own column, text) of the lines of prose of
# a file, in order. A line goes on the paragraph of the line before if its column is that line's own
# column; None: it begins one.

C_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)
GO_TOKEN = re.compile(C_TOKEN.pattern + r"|`[^`]*`", re.DOTALL)
HASH_TOKEN = {
    "cmake": re.compile(r'"(?:\\.|[^"\\])*"|#\[\[.*?\]\]|#[^\n]*', re.DOTALL),
    "sh": re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|(?<!\S)#[^\n]*""", re.DOTALL),
}


def comment_lines(text, pattern, marks, strings=False):
    for match in pattern.finditer(text):
        token = match[0]
        line = text.count("\n", 0, match.start()) + 1
        column = match.start() - text.rfind("\n", 0, match.start()) - 1
        alone = not text[match.start() - column:match.start()].strip()
        if token.startswith(marks):
            for i, part in enumerate(token.split("\n")):
                part = re.sub(r"^\s*(?:///?[</!]?|/\*+|\*+/?|#+!?)|\*/\s*$", " ", part)
                yield line + i, column if alone or i else None, column, part
        elif strings and token.startswith(('"', "R")) and len(token.split()) > 2:
            body = re.sub(r'^R"[^(\s]*\(|^"|\)[^)\s]*"$|"$', " ", token)
            body = re.sub(r"\\n", "  ", body)
            for i, part in enumerate(body.split("\n")):
                yield line + i, "string", "string", part


def python_lines(text):
    begins = True  # of a statement, so that a string is a docstring
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line, column = token.start
        if token.type == tokenize.COMMENT:
            alone = not token.line[:column].strip()
            yield line, column if alone else None, column, token.string.lstrip("#!")
        elif token.type == tokenize.STRING and begins:
            for i, part in enumerate(token.string.strip("rb\"'").split("\n")):
                yield line + i, "doc" if i else None, "doc", part
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            begins = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)


def markdown_lines(text):
    fenced = False
    for i, part in enumerate(text.split("\n"), 1):
        if part.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not part.startswith("#"):
            if part.startswith("|"):
                for cell in part.split("|"):
                    yield i, None, "md", cell
            else:
                begins = re.match(r"\s*(?:[-*+]|\d+\.)\s", part)
                yield i, None if begins else "md", "md", re.sub(r"\]\([^)]*\)", "] ", part)


def prose(path):
    """The lines of prose of a file; None: it is of no kind that has any."""
    name, suffix = path.name, path.suffix
    if suffix not in (".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".i", ".java", ".go", ".py", ".md", ".sh",
                      ".cmake", "") and name != "CMakeLists.txt":
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    strings = path.relative_to(ROOT).parts[0] == "tools"
    if suffix in (".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".i", ".java"):
        return comment_lines(text, C_TOKEN, ("//", "/*"), strings)
    if suffix == ".go":
        return comment_lines(text, GO_TOKEN, ("//", "/*"))
    if suffix == ".py":
        return python_lines(text)
    if suffix == ".md":
        return markdown_lines(text)
    if suffix == ".cmake" or name == "CMakeLists.txt":
        return comment_lines(text, HASH_TOKEN["cmake"], ("#",))
    if suffix == ".sh" or text.startswith("#!/") and "sh" in text.split("\n", 1)[0]:
        return comment_lines(text, HASH_TOKEN["sh"], ("#",))
    return None


def paragraphs(lines):
    """Joins lines to [(line, text), ...]: those of one comment, or of one paragraph of a document."""
    block, last_line, last_column = [], None, None
    for line, column, own, text in lines:
        text = re.sub(r"`[^`]*`", lambda m: "x" * len(m[0]), text)
        text = re.sub(r"<p>|@(?:param|return|throws)\b(?:\s+\w+)?", " ", text)
        joined = column is not None and column == last_column and line in (last_line, last_line + 1)
        if not joined or not text.strip():
            if block:
                yield block
            block = []
        if text.strip():
            block.append((line, text.strip()))
        last_line, last_column = line, own
    if block:
        yield block


# ---- Rooms.

def room_of(path):
    parts = path.split("/")
    if path in README:
        return "README"
    if path.startswith(SCRIPTS):
        return "scripts"
    if parts[0] == "src":
        return "/".join(parts[:2]) if len(parts) > 2 else "src"
    return parts[0] if len(parts) > 1 else None


def measure():
    """By room: the words, and [(file, line, name of the hit, its sentence), ...]."""
    rooms = {}
    for path in sorted([*ROOT.glob("*.*"), *(p for folder in FOLDERS for p in (ROOT / folder).rglob("*"))]):
        file = str(path.relative_to(ROOT))
        room = room_of(file)
        lines = prose(path) if room and path.is_file() and file != "tests/english.py" else None
        if lines is None:
            continue
        words, found = rooms.setdefault(room, [0, []])
        for block in paragraphs(lines):
            text, starts = "", []
            for line, part in block:
                starts.append((len(text), line))
                text += part + " "
            words += len(re.findall(r"[A-Za-z][\w'-]*", text))
            for at, name in sorted(hits(text)):
                line = max(start for start in starts if start[0] <= at)[1]
                found.append((file, line, name, text[max(0, at - 40):at + 60]))
        rooms[room][0] = words
    return rooms


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--show", metavar="ROOM")
    show = parser.parse_args().show
    rooms = measure()
    if show:
        if show not in rooms:
            parser.error(f"there are {', '.join(sorted(rooms))}")
        for file, line, name, text in rooms[show][1]:
            print(f"{file}:{line}: {name}: {text}")
        return 0
    failed = False  # in any room
    for room, (words, found) in sorted(rooms.items()):
        rate = 1000 * len(found) / max(words, 1)
        failed |= rate > LIMIT
        print(f"{room:15} {words:7} words {len(found):5} hits {rate:6.2f} of at most {LIMIT:4.1f}"
              f"{'  TOO MANY' if rate > LIMIT else ''}")
    if failed:
        print("--show ROOM lists the hits: say it in fewer, plainer words")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

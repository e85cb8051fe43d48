"""Python: error classes, enums, info classes, and the keyword arguments of options."""

import textwrap

import errors
import names
from meaning import INFOS, sentence, spelled, type_name

MADE = "Made by bindings/common/generate of the public headers. Do not edit."


def constant(enum, name):
    return f"{enum.name}.{name}" if enum.python else name


def doc(note):
    of_codes = {error.code: f"{error.name}Error" for error in errors.table()}
    return spelled(note, constant, of_codes.get)


def comment(note):
    return textwrap.wrap(doc(note), 96, initial_indent="#: ", subsequent_indent="#: ", break_on_hyphens=False)


def errors_file():
    lines = [f"# {MADE}", '"""One class an error code; see BlendError."""', "",
             "from ._error import BlendError", ""]
    for error in errors.table():
        bases = "BlendError" + (f", {error.python}" if error.python else "")
        lines += ["", f"class {error.name}Error({bases}):", f'    """{error.text}"""', "",
                  f"    CODE = {error.value}", ""]
    lines += ["", "CLASSES = {"]
    lines += [f"    {error.value}: {error.name}Error," for error in errors.table()]
    lines += ["}", "", "__all__ = ["]
    lines += [f'    "{error.name}Error",' for error in errors.table()]
    return "\n".join(lines + ["]", ""])


def names_file(meaning):
    table = names.table(meaning, "python", constant, lambda enum: enum.name, lambda error: f"{error.name}Error")
    lines = [f"# {MADE}", '"""What the library\'s sentences call by its name in C."""', "", "NAMES = {"]
    return "\n".join(lines + [f'    "{name}": "{here}",' for name, here in table] + ["}", ""])


def enums(meaning, _struct, _rest):
    """One class a family of constants."""
    made = []
    for enum, constants in meaning.enums():
        if not enum.python:
            continue
        made += ["", "", f"class {enum.name}({'IntFlag' if enum.flags else 'IntEnum'}):",
                 f'    """{sentence(enum.says)}"""', ""]
        for name, _, note in constants:
            made += textwrap.indent("\n".join(comment(note)), "    ").split("\n") if note else []
            made.append(f"    {name} = raw.{enum.prefix}_{name}")
    return made[2:]


def infos_file(meaning):
    lines = [f"# {MADE}", '"""What libblend tells of itself: plain, immutable."""', "",
             "from dataclasses import dataclass", "from typing import Any, Tuple", "", "from . import _enums"]
    for struct, says in INFOS.items():
        name = type_name(struct)
        values = meaning.info(struct)
        lines += ["", "", "@dataclass(frozen=True)", f"class {name}:", f'    """{sentence(says)}"""', ""]
        for value in values:
            kind = {"std::string": "str", "double": "float", "float": "float", "bool": "bool"}.get(value.type, "int")
            if value.kind in ("choice", "flags"):
                kind = f"_enums.{value.enum.name}"
            elif value.kind == "yes":
                kind = "bool"
            lines += ["    " + line for line in comment(value.note)]
            lines.append(f"    {value.name}: {'Tuple[int, ...]' if value.kind == 'tokens' else kind}")
        lines += ["", "    @classmethod", f'    def _of(cls, raw: Any) -> "{name}":', "        return cls("]
        for value in values:
            got = f"raw.{value.name}"
            if value.kind == "tokens":
                got = f"tuple({got}(i) for i in range(raw.n_{value.name}()))"
            elif value.kind in ("choice", "flags"):
                got = f"_enums.known(_enums.{value.enum.name}, {got})"
            elif value.kind == "yes":
                got = f"bool({got})"
            lines.append(f"            {value.name}={got},")
        lines += ["        )"]
    return "\n".join(lines + [""])


# ---- Options

def argument(value):
    if value.inverted:
        return value.name[len("no_"):]
    return {"n_threads": "threads", "n_contexts": "contexts"}.get(value.name, value.name)


def declared(value, struct):
    """An argument's type and default; None leaves the library's."""
    if value.kind in ("flag", "yes"):
        return f"bool = {value.inverted}"
    if value.kind == "choice":
        return f"Union[_enums.{value.enum.name}, str, None] = None"
    if value.kind == "flags":
        return f"Union[_enums.{value.enum.name}, int, None] = None"
    if value.kind == "text":
        return 'str = ""'
    # What the host must say of its own model.
    if struct.endswith("_description") and value.type == "uint32_t" and "default" not in value.note:
        return "int"
    return "Optional[float] = None" if value.type in ("double", "float") else "Optional[int] = None"


def said(value):
    note = doc(value.note)
    if value.inverted:
        return f"False: {note}"
    return note[3:] if note.startswith("1: ") else note


def options(meaning, struct, rest):
    """The options of a struct; "but A B" in the line leaves some out."""
    left_out = rest.split()[1:]
    return [value for value in meaning.options(struct) if argument(value) not in left_out]


def parameters(meaning, struct, rest):
    """Keyword parameters."""
    return [f"{argument(value)}: {declared(value, struct)}," for value in options(meaning, struct, rest)]


def fields(meaning, struct, rest):
    """Members of a dataclass."""
    made = []
    for value in options(meaning, struct, rest):
        made += [line for line in textwrap.wrap(said(value), 96, initial_indent="#: ", subsequent_indent="#: ",
                                                break_on_hyphens=False)]
        made.append(f"{argument(value)}: {declared(value, struct)}")
    return made


def typed(meaning, struct, rest):
    """Members of a TypedDict."""
    return [f"{argument(value)}: {declared(value, struct).rsplit(' = ', 1)[0]}" for value in options(meaning, struct, rest)]


def documentation(meaning, struct, rest):
    """Lines of a docstring."""
    made = []
    for value in options(meaning, struct, rest):
        made += textwrap.wrap(f"{argument(value)}: {said(value)}" if value.note else argument(value), 96,
                              subsequent_indent="    ", break_on_hyphens=False)
    return made


def sets(meaning, struct, rest):
    """Sets what was given in `options`; OBJECT: whose members the arguments are, if not variables; "but A B"
    leaves some out. Written out: a fuse of few rows takes a millisecond and leaves nothing of this in the
    processor's caches, so every call that is not made counts."""
    made = []
    but, rest = (rest, "") if rest.startswith("but ") else ("", rest)
    for value in options(meaning, struct, but):
        name = f"{rest}.{argument(value)}" if rest else argument(value)
        test, to = f"{name} is not None", name
        if value.kind == "flag":
            test = f"not {name}" if value.inverted else name
            made += [f"if {test}:", f"    options.flags |= raw.{value.mask}"]
            continue
        if value.kind == "yes":
            test, to = name, "1"
        elif value.kind == "text":
            test, to = name, f'_enums.text({name}, "{argument(value)}")'
        elif value.kind == "choice":
            to = f"choice(_enums.{value.enum.name}, {name})"
        made += [f"if {test}:", f"    options.{value.member} = {to}"]
    return made


LINES = {"enums": enums, "parameters": parameters, "fields": fields, "typed": typed, "documentation": documentation, "set": sets}


def make(meaning):
    return {"errors.py": errors_file(), "_infos.py": infos_file(meaning), "_names.py": names_file(meaning)}

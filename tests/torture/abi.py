"""The C ABI by ctypes, as the public headers have it: structs, callbacks, functions, and calls that judge
what they are told."""

import ctypes as c
import pathlib
import re
import sys
from collections import namedtuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings" / "common" / "generate"))
from headers import INCLUDE, PARTS, RENAMED, Headers  # noqa: E402

HEADERS = Headers()
PLAIN = {"uint32_t": c.c_uint32, "int32_t": c.c_int32, "uint64_t": c.c_uint64, "int64_t": c.c_int64,
         "size_t": c.c_size_t, "double": c.c_double, "float": c.c_float, "uint8_t": c.c_uint8, "char": c.c_char,
         "void": None}

Parameter = namedtuple("Parameter", "type stars const name")  # type without blend_
Function = namedtuple("Function", "name result parameters")


class Wrong(Exception):
    """A finding: what the library did is not what it promises."""


class Failed(Wrong):
    """A call that must succeed, where nobody sets limits, gave an error code."""

    def __init__(self, name, code):
        super().__init__(f"blend_{name}: {code.name}: {code.message}")
        self.code = code


class Code(int):
    """What a call returned, and the sentence and the detail that came with it."""

    def __new__(cls, value, message="", detail=0):
        self = super().__new__(cls, value)
        self.message, self.detail = message, detail
        return self

    @property
    def name(self):
        return next((n for n, v in CODES.items() if v == self), "BLEND_E_?")


def succeeded(name, code):
    if code < 0:
        raise Failed(name, code)
    return code


def parse_parameters(text):
    for part in text.split(","):
        const, kind, stars, name = re.fullmatch(r"\s*(const )?\s*(\w+)\s*(.*?)\s*(\w*)\s*", part, re.S).groups()
        if (kind, name) != ("void", "") or "*" in stars:
            yield Parameter(kind.removeprefix("blend_"), stars.count("*"), bool(const), name)


def without_comments():
    text = "\n".join(path.read_text() for path in sorted(INCLUDE.glob("*.h")))
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


TEXT = without_comments()
CODES = {f"BLEND_{k.name}": int(k.value) for k in HEADERS.constants
         if not k.unsigned and re.fullmatch(r"-?\d+", k.value)}
CONSTANT = {k.name: int(float(k.value)) for k in HEADERS.constants}
FUNCTIONS = {name: Function(name, " ".join(result.split()), tuple(parse_parameters(body))) for result, name, body in
             re.findall(r"^BLEND_API\s+([^;(]*?)\b(blend_\w+)\s*\(([^)]*)\);", TEXT, re.M)}
HANDLES = set(re.findall(r"^typedef struct blend_(\w+) blend_\1;", TEXT, re.M))


def ctype(kind, stars):
    return c.c_void_p if stars or kind.endswith("_fn") else PLAIN[kind] if kind in PLAIN else STRUCTS[kind]


STRUCTS = {}


def define(name):
    """A struct and, before it, those that lie in it."""
    if name in STRUCTS:
        return
    fields = []
    for member in HEADERS.declared[name].members:
        kind = member.type.removeprefix("blend_")
        if kind in HEADERS.declared and not member.pointer:
            define(kind)
        one = ctype(kind, int(member.pointer))
        fields.append((member.name, one * member.length if member.length else one))
    STRUCTS[name] = type(name, (c.Structure,), {"_fields_": fields})


for struct_name in HEADERS.declared:
    define(struct_name)
CALLBACKS = {name: c.CFUNCTYPE(c.c_int32, *(ctype(p.type, p.stars) for p in parse_parameters(body)))
             for name, body in re.findall(r"^typedef int32_t \(\*blend_(\w+)\)\((.*?)\);", TEXT, re.M | re.S)}
assert len(FUNCTIONS) > 80 and len(CALLBACKS) >= 6, "the headers are written otherwise than this parser expects"


def address(value):
    """What a pointer member takes; None, numbers and handles stay what they are."""
    if isinstance(value, c._CFuncPtr):
        return c.cast(value, c.c_void_p).value
    if isinstance(value, c.c_void_p):
        return value.value
    return c.addressof(value) if isinstance(value, (c.Array, c.Structure)) else value


class Library:
    """One loaded libblend.so."""

    def __init__(self, path):
        self.so = c.CDLL(str(path))
        self.functions = {}
        for f in FUNCTIONS.values():
            made = getattr(self.so, f.name)
            made.argtypes = [ctype(p.type, p.stars) for p in f.parameters]
            made.restype = c.c_char_p if "char" in f.result else PLAIN[f.result]
            self.functions[f.name] = made

    def judged(self, name, code, err):
        """The Code; takes the error object."""
        if code < 0 and not err:
            raise Wrong(f"{name} returned {code} and no error object")
        if code >= 0:
            if err:
                raise Wrong(f"{name} returned {code} and left an error object")
            return Code(code)
        raw = self.functions["blend_error_message"](err)
        if self.functions["blend_error_code"](err) != code:
            raise Wrong(f"{name} returned {code}, and its error object has another code")
        code = Code(code, raw.decode(errors="replace"), self.functions["blend_error_detail"](err))
        self.functions["blend_error_free"](err)
        if code.name == "BLEND_E_?" or code == CODES["BLEND_E_INTERNAL"]:
            raise Wrong(f"{name}: {code.name} ({int(code)}): {code.message}")
        if len(raw) < 8 or "\ufffd" in code.message and b"\xef\xbf\xbd" not in raw:
            raise Wrong(f"{name}: the message is no sentence in UTF-8: {raw!r}")
        return code

    def call(self, name, *arguments):
        """Calls blend_<name>, with an error object where it takes one, and judges what comes back."""
        name = "blend_" + name
        parameters = FUNCTIONS[name].parameters
        arguments = [c.byref(a) if isinstance(a, c.Structure) else a for a in arguments]
        if not parameters or parameters[-1].name != "err":
            return self.functions[name](*arguments)
        assert len(arguments) == len(parameters) - 1, f"{name} takes {len(parameters)} arguments"
        err = c.c_void_p(16)  # what was there before counts for nothing
        return self.judged(name, self.functions[name](*arguments, c.byref(err)), err)

    def done(self, name, *arguments):
        """The same of a call that must succeed."""
        code = self.call(name, *arguments)
        return succeeded(name, code)

    def opened(self, name, *arguments):
        """The handle that a call must give."""
        handle = c.c_void_p()
        self.done(name, c.byref(handle), *arguments)
        return handle

    def struct(self, struct, /, **members):
        """A struct with the library's defaults and these members. What they point to lives as long. Members of
        a part that it points to (PARTS) are given by the names that they have in the bindings."""
        for part, (whole, prefix) in PARTS.items():
            if whole == struct and part.endswith("_options"):
                names = {RENAMED.get(prefix + m.name, prefix + m.name): m.name for m in HEADERS.declared[part].members}
                own = {m.name for m in HEADERS.declared[struct].members if m.type != f"blend_{part}"}
                given = {names[name]: members.pop(name) for name in list(members) if name in names and name not in own}
                if given:
                    pointer = next(m.name for m in HEADERS.declared[struct].members if m.type == f"blend_{part}")
                    members[pointer] = self.struct(part, **given)
        made = STRUCTS[struct]()
        if f"blend_{struct}_init" in FUNCTIONS:
            self.functions[f"blend_{struct}_init"](c.byref(made), c.sizeof(made))
        elif hasattr(made, "struct_size"):
            made.struct_size = c.sizeof(made)
        made.kept = members
        for member, value in members.items():
            setattr(made, member, address(value))
        return made

    def array(self, name, elements):
        """An array of structs, which keeps what its elements keep."""
        made = (STRUCTS[name] * len(elements))(*elements)
        made.kept = elements
        return made

    def bytes_of(self, name, handle, kind):
        """What a getter of a pointer and a count points to."""
        data, n = c.c_void_p(), c.c_size_t()
        self.done(name, handle, c.byref(data), c.byref(n))
        return c.string_at(data, n.value * c.sizeof(kind)) if n.value else b""

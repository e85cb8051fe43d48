"""The declarations of the public headers: structs with their members, constants, and the comments of both."""

import pathlib
import re
from dataclasses import dataclass

INCLUDE = pathlib.Path(__file__).resolve().parents[3] / "include" / "blend"
NUMBERS = ("uint32_t", "int32_t", "uint64_t", "int64_t", "size_t", "double", "float")


@dataclass(frozen=True)
class Member:
    """One member of a struct. `type` has no const; `note` is the comment in one line."""

    type: str
    pointer: bool
    name: str
    length: int  # of an array; 0: none
    note: str
    source: str = ""  # the C struct that has it, and under which name, where that is another (PARTS)
    source_name: str = ""

    @property
    def shown_as(self):
        """Its type where a binding shows it as a value: a number's own, text for text and for what is
        written in hexadecimal digits; None for arrays, callbacks and handles."""
        if self.pointer:
            return "std::string" if self.type == "char" else None
        if self.type == "blend_chunk_id" or (self.type, self.length) == ("uint8_t", 32):
            return "std::string"
        return self.type if self.type in NUMBERS and not self.length else None


@dataclass(frozen=True)
class Struct:
    name: str  # without blend_
    members: tuple

    @property
    def versioned(self):
        return any(member.name == "struct_size" for member in self.members)

    @property
    def fields(self):
        """Members that are values by themselves: neither the struct's size, nor lengths of arrays, nor what
        is reserved."""
        arrays = {"n_" + member.name for member in self.members if member.pointer}
        return [member for member in self.members if member.shown_as and member.name not in arrays
                and member.name not in ("struct_size", "reserved")]


# Structs that are divided in C, by who needs what, and whole in the languages: part -> (whole, what goes
# in front of its members' names there). The first part of a whole that has its name is left out where
# another part holds all of it.
PARTS = {
    "selection_options": ("fuse_options", ""),
    "remote_options": ("store_options", "remote_"),
    "store_report": ("store_stat", ""),
    "remote_stat": ("store_stat", "remote_"),
    "fusion_report": ("fusion_info", ""),
}
SHORT = ("store_stat", "fusion_info")  # of which another part holds all
RENAMED = {"remote_url": "remote"}


@dataclass(frozen=True)
class Constant:
    name: str  # without BLEND_
    value: str  # a literal
    unsigned: bool
    note: str


def one_line(comment):
    return " ".join(re.sub(r"\n\s*\* ", "\n ", comment or "").split())


def members(body):
    """A comment belongs to the member that it follows in the line, otherwise to the next one."""
    found, before, end = [], "", 0
    for token in re.finditer(r"/\*(?P<note>.*?)\*/|(?P<declaration>[^;/]+);", body, re.S):
        if token["declaration"]:
            kind, stars, name, length = re.fullmatch(
                r"\s*(?:const )?(.+?)\s*(\**)\s*(\w+)(?:\[(\d+)\])?\s*", token["declaration"], re.S).groups()
            found.append(Member(kind.removeprefix("struct "), bool(stars), name, int(length or 0), before))
            before, end = "", token.end()
        elif found and "\n" not in body[end:token.start()]:
            last = found[-1]
            found[-1] = Member(last.type, last.pointer, last.name, last.length, one_line(token["note"]))
        else:
            before = one_line(token["note"])
    return tuple(found)


def as_part(part, prefix):
    """The members of a struct as a whole shows them. Comments name each other by the new names."""
    names = {m.name: RENAMED.get(prefix + m.name, prefix + m.name) for m in part.members if m.name != "reserved"}
    names["reserved"] = "reserved"

    def renamed(note):
        return re.sub(r"(?<![\w.])(%s)\b(?!_)" % "|".join(n for n in names if "_" in n), lambda found: names[found[1]],
                      note) if prefix else note

    return tuple(Member(m.type, m.pointer, "n_" + names[m.name[2:]] if m.name[:2] == "n_" and m.name[2:] in names
                        else names[m.name], m.length, renamed(m.note), part.name, m.name)
                 for m in part.members if m.name != "struct_size")


def made_whole(structs):
    """The structs as the languages see them."""
    whole = {name: struct for name, struct in structs.items() if name not in PARTS}
    for part, (name, prefix) in PARTS.items():
        if part not in structs or name not in whole:
            continue
        members = whole[name].members
        if name in SHORT and not any(member.source for member in members):
            members = tuple(member for member in members if member.name == "struct_size")
        pointer = f"blend_{part}"
        members = tuple(member for member in members if member.type != pointer)
        whole[name] = Struct(name, members + as_part(structs[part], prefix))
    return whole


class Headers:
    """All of include/blend/*.h."""

    def __init__(self, folder=INCLUDE):
        text = "\n".join(path.read_text() for path in sorted(pathlib.Path(folder).glob("*.h")))
        self.declared = {name: Struct(name, members(body)) for name, body in re.findall(
            r"^typedef struct blend_(\w+) \{(.*?)^\} blend_\1;", text, re.S | re.M)}
        self.structs = made_whole(self.declared)
        self.constants = [
            Constant(name, value, bool(unsigned), one_line(note)) for name, value, unsigned, note in re.findall(
                r"^#define BLEND_(\w+) \(?(-?\d[\d.]*)(u?)\)?[ \t]*(?:/\*(.*?)\*/)?[ \t]*$", text, re.M | re.S)]

    def family(self, prefix):
        """The constants that begin with a prefix, without it."""
        return [Constant(c.name[len(prefix) + 1:], c.value, c.unsigned, c.note)
                for c in self.constants if c.unsigned and c.name.startswith(prefix + "_")]

"""The meaning of declarations in a host's language: which number is a choice, a yes or no, a time.

It is read from the headers' own words. A member whose comment begins with BLEND_POLICY_ is a choice of
that family, one whose comment begins with "1:" is a yes or no, and a name means the same in every
struct. The flags of options become one yes or no each. Written by hand are the names of the families
and one line about each type.
"""

import re
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Enum:
    prefix: str  # of its constants
    name: str
    says: str  # "<name> <says>."
    flags: bool = False  # any number of them at once
    java: Optional[str] = None  # its name there, if another
    python: bool = True  # Python has it


ENUMS = [
    Enum("POLICY", "Policy", "says which rows of reused chunks are recomputed"),
    Enum("METRIC", "Metric", "is what the deviation of a row is measured on"),
    Enum("NORM", "Norm", "is how a deviation is summed"),
    Enum("MISS", "Miss", "says what becomes of a chunk that is not stored", java="OnMiss"),
    Enum("SEGMENT", "SegmentKind", "says how a segment of a prompt is treated"),
    Enum("SOURCE", "Source", "is where the K and V of a segment came from", java="SegmentSource"),
    Enum("RECORD", "RecordKind", "says which record of a chunk was used, the nearest to full prefill first"),
    Enum("CORRECTION", "Correction", "says how rows that are not recomputed are corrected"),
    Enum("ON_UNTRUSTED", "OnUntrusted", "says what becomes of a fuse that its profile does not vouch for"),
    Enum("DTYPE", "Dtype", "is the type of the elements of K and V"),
    Enum("WEIGHTS", "Weights", "says how the weights of a model are kept in memory"),
    Enum("POOLING", "Pooling", "says how the hidden states of a text become one vector"),
    Enum("CODEC", "Codec", "is how the bytes of K and V are kept"),
    Enum("READ", "ReadMode", "is how layers are read from the disk"),
    Enum("LOG", "LogLevel", "says how important a record of the log is"),
    Enum("EVICT", "Eviction", "says which chunk leaves first when a put needs room"),
    Enum("ROPE", "RopeLayout", "says which elements of a head are rotated together"),
    Enum("GRAMMAR", "GrammarLanguage", "says what a grammar is written in"),
    Enum("FUSION", "FusionFlags", "are properties of a fusion", True, java="FusionFlag"),
    Enum("DRIFT", "DriftInputs", "are what the drift maps go by", True, java="DriftInput"),
    Enum("ADVICE", "AdviceFlags", "are properties of an advice", True, java="AdviceFlag"),
    Enum("TOKENIZE", "TokenizeFlags", "say how text becomes tokens, and tokens text", True, java="Tokenize",
         python=False),
]

# What the library tells of itself: struct, and "<its name> <says>."
INFOS = {
    "model_info": "describes an open model",
    "lora_info": "is a LoRA adapter that a model was opened with",
    "template_info": "is what a chat template has a place for, and how calls of functions are written by it",
    "call_info": "is a call of a function in an answer",
    "store_stat": "is the state of a store",
    "codec_stat": "is what one codec holds in a store",
    "chunk_info": "describes one stored chunk",
    "fusion_info": "is the account of a fuse",
    "layer_info": "is the account of one layer. Times are since the start of the fuse",
    "segment_info": "is what became of one segment",
    "profile_info": "is what a calibration chose",
    "codec_cost": "is what storing chunks with a codec that rounds costs, beside the fuse itself. KLs are in nats",
    "measurement": "is a line of a measured table: one kind of fusing over all measured prompts",
    "verdict": "is what verifying a profile found",
    "machine_info": "describes a measurement of this machine",
    "advice": "is what a place to store chunks would allow",
}


@dataclass(frozen=True)
class Value:
    """A member, or one of its flags, as a host sees it."""

    name: str  # lower case, words joined by _
    member: str
    type: str  # of C++
    kind: str  # choice, flags, yes, flag, moment (Unix time), span (ns), seconds, text, tokens, number
    note: str
    enum: Optional[Enum] = None
    mask: str = ""  # flag: its constant
    inverted: bool = False  # flag: the name says the contrary

    @property
    def zero_is_default(self):
        """False: 0 is another value than the library's default."""
        default = re.search(r"\bdefault (-?[\d.]+)", self.note)
        return default is None or float(default[1].rstrip(".")) == 0


# Members that the shim adds to a struct.
ADDED = {
    "chunk_info": Value("problem", "problem", "std::string", "text", 'what is wrong with it; "" for a sound chunk'),
    "machine_info": Value("kept", "kept", "bool", "yes", "1: it was in the file, nothing was measured"),
    "measurement": Value("chunk_prefix", "chunk_prefix", "", "tokens", "that the chunks were prefilled after"),
}


def type_name(struct):
    """FuseOptions of fuse_options, the name of a struct in the shim and in every language."""
    return "".join("Context" if word == "ctx" else word.capitalize() for word in struct.split("_"))


class Meaning:
    def __init__(self, headers):
        self.headers = headers
        self.by_name = {}
        self.bounds = {c.name: c.value for c in headers.constants if c.name.startswith("MOST_")}
        for struct in headers.structs.values():
            for member in struct.fields:
                meant = self.in_comment(member.note)
                if meant and member.name != "flags":
                    if self.by_name.setdefault(member.name, meant) != meant:
                        raise ValueError(f"{struct.name}.{member.name} is not what it is in another struct")

    @staticmethod
    def in_comment(note):
        if note.startswith("1: "):
            return "yes"
        # All of a family, or several of it: "BLEND_DTYPE_F32, _F16 or _BF16".
        return next((enum for enum in ENUMS if re.match(
            rf"BLEND_{enum.prefix}_(\*|[A-Z0-9]+(,| or\b| \.\.| \(default\)))", note)), None)

    def note(self, struct, member):
        """Its comment; that of another struct's option of this name, where it has none of its own."""
        if member.note == "likewise":
            around = struct.members
            return around[around.index(member) - 1].note
        if struct.name.endswith("_options") and (not member.note or member.note.startswith("as above")):
            for other in self.headers.structs.values():
                for twin in other.members if other.name.endswith("_options") else ():
                    if twin.name == member.name and twin.note and twin.note != member.note:
                        return twin.note
        return member.note

    def value(self, struct, member):
        kind, enum, comment = "number", None, self.note(struct, member)
        meant = self.in_comment(member.note) or self.by_name.get(member.name)
        note = re.sub(r"\bBLEND_(MOST_\w+)", lambda found: self.bounds[found[1]], tidied(comment))
        if enum_says_it(comment) and isinstance(meant, Enum):
            note = "; ".join(part for part in (re.sub(r"^\w+ ", "", meant.says), note) if part)
        if member.shown_as == "std::string":
            kind = "text"
            if not member.pointer:  # bytes there, digits here
                note = re.sub(r"^(all )?zero\b", '""', note) or "64 hexadecimal digits"
        elif meant == "yes":
            kind = "yes"
        elif meant:
            kind, enum = "flags" if meant.flags else "choice", meant
        else:
            for ending, what in (("_unix_s", "moment"), ("_ns", "span"), ("ttl_s", "seconds")):
                kind = what if member.name.endswith(ending) else kind
        return Value(member.name, member.name, member.shown_as, kind, note, enum)

    def options(self, struct):
        """Callbacks of a call, in the order of the header."""
        found = []
        struct = self.headers.structs[struct]
        for member in struct.fields:
            family = re.match(r"BLEND_([A-Z_]+)_\*", member.note)
            if member.name != "flags":
                found.append(self.value(struct, member))
                continue
            for constant in self.headers.family(family[1]):
                no = constant.name.startswith("NO_")
                found.append(Value(constant.name.lower(), "flags", member.type, "flag", tidied(constant.note),
                                   mask=f"{family[1]}_{constant.name}", inverted=no))
        return found

    def info(self, struct):
        """Members of an info struct, in the order of the header; those that the shim adds come last."""
        declared = self.headers.structs[struct]
        values = [self.value(declared, member) for member in declared.fields]
        return values + ([ADDED[struct]] if struct in ADDED else [])

    def enums(self):
        """(enum, its constants)"""
        return [(enum, [(c.name, c.value, tidied(c.note)) for c in self.headers.family(enum.prefix)])
                for enum in ENUMS]


def enum_says_it(note):
    """Whether a comment names a family and says no more about the choice."""
    return re.match(r"BLEND_[A-Z_]+_\*(;|$)", note)


def tidied(note):
    """A comment without parts that only C needs: the family of a choice, how long a pointer is valid."""
    note = re.sub(r"^BLEND_[A-Z_]+_\*(?:[;,:]? |$)", "", note)
    note = re.sub(r"[;,]? ?valid while [^;]* open\b", "", note)
    note = re.sub(r'[;,]? ?NULL = ""', "", note)
    note = re.sub(r"\balso NULL, ", "", note)
    return re.sub(r"\.? ?Copied\.$", "", note).strip()


def spelled(note, constant, error):
    """A comment with the names of constants as a language has them: constant(enum, name), error(name)."""

    def whole(found):  # BLEND_DTYPE_F32, _F16 or _BF16
        family = next((e.prefix for e in ENUMS if found[0].startswith(f"BLEND_{e.prefix}_")), None)
        return re.sub(r"(?<!\w)_", f"BLEND_{family}_", found[0]) if family else found[0]

    def one(found):
        name = found[1]
        if name.startswith("E_"):
            return error(name[2:])
        for enum in ENUMS:
            if name.startswith(enum.prefix + "_"):
                return constant(enum, name[len(enum.prefix) + 1:])
        return name

    note = re.sub(r"\bBLEND_\w+(?: \(default\))?(?:(?:,| or| \.\.) _[A-Z0-9]+)+", whole, note)
    return re.sub(r"\bBLEND_([A-Z0-9_]+[A-Z0-9])\b", one, note)


def sentence(says):
    """"The type of the elements." of "is the type of the elements"."""
    return first_upper(re.sub(r"^(is|are) ", "", says)) + "."


def first_upper(text):
    return text[:1].upper() + text[1:]


def spoken(name):
    """Words for a member that has no comment."""
    return re.sub(r"^n ", "number of ", re.sub(r"_unix_s$", "", name).replace("_", " "))

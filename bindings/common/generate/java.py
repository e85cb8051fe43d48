"""Java: exceptions, enums, records, and the setters of options."""

import html
import re
import textwrap

import errors
import names
from meaning import INFOS, first_upper, sentence, spelled, spoken, type_name

MADE = "// Made by bindings/common/generate of the public headers. Do not edit.\npackage io.libblend;\n"
PLAIN = {"uint32_t": "int", "int32_t": "int", "uint64_t": "long", "int64_t": "long",
         "size_t": "long", "double": "double", "float": "float", "std::string": "String", "bool": "boolean"}


def camel(name):
    head, *rest = name.split("_")
    return head + "".join(first_upper(part) for part in rest)


def enum_name(enum):
    return enum.java or enum.name


def constant(enum, name):
    return f"{enum_name(enum)}.{name}"


def names_file(meaning):
    # Pairs, so that no line and no method is too long for the compiler.
    table = names.table(meaning, "java", constant, enum_name, lambda error: f"{error.name}Exception")
    puts = "\n".join(f'    OF.put("{name}", "{here}");' for name, here in table)
    return f"""{MADE}
import java.util.HashMap;
import java.util.Map;

/** What the library's sentences call by its name in C. */
final class Names {{
  static final Map<String, String> OF = new HashMap<>();

  private Names() {{}}

  static {{
{puts}
  }}
}}
"""


def doc(note):
    """A comment as Javadoc."""
    of_codes = {error.code: f"{error.name}Exception" for error in errors.table()}
    note = spelled(note, constant, of_codes.get)
    return html.escape(note, quote=False).replace("@", "&#64;")


def exceptions():
    files = {}
    for error in errors.table():
        # For misuse of an object Java has a class.
        base, arguments = ("IllegalStateException", "message") if error.own else ("BlendException", "CODE, detail, message")
        files[f"{error.name}Exception.java"] = f"""{MADE}
/** {error.text} */
public final class {error.name}Exception extends {base} {{
  private static final long serialVersionUID = 1L;

  /** The code of every such exception. */
  public static final int CODE = {error.value};

  {error.name}Exception(long detail, String message) {{
    super({arguments});
  }}
}}
"""
    cases = "\n".join(f"      case {error.name}Exception.CODE:\n"
                      f"        return new {error.name}Exception(detail, message);" for error in errors.table())
    files["Exceptions.java"] = f"""{MADE}
/** Makes the exception of a code. */
final class Exceptions {{
  private Exceptions() {{}}

  static RuntimeException of(int code, long detail, String message) {{
    switch (code) {{
{cases}
      default:
        return new BlendException(code, detail, message);
    }}
  }}
}}
"""
    return files


ONE_OF = """
  static {name} of(int code) {{
    for ({name} value : values()) {{
      if (value.code == code) {{
        return value;
      }}
    }}
    if (code == 0) {{
      return null;
    }}
    throw new IllegalStateException("the library knows a {name} " + code + " that this jar does not");
  }}
"""
SET_OF = """
  static java.util.Set<{name}> of(int bits) {{
    java.util.EnumSet<{name}> set = java.util.EnumSet.noneOf({name}.class);
    for ({name} value : values()) {{
      if ((bits & value.code) != 0) {{
        set.add(value);
      }}
    }}
    return java.util.Collections.unmodifiableSet(set);
  }}

  static int bits({name}... values) {{
    int bits = 0;
    for ({name} value : values) {{
      bits |= value.code;
    }}
    return bits;
  }}
"""


def enum_file(enum, constants):
    name = enum_name(enum)
    values = ",\n".join(f"  /** {doc(note) or constant + '.'} */\n  {constant}({value})"
                        for constant, value, note in constants)
    return f"""{MADE}
/** {sentence(enum.says)} */
public enum {name} {{
{values};

  final int code;

  {name}(int code) {{
    this.code = code;
  }}
{(SET_OF if enum.flags else ONE_OF).format(name=name)}}}
"""


def component(value):
    """(type, name, how it is got from the raw object) of a record's component."""
    got = f"raw.get{first_upper(camel(value.member))}()"
    name = camel(value.name)
    if value.kind == "flags":
        return f"java.util.Set<{enum_name(value.enum)}>", name, f"{enum_name(value.enum)}.of({got})"
    if value.kind == "choice":
        return enum_name(value.enum), name, f"{enum_name(value.enum)}.of({got})"
    if value.kind == "yes":
        return "boolean", name, got if value.type == "bool" else f"{got} != 0"
    if value.kind == "moment":
        return "java.time.Instant", camel(value.name[:-len("_unix_s")]), f"java.time.Instant.ofEpochSecond({got})"
    if value.kind == "tokens":
        return "int[]", name, f"Tokens.of(raw.n{first_upper(name)}(), raw::{name})"
    return PLAIN[value.type], name, got


def record_file(meaning, struct):
    record = type_name(struct)
    parts = [(component(value), value) for value in meaning.info(struct)]
    params = []
    for (kind, name, _), value in parts:
        said = doc(value.note) or spoken(value.name)
        if kind == "boolean":
            said = re.sub(r"\b0:", "false:", re.sub(r"\b1:", "true:", said))
        params.append(f" * @param {name} {said}")
    separator = ",\n    "
    nl = "\n"
    return f"""{MADE}
/**
 * {sentence(INFOS[struct])} Immutable{" but for the array" if struct == "measurement" else ""}.
 *
{nl.join(params)}
 */
public record {record}(
    {separator.join(f"{kind} {name}" for (kind, name, _), _ in parts)}) {{
  static {record} of(Raw{record} raw) {{
    try {{
      return new {record}(
          {(separator + "      ").join(got for (_, _, got), _ in parts)});
    }} finally {{
      raw.delete();
    }}
  }}
}}
"""


def setter(value, owner):
    name = camel(re.sub(r"^n_", "", value.name))
    member = first_upper(camel(value.member))
    kind, given, said = PLAIN[value.type], name, doc(value.note)
    if value.kind == "flag":
        name, kind = camel(value.name[3:] if value.inverted else value.name), "boolean"
        on, off = f"raw.getFlags() | RawConstants.{value.mask}", f"raw.getFlags() & ~RawConstants.{value.mask}"
        given = f"{name} ? {off} : {on}" if value.inverted else f"{name} ? {on} : {off}"
        said = f"true by default; false: {said}" if value.inverted else f"true: {said or spoken(value.name)}"
    elif value.kind == "yes":
        kind, given, said = "boolean", f"{name} ? 1 : 0", re.sub(r"^1:", "true:", said)
    elif value.kind == "choice":
        kind, given = enum_name(value.enum), f"{name}.code"
    elif value.kind == "flags":
        kind, given = f"{enum_name(value.enum)}...", f"{enum_name(value.enum)}.bits({name})"
    elif value.kind == "seconds":
        name = name[:-1]
        kind, given = "java.time.Duration", f"{name}.toSeconds()"
    # Java has no unsigned numbers; a seed may be any bits.
    check = ""
    if value.kind == "number" and value.type in ("uint32_t", "uint64_t", "size_t") and "seed" not in value.name:
        check = (f"  if ({name} < 0) {{\n    throw new InvalidArgumentException(0, \"{name}(\" + {name} + \"): "
                 f"a number of 0 or more is needed\");\n  }}\n")
    about = f"BLEND_{value.mask}" if value.kind == "flag" else value.member
    param = textwrap.fill(f"@param {name} {said or spoken(value.name)}", 104, initial_indent=" * ",
                          subsequent_indent=" *     ", break_on_hyphens=False, break_long_words=False)
    return f"""/**
 * Sets {{@code {about}}}.
 *
{param}
 * @return this
 */
public {owner} {name}({kind} {name}) {{
{check}  raw.set{member}({given});
  return this;
}}""".split("\n")


def setters(meaning, struct, owner):
    """One fluent setter an option, of a class that has the raw options as `raw`; OWNER: its name if not
    the struct's."""
    made = []
    for value in meaning.options(struct):
        made += ([""] if made else []) + setter(value, owner or type_name(struct))
    return made


LINES = {"setters": setters}


def make(meaning):
    files = exceptions()
    files["Names.java"] = names_file(meaning)
    for enum, constants in meaning.enums():
        files[f"{enum_name(enum)}.java"] = enum_file(enum, constants)
    for struct in INFOS:
        files[f"{type_name(struct)}.java"] = record_file(meaning, struct)
    return {f"io/libblend/{name}": text for name, text in files.items()}

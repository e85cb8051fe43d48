#!/usr/bin/env python3
"""Java's records and enums, made of blend.h and the shim's list of members.

    generate.py OUT_DIR

What the library tells becomes a record a struct, with the members of shim/fields.h (of which
bindings.table says whether they are all), and every family of constants an enum; the comments of
blend.h become their documentation. A member or constant added there is in Java without a line here.
"""

import html
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
BLEND_H = (HERE.parents[1] / "include" / "blend" / "blend.h").read_text()
FIELDS_H = (HERE.parent / "common" / "shim" / "fields.h").read_text().replace("\\\n", " ")
MADE = "// Made by bindings/java/generate.py of blend.h. Do not edit.\npackage io.libblend;\n"

# enum: (prefix of its constants, what does not belong to it, is a bit mask, documentation)
ENUMS = {
    "Policy": ("POLICY_", (), False, "How the rows that are recomputed are chosen."),
    "Metric": ("METRIC_", ("COUNTER",), False, "What a row's deviation is measured on."),
    "Norm": ("NORM_", (), False, "How a deviation is summed up."),
    "OnMiss": ("MISS_", (), False, "What to do with a chunk that is not in the store."),
    "Weights": ("WEIGHTS_", (), False, "How the weights of a model are kept in memory."),
    "Codec": ("CODEC_", (), False, "How the bytes of K and V are kept."),
    "KvType": ("KV_", ("VIEW_UNROTATED",), False, "Element types of stored K and V."),
    "ReadMode": ("READ_", (), False, "How layers are read from the disk."),
    "Eviction": ("EVICT_", (), False, "Which chunk leaves first when a put needs room."),
    "SegmentKind": ("SEGMENT_", (), False, "What a segment of a prompt is."),
    "SegmentSource": ("SOURCE_", (), False, "Where a segment's K and V came from."),
    "Correction": ("CORRECTION_", (), False, "Whether the drift correction is applied."),
    "RopeLayout": ("ROPE_", (), False, "Which elements of a head are rotated together."),
    "Tokenize": ("TOKENIZE_", (), True, "How text becomes tokens, and tokens text."),
    "FusionFlag": ("FUSION_", (), True, "What else is to be said of a fusion."),
    "AdviceFlag": ("ADVICE_", (), True, "What an advice says of a device."),
    "DriftInput": ("DRIFT_", (), True, "Inputs of the drift maps."),
}

# record: (struct, members that are not scalars: (Java type, name, documentation), documentation)
RECORDS = {
    "ModelInfo": ("model_info", [("String", "architecture", "such as \"llama\""),
                                 ("String", "name", "what the file calls itself, or \"\""),
                                 ("String", "weightDtype", "of the file's matrices"),
                                 ("String", "fingerprint", "64 hexadecimal digits: weights, tokenizer and hyperparameters"),
                                 ("String", "chatTemplate", "Jinja source for you to render, or \"\"")],
                  "What a model is."),
    "StoreStat": ("store_stat", [], "Figures of a store."),
    "CodecStat": ("codec_stat", [], "What one codec holds of a store."),
    "ChunkInfo": ("chunk_info", [("String", "id", "64 hexadecimal digits"),
                                 ("String", "fingerprint", "of the model"),
                                 ("String", "problem", "what is wrong with the chunk; \"\" if it is sound or was not verified")],
                  "A stored chunk."),
    "FusionInfo": ("fusion_info", [], "The account of a fuse. Times are in nanoseconds."),
    "LayerInfo": ("layer_info", [], "The account of one layer of a fuse, in nanoseconds since its start."),
    "SegmentInfo": ("segment_info", [("String", "id", "64 hexadecimal digits; \"\" for text and question, and under Policy.FULL")],
                    "The account of one segment of a prompt."),
    "ProfileInfo": ("profile_info", [("String", "fingerprint", "of the model")], "What a profile says."),
    "MachineInfo": ("machine_info", [("String", "cpu", "which it was measured on"),
                                     ("boolean", "kept", "whether it was in the file, so that nothing was measured")],
                    "A measurement of this machine."),
    "Advice": ("advice", [], "What one device would do."),
    "Verdict": ("verdict", [], "What verifying a profile found."),
}

ENUM_MEMBERS = {"policy": "Policy", "metric": "Metric", "norm": "Norm", "codec": "Codec",
                "kv_dtype": "KvType", "read_mode": "ReadMode", "kind": "SegmentKind",
                "source": "SegmentSource"}
BOOLEAN_MEMBERS = {"relative", "exact", "trusted", "corrected", "add_bos", "pinned"}
FLAG_MEMBERS = {("fusion_info", "flags"): "FusionFlag", ("advice", "flags"): "AdviceFlag",
                ("profile_info", "drift_inputs"): "DriftInput"}
PLAIN = {"uint32_t": "int", "int32_t": "int", "uint64_t": "long", "int64_t": "long",
         "size_t": "long", "double": "double", "float": "float"}


def camel(name):
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def comment(text):
    """A comment of blend.h as a piece of Javadoc."""
    text = re.sub(r"\s*\n\s*\*?\s*", " ", text).strip()
    text = re.sub(r"\bBLEND_[A-Z]+_\*[;,]?\s*", "", text)
    text = re.sub(r"\bBLEND_(?:[A-Z]+_)?([A-Z0-9]+)\b", r"\1", text)
    return html.escape(text, quote=False).replace("@", "&#64;").replace("*/", "")


def spoken(name):
    """Documentation of a member that has no comment: its name."""
    return re.sub(r"^n ", "number of ", name.replace("_", " "))


def enum_file(name, prefix, excluded, flags, text):
    pattern = rf"^#define BLEND_{prefix}(\w+) (\d+)u(?:\s*/\*(.*?)\*/)?"
    constants = [(constant, int(value), comment(doc or "")) for constant, value, doc
                 in re.findall(pattern, BLEND_H, re.M | re.S) if constant not in excluded]
    if not constants:
        return None
    body = ",\n".join(f"  /** {doc or constant + '.'} */\n  {constant}({value})"
                      for constant, value, doc in constants)
    of = f"""
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
""" if not flags else f"""
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
    return f"""{MADE}
/** {text} */
public enum {name} {{
{body};

  final int code;

  {name}(int code) {{
    this.code = code;
  }}
{of}}}
"""


def struct_docs(struct):
    body = re.search(rf"typedef struct blend_{struct} \{{(.*?)\n\}} blend_{struct};", BLEND_H, re.S).group(1)
    return {name: comment(doc or "") for name, doc in
            re.findall(r"^\s*[\w ]+?\*?(\w+)(?:\[\d+\])?;[ ]*(?:/\*(.*?)\*/)?", body, re.M | re.S)}


def member(struct, c_type, name):
    """(Java type, Java name, how it is got from the raw object)"""
    get = f"raw.get{camel(name)[0].upper()}{camel(name)[1:]}()"
    if (struct, name) in FLAG_MEMBERS:
        enum = FLAG_MEMBERS[struct, name]
        return f"java.util.Set<{enum}>", camel(name), f"{enum}.of({get})"
    if name in ENUM_MEMBERS:
        return ENUM_MEMBERS[name], camel(name), f"{ENUM_MEMBERS[name]}.of({get})"
    if name in BOOLEAN_MEMBERS:
        return "boolean", camel(name), f"{get} != 0"
    if name.endswith("_unix_s"):
        return "java.time.Instant", camel(name[:-len("_unix_s")]), f"java.time.Instant.ofEpochSecond({get})"
    return PLAIN[c_type], camel(name), get


def record_file(record, struct, extra, text):
    fields = re.search(rf"^#define BLEND_{struct.upper()}_FIELDS\(X\)(.*)$", FIELDS_H, re.M).group(1)
    docs = struct_docs(struct)
    members, params, made = [], [], []
    for java, name, doc in extra:
        members.append(f"{java} {name}")
        params.append((name, doc))
        made.append(f"raw.get{name[0].upper()}{name[1:]}()")
    for c_type, name in re.findall(r"X\((\w+), (\w+)\)", fields):
        java, java_name, got = member(struct, c_type, name)
        members.append(f"{java} {java_name}")
        doc = docs.get(name) or spoken(name)
        if java == "boolean":
            doc = doc.replace("1:", "true:").replace("0:", "false:")
        params.append((java_name, doc))
        made.append(got)
    lines = "\n".join(f" * @param {name} {doc}" for name, doc in params)
    return f"""{MADE}
/**
 * {text} Immutable.
 *
{lines}
 */
public record {record}(
    {(','+chr(10)+'    ').join(members)}) {{
  static {record} of(Raw{''.join(p.capitalize() for p in struct.split('_'))} raw) {{
    try {{
      return new {record}(
          {(','+chr(10)+'          ').join(made)});
    }} finally {{
      raw.delete();
    }}
  }}
}}
"""


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, (prefix, excluded, flags, text) in ENUMS.items():
        made = enum_file(name, prefix, excluded, flags, text)
        if made:
            (out / f"{name}.java").write_text(made)
    for record, (struct, extra, text) in RECORDS.items():
        (out / f"{record}.java").write_text(record_file(record, struct, extra, text))


main()

"""What the shim and SWIG are given: lists of members, how they are copied, and constants."""

from meaning import INFOS, type_name

FIELDS_TOP = """// Made by bindings/common/generate of the public headers. Do not edit.
// The members of each struct that are values by themselves, as X(type, member), for the shim's classes
// to declare. Arrays, callbacks and handles have functions of their own there.
#ifndef BLEND_SHIM_FIELDS_H
#define BLEND_SHIM_FIELDS_H

#ifdef SWIG
#define BLEND_SHIM_DECLARE(type, name) type name;
#else
#define BLEND_SHIM_DECLARE(type, name) type name{};
#endif
"""


def fields(headers):
    out = [FIELDS_TOP]
    for struct in headers.structs.values():
        if struct.versioned and struct.fields:
            out.append(f"#define BLEND_{struct.name.upper()}_FIELDS(X) \\")
            out += [f"  X({member.shown_as}, {member.name}) \\" for member in struct.fields[:-1]]
            out += [f"  X({struct.fields[-1].shown_as}, {struct.fields[-1].name})", ""]
    return "\n".join(out + ["#endif", ""])


COPIES_TOP = """// Made by bindings/common/generate of the public headers. Do not edit.
// Between the structs of the headers (`c`) and the shim's (`s`). Part of detail.h, which has show() and
// give() for single members.
"""


def copies(headers):
    """One pair of functions for each struct of C; the parts of a whole each copy their own members."""
    out = [COPIES_TOP]
    for struct in headers.structs.values():
        taken = struct.name == "kv_view" or struct.name.endswith(("_options", "_description"))
        if not taken and struct.name not in INFOS:
            continue
        shim = type_name(struct.name)
        by_source = {}
        for member in struct.fields:
            by_source.setdefault(member.source or struct.name, []).append(member)
        for source, fields in by_source.items():
            c = f"blend_{source}"
            pairs = [(member.name, member.source_name or member.name) for member in fields]
            out.append(f"inline void show({shim}& s, const {c}& c) {{")
            out += [f"  show(s.{ours}, c.{theirs});" for ours, theirs in pairs] + ["}"]
            if taken:
                out.append(f"inline void give({c}& c, const {shim}& s) {{")
                out += [f"  give(c.{theirs}, s.{ours});" for ours, theirs in pairs] + ["}"]
    return "\n".join(out + [""])


def constants(headers):
    """%constant lines: enums of C would become variables in Go."""
    lines = ["// Made by bindings/common/generate of the public headers. Do not edit."]
    for constant in headers.constants:
        kind = "double" if "." in constant.value else "uint32_t" if constant.unsigned else "int32_t"
        lines.append(f"%constant {kind} {constant.name} = {constant.value};")
    return "\n".join(lines + [""])


def make(meaning):
    return {"blend_fields.h": fields(meaning.headers), "blend_copies.h": copies(meaning.headers),
            "blend_constants.i": constants(meaning.headers)}

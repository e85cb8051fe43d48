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
    out = [COPIES_TOP]
    for struct in headers.structs.values():
        taken = struct.name == "kv_view" or struct.name.endswith(("_options", "_description"))
        if not taken and struct.name not in INFOS:
            continue
        shim, c = type_name(struct.name), f"blend_{struct.name}"
        out.append(f"inline void show({shim}& s, const {c}& c) {{")
        out += [f"  show(s.{member.name}, c.{member.name});" for member in struct.fields] + ["}"]
        if taken:
            out.append(f"inline void give({c}& c, const {shim}& s) {{")
            out += [f"  give(c.{member.name}, s.{member.name});" for member in struct.fields] + ["}"]
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

"""The layout of every public struct, the value of every public constant and the declaration of every
public function, against layout.txt.

    python3 layout.py COMPILER INCLUDE LAYOUT [--update]

A difference means that programs built against an older header would break: members, constants and
structs may only be appended. It also refuses a struct that ends in padding, which callers leave as it
was and a later member would lie in, and an options struct without its _init. --update writes the file;
what it changes besides new lines is for the time before the first release alone.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings" / "common" / "generate"))
from headers import Headers


def program(headers, include):
    """A C program that prints a line for each struct, member and constant."""
    out = ["#define BLEND_EXPERIMENTAL"]
    out += [f'#include "blend/{path.name}"' for path in sorted(include.glob("blend/*.h"))]
    out += ["#include <stdio.h>", "#define SIZE(s) printf(\"%s %zu\\n\", #s, sizeof(s));",
            "#define AT(s, m) printf(\"%s.%s %zu %zu\\n\", #s, #m, offsetof(s, m), sizeof(((s*)0)->m));",
            "int main(void) {"]
    for name, struct in sorted(headers.declared.items()):
        out.append(f"  SIZE(blend_{name})")
        out += [f"  AT(blend_{name}, {member.name})" for member in struct.members]
    out += ["  return 0;", "}", ""]
    return "\n".join(out)


def layout(compiler, include):
    headers = Headers(include / "blend")
    with tempfile.TemporaryDirectory() as folder:
        source, binary = f"{folder}/layout.c", f"{folder}/layout"
        pathlib.Path(source).write_text(program(headers, include))
        subprocess.run([compiler, "-std=c11", f"-I{include}", source, "-o", binary], check=True)
        lines = subprocess.run([binary], check=True, capture_output=True, text=True).stdout.split("\n")[:-1]
    lines += sorted(f"BLEND_{c.name} {c.value}{'u' if c.unsigned else ''}" for c in headers.constants)
    text = "\n".join(path.read_text() for path in sorted(include.glob("blend/*.h")))
    lines += sorted(" ".join(found.split()) for found in re.findall(r"^BLEND_API ([^;]+;)", text, re.M))
    lines += sorted(" ".join(found.split()) for found in re.findall(r"^typedef (\w+ \(\*[^;]+;)", text, re.M))
    return headers, lines


def faults(headers, include, lines):
    text = "\n".join(path.read_text() for path in include.glob("blend/*.h"))
    sizes = {line.split()[0]: int(line.split()[1]) for line in lines if re.fullmatch(r"blend_\w+ \d+", line)}
    for name, struct in headers.declared.items():
        last = next(line for line in lines if line.startswith(f"blend_{name}.{struct.members[-1].name} "))
        _, offset, size = last.split()
        if int(offset) + int(size) != sizes[f"blend_{name}"] and struct.versioned:
            yield f"blend_{name} ends in padding: add a member `reserved`"
        if name.endswith("_options") and f"blend_{name}_init(" not in text:
            yield f"blend_{name} has no blend_{name}_init"


def main():
    compiler, include, kept = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    headers, lines = layout(compiler, include)
    wrong = list(faults(headers, include, lines))
    if "--update" in sys.argv:
        kept.write_text("\n".join(lines) + "\n")
    else:
        known = kept.read_text().split("\n")[:-1]
        wrong += [f"gone or changed: {line}" for line in known if line not in lines]
        wrong += [f"not in {kept.name}: {line}" for line in lines if line not in known]
        if wrong:
            print(f"If it is meant: python3 {sys.argv[0]} {compiler} {include} {kept} --update", file=sys.stderr)
    for fault in wrong:
        print(fault, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

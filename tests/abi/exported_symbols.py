"""The library exports exactly the functions that blend.h declares.

    python3 exported_symbols.py NM LIBRARY HEADER...
"""

import pathlib
import re
import subprocess
import sys


def declared(headers: list[str]) -> set[str]:
    text = "".join(pathlib.Path(header).read_text() for header in headers)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return set(re.findall(r"BLEND_API\b[^;(]*?\b(blend_\w+)\s*\(", text))


def exported(nm: str, library: str) -> set[str]:
    lines = subprocess.run(
        [nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    # "A" lines are the names of symbol versions.
    symbols = {line.split()[-1].split("@")[0] for line in lines if line.split()[-2] != "A"}
    return symbols


def main() -> int:
    nm, library, *headers = sys.argv[1:]
    want, have = declared(headers), exported(nm, library)
    for name in sorted(want - have):
        print(f"declared in blend.h but not exported: {name}")
    for name in sorted(have - want):
        print(f"exported but not declared in blend.h: {name}")
    print(f"{len(want)} functions declared, {len(have)} symbols exported")
    return 0 if want == have and want else 1


if __name__ == "__main__":
    sys.exit(main())

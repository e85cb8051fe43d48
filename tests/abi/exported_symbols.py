"""The library exports exactly the functions that blend.h declares, each with a version.

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


def exported(nm: str, library: str) -> dict[str, str]:
    """Names with their versions, "" for none."""
    lines = subprocess.run(
        [nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    # "A" lines are the names of symbol versions.
    symbols = [line.split()[-1].partition("@") for line in lines if line.split()[-2] != "A"]
    return {name: version.lstrip("@") for name, _, version in symbols}


def main() -> int:
    nm, library, *headers = sys.argv[1:]
    want, have = declared(headers), exported(nm, library)
    wrong = [f"declared in blend.h but not exported: {name}" for name in sorted(want - have.keys())]
    wrong += [f"exported but not declared in blend.h: {name}" for name in sorted(have.keys() - want)]
    wrong += [f"exported without a version: {name}" for name in sorted(have)
              if not have[name].startswith("BLEND_")]
    print("\n".join([*wrong, f"{len(want)} functions declared, {len(have)} symbols exported"]))
    return 1 if wrong or not want else 0


if __name__ == "__main__":
    sys.exit(main())

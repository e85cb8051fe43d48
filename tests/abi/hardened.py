#!/usr/bin/env python3
"""Shipped files are compiled for hostile input (cmake/hardening.cmake): this looks into the files."""
import re
import struct
import subprocess
import sys


def readelf(path, *options):
    return subprocess.run(["readelf", "-W", *options, path], check=True, capture_output=True,
                          text=True).stdout


def functions(path, data):
    """The first four bytes of every exported function."""
    loads = [(int(offset, 16), int(address, 16), int(size, 16)) for offset, address, size in
             re.findall(r"LOAD\s+(0x\w+) (0x\w+) 0x\w+ (0x\w+)", readelf(path, "-l"))]
    for line in readelf(path, "--dyn-syms").splitlines():
        found = re.match(r"\s*\d+: (\w+)\s+\d+ FUNC\s+GLOBAL DEFAULT\s+\d+ (blend_\w+)", line)
        if not found:
            continue
        at = int(found[1], 16)
        for offset, address, size in loads:
            if address <= at < address + size:
                yield found[2], data[offset + at - address:][:4]


def problems(path):
    with open(path, "rb") as file:
        data = file.read()
    segments, dynamic, symbols = readelf(path, "-l"), readelf(path, "-d"), readelf(path, "--dyn-syms")
    if struct.unpack_from("<H", data, 16)[0] != 3:
        yield "it has a fixed address: not position-independent"
    if "GNU_RELRO" not in segments or not re.search(r"BIND_NOW|FLAGS.*\bNOW\b", dynamic):
        yield "its table of imports stays writable: no full RELRO"
    if not re.search(r"GNU_STACK.* RW ", segments):
        yield "its stack may be executed"
    if re.search(r"LOAD.*RWE", segments):
        yield "it has pages that are written and executed"
    if "TEXTREL" in dynamic:
        yield "its code is written at load"
    for run_path in re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic):
        if any(not part for part in run_path.split(":")):
            yield "its run path has an empty entry, which is the current directory"
        if "libblend_cuda" in path and run_path != "$ORIGIN":
            yield f"its run path is '{run_path}', not $ORIGIN alone: what lies there would be loaded"
    if "libblend_cuda" in path and re.search(r"NEEDED.*\[libcu", dynamic):
        yield "it is linked to a library of CUDA, which it is to open"
    if "__stack_chk_fail" not in symbols:
        yield "no stack protector"
    if "libblend_cuda" not in path and not re.search(r"__\w+_chk@", symbols):
        yield "no FORTIFY_SOURCE: nothing imported is checked"
    if struct.unpack_from("<H", data, 18)[0] == 62:  # x86-64
        for name, begin in functions(path, data):
            if begin != b"\xf3\x0f\x1e\xfa":
                yield f"{name} does not begin with endbr64: no -fcf-protection"


def main():
    bad = [f"{path}: {problem}" for path in sys.argv[1:] for problem in problems(path)]
    print("\n".join(bad) or f"{len(sys.argv) - 1} files are as they should be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

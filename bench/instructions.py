#!/usr/bin/env python3
"""Instructions of the kernels beside those of bench/instructions.json: has one grown?

usage: instructions.py PROGRAM [--update]

PROGRAM is build/release/bench/bench_instructions. Runs it under callgrind (Debian's valgrind), which
counts instructions rather than time, so the figures are the same on a busy machine. It counts
the kernels for SSE4, the widest that valgrind 3.19 runs all of, as compiled by the table's compiler (GCC 12):
growth there is growth of its loops and most often everywhere. Ends with 1
where a kernel takes over 5 % more than the table says. --update writes the table.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TABLE = pathlib.Path(__file__).with_name("instructions.json")
TOLERANCE = 1.05


def count(program: str) -> tuple[str, dict[str, int]]:
    """The instruction set, and each kernel's instructions."""
    if shutil.which("valgrind") is None:
        sys.exit("instructions.py needs callgrind: apt-get install valgrind")
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch, "callgrind.out")
        run = subprocess.run(
            ["valgrind", "--tool=callgrind", "--toggle-collect=blend_measured",
             "--dump-after=blend_measured", f"--callgrind-out-file={out}", program],
            capture_output=True, text=True, check=False)
        if run.returncode != 0:
            sys.exit(f"{program} under callgrind ended with {run.returncode}:\n{run.stderr}")
        target, *names = run.stdout.splitlines()
        counts = {}
        for number, name in enumerate(names, 1):
            text = pathlib.Path(f"{out}.{number}").read_text(encoding="utf-8")
            counts[name] = int(re.search(r"^(?:summary|totals): (\d+)", text, re.M).group(1))
        return target, counts


def main() -> int:
    target, counts = count(sys.argv[1])
    if "--update" in sys.argv[2:]:
        TABLE.write_text(json.dumps({"target": target, "instructions": counts}, indent=2) + "\n",
                         encoding="utf-8")
        return 0
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    if target != table["target"]:
        sys.exit(f"the table is of {table['target']}, this machine's kernels are of {target}")
    grown = 0
    for name in sorted(counts.keys() | table["instructions"].keys()):
        now, before = counts.get(name), table["instructions"].get(name)
        if now is None or before is None:
            print(f"{name:24} only in the {'table' if now is None else 'program'}: --update")
            grown += 1
            continue
        bad = now > before * TOLERANCE
        grown += bad
        print(f"{name:24} {now:12} {now / before:6.3f}{'  grown' if bad else ''}")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())

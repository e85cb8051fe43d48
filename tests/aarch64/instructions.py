#!/usr/bin/env python3
"""What the hot loops of the kernels are made of on 64-bit Arm, read from their object files.

  instructions.py OBJDUMP OBJECT...

For each file in LOOPS below: the innermost loops that hold the instructions that its arithmetic is
to be done with; of the best and of the largest of them these instructions' share, all instructions,
and how many of those go to the stack, as they do where sums do not fit into registers. Fails where a
file has no loop as good as LOOPS says. A file that the library does not have is passed over.
"""

import re
import subprocess
import sys

FUSED = r"fmla|fmls"
DOT = r"[su]dot|usdot|sudot|[su]mmla|usmmla"
# Source: (instructions, least share of them in the best loop).
LOOPS = {
    "attention.cpp": (FUSED, 0.5),
    "attention_mass.cpp": (FUSED, 0.3),
    "attention_tempered.cpp": (FUSED, 0.3),
    "deviation.cpp": (FUSED, 0.2),
    "few_rows.cpp": (FUSED, 0.2),
    "gemm_f32.cpp": (FUSED, 0.6),
    "gemm_int8_dot.cpp": (DOT, 0.5),
    "rms_norm.cpp": (FUSED, 0.3),
    "swiglu.cpp": (FUSED, 0.1),
}

FUNCTION = re.compile(r"^([0-9a-f]+) <(.*)>:$")
LINE = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
BRANCH = re.compile(r"^(b|b\.\w+|cbn?z|tbn?z)$")


def functions(objdump, path):
    """(name, [(address, instruction, operands)]) of every function in an object file."""
    text = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", path], check=True,
                          capture_output=True, text=True).stdout
    name, body = None, []
    for line in text.splitlines():
        if begin := FUNCTION.match(line):
            if body:
                yield name, body
            name, body = begin[2], []
        elif found := LINE.match(line):
            body.append((int(found[1], 16), found[2], found[3]))
    if body:
        yield name, body


def innermost_loops(body):
    """Lists of (instruction, operands): the ranges that a branch goes back over, without those that
    hold another."""
    at = {address: i for i, (address, _, _) in enumerate(body)}
    ranges = set()
    for i, (address, instruction, operands) in enumerate(body):
        target = re.search(r"([0-9a-f]+) <", operands)
        if BRANCH.match(instruction) and target and int(target[1], 16) <= address:
            if (begin := at.get(int(target[1], 16))) is not None:
                ranges.add((begin, i))
    for begin, end in ranges:
        if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in ranges):
            yield [body[i][1:] for i in range(begin, end + 1)]


def main():
    objdump, objects = sys.argv[1], sys.argv[2:]
    failed = []
    head = f"{'share':>12}{'length':>8}{'stack':>7}"
    print(f"{'':<24}{'':>6}{'best loop':>27}{'largest loop':>27}")
    print(f"{'kernel':<24}{'loops':>6}{head}{head}")
    for source, (wanted, least) in LOOPS.items():
        paths = [o for o in objects if o.endswith((f"/{source}.o", f"/{source}.obj"))]
        if not paths:
            print(f"{source:<24}  not in this library")
            continue
        loops = []
        for name, body in functions(objdump, paths[0]):
            # References are what kernels are judged by, not what runs.
            if "_ref(" in name:
                continue
            for loop in innermost_loops(body):
                hits = sum(bool(re.fullmatch(wanted, i)) for i, _ in loop)
                stack = sum("[sp" in operands or "[x29" in operands for _, operands in loop)
                if hits:
                    loops.append((stack == 0, hits / len(loop), len(loop), stack))
        if not loops:
            print(f"{source:<24}{0:>6}")
            failed.append(f"{source} has no loop with {wanted}")
            continue
        clean, share, length, stack = max(loops)
        _, most, longest, spilled = max(loops, key=lambda loop: loop[1] * loop[2])
        print(f"{source:<24}{len(loops):>6}{share:>12.0%}{length:>8}{stack:>7}"
              f"{most:>12.0%}{longest:>8}{spilled:>7}")
        if share < least:
            failed.append(f"{source}: at most {share:.0%} of a loop is {wanted}, wanted {least:.0%}")
        if not clean:
            failed.append(f"{source}: every loop with {wanted} goes to the stack")
    for line in failed:
        print("FAILED:", line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

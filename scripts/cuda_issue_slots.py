#!/usr/bin/env python3
"""Issue slots of attention's inner loop, counted in its machine code.

A warp's tensor instructions (HMMA) run beside its others, so that a kernel is as fast as the larger of
the two: the issue slots of one tile of keys besides its HMMA are what can be known without a card.
Reads what `nvdisasm -c` prints; counts the instructions on the way through the loop that does the most
HMMA and starts the most copies of the next tile, and of those ways the shortest: a tile that needs no
mask. A loop inside of it counts once (head sizes 96 and 256 have such).

    cuda_issue_slots.py SASS [--at-most N]   # exits 1 if head size 128, four warps, takes more
"""
import argparse
import re
import sys

FUNCTION = re.compile(r"^\.text\.(\S*attention_kernelILi(\d+)ELi(\d+)ELi(\d+)E\S*):")
LABEL = re.compile(r"^(\.L_x_\d+):")
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)(.*);")
TARGET = re.compile(r"`\((\.L_x_\d+)\)")


class Block:
    def __init__(self):
        self.slots = self.hmma = self.copies = 0
        self.next = []  # of blocks, by number
        self.target = None  # label of a branch out of it
        self.falls = True


def functions(lines):
    """For each attention kernel: its name's numbers and its blocks, in the order of the code."""
    key, blocks, labels = None, [], {}
    for line in lines:
        found = FUNCTION.match(line)
        if found or line.startswith("\t.section"):
            if key:
                yield key, blocks, labels
            key, blocks, labels = None, [], {}
            if found:
                key, blocks = tuple(int(n) for n in found.groups()[1:]), [Block()]
            continue
        if key is None:
            continue
        label = LABEL.match(line)
        if label:
            if blocks[-1].slots:
                blocks.append(Block())
            labels[label.group(1)] = len(blocks) - 1
            continue
        instruction = INSTRUCTION.match(line)
        if not instruction:
            continue
        predicate, name, rest = instruction.groups()
        block = blocks[-1]
        block.slots += 1
        block.hmma += name.startswith("HMMA")
        block.copies += name.startswith("LDGSTS")
        if name.startswith(("BRA", "EXIT", "RET")):
            target = TARGET.search(rest)
            block.target = target.group(1) if target else None
            # "BRA P0, ..." is a condition too.
            block.falls = predicate is not None or re.match(r"\s*!?U?P\d", rest) is not None
            blocks.append(Block())
    if key:
        yield key, blocks, labels


def inner_loop(blocks, labels):
    """The cheapest of the ways through the loop that holds HMMA: (HMMA, copies, slots)."""
    for i, block in enumerate(blocks):
        if block.target in labels:
            block.next.append(labels[block.target])
        if block.falls and i + 1 < len(blocks):
            block.next.append(i + 1)
    best = None
    for end, block in enumerate(blocks):
        for begin in block.next:
            if begin > end:
                continue
            # Ways from `begin` to `end` by edges that go forward, within the loop.
            ways = {begin: (blocks[begin].hmma, blocks[begin].copies, -blocks[begin].slots)}
            for at in range(begin, end):
                for to in blocks[at].next if at in ways else ():
                    if at < to <= end:
                        way = tuple(map(sum, zip(ways[at], (blocks[to].hmma, blocks[to].copies, -blocks[to].slots))))
                        ways[to] = max(ways.get(to, (-1, 0, 0)), way)
            if end in ways and ways[end][0] and (best is None or ways[end][0] >= best[0]):
                best = ways[end]
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sass")
    parser.add_argument("--at-most", type=int)
    arguments = parser.parse_args()
    too_many = False
    n = 0
    with open(arguments.sass, encoding="utf-8") as file:
        for (head, warps, keys), blocks, labels in functions(file):
            loop = inner_loop(blocks, labels)
            if loop is None:
                sys.exit(f"head size {head}: no loop with HMMA was found")
            hmma, copies, slots = loop[0], loop[1], -loop[2]
            print(f"head size {head:3}, {warps} warps, {keys} keys: {slots:5} slots, {hmma:4} HMMA, "
                  f"{copies:3} copies; {slots * 128 / hmma:6.0f} slots per 128 HMMA")
            n += 1
            if arguments.at_most and (head, warps) == (128, 4):
                too_many = slots * 128 > arguments.at_most * hmma
    if n == 0:
        sys.exit("no attention kernel was found")
    if too_many:
        sys.exit(f"more than {arguments.at_most} issue slots per 128 HMMA at head size 128")


main()

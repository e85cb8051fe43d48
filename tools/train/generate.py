"""Writes questions about multi-chunk prompts as JSON lines.

    python generate.py --split held-out --count 200 --seed 7 --out held-out.jsonl

A line: {"chunks", "question", "answers", "kind", "hops", "split"}; hops is the
number of chunks needed to answer. See README.md for the prompt's exact form.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from prompts import MAX_CHUNKS, MIN_CHUNKS, Mix, Prompt, contested, make_prompt
from stories import Fact

# How often a question of that many passages is asked, in the written sets.
HOP_WEIGHTS = {1: 0.2, 2: 0.55, 3: 0.25}


def record(prompt: Prompt, fact: Fact, split: str) -> dict[str, object]:
    """One line of the dataset."""
    return {
        "chunks": prompt.chunks,
        "question": fact.question,
        "answers": [fact.answer],
        "kind": fact.kind,
        "hops": fact.passages,
        "split": split,
    }


def make_records(count: int, seed: int, split: str, mix: Mix = Mix()) -> list[dict[str, object]]:
    """`count` questions, each about a prompt of its own.

    Where the answer needs more than one passage the question is contested: whoever cannot tell whom a pronoun
    means has to guess.
    """
    rng = random.Random(f"{split}:{seed}")
    records: list[dict[str, object]] = []
    while len(records) < count:
        hops = rng.choices(list(HOP_WEIGHTS), list(HOP_WEIGHTS.values()))[0]
        for _ in range(200):
            prompt = make_prompt(rng, split == "held-out", mix)
            facts = [f for f in prompt.facts if f.passages == hops and (hops == 1 or contested(f, prompt.facts))]
            if facts:
                records.append(record(prompt, rng.choice(facts), split))
                break
    return records


def main() -> None:
    """Read the options and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", choices=("train", "held-out"), default="held-out")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--min-chunks", type=int, default=MIN_CHUNKS)
    parser.add_argument("--max-chunks", type=int, default=MAX_CHUNKS)
    parser.add_argument("--min-tokens", type=int, default=Mix.min_tokens, help="tokens of a chunk, nearly")
    parser.add_argument("--max-tokens", type=int, default=Mix.max_tokens)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    mix = Mix(options.min_chunks, options.max_chunks, options.min_tokens, options.max_tokens)
    with options.out.open("w", encoding="utf-8") as out:
        for line in make_records(options.count, options.seed, options.split, mix):
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

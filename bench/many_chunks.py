#!/usr/bin/env python3
"""Questions over many short chunks: each with its own chunks and others of the same file, shuffled.

    bench/many_chunks.py --data bench/questions/town.jsonl --chunks 20 --out town20.jsonl
"""
import argparse
import json
import random
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--chunks", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.data.read_text(encoding="utf-8").splitlines()]
    texts = list(dict.fromkeys(chunk for row in rows for chunk in row["chunks"]))
    rng = random.Random(args.seed)
    with args.out.open("w", encoding="utf-8") as out:
        for row in rows:
            others = [text for text in texts if text not in row["chunks"]]
            chunks = row["chunks"] + rng.sample(others, min(args.chunks - len(row["chunks"]), len(others)))
            rng.shuffle(chunks)
            out.write(json.dumps(row | {"chunks": chunks}) + "\n")


if __name__ == "__main__":
    main()

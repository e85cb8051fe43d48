#!/usr/bin/env python3
"""Long prompts, as records for `blend eval`, from questions with short ones.

    bench/long_questions.py musique.jsonl --chunks 8 --words 365 --count 8 > long.jsonl

The text of every record is cut into chunks of --words words; a short rest is left out, which may hold the answer. A
prompt has the question of one record, that record's chunks after the first half of the others, and chunks of the
records after it around them. 365 words are about 512 tokens.
"""
import argparse
import json
import sys


def pieces(record, words):
    """The record's text in chunks; what is left over at the end is a chunk if it is long enough."""
    text = " ".join(chunk.strip() for chunk in record["chunks"]).split()
    cut = (text[i:i + words] for i in range(0, len(text), words))
    return [" ".join(part) + "\n\n" for part in cut if 3 * len(part) >= 2 * words]


def prompt_of(records, own, args):
    chunks = []
    for i in range(len(records)):
        chunks += pieces(records[(own + i) % len(records)], args.words)
        if len(chunks) >= args.chunks:
            break
    else:
        sys.exit(f"{args.data} has no {args.chunks} chunks of {args.words} words")
    half = args.chunks // 2
    return {"chunks": chunks[half:args.chunks] + chunks[:half], "question": records[own]["question"],
            "answers": records[own]["answers"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="JSON lines of {chunks, question, answers}")
    parser.add_argument("--chunks", type=int, default=8, help="a prompt")
    parser.add_argument("--words", type=int, default=365, help="a chunk")
    parser.add_argument("--count", type=int, default=8, help="prompts")
    args = parser.parse_args()
    with open(args.data, encoding="utf-8") as file:
        records = [json.loads(line) for line in file if line.strip()]
    for i in range(args.count):
        # Far apart, so that prompts share few chunks.
        print(json.dumps(prompt_of(records, i * 7 % len(records), args)))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Stories sampled from a model that tells stories, as records for `blend eval` and `blend calibrate`.

    bench/sample_stories.py --blend build/release/tools/blend/blend --model stories260K.gguf \
        --seeds 1-240 --out stories.jsonl

Each story of nine sentences or more becomes four chunks of two sentences; the question is the first
three words of the sentence after them, the answer the rest of that sentence.
"""
import argparse
import json
import re
import subprocess
import tempfile


def story(args, store, seed):
    out = subprocess.run(
        [args.blend, "ask", "--model", args.model, "--store", store, "--question", args.opening,
         "--question-template", "{question}", "--temperature", "0.7", "--top-p", "0.9",
         "--max-tokens", "250", "--seed", str(seed), "--threads", "1", "--json"],
        check=True, capture_output=True, text=True).stdout
    return args.opening + json.loads(out)["answer"]


def record(text):
    sentences = [s.strip() for s in re.findall(r'[^.!?]+[.!?]+["\']?', text.replace("\n", " "))]
    if len(sentences) < 9:
        return None
    chunks = [" ".join(sentences[i:i + 2]) for i in range(0, 8, 2)]
    words = sentences[8].split()
    if len(words) < 4:
        return None
    return {"chunks": chunks, "question": " ".join(words[:3]), "answers": [" ".join(words[3:])]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blend", required=True, help="the blend command")
    parser.add_argument("--model", required=True)
    parser.add_argument("--seeds", default="1-80", help="FIRST-LAST")
    parser.add_argument("--opening", default="Once upon a time")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    first, last = (int(s) for s in args.seeds.split("-"))
    n = 0
    with tempfile.TemporaryDirectory() as store, open(args.out, "w", encoding="utf-8") as out:
        for seed in range(first, last + 1):
            made = record(story(args, store, seed))
            if made:
                out.write(json.dumps(made, ensure_ascii=False) + "\n")
                n += 1
    print(f"{n} of {last - first + 1} stories have nine sentences or more: {args.out}")


if __name__ == "__main__":
    main()

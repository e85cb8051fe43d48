#!/usr/bin/env python3
"""Two builds of the command `blend` beside each other: what a host feels, measured in turn.

    bench/two_builds.py --before OLD/blend --after NEW/blend --model model.gguf --chat --rounds 5

Each line is a median over the rounds, and the ratio of the two medians. In a round each build measures once, in an order
that is drawn. Each build has its own store, because a store may be older than the other build can read. Prompts are made of
the text of bench/questions, which both builds cut at the same places. Chunks are stored after the prompt head only.
Decoding is the time of --tokens more tokens in a process. It contains what such a process does at its end.
"""
import argparse
import json
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

QUESTIONS = Path(__file__).parent / "questions"
# name: (words of text, tokens of a chunk)
PROMPTS = {"20 x 50": (700, 50), "8 x 256": (1500, 256), "500 x 16": (4300, 16), "28 x 256": (5200, 256)}


def words():
    found = []
    for name in ("town.jsonl", "forms.jsonl"):
        for line in (QUESTIONS / name).read_text(encoding="utf-8").splitlines():
            found += " ".join(json.loads(line)["chunks"]).split()
    return found


class Build:
    def __init__(self, binary, args, folder):
        self.binary, self.folder = binary, folder
        self.common = ["--model", args.model, *(["--chat"] if args.chat else [])]
        self.threads = ["--threads", str(args.threads)] if args.threads else []
        self.end = args.end_token

    def run(self, command, prompt, *options):
        """What the command says, and the seconds that its process took."""
        text, chunk = prompt
        began = time.monotonic()
        done = subprocess.run([self.binary, command, *self.common, "--docs", text, "--chunk-tokens", str(chunk), "--json",
                               *self.threads, *map(str, options)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        seconds = time.monotonic() - began
        if done.returncode:
            raise SystemExit(f"{self.binary} {command}: {done.stderr.decode()}")
        return json.loads(done.stdout), seconds

    def store(self, name):
        return self.folder / name

    def empty(self):
        folder = self.store("empty")
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def precompute(self, prompt, store):
        answer, _ = self.run("precompute", prompt, "--store", store, "--contexts", 0)
        return answer["n_tokens"] / answer["seconds"]

    def ask(self, prompt, store, *options, tokens=1):
        answer, seconds = self.run("ask", prompt, "--store", store, "--max-tokens", tokens, "--question", "Who built it?",
                                   "--logit-bias", f"{self.end}:-inf", *options)
        return answer["fusion"], answer["n_generated"], seconds

    def first_token(self, prompt, store, *options):
        return self.ask(prompt, store, *options)[0]["ttft_ns"] / 1e6

    def process(self, prompt, store, *options):
        return 1e3 * self.ask(prompt, store, *options)[2]

    def decode(self, prompt, store, tokens):
        """Tokens a second."""
        first = self.ask(prompt, store, *REUSE)
        more = self.ask(prompt, store, *REUSE, tokens=1 + tokens)
        return (more[1] - first[1]) / (more[2] - first[2])


REUSE = ("--policy", "reuse", "--ratio", 0)
ATTENTION = ("--policy", "attention", "--ratio", 0.2)


def measures(args, prompts):
    """name, unit, what one build does."""
    few, more, many, long = (prompts[name] for name in PROMPTS)
    yield "precompute, 50 tokens a chunk", "tokens/s", lambda b: b.precompute(few, b.empty())
    for name, prompt in (("20 x 50", few), ("8 x 256", more), ("28 x 256", long)):
        if name == "28 x 256" and not args.long:
            continue
        yield f"{name}: nothing stored", "ms", lambda b, p=prompt: b.first_token(p, b.empty())
        yield f"{name}: full prefill", "ms", lambda b, p=prompt: b.first_token(p, b.store("warm"), "--policy", "full")
        yield f"{name}: attention 20 %", "ms", lambda b, p=prompt: b.first_token(p, b.store("warm"), *ATTENTION)
        yield f"{name}: reuse", "ms", lambda b, p=prompt: b.first_token(p, b.store("warm"), *REUSE)
    yield "500 x 16: reuse", "ms", lambda b: b.first_token(many, b.store("warm"), *REUSE)
    yield "20 x 50: a process, reuse, one token", "ms", lambda b: b.process(few, b.store("warm"), *REUSE)
    yield "decoding after 20 x 50", "tokens/s", lambda b: b.decode(few, b.store("warm"), args.tokens)
    if args.long:
        yield "decoding after 28 x 256", "tokens/s", lambda b: b.decode(long, b.store("warm"), args.tokens)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", required=True)
    parser.add_argument("--after", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--chat", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128, help="how many more tokens decoding is measured by")
    parser.add_argument("--end-token", type=int, default=2, help="a token that must not end the answer")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--no-long", dest="long", action="store_false", help="without the prompts of 7,000 tokens")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    text = words()
    rows = []
    with tempfile.TemporaryDirectory() as temp:
        prompts = {}
        for name, (n, chunk) in PROMPTS.items():
            file = Path(temp) / f"{n}.txt"
            file.write_text(" ".join((text * (1 + n // len(text)))[:n]) + "\n", encoding="utf-8")
            prompts[name] = (file, chunk)
        builds = {}
        for name in ("before", "after"):
            folder = Path(temp) / name
            folder.mkdir()
            builds[name] = Build(getattr(args, name), args, folder)
            for prompt in prompts.values():
                builds[name].precompute(prompt, folder / "warm")
        for what, unit, measure in measures(args, prompts):
            taken = {name: [] for name in builds}
            for _ in range(args.rounds):
                for name in random.sample(list(builds), 2):
                    taken[name].append(measure(builds[name]))
            before, after = (statistics.median(taken[name]) for name in ("before", "after"))
            rows.append({"what": what, "unit": unit, "before": before, "after": after, "rounds": taken})
            better = before / after if unit == "ms" else after / before
            print(f"{what:40} {before:10.1f} {after:10.1f} {unit:9} {better:6.2f} times better", flush=True)
    if args.json:
        args.json.write_text(json.dumps({"model": args.model, "measures": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Paired differences of KL between the ways of fusing in one result of `blend eval --json`.

    bench/paired.py result.json --against 'hkvd v_weighed' --ratio 0.15

One line a way of fusing: its share of full prefill's FLOPs, its mean KL, and the mean of its KL minus
that of the one compared with, question by question, with a 95 % bootstrap interval. An interval
without 0 in it says that the two are to be told apart.
"""
import argparse
import json
import random


def interval(values, seed, resamples=4000):
    draw = random.Random(seed)
    n = len(values)
    means = sorted(sum(draw.choices(values, k=n)) / n for _ in range(resamples))
    return means[int(0.025 * resamples)], means[int(0.975 * resamples)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result")
    parser.add_argument("--against", default="hkvd v_weighed", help="the name of a way of fusing")
    parser.add_argument("--ratio", type=float, default=0.15, help="its ratio")
    parser.add_argument("--prefix", default=None, help="its chunk prefix; default: the first")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with open(args.result, encoding="utf-8") as file:
        result = json.load(file)
    configs, questions = result["configs"], result["questions"]
    kl = [[q["configs"][i]["kl"] for q in questions] for i in range(len(configs))]
    base = next((i for i, c in enumerate(configs)
                 if c["name"] == args.against and abs((c.get("ratio") or 0) - args.ratio) < 5e-3
                 and args.prefix in (None, c.get("chunk_prefix"))), None)
    if base is None:
        parser.error(f"no '{args.against}' at ratio {args.ratio} in {args.result}")
    print("| | chunk prefix | ratio | FLOPs | KL | minus | 95 % |\n|---|---|---|---|---|---|---|")
    for i, config in enumerate(configs):
        minus = [a - b for a, b in zip(kl[i], kl[base])]
        low, high = interval(minus, args.seed)
        n = len(minus)
        print(f"| {config['name']} | {config.get('chunk_prefix') or '-'} | "
              f"{100 * (config.get('ratio') or 0):.1f} % | {100 * config['flops_relative']:.1f} % | "
              f"{sum(kl[i]) / n:.2e} | {sum(minus) / n:+.1e} | {low:+.1e} .. {high:+.1e} |")


if __name__ == "__main__":
    main()

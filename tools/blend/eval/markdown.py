#!/usr/bin/env python3
"""A Markdown table of one or more results of `blend eval --json`, for docs/quality.md.

    tools/blend/eval/markdown.py seed-7.json seed-8.json seed-9.json

Several results must be of the same configurations, on other questions: figures are means over the
results, weighted by their questions, and exact match also shows the lowest and the highest.
"""

import argparse
import json
import sys

COLUMNS = ["chunk prefix", "policy", "ratio", "EM %", "F1 %", "recovered %", "KL mean", "KL p95",
           "top-1 %", "same answer %", "rows, of all %", "FLOPs %", "TTFT ms", "speed-up"]


def key(config):
    """What makes two lines of two results the same line."""
    return (config["policy"], config.get("chunk_prefix", ""), config["name"], config["ratio"])


def lines(result):
    """The lines of a result: full prefill, the reference, first."""
    return [result["full"]] + [c for c in result["configs"] if c["policy"] != "full"]


def small(value):
    """A KL divergence with two digits that say something."""
    return "0" if value == 0 else f"{value:.4f}" if value >= 0.001 else f"{value:.1e}"


def row(configs, full, reuse):
    """One line of the table from the same line of every result."""
    total = sum(c["n"] for c in configs)

    def mean(name, of=configs):
        return sum(c[name] * c["n"] for c in of) / total

    matches = [100 * c["exact_match"] for c in configs]
    match = f"{100 * mean('exact_match'):.1f}"
    if len(configs) > 1:
        match += f" ({min(matches):.1f}–{max(matches):.1f})"
    else:
        low, high = (100 * edge for edge in configs[0]["exact_match_ci95"])
        match += f" [{low:.1f}, {high:.1f}]"
    recovered = "–"
    if configs[0]["policy"] not in ("full", "reuse") and reuse:
        lost = mean("exact_match", full) - mean("exact_match", reuse)
        if lost > 0:
            won = mean("exact_match") - mean("exact_match", reuse)
            recovered = f"{100 * won / lost:.1f}"
    speed_up = mean("ttft_ms_median", full) / mean("ttft_ms_median")
    return [configs[0].get("chunk_prefix", "–"), configs[0]["name"],
            f"{configs[0]['ratio']:g}" if configs[0]["policy"] not in ("full", "reuse") else "–", match,
            f"{100 * mean('f1'):.1f}", recovered, small(mean("kl_mean")), small(mean("kl_p95")),
            f"{100 * mean('top1_agreement'):.1f}", f"{100 * mean('answer_agreement'):.1f}",
            f"{100 * mean('rows_of_all'):.1f}", f"{100 * mean('flops_relative'):.1f}",
            f"{mean('ttft_ms_median'):.2f}", f"{speed_up:.2f}"]


def table(results):
    """The whole table, as Markdown."""
    by_key = [{key(c): c for c in lines(result)} for result in results]
    if any(found.keys() != by_key[0].keys() for found in by_key):
        raise ValueError("the results are not of the same policies, ratios and chunk prefixes")
    out = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    full = [result["full"] for result in results]
    for place in map(key, lines(results[0])):
        configs = [found[place] for found in by_key]
        reuse_key = ("reuse", place[1], "reuse", 0)
        reuse = [found[reuse_key] for found in by_key if reuse_key in found]
        out.append("| " + " | ".join(row(configs, full, reuse)) + " |")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", metavar="RESULT.json")
    results = []
    for path in parser.parse_args().results:
        try:
            with open(path, encoding="utf-8") as file:
                result = json.load(file)
        except (OSError, ValueError) as error:
            sys.exit(f"cannot read '{path}': {error}")
        if not isinstance(result, dict) or result.get("format") != "blend-eval-1":
            sys.exit(f"'{path}' is not a result of blend eval --json")
        results.append(result)
    try:
        print(table(results))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

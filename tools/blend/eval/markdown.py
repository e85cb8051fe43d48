#!/usr/bin/env python3
"""A Markdown table of one or more results of `blend eval --json`, for docs/quality.md.

    tools/blend/eval/markdown.py seed-7.json seed-8.json seed-9.json

Several results must be of the same configurations, on other questions: figures are means over the
results, weighted by their questions, and answers found also show the lowest and the highest.
"""

import argparse
import json
import sys

COLUMNS = ["records", "policy", "ratio", "found %", "PGR %", "EM %", "F1 %", "KL first", "KL of 8",
           "top-1 %", "agree %", "same answer %", "rows, of all %", "FLOPs %", "TTFT ms", "speed-up"]


def key(config):
    """What makes two lines of two results the same line."""
    return (config["policy"], config.get("records", ""), config["name"], config["ratio"])


def lines(result):
    """The lines of a result: full prefill, the reference, first."""
    return [result["full"]] + [c for c in result["configs"] if c["policy"] != "full"]


def small(value):
    """A KL divergence with two digits that say something."""
    return "0" if value == 0 else f"{value:.4f}" if value >= 0.001 else f"{value:.1e}"


def row(configs, full, floors):
    """One line of the table from the same line of every result."""
    total = sum(c["n"] for c in configs)

    def mean(name, of=configs):
        return sum(c[name] * c["n"] for c in of) / total

    shares = [100 * c["found"] for c in configs]
    found = f"{100 * mean('found'):.1f}"
    if len(configs) > 1:
        found += f" ({min(shares):.1f}–{max(shares):.1f})"
    else:
        low, high = (100 * edge for edge in configs[0]["found_ci95"])
        found += f" [{low:.1f}, {high:.1f}]"
    kept = "–"
    if all(floors):
        floor = sum(f["found"] * c["n"] for f, c in zip(floors, configs)) / total
        if mean("found", full) > floor:
            kept = f"{100 * (mean('found') - floor) / (mean('found', full) - floor):.1f}"
    speed_up = mean("ttft_ms_median", full) / mean("ttft_ms_median")
    chooses = configs[0]["policy"] not in ("full", "reuse")
    return [configs[0].get("records", "–"), configs[0]["name"],
            f"{configs[0]['ratio']:g}" if chooses else "–", found, kept,
            f"{100 * mean('exact_match'):.1f}", f"{100 * mean('f1'):.1f}", small(mean("kl_mean")),
            small(mean("kl8_mean")), f"{100 * mean('top1_agreement'):.1f}",
            f"{100 * mean('token_agreement'):.1f}", f"{100 * mean('answer_agreement'):.1f}",
            f"{100 * mean('rows_of_all'):.1f}", f"{100 * mean('flops_relative'):.1f}",
            f"{mean('ttft_ms_median'):.2f}", f"{speed_up:.2f}"]


def table(results):
    """The whole table, as Markdown."""
    by_key = [{key(c): c for c in lines(result)} for result in results]
    if any(found.keys() != by_key[0].keys() for found in by_key):
        raise ValueError("the results are not of the same policies, ratios and records")
    out = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    full = [result["full"] for result in results]
    floors = [result.get("floor") for result in results]
    for place in map(key, lines(results[0])):
        configs = [found[place] for found in by_key]
        out.append("| " + " | ".join(row(configs, full, floors)) + " |")
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
        if not isinstance(result, dict) or result.get("format") != "blend-eval-2":
            sys.exit(f"'{path}' is not a result of blend eval --json")
        results.append(result)
    try:
        print(table(results))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

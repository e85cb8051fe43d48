#!/usr/bin/env python3
"""The drift correction by rank, inputs, ridge and check layer: one `blend calibrate` each, all of
them into one JSON file, and their tables as Markdown.

    bench/drift.py --blend build/release/tools/blend/blend --model stories260K.gguf \
        --data stories.jsonl --out drift.json -- --question-template '{question}'

Arguments after `--` are passed to every `blend calibrate`.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

MAP_METRIC = "v_weighed"  # the metric that selects rows where maps are compared
MAP_RATIOS = [0, 0.05, 0.15]
MAP_OPTIONS = ["--metrics", MAP_METRIC, "--ratios", ",".join(map(str, MAP_RATIOS))]

RUNS = [
    ("deviation, fresh, constant", ["--metrics", "v,v_weighed"]),
    ("deviation", ["--drift-inputs", "deviation"]),
    ("deviation, constant", ["--drift-inputs", "deviation,constant"]),
    ("deviation, fresh", ["--drift-inputs", "deviation,fresh"]),
    ("ridge 0", ["--ridge", "0"]),
    ("ridge 0.01", ["--ridge", "0.01"]),
    ("ridge 0.1", ["--ridge", "0.1"]),
    ("half rank", ["--drift-rank", "{half}"]),
    ("quarter rank", ["--drift-rank", "{quarter}"]),
    ("eighth rank", ["--drift-rank", "{eighth}"]),
    ("sixteenth rank", ["--drift-rank", "{sixteenth}"]),
    ("check layer 2", ["--check-layer", "2"]),
]


def run(args, options, extra):
    with tempfile.TemporaryDirectory() as directory:
        command = [args.blend, "calibrate", "--model", args.model, "--data", args.data, "--out",
                   os.path.join(directory, "profile"), "--json", *extra, *options]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def width_of(args):
    done = subprocess.run([args.blend, "model", "info", "--model", args.model, "--json"],
                          check=True, capture_output=True, text=True)
    info = json.loads(done.stdout)
    return 2 * info["n_kv_heads"] * info["head_dim"]


def kl(table, prefix, metric, ratio, corrected):
    for line in table:
        key = (line["chunk_prefix"], line["metric"], line["ratio"], line["corrected"])
        if key == (prefix, metric, ratio, corrected):
            return line
    raise KeyError((prefix, metric, ratio, corrected))


def figure(x):
    return f"{x:.4f}".lstrip("0") if x >= 0.001 else f"{x:.2e}"


def markdown(runs):
    table = runs[0]["result"]["table"]
    prefixes = list(dict.fromkeys(line["chunk_prefix"] for line in table))
    metrics = list(dict.fromkeys(line["metric"] for line in table))
    ratios = sorted({line["ratio"] for line in table})
    out = ["| recompute | " + " | ".join(f"{100 * r:g} %" for r in ratios) + " |",
           "|---|" + "---|" * len(ratios)]
    for prefix in prefixes:
        for metric in metrics:
            for corrected in (False, True):
                cells = [kl(table, prefix, metric, r, corrected) for r in ratios]
                name = f"{prefix}, {metric}, {'corrected' if corrected else 'plain'}"
                out.append(f"| {name} | " + " | ".join(
                    f"{figure(c['kl_mean'])} ({100 * c['top1']:.1f})" for c in cells) + " |")
    columns = [(p, r) for p in prefixes for r in MAP_RATIOS]
    out += ["", "| maps | " + " | ".join(f"{p} {100 * r:g} %" for p, r in columns) + " |",
            "|---|" + "---|" * len(columns)]
    for run in runs:
        for corrected in (False, True):
            if not corrected and run["name"] != "check layer 2":
                continue
            cells = [figure(kl(run["result"]["table"], p, MAP_METRIC, r, corrected)["kl_mean"])
                     for p, r in columns]
            name = run["name"] + ("" if corrected else ", plain")
            out.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def main():
    argv, extra = sys.argv[1:], []
    if "--" in argv:
        at = argv.index("--")
        argv, extra = argv[:at], argv[at + 1:]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("blend", "model", "data", "out"):
        parser.add_argument("--" + name, required=True)
    args = parser.parse_args(argv)
    width = width_of(args)
    ranks = {"half": width // 2, "quarter": width // 4, "eighth": width // 8,
             "sixteenth": width // 16}
    runs = []
    for name, options in RUNS:
        options = [o.format(**ranks) for o in options]
        if runs:  # the first has the whole table
            options = MAP_OPTIONS + options
        result = run(args, options, extra)
        result["model"], result["data"] = (os.path.basename(result[k]) for k in ("model", "data"))
        runs.append({"name": name, "options": options, "result": result})
        print(f"{name}: done", file=sys.stderr)
    with open(args.out, "w", encoding="utf-8") as out:
        json.dump({"width": width, "extra": extra, "runs": runs}, out, indent=1)
        out.write("\n")
    print(markdown(runs))


if __name__ == "__main__":
    main()

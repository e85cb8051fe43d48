#!/usr/bin/env python3
"""Paired differences between the ways of fusing in results of `blend eval --json`.

    bench/paired.py result.json --against 'hkvd v_weighed' --ratio 0.15
    bench/paired.py result.json others.json --against 'cascade v' --flops 0.2,0.4 --json table.json

One line a way of fusing: its share of full prefill's FLOPs, its mean KL, and the mean of its KL minus
that of the one compared with, question by question, with a 95 % bootstrap interval. An interval
without 0 in it says that the two differ.

With --flops each is compared with --against at the budget nearest to its own FLOPs, and the lines say how
often its likeliest token and its whole answer are full prefill's, its exact match and F1, and the
difference of its exact match. A budget that --against cannot keep is left out. Several results are joined
question by question; they must be of the same questions.
"""
import argparse
import json
import random


def interval(values, seed, resamples=4000):
    draw = random.Random(seed)
    n = len(values)
    means = sorted(sum(draw.choices(values, k=n)) / n for _ in range(resamples))
    return means[int(0.025 * resamples)], means[int(0.975 * resamples)]


def lines_where(data, condition):
    """The numbers of the lines of `data` whose record has KEY=VALUE."""
    key, value = condition.split("=", 1)
    with open(data, encoding="utf-8") as file:
        return {n for n, line in enumerate(file, 1) if line.strip() and str(json.loads(line).get(key)) == value}


def joined(paths, only):
    """The configurations of all results, each once, with their outcomes question by question, full
    prefill's, and what is said of the results themselves."""
    lines, full, ways, about = None, None, {}, {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        about.update({k: result[k] for k in ("date", "machine", "version", "check") if k in result})
        about.update({"model": result["model"]["name"]} if "model" in result else {})
        questions = {q["line"]: q for q in result["questions"]}
        if only is not None:
            questions = {line: q for line, q in questions.items() if line in only}
        if lines is None:
            lines = list(questions)
            full = [questions[line]["full"] for line in lines]
        if set(questions) != set(lines):
            raise SystemExit(f"{path}: other questions than in {paths[0]}")
        for i, config in enumerate(result["configs"]):
            key = (config["name"], config.get("ratio") or 0)
            if config.get("records") == "profile" and any(k[:2] == key for k in ways):
                continue  # the same way of fusing, without the profile
            ways.setdefault((*key, config.get("records")),
                            (config, [questions[line]["configs"][i] for line in lines]))
    return full, list(ways.values()), about


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def budget_of(config, budgets):
    return min(budgets, key=lambda b: abs(config["flops_relative"] - b))


def line_of(config, outcomes, base, full, seed):
    minus = [a["kl"] - b["kl"] for a, b in zip(outcomes, base)]
    wins = [int(a["exact_match"]) - int(b["exact_match"]) for a, b in zip(outcomes, base)]
    low, high = interval(minus, seed)
    em_low, em_high = interval(wins, seed)
    return {
        "name": config["name"], "ratio": config.get("ratio") or 0,
        "flops": config["flops_relative"], "n": len(outcomes),
        "kl": mean(o["kl"] for o in outcomes), "kl_minus": mean(minus), "kl_minus_ci95": [low, high],
        "top1": mean(o["top1_agrees"] for o in outcomes),
        "same_answer": mean(o["same_answer"] for o in outcomes),
        "exact_match": mean(o["exact_match"] for o in outcomes), "f1": mean(o["f1"] for o in outcomes),
        "exact_match_minus": mean(wins), "exact_match_minus_ci95": [em_low, em_high],
    }


def by_budget(args, full, ways, about):
    budgets = sorted(float(b) for b in args.flops.split(","))
    table = {**about, "against": args.against, "n": len(full),
             "full_exact_match": mean(q["exact_match"] for q in full),
             "full_f1": mean(q["f1"] for q in full), "budgets": []}
    wrong = 100 * (1 - table["full_exact_match"])
    print(f"{len(full)} questions; full prefill answers {wrong:.1f} % of them wrong")
    for budget in budgets:
        here = [(c, o) for c, o in ways if budget_of(c, budgets) == budget]
        base = next((o for c, o in here if c["name"] == args.against), None)
        if base is None:
            print(f"\nno '{args.against}' at {100 * budget:g} %")
            continue
        lines = [line_of(c, o, base, full, args.seed) for c, o in here]
        table["budgets"].append({"flops": budget, "ways": lines})
        print(f"\n| at {100 * budget:g} % | ratio | FLOPs | KL | minus {args.against} | top-1 | same | EM | F1 | EM minus |\n"
              "|---|---|---|---|---|---|---|---|---|---|")
        for w in lines:
            low, high = w["kl_minus_ci95"]
            em_low, em_high = w["exact_match_minus_ci95"]
            print(f"| {w['name']} | {100 * w['ratio']:.1f} % | {100 * w['flops']:.1f} % | {w['kl']:.2e} | "
                  f"{w['kl_minus']:+.1e} [{low:+.1e}, {high:+.1e}] | {100 * w['top1']:.1f} | "
                  f"{100 * w['same_answer']:.1f} | {100 * w['exact_match']:.1f} | {100 * w['f1']:.1f} | "
                  f"{100 * w['exact_match_minus']:+.1f} [{100 * em_low:+.1f}, {100 * em_high:+.1f}] |")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as out:
            json.dump(table, out, indent=1)
            out.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+")
    parser.add_argument("--against", default="hkvd v_weighed", help="the name of a way of fusing")
    parser.add_argument("--ratio", type=float, default=0.15, help="its ratio")
    parser.add_argument("--flops", help="budgets, shares of full prefill's FLOPs: one table each")
    parser.add_argument("--records", default=None, help="its kind of record; default: the first")
    parser.add_argument("--json", help="with --flops: the tables, as JSON")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", help="the questions, JSON lines, for --where")
    parser.add_argument("--where", metavar="KEY=VALUE", help="only questions whose record in --data has this")
    args = parser.parse_args()
    only = lines_where(args.data, args.where) if args.where else None
    full, ways, about = joined(args.results, only)
    if args.flops:
        by_budget(args, full, ways, about)
        return
    base = next((o for c, o in ways
                 if c["name"] == args.against and abs((c.get("ratio") or 0) - args.ratio) < 5e-3
                 and args.records in (None, c.get("records"))), None)
    if base is None:
        parser.error(f"no '{args.against}' at ratio {args.ratio} in {args.results[0]}")
    print("| | records | ratio | FLOPs | KL | minus | 95 % |\n|---|---|---|---|---|---|---|")
    for config, outcomes in ways:
        w = line_of(config, outcomes, base, full, args.seed)
        low, high = w["kl_minus_ci95"]
        print(f"| {w['name']} | {config.get('records') or '-'} | {100 * w['ratio']:.1f} % | "
              f"{100 * w['flops']:.1f} % | {w['kl']:.2e} | {w['kl_minus']:+.1e} | {low:+.1e} .. {high:+.1e} |")


if __name__ == "__main__":
    main()

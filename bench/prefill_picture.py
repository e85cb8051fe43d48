#!/usr/bin/env python3
"""Draws bench_prefill's results, as SVG: a column a shape, tokens per second over the prompt's
length above, and the phases of our first form below.

    bench/prefill_picture.py results.json ... > picture.svg

Files of one shape (its lengths measured one by one) are put together.
"""
import json
import sys

from fuse_picture import PALE, nice_step, text

PANEL, LEFT, GAP, TOP, UPPER, LOWER = 400, 62, 80, 46, 270, 130
COLOURS = ["#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#e377c2"]
PHASES = [("GEMM", "gemm_ms", "#1f77b4"), ("attention", "attention_ms", "#ff9f4a"), ("rest", None, "#bbbbbb")]
PEER = "#666666"


def series_of(rows):
    """Name -> {tokens: tok/s}: every form of ours, and the best of llama.cpp."""
    series = {}
    for row in rows:
        ours = "phases" in row
        name = row["name"] if ours else "llama.cpp, its best"
        points = series.setdefault(name, {})
        points[row["tokens"]] = max(points.get(row["tokens"], 0), row["tok_s"])
    return series


def rates(rows, left, title, colours):
    bottom = TOP + UPPER
    series = series_of(rows)
    lengths = sorted({row["tokens"] for row in rows})
    most = 1.08 * max(max(points.values()) for points in series.values())
    out = [text(left + PANEL / 2, 20, title, size=14), text(left - 8, TOP - 12, "tok/s", "end")]

    def x(tokens):
        return left + PANEL * (lengths.index(tokens) + 0.5) / len(lengths)

    def y(value):
        return bottom - UPPER * value / most

    step = nice_step(most)
    for i in range(int(most / step) + 1):
        out.append(f'<line x1="{left}" x2="{left + PANEL}" y1="{y(i * step):.1f}" y2="{y(i * step):.1f}" stroke="{PALE}"/>')
        out.append(text(left - 8, y(i * step) + 4, f"{i * step:g}", "end"))
    for tokens in lengths:
        out.append(text(x(tokens), bottom + 18, str(tokens)))
    for i, (name, points) in enumerate(series.items()):
        peer = name.startswith("llama.cpp")
        colour, dash = (PEER, "5 4") if peer else (colours[name], "")
        line = " ".join(f"{x(t):.1f},{y(v):.1f}" for t, v in sorted(points.items()))
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
        for tokens, value in points.items():
            out.append(f'<circle cx="{x(tokens):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>')
        key = TOP + 4 + 17 * i
        out.append(f'<line x1="{left + PANEL - 140}" x2="{left + PANEL - 114}" y1="{key}" y2="{key}" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
        out.append(text(left + PANEL - 108, key + 4, name, "start"))
    return out


def phases(rows, left):
    top = TOP + UPPER + 60
    first = next(row["name"] for row in rows if "phases" in row)
    ours = [row for _, row in sorted({row["tokens"]: row for row in rows if row["name"] == first}.items())]
    out = [text(left + PANEL / 2, top - 12, f"Where the time goes, {first}, and the share of the f32 peak")]
    width = PANEL / len(ours)
    for i, row in enumerate(ours):
        y, rest = top, 1.0
        for _, key, colour in PHASES:
            share = rest if key is None else row["phases"][key] / row["ms"]
            rest -= share
            out.append(f'<rect x="{left + i * width + 8:.1f}" y="{y:.1f}" width="{width - 16:.1f}" height="{share * LOWER:.1f}" fill="{colour}"/>')
            if share > 0.12:
                out.append(text(left + (i + 0.5) * width, y + share * LOWER / 2 + 4, f"{100 * share:.0f} %", colour="white"))
            y += share * LOWER
        out.append(text(left + (i + 0.5) * width, top + LOWER + 16, f"{100 * row['of_peak']:.0f} %"))
    for i, (name, _, colour) in enumerate(PHASES):
        at = left + 40 + 110 * i
        out.append(f'<rect x="{at}" y="{top + LOWER + 30}" width="12" height="10" fill="{colour}"/>')
        out.append(text(at + 18, top + LOWER + 39, name, "start"))
    return out


def main():
    shapes = {}
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        shapes.setdefault(result["shape"], []).extend(result["rows"])
    names = dict.fromkeys(row["name"] for rows in shapes.values() for row in rows if "phases" in row)
    colours = dict(zip(names, COLOURS * len(names)))
    width = LEFT + len(shapes) * (PANEL + GAP)
    height = TOP + UPPER + 60 + LOWER + 56
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">')
    print(f'<rect width="{width}" height="{height}" fill="white"/>')
    for i, (shape, rows) in enumerate(shapes.items()):
        left = LEFT + i * (PANEL + GAP)
        print("\n".join(rates(rows, left, f"Full prefill, {shape}: tokens per second by prompt length", colours)))
        print("\n".join(phases(rows, left)))
    print("</svg>")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Draws what bench_real measured, as SVG: the time to first token of each prompt, by llama.cpp, full prefill,
the first time, by default and by reuse.

    bench/real/picture.py real.json > real.svg
"""
import json
import sys

WIDTH, LEFT, TOP, BAR, GAP = 760, 110, 74, 15, 18
INK, PALE = "#333333", "#dddddd"
WAYS = [
    ("llama_cpp_ms", "llama.cpp", "#999999"),
    ("full_ms", "full prefill", "#1f77b4"),
    ("cold_ms", "nothing stored", "#9ecae1"),
    ("default_ms", "default", "#d62728"),
    ("reuse_ms", "plain reuse", "#ff9f4a"),
]


def text(x, y, words, anchor="start", size=12):
    words = str(words).replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{INK}" font-size="{size}">{words}</text>'


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        result = json.load(file)
    prompts = result["prompts"]
    most = max(row[key] for row in prompts for key, _, _ in WAYS if key in row)
    scale = (WIDTH - LEFT - 90) / most
    out = [text(LEFT, 22, f"Time to first token, ms: {result['model']}", size=15)]
    x = LEFT
    for _, name, colour in WAYS:
        out.append(f'<rect x="{x}" y="36" width="11" height="11" fill="{colour}"/>')
        out.append(text(x + 16, 46, name))
        x += 30 + 7 * len(name)
    y = TOP
    for row in prompts:
        ways = [way for way in WAYS if way[0] in row]
        out.append(text(LEFT - 10, y + 12, row["prompt"], "end", 13))
        out.append(text(LEFT - 10, y + 28, f"{row['rows']} rows", "end", 11))
        for key, _, colour in ways:
            width = max(row[key] * scale, 1)
            out.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 2}" fill="{colour}"/>')
            out.append(text(LEFT + width + 6, y + 11, f"{row[key]:.0f}", size=11))
            y += BAR
        y += GAP
    out.append(text(LEFT, y + 2, result["machine"]["cpu"], size=11))
    height = y + 16
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">')
    print(f'<rect width="{WIDTH}" height="{height}" fill="white"/>')
    print("\n".join(out))
    print("</svg>")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Draws sizes and errors of codecs, as SVG: the KL of rounding over bits an element, one panel a model.

    blend eval --model M --data D --policies reuse --codecs none,zstd,int8,int4,rans --json a.json
    blend eval ... --codecs none,rans --codec-step 0.5 --json b.json     (as often as there are steps)
    bench/codecs_picture.py a.json b.json ... > picture.svg

A file may hold several runs. Runs of one model and data set share a panel; a codec with several steps is a line. Lossless codecs have no KL
and stand at the bottom.
"""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, TOP, GAP, BOTTOM = 880, 400, 62, 50, 70, 348
INK, PALE = "#333333", "#dddddd"
COLOURS = {"none": "#999999", "zstd": "#8c564b", "int8": "#2ca02c", "int4": "#1f77b4", "rans": "#d62728"}


def text(x, y, words, anchor="middle", colour=INK, size=12):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{words}</text>'


def points_of(runs):
    """{(model, data): {codec: [(bits, kl or None, step)]}} of the policy reuse."""
    panels = {}
    for run in runs:
        key = (run["model"]["name"] or run["model"]["path"].split("/")[-1], run["data"]["path"].split("/")[-1])
        codecs = panels.setdefault(key, {})
        for config in run["configs"]:
            if config["policy"] != "reuse" or "codec" not in config:
                continue
            kl = config.get("kl_rounding_mean") or None
            step = run["settings"]["codec_step"] if config["codec"] == "rans" else 1
            point = (config["bits_per_element"], kl, step)
            if point not in codecs.setdefault(config["codec"], []):
                codecs[config["codec"]].append(point)
    return panels


def panel(left, width, title, codecs):
    kls = [kl for points in codecs.values() for _, kl, _ in points if kl]
    low = math.floor(math.log10(min(kls)))
    high = math.ceil(math.log10(max(kls)))

    def x(bits):
        return left + width * bits / 17

    def y(kl):
        return BOTTOM if not kl else BOTTOM - 24 - (BOTTOM - 24 - TOP) * (math.log10(kl) - low) / (high - low)

    out = [text(left + width / 2, 22, title, size=14)]
    for power in range(low, high + 1):
        at = y(10.0**power)
        out.append(f'<line x1="{left}" x2="{left + width}" y1="{at:.1f}" y2="{at:.1f}" stroke="{PALE}"/>')
        out.append(text(left - 6, at + 4, f"1e{power}", "end"))
    out.append(text(left - 6, BOTTOM + 4, "0", "end"))
    for bits in range(0, 17, 2):
        out.append(text(x(bits), BOTTOM + 20, bits))
    out.append(text(left + width / 2, BOTTOM + 40, "bits an element of K and V"))
    for codec, points in codecs.items():
        colour = COLOURS.get(codec, INK)
        points = sorted(points, key=lambda p: p[0])
        line = " ".join(f"{x(bits):.1f},{y(kl):.1f}" for bits, kl, _ in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        for bits, kl, step in points:
            out.append(f'<circle cx="{x(bits):.1f}" cy="{y(kl):.1f}" r="4" fill="{colour}"/>')
            if len(points) > 1:
                out.append(text(x(bits) - 8, y(kl) + 4, f"{step:g}", "end", colour, 10))
        named = next((p for p in points if p[2] == 1), points[0])
        side = ("end", -8) if named[0] > 12 else ("start", 8)
        out.append(text(x(named[0]) + side[1], y(named[1]) - 6, codec, side[0], colour))
    return out


def main():
    files = [json.load(open(path, encoding="utf-8")) for path in sys.argv[1:]]
    panels = points_of([run for file in files for run in file.get("runs", [file])])
    width = (WIDTH - LEFT - 20 - GAP * (len(panels) - 1)) / len(panels)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">')
    print(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
    print(text(LEFT - 6, TOP - 14, "KL of rounding, nats", "start", size=11))
    for i, ((model, data), codecs) in enumerate(panels.items()):
        print("\n".join(panel(LEFT + i * (width + GAP), width, f"{model}, {data}", codecs)))
    print("</svg>")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Draws what bench_fuse measured, as SVG: TTFT over the device's bandwidth, beside loading alone,
computing alone and their sum; and the layers of one fuse in time.

    bench/fuse_picture.py results.json > picture.svg
"""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, TOP, GAP = 860, 400, 62, 46, 70
PANEL = (WIDTH - 2 * LEFT - GAP) / 2
BOTTOM = HEIGHT - 52
INK, PALE = "#333333", "#dddddd"
LOAD, COMPUTE, SUM, TTFT, RING, WAIT = "#1f77b4", "#2ca02c", "#999999", "#d62728", "#ff9f4a", "#f4b6b6"


def text(x, y, words, anchor="middle", colour=INK, size=12):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{words}</text>'


def nice_step(most):
    """A round step that gives four to eight marks up to `most`."""
    step = 10 ** math.floor(math.log10(most))
    for part in (0.1, 0.2, 0.5, 1, 2):
        if most / (step * part) <= 8:
            return step * part
    return step * 2


def sweep_panel(rows):
    out = [text(LEFT + PANEL / 2, 20, "Time to first token, by the device's bandwidth", size=14)]
    most = 1.04 * max(r["load_ms"] + r["compute_ms"] for r in rows)
    low, high = (math.log(rows[i]["bytes_per_s"]) for i in (0, -1))

    def x(row):
        return LEFT + PANEL * (math.log(row["bytes_per_s"]) - low) / max(high - low, 1e-9)

    def y(value):
        return BOTTOM - (BOTTOM - TOP) * value / most

    step = nice_step(most)
    for i in range(int(most / step) + 1):
        out.append(f'<line x1="{LEFT}" x2="{LEFT + PANEL}" y1="{y(i * step):.1f}" y2="{y(i * step):.1f}" stroke="{PALE}"/>')
        out.append(text(LEFT - 8, y(i * step) + 4, f"{i * step:g}", "end"))
    for row in rows:
        out.append(text(x(row), BOTTOM + 18, f"{row['bytes_per_s'] * 1e-6:.0f}"))
    out.append(text(LEFT + PANEL / 2, BOTTOM + 38, "MB/s"))
    out.append(text(LEFT - 8, TOP - 12, "ms", "end"))
    lines = [
        ("their sum", SUM, "4 4", 1.5, lambda r: r["load_ms"] + r["compute_ms"]),
        ("loading alone", LOAD, "", 1.5, lambda r: r["load_ms"]),
        ("computing alone", COMPUTE, "", 1.5, lambda r: r["compute_ms"]),
        ("TTFT, ring of 3", RING, "2 3", 1.5, lambda r: r["ttft_ring_of_3_ms"]),
        ("TTFT", TTFT, "", 3, lambda r: r["ttft_ms"]),
    ]
    for i, (name, colour, dash, width, value) in enumerate(lines):
        points = " ".join(f"{x(r):.1f},{y(value(r)):.1f}" for r in rows)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dash}"/>')
        key_y = TOP + 10 + 17 * i
        out.append(f'<line x1="{LEFT + PANEL - 130}" x2="{LEFT + PANEL - 104}" y1="{key_y}" y2="{key_y}" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dash}"/>')
        out.append(text(LEFT + PANEL - 98, key_y + 4, name, "start"))
    return out


def layers_panel(layers, bandwidth):
    left = LEFT + PANEL + GAP
    out = [text(left + PANEL / 2, 20, f"Layers of one fuse at {bandwidth * 1e-6:.0f} MB/s", size=14)]
    most = max(r["compute_end_ms"] for r in layers)
    height = (BOTTOM - TOP) / len(layers)

    def x(value):
        return left + PANEL * value / most

    def bar(begin, end, y, tall, colour):
        return f'<rect x="{x(begin):.2f}" y="{y:.2f}" width="{max(x(end) - x(begin), 0.4):.2f}" height="{tall:.2f}" fill="{colour}"/>'

    step = nice_step(most)
    for i in range(int(most / step) + 1):
        out.append(f'<line x1="{x(i * step):.1f}" x2="{x(i * step):.1f}" y1="{TOP}" y2="{BOTTOM}" stroke="{PALE}"/>')
        out.append(text(x(i * step), BOTTOM + 18, f"{i * step:g}"))
    out.append(text(left + PANEL / 2, BOTTOM + 38, "ms"))
    every = max(1, len(layers) // 10)
    for i, row in enumerate(layers):
        y, half = TOP + i * height, height * 0.45
        if i % every == 0:
            out.append(text(left - 6, y + height * 0.8, str(row["layer"]), "end", size=10))
        if row["load_end_ms"] > 0:
            out.append(bar(row["load_begin_ms"], row["load_end_ms"], y, half, LOAD))
        out.append(bar(row["compute_begin_ms"], row["compute_end_ms"], y + half, half, COMPUTE))
        # Fresh K and V come first, then the wait; drawn at the layer's start, as long as it was.
        if row["wait_ms"] > 0.02:
            out.append(bar(row["compute_begin_ms"], row["compute_begin_ms"] + row["wait_ms"], y + half, half, WAIT))
    keys = [("loading", LOAD), ("computing", COMPUTE), ("waiting for the reader", WAIT)]
    for i, (name, colour) in enumerate(keys):
        y = TOP + 12 + 17 * i
        out.append(f'<rect x="{left + PANEL - 150}" y="{y - 9}" width="12" height="10" fill="{colour}"/>')
        out.append(text(left + PANEL - 132, y, name, "start"))
    return out


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        result = json.load(file)
    parts = sweep_panel(result["sweep"]) + layers_panel(result["layers"], result["crossing_bytes_per_s"])
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">')
    print(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
    print("\n".join(parts))
    print("</svg>")


if __name__ == "__main__":
    main()

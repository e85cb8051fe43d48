#!/usr/bin/env python3
"""Draws what a process held while it soaked: tests/torture/soak_picture.py FIGURES.json -> PICTURE.svg."""

import json
import sys

WIDTH, PANEL, LEFT, RIGHT, TOP = 760, 130, 84, 20, 44
PANELS = (("memory", "resident memory, MiB", 1 << 20), ("file", "store on disk, MiB", 1 << 20),
          ("descriptors", "descriptors", 1), ("threads", "threads", 1))


def step(most):
    """A round distance of lines such that three or four fit."""
    size = 10 ** (len(str(int(most))) - 1)
    return next(size * f for f in (0.25, 0.5, 1, 2, 5) if most / (size * f) <= 4)


def panel(number, samples, name, title, unit):
    top, height = TOP + number * PANEL, PANEL - 40
    values = [s[name] / unit for s in samples]
    minutes = max(s["minute"] for s in samples)
    most = max(values) * 1.1 or 1
    yield f'<text x="{LEFT}" y="{top - 8}">{title}</text>'
    line = 0
    while line <= most:
        y = top + height * (1 - line / most)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#888" stroke-opacity="0.3"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{line:g}</text>'
        line += step(most)
    points = " ".join(f"{LEFT + (WIDTH - LEFT - RIGHT) * s['minute'] / minutes:.1f},{top + height * (1 - v / most):.1f}"
                      for s, v in zip(samples, values))
    yield f'<polyline points="{points}" fill="none" stroke="#2f6f9f" stroke-width="1.5"/>'


def drawn(figures):
    samples, height = figures["samples"], TOP + PANEL * len(PANELS) + 16
    minutes = max(s["minute"] for s in samples)
    calls = sum(n for name, n in figures["calls"].items() if not name.startswith("BLEND_E_"))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
             f'font-size="13">', f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
             f'<text x="{LEFT}" y="18" font-weight="bold">{calls:,} calls, {figures["threads"]} threads, '
             f'a quota of {figures["quota_bytes"] >> 20} MiB</text>']
    for number, what in enumerate(PANELS):
        parts += panel(number, samples, *what)
    bottom = TOP + PANEL * len(PANELS) - 24
    parts += [f'<text x="{LEFT + (WIDTH - LEFT - RIGHT) * part / 4:.1f}" y="{bottom}" text-anchor="middle">'
              f"{minutes * part / 4:.0f}</text>" for part in range(5)]
    parts.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{bottom + 20}" text-anchor="middle">minutes</text>')
    return "\n".join(parts) + "\n</svg>\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        figures = json.load(file)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(drawn(figures))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Draws the hit rates that bench_store_trace measured: FIGURES.json -> PICTURE.svg.

One group of bars a quota, one bar a policy: hits in memory below, hits on disk above them.
"""
import json
import sys

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 760, 340, 56, 48, 70
COLOURS = {"fifo": "#9aa5b1", "lru": "#5b8db8", "reuse": "#c7a252", "hinted": "#4a9a6a"}


def bars(data):
    shares = sorted({line["disk_share"] for line in data["lines"]})
    kinds = list(dict.fromkeys(line["policy"] for line in data["lines"]))
    height = HEIGHT - TOP - BOTTOM
    group = (WIDTH - LEFT - 16) / len(shares)
    bar = group * 0.8 / len(kinds)
    for line in data["lines"]:
        x = LEFT + group * (shares.index(line["disk_share"]) + 0.1) + bar * kinds.index(line["policy"])
        ram, disk = line["ram_hit_rate"], line["disk_hit_rate"]
        y = TOP + height
        for rate, opacity in ((ram, 1.0), (disk, 0.55)):
            y -= rate * height
            yield (f'<rect x="{x:.1f}" y="{y:.1f}" width="{bar - 3:.1f}" height="{rate * height:.1f}" '
                   f'fill="{COLOURS[line["policy"]]}" fill-opacity="{opacity}"/>')
        yield (f'<text x="{x + bar / 2 - 1.5:.1f}" y="{y - 4:.1f}" text-anchor="middle" '
               f'font-size="11">{100 * (ram + disk):.0f}</text>')
    for i, share in enumerate(shares):
        x = LEFT + group * (i + 0.5)
        yield (f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">'
               f"{100 * share:g} %</text>")
    for percent in range(0, 101, 25):
        y = TOP + height * (1 - percent / 100)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - 16}" stroke="#888" stroke-opacity="0.3"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>'
    for i, kind in enumerate(kinds):
        x = LEFT + 110 * i
        yield f'<rect x="{x}" y="16" width="12" height="12" fill="{COLOURS[kind]}"/>'
        yield f'<text x="{x + 18}" y="26">{kind}</text>'
    yield (f'<text x="{LEFT + 110 * len(kinds)}" y="26" fill-opacity="0.7">'
           "full colour: in memory; light: on disk</text>")
    yield (f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 18}" text-anchor="middle">quota, as a share '
           "of all conversations; memory is an eighth of it</text>")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        data = json.load(file)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
                   'font-family="sans-serif" font-size="13">\n'
                   f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n')
        file.write("\n".join(bars(data)) + "\n</svg>\n")


if __name__ == "__main__":
    main()

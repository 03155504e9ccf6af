#!/usr/bin/env python3
"""Draws the roofline of a run of the attention benchmark as an SVG picture.

    roofline.py RESULTS.json [RESULTS.json ...] PICTURE.svg [--threads N]

Several RESULTS are parts of one run (attention --part). Without --threads there is a plot for each number of threads.
The x axis is the number of operations for each byte of K and V, the y axis the speed; both are logarithmic. A slope shows
the read rate, and a level shows the peak of an instruction. Each case is a numbered point, and a list names them.
"""
import argparse
import html
import json
import math
from pathlib import Path

WIDTH, HEIGHT = 1240, 660
LEFT, RIGHT, TOP, BOTTOM = 70, 600, 60, 590
X_RANGE, Y_RANGE = (0.25, 65536), (1, 8192)
COLOURS = {"f32": "#1f5fa8", "f16": "#2f8f4e", "bf16": "#c2410c", "fp8": "#7c3aed", "int8": "#a8326e", "uint4": "#8a6d00",
           "float4": "#0f766e"}
WORKS = ("decode", "shared-prefix", "prefill", "mla")


def place(x: float, y: float) -> tuple:
    def part(value, limits):
        return (math.log(value) - math.log(limits[0])) / (math.log(limits[1]) - math.log(limits[0]))
    return (LEFT + part(x, X_RANGE) * (RIGHT - LEFT), BOTTOM - part(y, Y_RANGE) * (BOTTOM - TOP))


def text(x: float, y: float, words: str, size: int = 13, colour: str = "#222", extra: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}" {extra}>{html.escape(words)}</text>'


def line(a: tuple, b: tuple, colour: str, width: float = 1, extra: str = "") -> str:
    return (f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" stroke="{colour}" '
            f'stroke-width="{width}" {extra}/>')


def grid() -> list:
    parts = []
    x = X_RANGE[0]
    while x <= X_RANGE[1]:
        parts.append(line(place(x, Y_RANGE[0]), place(x, Y_RANGE[1]), "#e5e5e5"))
        parts.append(text(place(x, 1)[0], BOTTOM + 18, f"{x:g}", 12, "#555", 'text-anchor="middle"'))
        x *= 4
    y = Y_RANGE[0]
    while y <= Y_RANGE[1]:
        parts.append(line(place(X_RANGE[0], y), place(X_RANGE[1], y), "#e5e5e5"))
        parts.append(text(LEFT - 8, place(1, y)[1] + 4, f"{y:g}", 12, "#555", 'text-anchor="end"'))
        y *= 2
    parts.append(text((LEFT + RIGHT) / 2, BOTTOM + 42, "operations a byte of K and V", 13, "#222",
                      'text-anchor="middle"'))
    parts.append(text(LEFT - 46, (TOP + BOTTOM) / 2, "GFLOP/s", 13, "#222",
                      f'text-anchor="middle" transform="rotate(-90 {LEFT - 46} {(TOP + BOTTOM) / 2:.0f})"'))
    return parts


def roofs(machine: dict) -> list:
    parts, read = [], machine["stream"] / 1e9
    highest = max(machine["rates"].values()) / 1e9
    above = 0.0
    for name, rate in sorted(machine["rates"].items(), key=lambda item: -item[1]):
        level = rate / 1e9
        parts.append(line(place(level / read, level), place(X_RANGE[1], level), "#444", 1.6))
        x, y = place(level / read, level)
        parts.append(text(x + 10, y + (15 if y - above < 22 else -6), f"{name}: {level:.0f}", 12, "#444"))
        above = y
    top = min(highest / read, X_RANGE[1])
    low = max(X_RANGE[0], Y_RANGE[0] / read)
    parts.append(line(place(low, low * read), place(top, top * read), "#444", 1.6))
    at = place(low * 1.5, low * 1.5 * read)
    parts.append(text(at[0] + 14, at[1] + 20, f"read: {read:.1f} GB/s", 12, "#444"))
    return parts


def points(results: list) -> list:
    parts, row, groups = [], TOP + 6, []
    for number, result in enumerate(results, 1):
        rate = result["operations"] / result["seconds"]["ours"] / 1e9
        colour = COLOURS[result["dtype"]]
        x, y = place(result["operations"] / result["bytes"], rate)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        near = next((group for group in groups if abs(group[0] - x) < 40 and abs(group[1] - y) < 10), None)
        if near:
            near[2].append(number)
        else:
            groups.append((x, y, [number]))
        limit = max(result["seconds"]["pages"] or result["seconds"]["stream"], result["seconds"]["ops"])
        parts.append(text(RIGHT + 24, row, f"{number}", 12, colour))
        parts.append(text(RIGHT + 50, row, result["name"], 12))
        parts.append(text(RIGHT + 470, row, f"{rate:.0f} GFLOP/s", 12, "#222", 'text-anchor="end"'))
        parts.append(text(WIDTH - 30, row, f"{100 * limit / result['seconds']['ours']:.0f} % of the limit", 12, "#222",
                          'text-anchor="end"'))
        row += 17
    # Points at one place share a label. It is below and to the right, where no roof is, or above if another label is there.
    labels = []
    for x, y, numbers in groups:
        below = not any(abs(x - other[0]) < 75 and abs(y - other[1]) < 14 for other in labels)
        labels.append((x, y))
        for start in range(0, len(numbers), 6):
            parts.append(text(x + 8, y + 13 + 2.2 * start if below else y - 7 - 2.2 * start,
                              " ".join(map(str, numbers[start:start + 6])), 11))
    return parts


def plot(run: dict, threads: int) -> tuple:
    """The SVG elements of one plot, and its height."""
    machine = next(m for m in run["machine"] if m["threads"] == threads)
    results = [r for r in run["results"] if r["threads"] == threads and r["verdict"] in ("reached", "short")
               and r["work"] in WORKS and (r["cold"] or r["work"] == "prefill")]
    title = f"Attention on {run['cpu']}, {threads} thread{'s' if threads > 1 else ''}"
    others = int(run["load"].split()[3].split("/")[0]) - 1  # tasks beside it at the end; load averages look back
    note = (f"{run['date'][:10]}; {others} other threads running; K and V from memory; "
            "limit: the slower of reading K and V and computing at the peak")
    parts = [text(LEFT, 26, title, 17), text(LEFT, 45, note, 12, "#555"), *grid(), *roofs(machine), *points(results)]
    return parts, max(HEIGHT, TOP + 17 * len(results) + 30)


def joined(runs: list) -> dict:
    """Joins the parts of one run: all their results, and the best figure of any part for each limit of the machine."""
    whole = runs[0]
    for part in runs[1:]:
        whole["results"] += part["results"]
        for machine in part["machine"]:
            mine = next(m for m in whole["machine"] if m["threads"] == machine["threads"])
            mine["stream"] = max(mine["stream"], machine["stream"])
            for name, rate in machine["rates"].items():
                mine["rates"][name] = max(mine["rates"][name], rate)
    whole["results"].sort(key=lambda r: r["number"])
    return whole


def picture(run: dict, counts: list) -> str:
    """The SVG text: a plot for each number of threads in `counts`, one below the other."""
    parts, height = [], 0
    for threads in counts:
        plotted, needed = plot(run, threads)
        parts += [f'<g transform="translate(0 {height})">', *plotted, "</g>"]
        height += needed
    frame = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
             f'<rect width="{WIDTH}" height="{height}" fill="white"/>']
    return "\n".join([*frame, *parts, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+")
    parser.add_argument("picture")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    run = joined([json.loads(Path(file).read_text()) for file in arguments.results])
    counts = [arguments.threads] if arguments.threads else [m["threads"] for m in run["machine"]]
    Path(arguments.picture).write_text(picture(run, counts))


if __name__ == "__main__":
    main()

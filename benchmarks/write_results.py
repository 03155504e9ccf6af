#!/usr/bin/env python3
"""Writes what benchmarks measured on one machine and day as a page, with its plots beside it.

    write_results.py [--attention RESULTS.json ...] [--peers PEERS.json] [--figures FIGURES.jsonl] [--folder FOLDER]
    write_results.py --gpu SPEED.json [--folder FOLDER]

RESULTS are from the attention benchmark; several are parts of one run (attention --part). FIGURES has a line for each figure of
another benchmark (figure.h); of equal names the last one counts. Files that do not exist are left out.
SPEED is the file of cuda/speed.py, whose page is named by the GPU.
The page is FOLDER/<cpu>-<date>.md (FOLDER: benchmarks/results), with <cpu>-<date>.svg, the roofline plot, and <cpu>-<date>-bars.svg,
which draws figures beside their targets. Files of the same machine and day are replaced.
"""
import argparse
import datetime
import json
import os
import re
from pathlib import Path

import roofline

HERE = Path(__file__).resolve().parent
LIMITS = {"stream": "a plain read of as many bytes", "pages": "a read of the same pages", "memcpy": "memcpy of as many bytes",
          "ops": "the arithmetic peak", "limit": "the larger of that read and the peak", "us": "a time in us"}


def name_of(run: dict) -> str:
    """File name of a run, without its suffix: the CPU's name as words, and the day."""
    cpu = re.sub(r"\((R|TM)\)|@.*|\b\d+-Core\b|\b(CPU|Processor)\b", " ", run["cpu"], flags=re.IGNORECASE)
    words = re.findall(r"[a-z0-9]+", cpu.lower()) or ["unknown"]
    return f"{'-'.join(words)}-{run['date'][:10]}"


def table(head: list, rows: list) -> list:
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""]


def threads_text(n: int) -> str:
    return "one thread" if n == 1 else f"{n} threads"


def limits(run: dict) -> list:
    machines = run["machine"]
    rates = sorted({name for machine in machines for name in machine["rates"]})
    rows = [["read from memory", *(f"{machine['stream'] / 1e9:.1f} GB/s" for machine in machines)]]
    rows += [[f"{name} peak", *(f"{machine['rates'][name] / 1e9:.0f} GFLOP/s" if name in machine["rates"] else ""
                                for machine in machines)] for name in rates]
    return table(["limits of the machine", *(threads_text(machine["threads"]) for machine in machines)], rows)


def figure(result: dict) -> str:
    if result["verdict"] not in ("reached", "short"):
        return result["verdict"]
    text = f"{result['ratio']:.2f} ({result['low']:.2f} to {result['high']:.2f})"
    return f"**{text}**" if result["verdict"] == "short" else text


def cases(run: dict) -> list:
    counts = [machine["threads"] for machine in run["machine"]]
    found = {(result["name"], result["threads"]): result for result in run["results"]}
    rows = []
    for name in dict.fromkeys(result["name"] for result in run["results"]):
        of_name = [found.get((name, n)) for n in counts]
        first = next(result for result in of_name if result)
        rows.append([name, LIMITS.get(first["limit"], first["limit"]), f"{first['target']:g}",
                     *(figure(result) if result else "" for result in of_name)])
    return table(["case", "compared with", "target", *map(threads_text, counts)], rows)


def peers_table(peers: list) -> list:
    measured = [peer for peer in peers if "ratio" in peer]
    names = list(dict.fromkeys(peer["peer"] for peer in measured))
    ratios = {(peer["name"], peer["threads"], peer["peer"]): peer["ratio"] for peer in measured}
    rows = [[case, str(threads), *(f"{ratios[case, threads, name]:.2f}" if (case, threads, name) in ratios else ""
                                   for name in names)]
            for case, threads in dict.fromkeys((peer["name"], peer["threads"]) for peer in measured)]
    return ["## Peers", "", "Ratio of times, above 1 when libkvcache is faster; samples are taken in turn.", "",
            *table(["case", "threads", *names], rows)]


def latest(lines: str) -> dict:
    """The figures of each section, in the order in which they were first measured."""
    sections: dict = {}
    for figure in map(json.loads, lines.splitlines()):
        sections.setdefault(figure["section"], {})[figure["name"]] = figure
    return {section: list(figures.values()) for section, figures in sections.items()}


def reached(figure: dict) -> bool:
    return figure["value"] >= figure["target"] if figure["better"] == "higher" else figure["value"] <= figure["target"]


def figures_table(section: str, figures: list) -> list:
    rows = []
    for figure in figures:
        value = f"{figure['value']:.4g} {figure['unit']}"
        missed = figure["target"] > 0 and not reached(figure)
        rows.append([figure["name"], f"**{value}**" if missed else value,
                     f"{figure['target']:g} {figure['unit']}" if figure["target"] > 0 else "", figure["note"]])
    return [f"## {section}", "", *table(["", "measured", "target", ""], rows)]


def bars(sections: dict, title: str) -> str:
    """The SVG text: for each figure with a target, a bar as long as the figure is good. The line at 1 is the target."""
    left, unit, y, parts = 420, 200, 70, []
    for section, figures in sections.items():
        with_target = [figure for figure in figures if figure["target"] > 0]
        if with_target:
            parts.append(roofline.text(20, y, section, 14))
            y += 20
        for figure in with_target:
            ratio = figure["value"] / figure["target"]
            good = ratio if figure["better"] == "higher" else 1 / ratio
            colour = "#2f8f4e" if reached(figure) else "#c2410c"
            parts.append(f'<rect x="{left}" y="{y - 11}" width="{unit * min(good, 3):.0f}" height="13" fill="{colour}"/>')
            parts.append(roofline.text(left - 8, y, figure["name"], 12, extra='text-anchor="end"'))
            parts.append(roofline.text(left + unit * min(good, 3) + 8, y, f"{figure['value']:.3g} {figure['unit']}", 12, "#555"))
            y += 18
        y += 12 if with_target else 0
    frame = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1150 {y + 10}" font-family="sans-serif">',
             f'<rect width="1150" height="{y + 10}" fill="white"/>', roofline.text(20, 26, title, 17),
             roofline.text(left + unit, 50, "target", 12, "#555", 'text-anchor="middle"')]
    target = roofline.line((left + unit, 55), (left + unit, y), "#222", 1.2)
    return "\n".join([*frame, *parts, target, "</svg>"]) + "\n"


def this_machine() -> dict:
    """What a run of the attention benchmark says about its machine, without such a run."""
    info = Path("/proc/cpuinfo").read_text()
    names = re.findall(r"^model name\s*:\s*(.+)$", info, re.MULTILINE) or ["unknown CPU"]
    return {"cpu": names[0], "date": datetime.date.today().isoformat(), "cores": os.cpu_count(),
            "load": Path("/proc/loadavg").read_text(), "library": {}}


def attention(run: dict, peers: list) -> list:
    return [*limits(run), f"![Roofline of the attention kernels on this machine]({name_of(run)}.svg)", "",
            "## Attention", "",
            "Each figure is the ratio of medians, with the quartiles of the paired ratios. 1 is the speed of what the case is",
            "compared with.", "", *cases(run), *(peers_table(peers) if peers else [])]


def page(run: dict, peers: list, sections: dict) -> str:
    library = run["library"]
    about = [["cores", str(run["cores"])], ["load when the run ended", run["load"].strip()]]
    about += [[name, library[name]] for name in ("version", "compiler") if name in library]
    lines = [f"# {run['cpu']}, {run['date'][:10]}", "", *table(["", ""], about), "**Bold** figures miss their target.", ""]
    if sections:
        lines += [f"![Figures of this machine beside their targets]({name_of(run)}-bars.svg)", ""]
    if "results" in run:
        lines += attention(run, peers)
    for section, figures in sections.items():
        lines += figures_table(section, figures)
    return "\n".join(lines).rstrip() + "\n"


def gpu_sections(speed: dict) -> dict:
    """Each work's cases as figures: the share of the target that was reached. The table's columns are in the note."""
    sections: dict = {}
    for row in speed["rows"]:
        figure = {"name": row["case"], "value": row.get("of_target") or 0.0, "unit": "of target", "better": "higher",
                  "target": 1.0 if row.get("of_target") else 0.0, "row": row}
        sections.setdefault(row["work"], []).append(figure)
    return sections


def gpu_page(speed: dict, name: str, sections: dict) -> str:
    about = [["GPU", speed["machine"]], ["software", speed["software"]],
             ["copy in device memory, read and write", f"{speed['copy'] / 1e12:.2f} TB/s"],
             ["bf16 matrix product", f"{speed['matrix'] / 1e12:.0f} TFLOP/s"]]
    lines = [f"# {speed['machine']}, {speed['date'][:10]}", "", *table(["", ""], about),
             "Medians of CUDA events, after a read that fills the L2 cache. *Share*: of the copy rate or of the matrix rate above.",
             "**Bold** figures miss their target. The last column is PyTorch's attention over contiguous K and V.", "",
             f"![Figures of this GPU beside their targets]({name}-bars.svg)", ""]
    for work, figures in sections.items():
        rows = []
        for figure in figures:
            row = figure["row"]
            if "error" in row:
                rows.append([row["case"], row["error"].splitlines()[0], "", "", "", ""])
                continue
            share = f"{100 * row['share']:.1f} %" if row.get("share") is not None else ""
            rate = f"**{row['rate']}**" if row.get("met") is False else row["rate"]
            beside = f"{row['torch_us']:.1f}" if row.get("torch_us") else ""
            rows.append([row["case"], f"{row['us']:.1f}", rate, share, row["target"], beside])
        lines += [f"## {work}", "", *table(["case", "us", "rate", "share", "target", "PyTorch us"], rows)]
    return "\n".join(lines).rstrip() + "\n"


def write_gpu(speed: dict, folder: Path) -> Path:
    name = name_of({"cpu": speed["machine"], "date": speed["date"]})
    sections = gpu_sections(speed)
    path = folder / f"{name}.md"
    path.write_text(gpu_page(speed, name, sections))
    (folder / f"{name}-bars.svg").write_text(bars(sections, f"{speed['machine']}, {speed['date'][:10]}"))
    return path


def write(run: dict, peers: list, sections: dict, folder: Path) -> Path:
    """run: the attention benchmark's, or this_machine()."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name_of(run)}.md"
    path.write_text(page(run, peers, sections))
    if "results" in run:
        path.with_suffix(".svg").write_text(roofline.picture(run, [machine["threads"] for machine in run["machine"]]))
    if sections:
        title = f"{run['cpu']}, {run['date'][:10]}"
        path.with_name(f"{path.stem}-bars.svg").write_text(bars(sections, title))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attention", nargs="*", type=Path, default=[])
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--gpu", type=Path)
    parser.add_argument("--folder", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    if arguments.gpu:
        print(f"wrote {write_gpu(json.loads(arguments.gpu.read_text()), arguments.folder)} and its plot")
        return
    runs = [json.loads(file.read_text()) for file in arguments.attention if file.exists()]
    peers = json.loads(arguments.peers.read_text()) if arguments.peers and arguments.peers.exists() else []
    lines = arguments.figures.read_text() if arguments.figures and arguments.figures.exists() else ""
    if not runs and not lines:
        parser.error("none of the files exists")
    run = roofline.joined(runs) if runs else this_machine()
    print(f"wrote {write(run, peers, latest(lines), arguments.folder)} and its plots")


if __name__ == "__main__":
    main()

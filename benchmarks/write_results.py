#!/usr/bin/env python3
"""Writes the results of a run of the attention benchmark as a page, with the roofline plot beside it.

    write_results.py RESULTS.json [RESULTS.json ...] [--peers PEERS.json] [--folder FOLDER]

The files are FOLDER/<cpu>-<date>.md and .svg (FOLDER: benchmarks/results). A file of the same machine and day is
replaced. Several RESULTS are parts of one run (attention --part).
"""
import argparse
import json
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


def page(run: dict, peers: list) -> str:
    library = run["library"]
    lines = [f"# {run['cpu']}, {run['date'][:10]}", "",
             *table(["", ""], [["cores", str(run["cores"])], ["load when the run ended", run["load"].strip()],
                               ["library", library.get("version", "")], ["compiler", library.get("compiler", "")]]),
             *limits(run), f"![Roofline of the attention kernels on this machine]({name_of(run)}.svg)", "",
             "## Attention", "",
             "Each figure is the ratio of medians, with the quartiles of the paired ratios. 1 is the speed of what the case is",
             "compared with. **Bold** figures miss their target.", "", *cases(run)]
    return "\n".join(lines + (peers_table(peers) if peers else [])).rstrip() + "\n"


def write(run: dict, peers: list, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name_of(run)}.md"
    path.write_text(page(run, peers))
    path.with_suffix(".svg").write_text(roofline.picture(run, [machine["threads"] for machine in run["machine"]]))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+")
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--folder", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    run = roofline.joined([json.loads(Path(file).read_text()) for file in arguments.results])
    peers = json.loads(arguments.peers.read_text()) if arguments.peers and arguments.peers.exists() else []
    print(f"wrote {write(run, peers, arguments.folder)} and its plot")


if __name__ == "__main__":
    main()

"""Shows what the decoders of examples/gemma printed side by side, and fails if their tokens differ.

    engines.py python.txt rust.txt ...      each a decoder's lines, as examples/gemma/README.md has them
    engines.py --tier rust.txt rust-tier.txt      without a tier, and with the tier of a run that was killed: fails unless the second
                                                  one has loaded the prompt, and gives the same tokens
"""
import re
import sys
from pathlib import Path

SAME = ("prompt", "ids", "text", "sharing")  # in every language
WIDTH = 100
PAGE = 16  # tokens: what is no whole page is computed


def read(path: Path) -> dict:
    """"ids 3" -> the text after the colon."""
    return dict(line.split(":", 1) for line in path.read_text(encoding="utf-8").splitlines())


def shorten(text: str) -> str:
    text = text.strip()
    return text if len(text) <= WIDTH else text[:WIDTH - 3] + "..."


def compare_tier(without: Path, with_tier: Path) -> int:
    name, lines, own = without.stem, read(without), read(with_tier)
    loaded, total, computed = map(int, re.findall(r"\d+", own.get("tier", "")) or (0, 0, 0))
    differ = [key for key in lines if key.split()[0] in ("prompt", "ids", "text") and lines[key] != own.get(key)]
    if not 0 <= computed < PAGE <= loaded == total - computed or differ or "ids 1" not in lines:
        print(f"engines.py: {name} after SIGKILL:{own.get('tier', ' no tier')}; other lines: {differ}", file=sys.stderr)
        return 1
    print(f"{name} after SIGKILL: {loaded} of {total} tokens loaded, {computed} computed, the same answers")
    return 0


def main(paths) -> int:
    if paths[0] == "--tier":
        return compare_tier(*map(Path, paths[1:]))
    engines = {Path(path).stem: read(Path(path)) for path in paths}
    first, lines = next(iter(engines.items()))
    margin = max(map(len, engines)) + 2
    differences = []
    for key in (key for key in lines if key.startswith("prompt ")):
        number = key.split()[1]
        print(f"{number}.{lines[key]}")
        for name, own in engines.items():
            print(f"  {name:<{margin}}{shorten(own.get(f'text {number}', ''))}")
            print(f"  {'':<{margin}}{shorten(own.get(f'ids {number}', ''))}")
    for label in ("speed", "sharing", "binding"):
        print(label)
        for name, own in engines.items():
            print(f"  {name:<{margin}}{own.get(label, ' -').strip()}")
    for name, own in engines.items():
        for key in sorted(lines.keys() | own.keys()):
            if key.split()[0] in SAME and lines.get(key) != own.get(key):
                differences.append(f"{key}: {first} has {lines.get(key)!r}, {name} has {own.get(key)!r}")
    tokens = sum(len(text.split()) for key, text in lines.items() if key.startswith("ids "))
    if not tokens:
        differences.append(f"{first} printed no tokens")
    for difference in differences:
        print(f"engines.py: {difference}", file=sys.stderr)
    if not differences:
        print(f"the same {tokens} tokens in {', '.join(engines)}")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

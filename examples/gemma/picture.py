"""The page tables as a small picture for the terminal."""
from collections import Counter

WIDTH = 64  # characters for one table; longer tables show several pages in a character
UNICODE = {"shared": "\u2592", "own": "\u2588", "freed": "\u00b7"}
ASCII = {"shared": "=", "own": "#", "freed": "."}


def symbols_for(stream) -> dict:
    """Blocks where the stream's encoding has them, else plain ASCII."""
    try:
        "".join(UNICODE.values()).encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def draw(usage, names, symbols) -> list:
    """Lines for one GroupUsage; names[i] is the name of its i-th sequence."""
    references = usage.references
    longest = max((len(table) for table in usage.tables), default=0)
    per_character = max(1, -(-longest // WIDTH))
    margin = max(map(len, names), default=0)
    lines = [f"{usage.name}: page table of each sequence"
             + (f", {per_character} pages a character" if per_character > 1 else "")]
    for name, table in zip(names, usage.tables):
        kinds = ["freed" if page < 0 else "shared" if references[page] > 1 else "own" for page in table]
        cells = [Counter(kinds[i:i + per_character]).most_common(1)[0][0] for i in range(0, len(kinds), per_character)]
        lines.append(f"  {name:<{margin}} {''.join(symbols[kind] for kind in cells)}")
    return lines


def legend(symbols) -> str:
    return (f"  {symbols['shared']} shared   {symbols['own']} own   "
            f"{symbols['freed']} freed, no longer in the window")


def count_bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"


def summary(usages, names, symbols) -> list:
    """Counts of each group, bytes saved, and the pictures."""
    lines = []
    for usage in usages:
        lines.append(f"{usage.name:<15} pages used {usage.used}, shared {usage.shared}, free {usage.free}"
                     f" ({count_bytes(usage.page_bytes)} a page)")
    saved = sum(usage.saved_bytes for usage in usages)
    held = sum(usage.used * usage.page_bytes for usage in usages)
    lines.append(f"{'memory':<15} {count_bytes(held)} in use, {count_bytes(saved)} saved by sharing")
    for usage in usages:
        lines += ["", *draw(usage, names, symbols)]
    return [*lines, legend(symbols)]

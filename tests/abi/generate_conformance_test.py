#!/usr/bin/env python3
"""A regular function with `op=` gets its operation in every language; a function that is not regular is refused."""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NEW = """/* Counts. Since 0.1. */
KVC_API kvc_status kvc_seq_page_counts(kvc_cache *cache, int32_t group, int64_t n, const kvc_seq *sequences, int64_t *counts,
                                       kvc_error *error);

"""
WANTED = {
    "bindings/conformance/runners/c/operations_generated.c":
        'kvc(seq_page_counts)(cache(), (int32_t)integer("group", 0), n, seqs, counts, &error)',
    "bindings/conformance/runners/python/operations_generated.py":
        's.cache.page_counts(s.sequences(), group=s.integer("group"))',
    "bindings/rust/kvcache/examples/conformance/operations_generated.rs":
        's.cache()?.page_counts(s.number("group")?, &s.sequences("seqs")?)?',
    "bindings/go/conformance/operations_generated.go":
        's.cache().PageCounts(s.integer("group"), s.sequences("seqs")...)',
    "bindings/java/src/test/java/dev/kvcache/conformance/GeneratedOperations.java":
        's.cache().pageCounts(s.integer("group"), s.sequences("seqs"))',
}


def main() -> int:
    failures = []

    def check(good, what):
        print(f"{'ok' if good else 'FAILED'}: {what}")
        failures.extend([] if good else [what])

    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for name in ("src/api/functions.txt", "include/kvcache.h"):
            (root / name).parent.mkdir(parents=True)
            shutil.copy(ROOT / name, root / name)
        functions, header = root / "src/api/functions.txt", root / "include/kvcache.h"

        def generate():
            return subprocess.run([sys.executable, ROOT / "scripts/generate_conformance.py", "--root", root],
                                  capture_output=True, text=True)

        place = "/* Returns the version of the loaded library as text"
        header.write_text(header.read_text().replace(place, NEW + place, 1))
        committed = functions.read_text()
        functions.write_text(committed + "kvc_seq_page_counts 0.1 op=page_counts\n")
        check(generate().returncode == 0, "a new regular function is taken")
        for name, call in WANTED.items():
            check(call in (root / name).read_text(), f"{name} calls it")
        functions.write_text(committed.replace("kvc_seq_fork 0.1", "kvc_seq_fork 0.1 op=fork"))
        check("kvc_seq_fork has op=fork, and is not regular" in generate().stderr, "a function that is not regular is refused")
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

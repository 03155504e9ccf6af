#!/usr/bin/env python3
"""scripts/generate_api.py appends what is new and refuses what breaks the table."""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NEW = "/* Answers. Since 0.2. */\nKVC_API int kvc_answer(void);\n\n"


def generate(root, *arguments):
    return subprocess.run([sys.executable, ROOT / "scripts/generate_api.py", "--root", root, *arguments],
                          capture_output=True, text=True)


def main() -> int:
    failures = []

    def check(good, what):
        print(f"{'ok' if good else 'FAILED'}: {what}")
        failures.extend([] if good else [what])

    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "src/api").mkdir(parents=True)
        (root / "include").mkdir()
        header, functions = root / "include/kvcache.h", root / "src/api/functions.txt"
        original = (ROOT / "include/kvcache.h").read_text()

        def reset(text=original):
            header.write_text(text)
            for name in ("functions.txt", "api_table.inc", "kvcache.map"):
                shutil.copy(ROOT / "src/api" / name, root / "src/api" / name)

        reset()
        check(generate(root, "--check").returncode == 0, "the committed files are up to date")
        first = functions.read_text().splitlines()

        top = "/* Returns the version of the loaded library as text"
        reset(original.replace(top, NEW + top, 1))
        check(generate(root, "--check").returncode == 1, "--check sees a new function")
        check(functions.read_text().splitlines() == first, "--check writes nothing")
        check(generate(root).returncode == 0, "a new function at the top of the header is taken")
        check(functions.read_text().splitlines() == [*first, "kvc_answer 0.2"], "and comes last in the list")
        check(header.read_text().split("} kvc_api;")[0].endswith("int (*answer)(void);\n"), "and last in the struct")
        script = (root / "src/api/kvcache.map").read_text()
        check("KVC_0.2 {\n  global:\n    kvc_answer;\n} KVC_0.1;" in script, "and in a node of its own")
        check(generate(root, "--check").returncode == 0, "after that everything is up to date")

        reset(original.replace("kvc_seq_add(", "kvc_seq_make("))
        check("kvc_seq_add was released" in generate(root).stderr, "a function that is gone is refused")
        reset()
        functions.write_text("\n".join([*first[1:], first[0]]) + "\n")
        check("only appended" in generate(root).stderr, "a moved line is refused")
        reset()
        functions.write_text("\n".join(first[1:]) + "\n")
        check("only appended" in generate(root).stderr, "a lost line is refused")
        reset(original.replace("KVC_API void kvc_cache_destroy", "\nKVC_API void kvc_cache_destroy"))
        check("comment directly above" in generate(root).stderr, "a function without a comment is refused")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

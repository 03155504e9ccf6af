#!/usr/bin/env python3
"""scripts/generate_go.py follows the header: structs, calls, constants, and refuses what it does not know."""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NEW = """typedef struct kvc_oracle kvc_oracle;
enum kvc_answers { KVC_ANSWER = 6 * 7, KVC_NEXT };
typedef struct kvc_question {
  uint32_t struct_size;
  int32_t a, b;
  const DLTensor *const *tensors;
  kvc_question_fn ask;
  char text[8];
} kvc_question;
/* Answers. Since 0.1. */
KVC_API kvc_status kvc_answer(kvc_cache *cache, kvc_oracle **oracle, const kvc_question *question, void *stream,
                              kvc_error *error);
"""


def run(script, root, *arguments):
    return subprocess.run([sys.executable, ROOT / "scripts" / script, "--root", root, *arguments],
                          capture_output=True, text=True)


def main() -> int:
    failures = []

    def check(good, what):
        print(f"{'ok' if good else 'FAILED'}: {what}")
        failures.extend([] if good else [what])

    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for folder in ("src/api", "include", "bindings/go"):
            (root / folder).mkdir(parents=True)
        for name in ("functions.txt", "api_table.inc", "kvcache.map"):
            shutil.copy(ROOT / "src/api" / name, root / "src/api" / name)
        for path in (ROOT / "bindings/go").glob("*generated*.go"):
            shutil.copy(path, root / "bindings/go" / path.name)
        header = root / "include/kvcache.h"
        original = (ROOT / "include/kvcache.h").read_text()
        header.write_text(original)
        check(run("generate_go.py", root, "--check").returncode == 0, "the committed files are up to date")

        place = "/* Version of the loaded library as text"
        header.write_text(original.replace(place, NEW + "\n" + place, 1))
        run("generate_api.py", root)  # the table, from which the calls are taken
        check(run("generate_go.py", root, "--check").returncode == 1, "--check sees a change of the header")
        check(run("generate_go.py", root).returncode == 0, "it is taken")
        go = {path.name: path.read_text() for path in (root / "bindings/go").iterdir()}
        abi = " ".join(go["abi_generated.go"].split())
        check("kvcAnswer = 42 " in abi and "kvcNext = 43 " in abi, "constants have their values")
        check("tensors **dlTensor ask uintptr text [8]byte }" in abi and " a_ int32 b int32 " in abi, "fields have types")
        check("answer uintptr }" in abi, "the table has the function")
        call = "answer(a *arena, cache uintptr, oracle *uintptr, question *kvcQuestion, stream uintptr) Status {"
        check(all(call in go[f"calls_{way}_generated.go"] for way in ("purego", "cgo")), "both ways call it")
        check('{"b", unsafe.Offsetof(kvcQuestion{}.b)' in go["layout_generated_test.go"], "its layout is compared")

        header.write_text(original.replace(place, NEW.replace("kvc_question_fn", "complex") + "\n" + place, 1))
        check("no Go type is known for complex" in run("generate_go.py", root).stderr, "an unknown type is refused")
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

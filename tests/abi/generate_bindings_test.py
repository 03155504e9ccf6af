#!/usr/bin/env python3
"""Usage: generate_bindings_test.py go|java. The generators of these bindings follow the structs, calls and constants of the
header, and refuse types that they cannot translate."""
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


def check_go(folder: Path, check) -> None:
    go = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
    abi = " ".join(go["abi_generated.go"].split())
    check("kvcAnswer = 42 " in abi and "kvcNext = 43 " in abi, "constants have their values")
    check("tensors **dlTensor ask uintptr text [8]byte }" in abi and " a_ int32 b int32 " in abi, "fields have types")
    check("answer uintptr }" in abi, "the table has the function")
    call = "answer(a *arena, cache uintptr, oracle *uintptr, question *kvcQuestion, stream uintptr) Status {"
    check(all(call in go[f"calls_{way}_generated.go"] for way in ("purego", "cgo")), "both ways call it")
    check('{"b", unsafe.Offsetof(kvcQuestion{}.b)' in go["layout_generated_test.go"], "its layout is compared")


def check_java(java: Path, check) -> None:
    package = java / "src/main/java/dev/kvcache"
    abi = (package / "Abi.java").read_text()
    check("int KVC_ANSWER = 42;" in abi and "int KVC_NEXT = 43;" in abi, "constants have their values")
    struct = " ".join(abi.split("class Question {")[1].split("}")[0].split())
    offsets = "STRUCT_SIZE = 0; static final int A = 4; static final int B = 8; static final int TENSORS = 16;"
    check("int SIZE = 40;" in struct and offsets in struct and "TEXT = 32;" in struct, "fields have C's offsets")
    call = "int answer(long cache, long oracle, long question, long stream, long error)"
    check(call + ";" in (package / "NativeCalls.java").read_text(), "the interface has the function")
    check(call + " {" in (package / "JniCalls.java").read_text(), "JNI calls it")
    flat = "int32_t kvj_answer(int64_t cache, int64_t oracle, int64_t question, int64_t stream, int64_t error) {"
    check(flat in (java / "native/calls.inc").read_text(), "the shim has it")


# Patterns in the generated files, and the message about a type without a size.
LANGUAGES = {"go": (check_go, "no Go type is known for complex"), "java": (check_java, "no size is known for complex")}


def main(language: str) -> int:
    check_files, refusal = LANGUAGES[language]
    script, failures = f"generate_{language}.py", []

    def check(good, what):
        print(f"{'ok' if good else 'FAILED'}: {what}")
        failures.extend([] if good else [what])

    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for folder in ("src/api", "include"):
            (root / folder).mkdir(parents=True)
        for name in ("functions.txt", "api_table.inc", "kvcache.map"):
            shutil.copy(ROOT / "src/api" / name, root / "src/api" / name)
        folder = root / "bindings" / language
        shutil.copytree(ROOT / "bindings" / language, folder, ignore=shutil.ignore_patterns("target", "test"))
        header = root / "include/kvcache.h"
        original = (ROOT / "include/kvcache.h").read_text()
        header.write_text(original)
        check(run(script, root, "--check").returncode == 0, "the committed files are up to date")

        place = "/* Returns the version of the loaded library as text"
        header.write_text(original.replace(place, NEW + "\n" + place, 1))
        run("generate_api.py", root)  # the calls are taken from the table
        check(run(script, root, "--check").returncode == 1, "--check sees a change of the header")
        check(run(script, root).returncode == 0, "it is taken")
        check_files(folder, check)

        header.write_text(original.replace(place, NEW.replace("kvc_question_fn ask", "complex ask") + "\n" + place, 1))
        check(refusal in run(script, root).stderr, "an unknown type is refused")
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

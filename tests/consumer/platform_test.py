#!/usr/bin/env python3
"""CMake stops with one sentence where the library cannot be built: another system, or pointers of 32 bits."""
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SENTENCE = "libkvcache needs 64-bit Linux, or 64-bit Windows with mingw-w64: this build is for {} with pointers of {} bytes."


def errors_for(folder: Path, *settings: str) -> list:
    """The errors that CMake reports, one line each."""
    folder.mkdir()
    toolchain = folder / "toolchain.cmake"
    toolchain.write_text("\n".join([*settings, "set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)"]))
    result = subprocess.run(["cmake", "-S", ROOT, "-B", folder / "build", f"-DCMAKE_TOOLCHAIN_FILE={toolchain}"],
                            capture_output=True, text=True)
    assert result.returncode != 0, result.stdout
    found = result.stderr.split("CMake Error at ")[1:]
    return [" ".join(error.partition("\n\n\n")[0].split("\n", 1)[1].split()) for error in found]


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        cases = [*((system, 8, f"set(CMAKE_SYSTEM_NAME {system})") for system in ("FreeBSD", "Darwin")),
                 ("Linux", 4, 'set(CMAKE_C_FLAGS_INIT "-m32")\nset(CMAKE_CXX_FLAGS_INIT "-m32")')]
        if subprocess.run(["cc", "-m32", "-x", "c", "-c", "-o", work / "32.o", "-"], input=b"", capture_output=True).returncode:
            cases.pop()  # the compiler cannot build for 32 bits
        for i, (system, pointer_bytes, settings) in enumerate(cases):
            errors = errors_for(work / str(i), settings)
            expected = SENTENCE.format(system, pointer_bytes)
            if errors != [expected]:
                print(f"FAILED: {errors}, not {[expected]}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

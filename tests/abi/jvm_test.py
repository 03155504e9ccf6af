#!/usr/bin/env python3
"""The library in a JVM under -Xcheck:jni: jvm/Host.java with a shim that is compiled here."""
import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SKIPPED = 77


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--library", "--include", "--dlpack", "--c"):
        parser.add_argument(name, required=True)
    arguments = parser.parse_args()
    compiler = shutil.which("javac")
    home = Path(compiler).resolve().parent.parent if compiler else Path()
    if not (home / "include/jni.h").exists():
        print("skipped: no JDK (Debian: openjdk-17-jdk-headless)")
        return SKIPPED
    with tempfile.TemporaryDirectory() as directory:
        shim = Path(directory) / "libshim.so"
        subprocess.run([arguments.c, "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", HERE / "jvm/shim.c",
                        *[f"-I{path}" for path in (home / "include", home / "include/linux", arguments.include,
                                                   arguments.dlpack)], "-o", shim, "-ldl"], check=True)
        subprocess.run([compiler, "-Xlint:all", "-Werror", "-d", directory, HERE / "jvm/Host.java"], check=True)
        result = subprocess.run(["java", "-Xcheck:jni", "-Xmx256m", "-cp", directory, "Host", shim, arguments.library],
                                capture_output=True, text=True, cwd=directory, timeout=300)
    print(result.stdout, result.stderr)
    # -Xcheck:jni only prints what it finds. It also reports signal handlers that are not the JVM's any more.
    return 0 if result.returncode == 0 and (result.stdout, result.stderr) == ("as it should be\n", "") else 1


if __name__ == "__main__":
    sys.exit(main())

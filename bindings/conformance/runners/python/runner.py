"""The runner of Python: makes the calls of scripts through the kvcache package.

    python3 runner.py SCRIPT...
"""

from __future__ import annotations

import os
import sys

import caches  # noqa: F401 - operations register themselves
import kvcache
import operations_generated  # noqa: F401
import prefixes  # noqa: F401
import saves  # noqa: F401
import steps  # noqa: F401
import tiers  # noqa: F401
import transfers  # noqa: F401
from script import OPERATIONS, Script



def run_line(script: Script, line: str) -> str:
    name, *words = line.split(" ")
    script.words = dict(word.split("=", 1) for word in words)
    run = OPERATIONS.get(name.removeprefix("?"))
    if run is None:
        return f"FAILED unknown operation {name}"
    try:
        results = run(script)
    except kvcache.Error as error:
        index, at_group = (-1 if number is None else number for number in (error.index, error.group))
        return (f"{error.status_name} index={index} required={error.required} available={error.available} "
                f"group={at_group}")  # fmt: skip
    except Exception as error:  # noqa: BLE001 - whatever it is, the driver is told
        return f"FAILED {type(error).__name__}: {error}".replace("\n", " ")
    return " ".join(["OK", *(f"{key}={value}" for key, value in (results or {}).items())])


def main() -> None:
    for path in sys.argv[1:]:
        print("script", os.path.basename(path))
        script = Script()
        with open(path, encoding="ascii") as file:
            for number, line in enumerate(file, 1):
                line = line.rstrip("\r\n")
                if line and line[0] not in "#=":
                    print(number, run_line(script, line), flush=True)
        script.close()


if __name__ == "__main__":
    main()

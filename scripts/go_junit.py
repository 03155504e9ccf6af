#!/usr/bin/env python3
"""Writes a JUnit file from outputs of `go test -json`, and prints what failed. Exit code 1 if something did.

    go_junit.py JUNIT NAME.json ...
"""
import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def read(path: Path) -> tuple:
    """Test cases (name, "pass", "fail" or "skip", output), and what went on outside of tests."""
    outputs, results = {}, {}
    for line in path.read_text().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            event = {"Action": "output", "Output": line + "\n"}
        name = event.get("Test", "")
        outputs[name] = outputs.get(name, "") + event.get("Output", "")
        if event["Action"] in ("pass", "fail", "skip"):
            results[name] = event["Action"]
    whole = results.pop("", "fail")  # of the package: missing if it did not build or was killed
    cases = [(name, results.get(name, "fail"), text) for name, text in outputs.items() if name]
    if whole == "fail" and not any(state == "fail" for _, state, _ in cases):
        cases.append(("package", "fail", outputs.get("", "")))
    return cases, outputs.get("", "")


def main() -> int:
    junit, *paths = map(Path, sys.argv[1:])
    suite, failed = xml.Element("testsuite", name="go"), 0
    for path in paths:
        cases, rest = read(path)
        for name, state, text in cases:
            case = xml.SubElement(suite, "testcase", name=f"{path.stem}.{name}")
            if state == "fail":
                failed += 1
                xml.SubElement(case, "failure")
                print(f"---- {path.stem}.{name}\n{text}{rest}")
            elif state == "skip":
                xml.SubElement(case, "skipped", message=" ".join(text.split("\n")[1:-2]).strip())
        print(f"{path.stem}: {len(cases)} tests")
    xml.ElementTree(suite).write(junit)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Lines of scripts/test.sh. Counts come from JUnit files: a skipped test is no passed one.

    report.py part NAME ok|FAILED BEGIN END CPU JUNIT     times in seconds
    report.py summary LOGS NAME=ok|FAILED ...
    report.py cargo OUTPUT JUNIT        writes the JUnit file of `cargo test`'s output
    report.py junit JUNIT FILE ...      merges JUnit files; exit code 1 if a test failed, or there is none
"""
import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def counts(junit: Path) -> tuple:
    """Numbers of passed and failed tests, and the skipped ones as "name: reason"."""
    passed, failed, skipped = 0, 0, []
    if not junit.exists():
        return passed, failed, skipped
    for case in xml.parse(junit).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            message = case.find("skipped")
            reason = message.get("message", "") if message is not None else ""
            skipped.append(f"{case.get('name')}: {reason_of(case) or reason}")
        else:
            passed += 1
    return passed, failed, skipped


def reason_of(case) -> str:
    """ctest keeps a test's words in its output: the line that says why it was skipped."""
    lines = (case.findtext("system-out") or "").splitlines()
    for index, line in enumerate(lines):
        if line.lower().startswith("skipped"):
            return line
        if line.startswith("[ RUN") and index + 2 < len(lines) and "Skipped" in lines[index + 1]:
            return lines[index + 2].strip()
    return ""


def part(name, state, begin, end, cpu, junit) -> int:
    passed, failed, skipped = counts(Path(junit))
    seconds = float(end) - float(begin)
    tests = f"   {passed} passed"
    tests += f", {failed} failed" if failed else ""
    tests += f", {len(skipped)} skipped" if skipped else ""
    print(f"{name:<16} {state:<6} {seconds:8.1f} s, CPU {int(cpu):5} s" + (tests if Path(junit).exists() else ""), flush=True)
    for line in skipped:
        print(f"    skipped {line}", flush=True)
    return 0


def cargo(output, junit) -> int:
    suite, binary = xml.Element("testsuite", name="cargo"), ""
    for line in Path(output).read_text().splitlines():
        binary = line.split()[1] if line.startswith("     Running ") else binary
        test = re.fullmatch(r"test (.+) \.\.\. (ok|FAILED)", line)  # ignored ones are run by others
        if test:
            case = xml.SubElement(suite, "testcase", classname=binary, name=test[1])
            if test[2] == "FAILED":
                xml.SubElement(case, "failure")
    xml.ElementTree(suite).write(junit)
    return 0


def junit(target, *files) -> int:
    suites = xml.Element("testsuites")
    suites.extend(xml.parse(file).getroot() for file in files if Path(file).exists())
    for properties in list(suites.iter("properties")):
        properties.clear()  # all of a JVM's, for each class
    xml.ElementTree(suites).write(target)
    passed, failed, _ = counts(Path(target))
    for case in suites.iter("testcase"):
        for problem in [*case.iter("failure"), *case.iter("error")]:
            print(f"---- {case.get('classname')}.{case.get('name')}\n{problem.text}")
    return 1 if failed or not passed else 0


def summary(logs, *parts) -> int:
    passed, failed, skipped, broken = 0, 0, 0, []
    for name, state in (entry.split("=") for entry in parts):
        more_passed, more_failed, more_skipped = counts(Path(logs) / f"{name}.xml")
        passed, skipped = passed + more_passed, skipped + len(more_skipped)
        failed += max(more_failed, 1 if state == "FAILED" else 0)  # a part can fail without a test: a build
        if state == "FAILED" or more_failed:
            broken.append(name)
    if broken:
        print(f"failed: {', '.join(broken)}; output in {Path(logs).name}/ of the build folder")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit({"part": part, "summary": summary, "cargo": cargo, "junit": junit}[sys.argv[1]](*sys.argv[2:]))

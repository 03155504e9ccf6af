"""Compares transcripts: with what a script expects, with the model, and with each other."""

from __future__ import annotations

import numpy as np
from replay import Exact, Floats, PageList, Replay
from script import FLOATS, Answer, Op, Printed, parse_printed

BETWEEN = {"f32": 1e-5, "f16": 2**-9, "bf16": 2**-6}  # tolerance between two runners, by dtype
UNPRINTED = {"u8", "e4m3", "e5m2"}  # an export of float8 may come under either name


class Pages:
    """Which library id a page of the model has; equal ids mean the same page, for as long as it lives."""

    def __init__(self) -> None:
        self.ids: dict[object, dict[object, int]] = {}
        self.pages: dict[object, dict[int, object]] = {}

    def differ(self, expected: PageList, text: str) -> str | None:
        got = [int(item) for item in text.split(",") if item]
        if len(got) != len(expected.pages):
            return f"{len(got)} pages, not {len(expected.pages)}"
        ids = self.ids.setdefault(id(expected.pool), {})
        pages = self.pages.setdefault(id(expected.pool), {})
        for index, (page, number) in enumerate(zip(expected.pages, got)):
            if page is None:
                if number != -1:
                    return f"entry {index} is page {number}, not freed"
                continue
            if number < 0 or (expected.pool.total is not None and number >= expected.pool.total):
                return f"entry {index} is {number}, no page"
            before = pages.get(number)
            if before is not None and before is not page and before.owners > 0:  # type: ignore[attr-defined]
                return f"entry {index} is page {number}, which another sequence has"
            if ids.get(page, number) != number:
                return f"entry {index} is page {number}, not {ids[page]} as before, or as in the fork that shares it"
            ids[page], pages[number] = number, page
        return None


def floats_differ(got: np.ndarray, expected: np.ndarray, tolerance: float) -> str | None:
    got, expected = got.astype(np.float64), np.asarray(expected, np.float64)
    with np.errstate(invalid="ignore"):
        bad = ~((np.abs(got - expected) <= tolerance * (1 + np.abs(expected))) | (got == expected) | np.isnan(expected))
    if not bad.any():
        return None
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"element {list(at)} is {got[at]:.7g}, not {expected[at]:.7g} ({int(bad.sum())} of {bad.size} differ)"


def shapes_differ(got: Printed, dtype: str, shape: tuple[int, ...]) -> str | None:
    same = got.dtype == dtype or {got.dtype, dtype} <= UNPRINTED
    return None if same and got.shape == shape else f"is {got.dtype}{list(got.shape)}, not {dtype}{list(shape)}"


def differs_from_model(text: str, expected: object, pages: Pages) -> str | None:
    if isinstance(expected, str):
        return None if text == expected else f"is {text}, not {expected}"
    if isinstance(expected, PageList):
        return pages.differ(expected, text)
    got = parse_printed(text)
    if got is None:
        return f"is no tensor: {text[:40]}"
    if isinstance(expected, Exact):
        wanted = np.ascontiguousarray(expected.array)
        other = parse_printed(f"{got.dtype}[{','.join(map(str, wanted.shape))}]:{wanted.tobytes().hex()}")
        assert other is not None
        if got.shape != other.shape:
            return f"has shape {list(got.shape)}, not {list(other.shape)}"
        return None if got.hash == other.hash else f"has hash {got.hash}, not {other.hash}"
    assert isinstance(expected, Floats)
    if got.shape != expected.values.shape:
        return f"has shape {list(got.shape)}, not {list(expected.values.shape)}"
    return None if got.array is None else floats_differ(got.array, expected.values, expected.tolerance)


def differs_from_other(text: str, other: str) -> str | None:
    if text == other:
        return None
    got, wanted = parse_printed(text), parse_printed(other)
    if got is None or wanted is None:
        return f"is {text[:60]}, not {other[:60]}"
    shapes = shapes_differ(got, wanted.dtype, wanted.shape)
    if shapes or got.hash == wanted.hash:
        return shapes
    if got.dtype in FLOATS and got.array is not None and wanted.array is not None:
        return floats_differ(got.array, wanted.array, BETWEEN[got.dtype])
    return f"has hash {got.hash}, not {wanted.hash}"


class Comparison:
    """One script over all runners. `missing`: operations, or whole scripts, for which a runner's binding has not got the calls."""

    def __init__(self, name: str, ops: list[Op], transcripts: dict[str, dict[int, Answer]],
                 missing: dict[str, set[str]]) -> None:
        self.name, self.ops, self.missing = name, ops, missing
        self.transcripts = {runner: answers for runner, answers in transcripts.items()
                            if name not in missing.get(runner, set())}  # fmt: skip
        self.errors: list[str] = []
        self.skipped = {runner: len(ops) for runner in transcripts if runner not in self.transcripts}
        self.predicted = self.written = 0
        self.pages = {runner: Pages() for runner in transcripts}

    def run(self) -> None:
        replay = Replay()
        for op in self.ops:
            try:
                expected = replay.run(op)
            except NotImplementedError:
                expected = {}
            self.predicted += len(expected)
            self.written += len(op.results)
            answered: list[tuple[str, Answer]] = []
            for runner, transcript in self.transcripts.items():
                answer = transcript.get(op.line)
                if answer is None:
                    self.error(runner, op, "no answer: the runner stopped before")
                    return
                if self.check(runner, op, answer, expected):
                    answered.append((runner, answer))
            for runner, answer in answered[1:]:
                self.check_others(runner, op, answer, *answered[0])

    def error(self, runner: str, op: Op, what: str) -> None:
        self.errors.append(f"{self.name}:{op.line}: {runner}: {op.name}: {what}")

    def check(self, runner: str, op: Op, answer: Answer, expected: dict[str, object]) -> bool:
        """Whether the answer is one to compare with others'."""
        if answer.status == "skip":
            if not op.may_skip and op.name not in self.missing.get(runner, set()):
                self.error(runner, op, "skipped")
            self.skipped[runner] = self.skipped.get(runner, 0) + 1
            return False
        if answer.status != op.status:
            self.error(runner, op, f"answers {answer.text[:300]}, not {op.status}")
            return False
        for key, text in op.results.items():
            if answer.results.get(key) != text:
                self.error(runner, op, f"{key} is {answer.results.get(key)}, not {text}")
        for key, value in expected.items():
            if key not in answer.results:
                self.error(runner, op, f"no {key}")
                continue
            differs = differs_from_model(answer.results[key], value, self.pages[runner])
            if differs:
                self.error(runner, op, f"{key} {differs} as in the model")
        return True

    def check_others(self, runner: str, op: Op, answer: Answer, first: str, other: Answer) -> None:
        if answer.results.keys() != other.results.keys():
            self.error(runner, op, f"has {sorted(answer.results)}, {first} {sorted(other.results)}")
        for key in answer.results.keys() & other.results.keys():
            differs = differs_from_other(answer.results[key], other.results[key])
            if differs:
                self.error(runner, op, f"{key} {differs} as in {first}")

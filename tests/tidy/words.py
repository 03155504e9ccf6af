#!/usr/bin/env python3
"""Finds words that readers stumble over. Prints `file:line: word: write instead` and exits with 1 if it finds one.

The last table of docs/glossary.md explains each. The test reads Markdown without its code. Of source files it reads the comments,
and the strings with a space in them: messages and docstrings.
"""
import ast
import io
import re
import sys
import tokenize
from pathlib import Path

import tidy

# A pattern, in which _ stands for any white space, and what to write instead.
THINGS = r"(?:library|kernels?|backends?|devices?|contexts?|steps?|threads?|calls?|streams?|caches?|pages?|plans?|tables?|tests?" \
         r"|programs?|functions?|hosts?|layers?|warps?|blocks?|items?|GPUs?|CPUs?)"
WORDS = [(re.compile(pattern.replace("_", r"\s+"), re.IGNORECASE), instead) for pattern, instead in [
    (r"\bcopy_engines?\b", "TMA"),
    (r"\bnobody\b", "no thread, no call, no other code"),
    (r"\bwho(m|s)?(so)?ever\b", "the thread that, the caller, later work"),
    (r"\bno_card\b", "experimental, not yet run on hardware"),
    (r"\b(that|it)_(is|are)_late\b|\blate_(devices?|streams?|work)\b", "asynchronous device, work in flight"),
    (r"\bwhat\b[^.;:|]*\bhas_not\b", "say what is missing"),
    (r"\bsoften(s|ed|ing)?\b", "online softmax, rescale the accumulator"),
    (r"(?<!\bin )\bturn(s|ed|ing)?\b", "rotate (RoPE); else become, or say what happens"),
    (r"\bwiden(s|ed|ing)?\b", "dequantise (8 bits and fewer), convert (16 to 32 bits)"),
    (r"\btwins?\b", "the line of the next tile; the copy; the second cache"),
    (r"\bV_in_K\b", "MLA row, latent row"),
    (r"\bfloors?\b(?!\()", "lower bound, limit"),
    (r"\bbehind\b", "after, beyond, past; order after, wait on"),
    (r"\basks?_for_a_line\b|\basks?_nobody\b", "prefetch; say which check is missing"),
    (rf"\b{THINGS}_(asks?|knows?|wants?|thinks?|sees_to)\b", "reads, needs, accepts, is given"),
]]

TEXT = {".md"}
C_LIKE = {".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".inc", ".rs", ".go", ".java"}
HASH = {".sh", ".cmake", ".txt", ".toml", ".yml", ".kvs"}
# These files contain the words on purpose.
DEFINE_THEM = {"docs/glossary.md", "tests/tidy/words.py", "tests/tidy/prose_self_test.py"}
GENERATED = re.compile(r"(^|/)(generated/|.*_generated|layout\.golden|kvcache\.h\.baseline|Cargo\.lock|.*\.svg)")
C_PROSE = re.compile(r'R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?P<comment>//[^\n]*|/\*.*?\*/)', re.DOTALL)


def blank(match: re.Match) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def prose_of_page(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`|\]\([^)\n]*\)", blank, text, flags=re.DOTALL)


def prose_of_c(text: str) -> str:
    """The comments and messages alone, on their lines. Code in backticks is not prose."""
    kept, at = [], 0
    for match in C_PROSE.finditer(text):
        kept.append(re.sub(r"[^\n]", " ", text[at:match.start()]))
        kept.append(re.sub(r"`[^`\n]*`", blank, match[0]) if match["comment"] or " " in match[0] else blank(match))
        at = match.end()
    return "".join(kept) + re.sub(r"[^\n]", " ", text[at:])


def prose_of_python(text: str) -> str:
    lines = [""] * (text.count("\n") + 2)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] += token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for i, line in enumerate(node.value.splitlines()):
                lines[min(node.lineno - 1 + i, len(lines) - 1)] += line + " "
    return re.sub(r"`[^`\n]*`", blank, "\n".join(lines))


def prose_of_shell(text: str) -> str:
    return "\n".join(match[1] if (match := re.search(r"(?:^|\s)(#.*)", line)) else "" for line in text.splitlines())


def prose(path: Path, text: str) -> str:
    if path.suffix in TEXT:
        return prose_of_page(text)
    if path.suffix in C_LIKE:
        return prose_of_c(text)
    if path.suffix == ".py":
        return prose_of_python(text)
    if path.suffix in HASH or path.name == "CMakeLists.txt":
        return prose_of_shell(text)
    return ""


def found_in(name: str, text: str) -> list:
    """Problems of one file. A phrase may continue on the next line."""
    found = []
    flat = re.sub(r"(?<=\n)[ \t]*(//+!?|\*|#)?", lambda match: " " * len(match[0]), text).replace("\n", " ")
    for pattern, instead in WORDS:
        for match in pattern.finditer(flat):
            number = text.count("\n", 0, match.start()) + 1
            words = re.sub(r"\s+", " ", match[0])[:60]
            found.append((number, f"{name}:{number}: {words}: write {instead}"))
    return [words for _, words in sorted(found)]


def problems(root: Path) -> list:
    found = []
    for path in tidy.files(root):
        name = path.relative_to(root).as_posix()
        if name in DEFINE_THEM or GENERATED.search(name):
            continue
        try:
            found += found_in(name, prose(path, path.read_text()))
        except UnicodeDecodeError:
            continue
    return found


def main() -> int:
    found = problems(tidy.ROOT)
    print("\n".join(found) if found else "no banned words")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

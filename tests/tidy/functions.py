"""Finds functions in C and C++ text by their braces. This is enough to count their lines, in code that clang-format
wrote."""
import re

SCOPE = r"^(inline\s+)?(namespace\b|extern\b|(template\s*<.*>\s*)?(typedef\s+)?(class|struct|union|enum)\b)"
LITERALS = r'/\*.*?\*/|//[^\n]*|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n]){1,8}\''


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=re.S)


def lengths(text: str) -> list:
    """(name, first line, number of lines) of each function definition that is not inside another."""
    text = re.sub(LITERALS, lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=re.S)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=re.M)
    found, head, head_start, index = [], "", 0, 0
    while index < len(text):
        letter = text[index]
        if letter in ";}":
            head = ""
        elif letter == "{":
            words = head.strip()
            if re.match(SCOPE, words, flags=re.S) and not _is_function(words):
                head = ""
            else:
                end = _closing(text, index)
                initialiser = words.endswith("=") or re.search(r"[\w>]$", head)
                if _is_function(words) and not initialiser:
                    begin = text.count("\n", 0, head_start) + 1
                    found.append((_name(words), begin, text.count("\n", 0, end) + 2 - begin))
                if not initialiser:
                    head = ""
                index = end
        else:
            if not head.strip():
                head_start = index
            head += letter
        index += 1
    return found


def _is_function(words: str) -> bool:
    """`result name(...)`, which const, noexcept, -> type, attributes or member initialisers may follow."""
    return bool(re.search(r"[\w>\])=]\s*\(", words)) and not re.match(r"(class|struct|enum|union|namespace)\b[^(]*$", words)


def _name(words: str) -> str:
    match = re.match(r".*?\b(TEST(?:_[FP])?|BENCHMARK\w*)\s*\(\s*([^)]*)\)", words, flags=re.S)
    if match:
        return ".".join(part.strip() for part in match[2].split(","))
    match = re.search(r"([~\w:]+|operator\s*\S+?)\s*\(", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", words, flags=re.S))
    return match[1] if match else "function"


def _closing(text: str, index: int) -> int:
    depth = 0
    for place in range(index, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return place
    return len(text) - 1

"""Reads include/kvcache*.h: functions, structs and constants. Made for the plain style of these headers, and strict:
what it does not understand is an error, never left out."""
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
NOT_NUMERIC = {"KVC_API", "KVC_ZERO_STRUCT", "KVC_ERROR_INIT"}


class HeaderError(Exception):
    pass


@dataclass(frozen=True)
class Function:
    result: str       # "const char *" or "kvc_status "
    name: str         # "kvc_version"
    parameters: list  # ["kvc_cache *cache", ...]; ["void"] for none
    since: str        # "0.1", from the comment above it


@dataclass(frozen=True)
class Struct:
    name: str
    fields: list   # names, in order
    members: list  # (type, name, array length or 0), in order: ("const kvc_seq *", "sequences", 0)


def read(name: str) -> str:
    return (INCLUDE / name).read_text()


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def functions(text: str) -> list:
    """Every KVC_API prototype, with the release that its comment names ("Since 0.1")."""
    found = []
    pattern = r"(?P<comment>/\*(?:(?!\*/).)*\*/)\nKVC_API\s+(?P<prototype>[^;{]+);"
    for match in re.finditer(pattern, text, flags=re.S):
        prototype = " ".join(without_comments(match["prototype"]).split())
        parts = re.fullmatch(r"(.+?[ *])(kvc_\w+)\((.*)\)", prototype)
        if not parts:
            raise HeaderError(f"cannot read the prototype: {prototype}")
        since = re.search(r"Since (\d+\.\d+)", match["comment"])
        found.append(Function(parts[1], parts[2], _split(parts[3]), since[1] if since else ""))
    declared = len(re.findall(r"^KVC_API\b", without_comments(text), flags=re.M))
    if declared != len(found):
        raise HeaderError(f"{declared} KVC_API lines, but {len(found)} prototypes with a comment directly above")
    return found


def structs(text: str) -> list:
    found = []
    text = without_comments(text)
    for match in re.finditer(r"typedef struct (\w+) \{(.*?)\n\}\s*(\w+);", text, flags=re.S):
        declarations = [" ".join(declaration.split()) for declaration in match[2].split(";") if declaration.strip()]
        fields = [field for declaration in declarations for field in _names(declaration)]
        members = [member for declaration in declarations for member in _members(declaration)]
        found.append(Struct(match[3], fields, members))
    if len(found) != len(re.findall(r"struct \w+ \{", text)):
        raise HeaderError("a struct that is not `typedef struct name {` ... newline `} name;`")
    return found


def constants(text: str) -> list:
    """Names of all enumerators and of all macros with a number as value, in header order."""
    text = without_comments(text)
    found = []
    for match in re.finditer(r"^#define (\w+)(\([^)]*\))?|\benum\s*\w*\s*\{([^}]*)\}", text, flags=re.M):
        if match[3] is not None:
            for item in filter(str.strip, match[3].split(",")):
                found.append(item.split("=")[0].strip())
        elif not match[2] and match[1] not in NOT_NUMERIC and not match[1].endswith("_H_"):
            found.append(match[1])
    return list(dict.fromkeys(found))


def values(text: str) -> dict:
    """Numbers of what constants() names."""
    text = without_comments(text).replace("\\\n", " ")
    found = {}
    for match in re.finditer(r"^#define (\w+)[ \t]+([^\n]+)|\benum\s*\w*\s*\{([^}]*)\}", text, flags=re.M):
        previous = -1
        for item in filter(str.strip, match[3].split(",")) if match[3] is not None else [f"{match[1]} = {match[2]}"]:
            name, _, expression = (part.strip() for part in item.partition("="))
            if match[3] is None and (name in NOT_NUMERIC or name.endswith("_H_")):
                continue
            expression = re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", expression)
            if not re.fullmatch(r"[\w\s()|<>+*-]*", expression):
                raise HeaderError(f"cannot read the value of {name}: {expression}")
            previous = eval(expression, {"__builtins__": {}}, found) if expression else previous + 1
            found[name] = previous
    if missing := [name for name in constants(text) if name not in found]:
        raise HeaderError(f"constants without a value: {missing}")
    return found


def version(text: str) -> tuple:
    return tuple(int(re.search(rf"#define KVC_VERSION_{part} (\d+)", text)[1]) for part in ("MAJOR", "MINOR", "PATCH"))


def _split(parameters: str) -> list:
    parts, depth = [""], 0
    for letter in parameters:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _names(declaration: str) -> list:
    """Names that one member declaration declares: `int32_t a, b`, `char text[8]`, `void (*run)(void *self)`."""
    pointer = re.match(r"[\w\s*]+\(\*(\w+)\)\s*\(.*\)$", declaration)
    if pointer:
        return [pointer[1]]
    names = [re.search(r"(\w+)\s*(?:\[\w+\])?$", part.strip()) for part in declaration.split(",")]
    if "(" in declaration or ":" in declaration or "{" in declaration or not all(names):
        raise HeaderError(f"cannot read the member: {declaration}")
    return [name[1] for name in names]


def _members(declaration: str) -> list:
    """(type, name, array length or 0) of each member that _names found."""
    pointer = re.match(r"([\w\s*]+\(\*)\w+(\)\s*\(.*\))$", declaration)
    if pointer:
        return [(pointer[1] + pointer[2], _names(declaration)[0], 0)]
    first, *others = declaration.split(",")
    head = re.match(r"(.*?[\s*])\w+\s*(?:\[\w+\])?$", first)[1].strip()
    if others and "*" in declaration:
        raise HeaderError(f"one pointer a declaration: {declaration}")
    return [(head, name, int(length or 0))
            for name, length in re.findall(r"(\w+)\s*(?:\[(\w+)\])?\s*(?:,|$)", declaration)]

#!/usr/bin/env python3
"""Page keys from docs/reference/keys.md alone, with hashlib: a second implementation, with which the library is compared.

    vectors.py FILE            checks the keys of every vector in FILE
    vectors.py --write FILE    writes the vectors: some named ones, then random ones
"""
import random
import struct
import sys
from hashlib import sha256
from pathlib import Path

TEXTS = ("fingerprint", "adapter", "salt", "parent")
NUMBERS = ("salt_begin", "begin", "page_size")


def keys_of(vector: dict) -> list:
    size, tokens, salt = vector["page_size"], vector["tokens"], vector["salt"]
    root = vector["fingerprint"] + vector["adapter"] + struct.pack("<Q", len(vector["adapter"])) + b"kvcroot1"
    parent, found = vector["parent"] or sha256(root).digest(), []
    for page in range(len(tokens) // size):
        first = vector["begin"] + page * size
        if salt and vector["salt_begin"] // size * size == first:
            parent = sha256(parent + salt + struct.pack("<Q", len(salt)) + b"kvcsalt1").digest()
        message = struct.pack(f"<{size}i", *tokens[page * size:(page + 1) * size])
        spans = [span for span in vector["media"] if span[0] < first + size and span[0] + span[1] > first]
        for begin, length, media in spans:
            message += struct.pack("<qq", begin - first, length) + media
        parent = sha256(message + parent + struct.pack("<II", size, len(spans)) + b"kvcpage1").digest()
        found.append(parent)
    return found


def read(text: str) -> list:
    vectors = []
    for paragraph in text.strip().split("\n\n"):
        lines = {line.split()[0]: line.split()[1:] for line in paragraph.splitlines() if not line.startswith("#")}
        vector = {name: bytes.fromhex(lines[name][0].replace("-", "")) for name in TEXTS}
        vector |= {name: int(lines[name][0]) for name in NUMBERS}
        vector["name"], vector["tokens"] = lines["name"][0], [int(token) for token in lines["tokens"]]
        media = iter(lines.get("media", []))
        vector["media"] = [(int(begin), int(next(media)), bytes.fromhex(next(media))) for begin in media]
        vectors.append(vector | {"keys": [bytes.fromhex(key) for key in lines["keys"]]})
    return vectors


def write(vector: dict) -> str:
    lines = ["name " + vector["name"]] + [f"{name} {vector[name].hex() or '-'}" for name in TEXTS]
    lines += [f"{name} {vector[name]}" for name in NUMBERS] + [" ".join(["tokens", *map(str, vector["tokens"])])]
    lines += [" ".join(["media", *(f"{b} {n} {h.hex()}" for b, n, h in vector["media"])])] if vector["media"] else []
    return "\n".join(lines + [" ".join(["keys", *(key.hex() for key in keys_of(vector))])]) + "\n"


def make() -> list:
    draw, plain = random.Random(7), {"name": "first", "fingerprint": bytes(range(32)), "adapter": b"", "salt": b"", "parent": b"",
                                     "salt_begin": 0, "begin": 0, "page_size": 16, "tokens": list(range(16)), "media": []}
    named = [plain] + [plain | {"name": name, "tokens": list(range(50))} | other for name, other in {
        "several_pages": {}, "no_whole_page": {"tokens": [5]}, "adapter": {"adapter": b"org_12345"}, "salt": {"salt": b"org_12345"},
        "salt_and_adapter": {"salt": b"org_1", "adapter": b"2345"}, "salt_in_second_page": {"salt": b"t", "salt_begin": 31},
        "continued": {"parent": keys_of(plain)[0], "begin": 16}, "extreme_ids": {"tokens": [-2**31, 2**31 - 1, -1] * 16},
        "image_over_pages": {"media": [(10, 30, sha256(b"image").digest())]}}.items()]
    for i in range(40):
        size, at, media = draw.choice([1, 3, 8, 12, 16, 20, 32, 64]), 0, []
        while draw.random() < 0.6 and len(media) < 6:
            media.append((at + draw.randrange(9), draw.randint(1, 40), draw.randbytes(32)))
            at = media[-1][0] + media[-1][1]
        named.append({"name": f"random_{i}", "page_size": size, "media": media, "begin": 0, "parent": b"",
                      "tokens": [draw.randint(-2**31, 2**31 - 1) for _ in range(draw.randrange(6 * size))],
                      "fingerprint": draw.randbytes(32), "adapter": draw.randbytes(draw.choice([0, 7, 70])),
                      "salt": draw.randbytes(draw.choice([0, 8, 16, 200])), "salt_begin": draw.randrange(4 * size)})
    return named


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        Path(sys.argv[2]).write_text("\n".join(map(write, make())))
    wrong = [vector["name"] for vector in read(Path(sys.argv[-1]).read_text()) if keys_of(vector) != vector["keys"]]
    print("wrong keys: " + " ".join(wrong) if wrong else "all keys agree")
    sys.exit(1 if wrong else 0)

"""An independent reader of stored objects. It uses docs/reference/format.md alone, xxHash, and numpy."""
import hashlib
import re
import struct
from dataclasses import dataclass, field

import numpy as np
import xxhash

FIXED = struct.Struct("<8s6IQ2I2q32s32s32s32s")
ELEMENTS = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16, "int8": np.int8,
            "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}
LAYER = re.compile(r"layers? ([\d,-]+): (\w+), (\d+) heads, k (\d+), v (\d+)(, scales of tokens and heads)?")
STATE = re.compile(r" (\w+)\[([\d,]+)\]")


class Bad(Exception):
    """The bytes are not an object."""


@dataclass
class Layer:
    """The parts of a layer's row of a token, or the dtypes and shapes of its states."""
    latent: bool = False
    runs: list = field(default_factory=list)  # (name, element type, shape of a token)
    states: list = field(default_factory=list)


def check(condition, what):
    if not condition:
        raise Bad(what)


def header(data):
    """Fields of a header, with its manifest, token ids and details."""
    check(len(data) >= FIXED.size, "no whole header")
    names = ("magic version kind header_bytes manifest_bytes num_token_ids detail_bytes payload_bytes section_bytes "
             "reserved token_begin num_tokens key parent fingerprint digest").split()
    fields = dict(zip(names, FIXED.unpack_from(data)))
    check(fields["magic"] == b"kvcobj\r\n" and fields["version"] == 1 and fields["kind"] in (1, 2, 3), "magic or version")
    size = fields["header_bytes"]
    parts = FIXED.size + fields["manifest_bytes"] + 4 * fields["num_token_ids"] + fields["detail_bytes"] + 16
    check(size == (parts + 63) // 64 * 64 and len(data) >= size, "header_bytes")
    checksum = data[size - 16:size]
    check(xxhash.xxh3_128_digest(data[:size - 16]) == checksum, "checksum of the header")
    at = FIXED.size
    for name, count in (("manifest", fields["manifest_bytes"]), ("token_ids", 4 * fields["num_token_ids"]),
                        ("details", fields["detail_bytes"])):
        fields[name] = data[at:at + count]
        at += count
    check(hashlib.sha256(fields["manifest"]).digest() == fields["digest"], "digest of the manifest")
    fields["token_ids"] = np.frombuffer(fields["token_ids"], "<i4")
    fields["seed"] = int.from_bytes(checksum[:8], "little")
    return fields


def payload(data, fields):
    """The payload, from its sections."""
    at, left, out, index = fields["header_bytes"], fields["payload_bytes"], b"", 0
    while left:
        size = min(left, fields["section_bytes"])
        section, checksum = data[at:at + size], data[at + size:at + size + 16]
        seed = (fields["seed"] + index) % 2 ** 64
        check(xxhash.xxh3_128_digest(section, seed) == checksum, f"checksum of section {index}")
        out, at, left, index = out + section, at + size + 16, left - size, index + 1
    check(at == len(data), "bytes after the object")
    return out


def numbers(text):
    """0-2,4 -> 0 1 2 4"""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def layout(manifest):
    """Groups of {layer number: Layer}."""
    groups = []
    for line in manifest.decode().splitlines()[1:]:
        if line.startswith("group"):
            groups.append((line, {}))
        elif match := LAYER.match(line):
            which, dtype, heads, k, v, scales = match.groups()
            latent = ": latent" in groups[-1][0]
            runs = [("k", ELEMENTS[dtype], (int(heads), int(k)))]
            runs += [] if latent else [("v", ELEMENTS[dtype], (int(heads), int(v)))]
            if scales:
                runs += [(f"{run[0]}_scale", np.float32, (int(heads),)) for run in runs]
            groups[-1][1].update({i: Layer(latent, runs) for i in numbers(which)})
        elif line.startswith("layer"):
            states = [(ELEMENTS[t], tuple(map(int, shape.split(",")))) for t, shape in STATE.findall(line)]
            groups[-1][1].update({i: Layer(states=states) for i in numbers(line.split()[1].rstrip(":"))})
    return [dict(sorted(layers.items())) for _, layers in groups]


def sequence(data):
    """A saved sequence: its details, and the arrays of each layer."""
    fields = header(data)
    check(fields["kind"] == 2, "no sequence")
    length, sinks, window, flags, rope_set, groups, checkpoints = struct.unpack_from("<q2i4I", fields["details"])
    lists = [struct.unpack_from("<3q", fields["details"], 32 + 24 * i) for i in range(groups)]
    positions = struct.unpack_from(f"<{checkpoints}q", fields["details"], 32 + 24 * groups)
    out = {"length": length, "sinks": sinks, "window": window, "streamed": bool(flags & 1), "rope_set": rope_set,
           "lists": lists, "checkpoints": positions, "manifest": fields["manifest"].decode(), "layers": {}}
    body, at = payload(data, fields), 0

    def take(dtype, shape):
        nonlocal at
        count = int(np.prod(shape))
        array = np.frombuffer(body, dtype, count, at).reshape(shape)
        at += array.nbytes
        return array

    out["tokens"] = take("<i4", (length,)) if flags & 2 else None
    for layers, (tokens, begin, end) in zip(layout(fields["manifest"]), lists, strict=True):
        held = tokens - (end - begin)
        times = [p for p in positions if p < length] + ([length] if length else [])
        for time in times if any(layer.states for layer in layers.values()) else []:
            for number, layer in layers.items():
                out["layers"].setdefault(number, {})[time] = [take(*state) for state in layer.states]
        for number, layer in layers.items():
            if layer.runs:
                out["layers"][number] = {name: take(dtype, (held, *shape)) for name, dtype, shape in layer.runs}
    check(at == len(body), "the payload has another size")
    return out

#!/usr/bin/env python3
"""Writes random scripts: caches of random groups, sequences that fork, stream, draft and are cut, several steps open at once,
and wrong calls. What is valid, and with which status a wrong call is refused, the model says.

    random_script.py FOLDER COUNT SEED
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

from model import Cache, Layer, Row, Sequence
from replay import Replay
from script import parse_line

MAX_SEQUENCES, MAX_TOKENS, MAX_NODES, MAX_STEPS = 6, 24, 8, 2
OPERATIONS = 120


class OpenStep:
    """A step that the script has begun: the layers that are left."""

    def __init__(self, ordinal: int, tokens: int, rows: int, layers: list[int], encoder: bool) -> None:
        self.ordinal, self.tokens, self.rows, self.layers, self.encoder = ordinal, tokens, rows, layers, encoder


class Generator:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines = [f"# random_script.py, seed {seed}"]
        self.replay = Replay()
        self.open: list[OpenStep] = []
        self.next_sequence = self.next_tensor = 0
        self.alive: list[int] = []

    # ---- writing ----

    def emit(self, line: str, status: str = "OK", **results: int) -> None:
        """An operation with its status; the model follows."""
        self.lines.append(line)
        if status != "OK":
            self.lines.append(" ".join(["=", status, *(f"{key}={value}" for key, value in results.items())]))
        op = parse_line(line)
        op.status = status
        self.replay.run(op)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def tensor(self, *shape: int, dtype: str | None = None) -> str:
        self.next_tensor += 1
        dtype = dtype or self.random.choice(["f32", "f32", "f16", "bf16"])
        return f"{dtype}[{','.join(map(str, shape))}]@{self.next_tensor}"

    @property
    def cache(self) -> Cache:
        return self.replay.caches[0]

    def of(self, ordinal: int) -> Sequence:
        return self.replay.bound[ordinal]

    def new_ordinals(self, count: int) -> list[int]:
        first = self.next_sequence
        self.next_sequence += count
        return list(range(first, first + count))

    def idle(self, tree: bool | None = None) -> list[int]:
        """Sequences in no open step; with a tree, without, or either."""
        return [ordinal for ordinal in self.alive if self.of(ordinal).step is None
                and (tree is None or bool(self.of(ordinal).parents) == tree)]  # fmt: skip

    # ---- a cache ----

    def create(self) -> None:
        pick = self.random.choice
        self.emit(f"context_create threads={pick([1, 2])}")
        seen = [pick(["all", "all", "window", "chunk"]) for _ in range(pick([1, 2, 2, 3]))] + ["encoder"] * self.chance(0.2)
        rows = [pick(["kv", "kv", "latent"]) for _ in seen] + ["state"] * self.chance(0.2)
        seen += ["all"] * (len(rows) - len(seen))
        self.tables_only = self.chance(0.15)
        self.streams = any(row != "state" and of == "all" for row, of in zip(rows, seen)) and self.chance(0.4)
        self.has_states = "state" in rows
        for row, of in zip(rows, seen):
            words = {"window": f" window={pick([1, 3, 5, 8])}", "chunk": f" chunk={pick([2, 3, 5])}"}.get(of, "")
            pages = "" if row == "state" else f" pages={pick([10, 20, 40])}"
            self.emit(f"group row={row} visibility={of}{words}{pages}")
        for group, (row, of) in enumerate(zip(rows, seen)):
            for _ in range(1 if row == "state" else pick([1, 1, 2])):
                self.layer(group, row, of)
        words = [f"page_size={pick([1, 2, 3, 4, 8])}", f"max_sequences={MAX_SEQUENCES}", f"max_batch_tokens={MAX_TOKENS}",
                 f"max_open_forwards={MAX_STEPS}", f"max_tree_nodes={MAX_NODES}"]  # fmt: skip
        words += [pick(["rollback_tokens=0", "rollback_tokens=3"])] * self.chance(0.7)
        words += ["streaming=1"] * self.streams + ["storage=none"] * self.tables_only
        words += ["max_checkpoints=2"] * self.has_states
        words += [pick(["sharing=always", "sharing=never", "deterministic=1"])] * self.chance(0.4)
        self.emit(f"cache_create {' '.join(words)}")

    def layer(self, group: int, row: str, visibility: str) -> None:
        pick = self.random.choice
        if row == "state":
            self.emit(f"layer group={group} recurrent=1")
            self.emit("state shape=2,3")
            self.emit(f"state shape=5 dtype={pick(['f16', 'bf16'])}")
            return
        dtype = pick(["f32", "f32", "f16", "bf16", "i8", "e4m3", "u4", "e2m1"])
        if row == "latent":
            shape = "head_dim=576 latent_dim=512 row_format=fp8_ds_mla" if self.chance(0.15) else \
                f"head_dim=12 latent_dim=8 dtype={pick(['f32', 'bf16'])}"  # fmt: skip
            self.emit(f"layer group={group} q_heads={pick([1, 3])} softmax_scale=0.25 {shape}")
            return
        kv_heads = pick([1, 2])
        dims, v_dims = ([16, 48], [32]) if dtype in ("u4", "e2m1") else ([4, 8, 16], [4, 8])
        words = [f"q_heads={kv_heads * pick([1, 2])}", f"kv_heads={kv_heads}", f"head_dim={pick(dims)}", f"dtype={dtype}"]
        words += [f"v_head_dim={pick(v_dims)}"] * self.chance(0.3)
        words += ["k_scales=0.0625", "v_scales=0.125"] * (dtype in ("e4m3", "e2m1"))
        if visibility != "encoder" and dtype in ("f32", "f16", "bf16") and self.chance(0.4):
            words += [f"rope={pick(['on_append', 'on_read'])}"] + ["rope_interleaved=1"] * self.chance(0.3)
        self.emit(f"layer group={group} {' '.join(words)}")

    # ---- sequences ----

    def add(self) -> None:
        count = self.random.choice([1, 1, 2])
        seqs = self.new_ordinals(count)
        taken = len(self.cache.sequences)
        if taken + count > MAX_SEQUENCES:
            self.emit(f"add seqs={text(seqs)}", "TOO_MANY_SEQUENCES", required=count, available=MAX_SEQUENCES - taken)
            return
        self.emit(f"add seqs={text(seqs)}")
        self.alive += seqs

    def remove(self) -> None:
        if self.alive and self.chance(0.5):
            self.alive.remove(seq := self.random.choice(self.alive))
            self.emit(f"remove seqs={seq}")

    def position(self, sequence: Sequence) -> int:
        return self.random.choice([at for at in range(sequence.length + 1) if self.cache.works_at(sequence, at)])

    def fork(self) -> None:
        if not (parents := self.idle(tree=False)):
            return
        chosen = [self.random.choice(parents) for _ in range(self.random.choice([1, 1, 2]))]
        positions = [self.position(self.of(parent)) for parent in chosen]
        seqs, taken, ps = self.new_ordinals(len(chosen)), len(self.cache.sequences), self.cache.page_size
        line = f"fork parents={text(chosen)} positions={text(positions)} seqs={text(seqs)}"
        if taken + len(chosen) > MAX_SEQUENCES:
            self.emit(line, "TOO_MANY_SEQUENCES", required=len(chosen), available=MAX_SEQUENCES - taken)
            return
        copies = sum(1 for at in positions if at % ps)
        if any(copies > (self.cache.pools[g].total or 0) - self.cache.pools[g].used for g in self.cache.token_groups()):
            self.emit(line, "OUT_OF_PAGES")
            return
        self.emit(line)
        self.alive += seqs
        self.take_copies()

    def truncate(self) -> None:
        if seqs := self.idle():
            seq = self.random.choice(seqs)
            self.emit(f"truncate seqs={seq} lengths={self.position(self.of(seq))}")

    def stream(self) -> None:
        if not self.streams or not (seqs := self.idle(tree=False)):
            return
        sequence, window = self.of(seq := self.random.choice(seqs)), self.random.choice([0, 3, 6, 10])
        sinks = self.random.randrange(window) if window else 0
        before, sequence.stream = sequence.stream, (sinks, window)
        held = self.cache.works_at(sequence, sequence.length)
        sequence.stream = before
        if not held:
            self.emit(f"set_streaming seqs={seq} sinks={sinks} window={window}", "EVICTED", index=0)
        else:
            self.emit(f"set_streaming seqs={seq} sinks={sinks} window={window}")
        self.emit(f"streaming seq={seq}")

    def checkpoint(self) -> None:
        if seqs := self.idle(tree=False):
            status = {} if self.has_states else {"status": "UNSUPPORTED"}
            self.emit(f"checkpoint seqs={self.random.choice(seqs)}", **status)  # type: ignore[arg-type]

    def commit(self) -> None:
        for seq in self.idle(tree=True):
            nodes = len(self.of(seq).parents)
            leaf = self.random.choice([-1, nodes - 1]) if self.has_states else self.random.randrange(-1, nodes)
            self.emit(f"commit seqs={seq} leaves={leaf}")
        self.take_copies()

    def take_copies(self) -> None:
        if self.tables_only:
            self.emit("take_copies")

    # ---- steps ----

    def begin(self) -> None:
        free = [ordinal for ordinal in range(MAX_STEPS) if all(step.ordinal != ordinal for step in self.open)]
        candidates = self.idle()
        if not candidates or not free:
            return
        encoder = self.cache.kinds.index("cross") if "cross" in self.cache.kinds and self.chance(0.25) else None
        self.random.shuffle(candidates)
        seqs = candidates[: self.random.choice([1, 1, 2, 3])]
        if encoder is not None:
            seqs = [seq for seq in seqs if not self.of(seq).parents]
        rows: list[tuple[int, int]] = [(seq, self.row_tokens(seq)) for seq in seqs]
        rows += [(-1, self.random.choice([0, 1, 2]))] * self.chance(0.15)
        rows = [row for row in rows if row[1] or row[0] < 0]
        if not rows or all(seq < 0 for seq, _ in rows):
            return
        line = f"step={free[0]} seqs={text([seq for seq, _ in rows])} tokens={text([count for _, count in rows])}"
        line, trees, spans = self.shape(line, rows, encoder)
        batch = [Row(None if seq < 0 else self.of(seq), 0, count, [], []) for seq, count in rows]
        missing = self.cache.missing(batch, encoder)
        if missing:
            row, required, available, group = missing
            self.emit(f"begin {line}", "OUT_OF_PAGES", index=row, required=required, available=available, group=group)
            return
        if self.chance(0.2):
            self.emit(f"can_fit {line}")
        self.emit(f"begin {line}")
        layers = [layer.index for layer in self.cache.layers
                  if layer.recurrent or (layer.group == encoder) == (encoder is not None)]  # fmt: skip
        layers = [index for index in layers if encoder is None or self.cache.layers[index].group == encoder]
        if encoder is None:
            layers += [layer.index for layer in self.cache.layers if self.cache.kinds[layer.group] == "cross"
                       and layer.index not in layers]  # fmt: skip
        self.random.shuffle(layers)
        total = sum(count for _, count in rows)
        self.open.append(OpenStep(free[0], total, len(rows), layers, encoder is not None))
        self.emit(f"info step={free[0]}")
        self.tables(free[0], encoder, trees, spans)

    def row_tokens(self, seq: int) -> int:
        nodes = len(self.of(seq).parents)
        return self.random.randint(0, min(3, MAX_NODES - nodes)) if nodes else self.random.choice([1, 1, 1, 2, 5, 7])

    def shape(self, line: str, rows: list[tuple[int, int]], encoder: int | None) -> tuple[str, bool, bool]:
        """Encoder tokens, trees or spans of a batch."""
        if encoder is not None:
            return f"{line} encoder_group={encoder}", False, False
        drafts = {seq for seq, _ in rows if seq >= 0 and self.of(seq).parents}
        if drafts or self.chance(0.25):
            parents: list[int] = []
            for seq, count in rows:
                tree = seq in drafts or (seq >= 0 and count <= MAX_NODES and self.chance(0.6))
                first = len(self.of(seq).parents) if seq >= 0 else 0
                chain = self.has_states
                parents += [(node - 1 if chain else self.random.randrange(-1, node)) if tree else -2
                            for node in range(first, first + count)]  # fmt: skip
            if any(parent != -2 for parent in parents):
                return f"{line} parents={text(parents)}", True, False
        plain = not self.streams and "chunked" not in self.cache.kinds
        if plain and self.chance(0.15):
            ids = [[self.random.choice([0, 1, 1, 2]) for _ in range(count)] for _, count in rows]
            spans = any(any(own) for own, (seq, _) in zip(ids, rows) if seq >= 0)  # ids of inert rows do not count
            return f"{line} spans={text([span for own in ids for span in own])}", False, spans
        return line, False, False

    def tables(self, step: int, encoder: int | None, trees: bool, spans: bool) -> None:
        if not self.chance(0.4) and not self.tables_only:
            self.take_copies()
            return
        groups = [group for group, kind in enumerate(self.cache.kinds) if kind != "recurrent"]
        group = self.random.choice(groups) if encoder is None else encoder
        words = f"step={step} group={group}" + " slots=1" * self.chance(0.3) + " pad=-5" * self.chance(0.3)
        if spans and self.cache.kinds[group] != "cross":
            self.emit(f"tables {words}", "UNSUPPORTED")
        elif trees and self.cache.kinds[group] != "cross":
            self.emit(f"tables {words} part=prefix")
            self.emit(f"tables {words} part=branches")
        else:
            self.emit(f"tables {words}")
        self.take_copies()

    def advance(self) -> None:
        """The next layer of an open step, or its end."""
        if not self.open:
            return
        step = self.random.choice(self.open)
        if self.chance(0.04):
            return self.close(step, "abort")
        if step.layers and self.tables_only:
            step.layers = [index for index in step.layers if self.cache.layers[index].recurrent]
        if not step.layers:
            return self.close(step, "end")
        layer = self.cache.layers[step.layers.pop()]
        if layer.recurrent:
            return self.states(step, layer)
        if self.cache.kinds[layer.group] == "cross" and not step.encoder:
            return self.attend(step, layer, "")
        k, v = self.tensor(step.tokens, layer.kv_heads, layer.dim), f" v={self.tensor(step.tokens, layer.kv_heads, layer.v_dim)}"
        new = f" k={k}{'' if layer.latent else v}"
        if step.encoder:
            return self.emit(f"append step={step.ordinal} layer={layer.index}{new}")
        if self.chance(0.1):
            self.attend(step, layer, " part=past")
            return self.attend(step, layer, f"{new} part=self")
        self.attend(step, layer, new)

    def attend(self, step: OpenStep, layer: Layer, new: str) -> None:
        cross = self.cache.kinds[layer.group] == "cross"
        words = [f"step={step.ordinal} layer={layer.index} q={self.tensor(step.tokens, layer.heads, layer.dim)}{new}"]
        words += ["softcap=2"] * self.chance(0.15) + ["softmax_scale=0.5"] * self.chance(0.15)
        words += [f"sinks={self.tensor(layer.heads, dtype='f32')}"] * (self.chance(0.15) and "part=past" not in new)
        words += [f"alibi={self.tensor(layer.heads, dtype='f32')}"] * (self.chance(0.15) and not cross)
        words += ["non_causal=1"] * (self.chance(0.1) and not cross)
        if self.chance(0.15) and not cross:
            words += [f"rel_bias={self.tensor(layer.heads, 7, dtype='f32')}"] + ["rel_bias_zero=1"] * self.chance(0.5)
        words += [f"out={self.random.choice(['f32', 'f32', 'f16', 'bf16'])}[{step.tokens},{layer.heads},{layer.v_dim}]"]
        words += [f"lse=f32[{step.tokens},{layer.heads}]"] * self.chance(0.7)
        self.emit(f"attend {' '.join(words)}")

    def states(self, step: OpenStep, layer: Layer) -> None:
        for state, (shape, dtype, _) in enumerate(layer.states):
            dims = ",".join(map(str, (step.rows, *shape)))
            self.emit(f"load_state step={step.ordinal} layer={layer.index} state={state} out={dtype}[{dims}]")
            value = self.tensor(step.rows, *shape, dtype=dtype)
            self.emit(f"store_state step={step.ordinal} layer={layer.index} state={state} value={value}")

    def close(self, step: OpenStep, how: str) -> None:
        self.open.remove(step)
        self.emit(f"{how} step={step.ordinal}")

    # ---- transfers, queries ----

    def transfer(self) -> None:
        layers = [layer for layer in self.cache.layers if self.cache.kinds[layer.group] not in ("cross", "recurrent")]
        seqs = [seq for seq in self.idle(tree=False) if self.of(seq).length]
        if self.tables_only or not seqs:
            return
        seq, layer = self.random.choice(seqs), self.random.choice(layers)
        sequence = self.of(seq)
        begin = self.random.randrange(sequence.length)
        end = self.random.randint(begin + 1, sequence.length)
        pages = sequence.pages[layer.group]
        gone = any(pages[at // self.cache.page_size] is None for at in range(begin, end))
        line = f"export seq={seq} layer={layer.index} begin={begin} end={end}" + " hex=1" * self.chance(0.5)
        self.emit(line, "EVICTED" if gone else "OK")
        if self.has_states or len(self.open) == MAX_STEPS or "cross" in self.cache.kinds:
            return
        count = self.random.choice([1, 3])
        if self.cache.missing([Row(sequence, 0, count, [], [])], None) is None:
            ks = ";".join(self.tensor(count, each.kv_heads, each.dim) for each in self.cache.layers)
            vs = ";".join("-" if each.latent else self.tensor(count, each.kv_heads, each.v_dim) for each in self.cache.layers)
            self.emit(f"import seq={seq} k={ks} v={vs}")

    def query(self) -> None:
        for seq in self.alive:
            for group, kind in enumerate(self.cache.kinds):
                if kind != "recurrent" and self.of(seq).step is None:
                    self.emit(f"pages seq={seq} group={group}")
                    self.emit(f"exclusive_pages seqs={seq} group={group}")
        if self.alive:
            self.emit(f"lengths seqs={text(self.alive)}")
            self.emit(f"tree_nodes seqs={text(self.alive)}")
            self.emit(f"max_append seqs={text(self.alive)}")
            seq = self.random.choice(self.alive)
            self.emit(f"nearest seq={seq} position={self.random.randint(0, self.of(seq).length)}")
        self.emit(f"stats group={self.random.randrange(-1, len(self.cache.kinds))}")
        self.emit("digest")
        self.emit("check_invariants")

    # ---- wrong calls ----

    def wrong(self) -> None:
        if not self.alive:
            return
        idle, busy = self.idle(), [seq for seq in self.alive if self.of(seq).step is not None]
        seq, never = self.random.choice(self.alive), 9000 + self.random.randrange(99)
        choices = [
            (f"lengths seqs={seq},{never}", "STALE_ID", {"index": 1}),
            (f"remove seqs={seq},{seq}", "DUPLICATE", {"index": 1}),
            (f"pages seq={seq} group={len(self.cache.kinds)}", "OUT_OF_RANGE", {}),
            (f"stats group={len(self.cache.kinds)}", "OUT_OF_RANGE", {}),
            (f"nearest seq={seq} position={self.of(seq).length + 1}", "OUT_OF_RANGE", {}),
            (f"truncate seqs={never} lengths=0", "STALE_ID", {"index": 0}),
            (f"truncate seqs={seq} lengths=0", "BUSY", {"index": 0}) if seq in busy else
            (f"truncate seqs={seq} lengths={self.of(seq).length + 1}", "OUT_OF_RANGE", {"index": 0}),
        ]  # fmt: skip
        choices += self.wrong_steps(idle) if len(self.open) < MAX_STEPS else [
            (f"begin step=9 seqs={seq} tokens=1", "TOO_MANY_FORWARDS", {"required": 3, "available": 2})
            for seq in self.idle(tree=False)[:1]]  # fmt: skip
        for step in self.open:
            choices.append((f"attend step={step.ordinal} layer=64 q=f32[1,1,4] k=f32[1,1,4] v=f32[1,1,4] out=f32[1,1,4]",
                            "OUT_OF_RANGE", {}))  # fmt: skip
        line, status, results = self.random.choice(choices)
        self.emit(line, status, **results)

    def wrong_steps(self, idle: list[int]) -> list[tuple[str, str, dict[str, int]]]:
        choices: list[tuple[str, str, dict[str, int]]] = []
        for seq in idle[:2]:
            sequence = self.of(seq)
            choices.append((f"begin step=9 seqs={seq} tokens=0", "INVALID_ARGUMENT", {"index": 0}))
            choices.append((f"begin step=9 seqs={seq} tokens=1 layers=1,99", "OUT_OF_RANGE", {})) if not sequence.parents else None
            if sequence.parents:
                choices.append((f"begin step=9 seqs={seq} tokens=1", "UNCOMMITTED", {"index": 0}))
                choices.append((f"fork parents={seq} seqs=8000", "UNCOMMITTED", {"index": 0}))
                choices.append((f"commit seqs={seq} leaves={len(sequence.parents)}", "OUT_OF_RANGE", {"index": 0}))
            else:
                choices.append((f"commit seqs={seq} leaves=0", "ORDER", {"index": 0}))
                choices.append((f"begin step=9 seqs={seq} tokens={MAX_TOKENS + 1}", "BATCH_TOO_LARGE",
                                {"required": MAX_TOKENS + 1, "available": MAX_TOKENS}))  # fmt: skip
            gone = [at for at in range(sequence.length) if not self.cache.works_at(sequence, at)]
            if gone and not sequence.parents:
                choices.append((f"truncate seqs={seq} lengths={self.random.choice(gone)}", "EVICTED", {"index": 0}))
                choices.append((f"fork parents={seq} positions={gone[0]} seqs=8000", "EVICTED", {"index": 0}))
        return choices

    def write(self) -> str:
        self.create()
        weighted: list[tuple[Callable[[], None], int]] = [
            (self.add, 3), (self.remove, 2), (self.fork, 4), (self.truncate, 2), (self.stream, 2), (self.checkpoint, 1),
            (self.commit, 3), (self.begin, 10), (self.advance, 40), (self.transfer, 3), (self.query, 3), (self.wrong, 5),
        ]  # fmt: skip
        operations, weights = zip(*weighted)
        self.add()
        for _ in range(OPERATIONS):
            self.random.choices(operations, weights)[0]()
        while self.open:
            self.close(self.open[0], "abort")
        self.query()
        return "\n".join(self.lines) + "\n"


def text(values: list[int]) -> str:
    return ",".join(map(str, values))


def write(folder: Path, count: int, seed: int) -> list[Path]:
    """Scripts of seeds seed, seed + 1, ...: their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.kvs"):
        old.unlink()
    paths = [folder / f"random_{number}.kvs" for number in range(seed, seed + count)]
    for number, path in enumerate(paths, seed):
        path.write_text(Generator(number).write(), encoding="ascii")
    return paths


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

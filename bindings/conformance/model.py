"""A cache as plain lists: sequences that own their tokens, pages as things with owners. From the definitions of kvcache.h;
it knows nothing of ids, nor of how the library keeps its books.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

import reference
from reference import Rope, Rows
from script import Op


@dataclass(eq=False)
class Page:
    owners: int = 1


@dataclass
class Pool:
    """Pages of one group."""

    total: int | None = None  # None: not known here
    used: int = 0

    def take(self) -> Page:
        self.used += 1
        return Page()

    def drop(self, page: Page | None) -> None:
        if page is None:
            return
        page.owners -= 1
        self.used -= page.owners == 0


@dataclass
class Layer:
    """A layer of a cache."""

    index: int
    group: int
    words: dict[str, str]
    states: list[tuple[tuple[int, ...], str, float]] = field(default_factory=list)
    known: bool = True

    def __post_init__(self) -> None:
        op = Op(0, "layer", self.words)
        self.recurrent = "recurrent" in self.words
        self.heads, self.kv_heads = op.integer("q_heads", 1), op.integer("kv_heads", 1)
        self.dim, self.latent = op.integer("head_dim"), op.integer("latent_dim")
        self.keys_only = "keys_only" in self.words
        self.v_dim = 0 if self.keys_only else op.integer("v_head_dim") or self.latent or self.dim
        self.dtype = self.words.get("row_format") or self.words.get("dtype", "f32")
        self.source = op.integer("kv_layer", self.index)
        self.scale = op.number("softmax_scale") or (self.dim or 1) ** -0.5
        self.k_scales = np.array(op.numbers("k_scales") or [1.0], np.float32)
        self.v_scales = self.k_scales if self.latent else np.array(op.numbers("v_scales") or [1.0], np.float32)
        self.rope = self._rope(op)

    def _rope(self, op: Op) -> Rope:
        offset = op.integer("rope_offset") or self.latent
        scaling, divide, factor = self.words.get("scaling"), 1.0, 1.0
        if scaling == "linear":
            divide = op.number("factor")
        elif scaling == "longrope" and "attention_factor" in self.words:
            divide, factor = np.array(op.numbers("short")), op.number("attention_factor")
        elif scaling is not None:
            self.known = False
        return Rope(self.words.get("rope"), op.integer("rope_dim") or self.dim - offset, offset,
                    "rope_interleaved" in self.words, op.number("rope_theta") or 10000.0, divide, factor)  # fmt: skip

    def rotation(self, part: str) -> int:
        """The dims of a block of the rotation of K ("k") or V; 0: rows are not rotated."""
        if self.dtype != "u4":
            return 0
        dims = self.dim | self.latent if self.latent else self.dim if part == "k" else self.v_dim
        return dims & -dims

    @property
    def tolerance(self) -> float:
        return 1e-4 if self.dtype == "f32" else 2e-2


@dataclass(eq=False)
class Sequence:
    cache: Cache
    length: int = 0
    rows: dict[tuple[int, str], Rows] = field(default_factory=dict)  # (layer, "k" or "v")
    encoder: dict[int, int] = field(default_factory=dict)  # group -> tokens
    pages: dict[int, list[Page | None]] = field(default_factory=dict)
    parents: list[int] = field(default_factory=list)  # of uncommitted nodes
    states: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)
    committed_states: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)
    node_states: list[dict[tuple[int, int], np.ndarray]] = field(default_factory=list)  # of uncommitted nodes, where kept
    checkpoints: dict[int, dict[tuple[int, int], np.ndarray]] = field(default_factory=dict)
    stream: tuple[int, int] = (0, 0)
    long_rope: bool = False
    step: Step | None = None
    removed: bool = False

    def stored_in(self, group: int) -> int:
        """Tokens of a group's lists: nodes too."""
        return self.encoder.get(group, 0) if self.cache.kinds[group] == "cross" else self.length + len(self.parents)

    def visible(self, group: int) -> int:
        return self.encoder.get(group, 0) if self.cache.kinds[group] == "cross" else self.length

    def depths(self, parents: list[int]) -> list[int]:
        depths: list[int] = []
        for parent in parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        return depths


@dataclass(eq=False)
class Row:
    sequence: Sequence | None  # None: inert
    first: int  # of the batch's tokens
    count: int
    parents: list[int]  # of a tree; else empty
    spans: list[int]
    positions: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Step:
    cache: Cache
    rows: list[Row]
    layers: range
    encoder_group: int | None
    new: dict[tuple[int, str], Rows] = field(default_factory=dict)
    states: dict[tuple[int, int, int], np.ndarray] = field(default_factory=dict)  # (layer, state, token)
    before: list[tuple[Sequence, dict[int, list[Page | None]]]] = field(default_factory=list)
    held: list[tuple[int, Page]] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return sum(row.count for row in self.rows)

    def taken(self, layer: Layer, row: Row) -> slice:
        """What a layer takes of a row: its tokens, or the rows that they close."""
        begin, per_row = 0, self.cache.per_row(layer)
        for other in self.rows:
            length = other.sequence.length if other.sequence is not None else 0
            count = other.count if per_row == 1 else \
                0 if other.sequence is None else (length + other.count) // per_row - length // per_row  # fmt: skip
            if other is row:
                return slice(begin, begin + count)
            begin += count
        raise KeyError(row)


def kind_of(group: dict[str, str]) -> str:
    """What a group's queries see, whatever its rows are; "recurrent" if it holds states."""
    if group.get("row") == "state":
        return "recurrent"
    visibility = group.get("visibility", "all")
    return {"all": "full", "window": "sliding", "chunk": "chunked", "encoder": "cross"}[visibility]


class Cache:
    def __init__(self, layers: list[Layer], groups: list[dict[str, str]], sizes: Op) -> None:
        self.layers = layers
        self.groups = [Op(0, "group", words) for words in groups] or [Op(0, "group", {})]
        self.kinds = [kind_of(group.words) for group in self.groups]
        self.page_size = sizes.integer("page_size") or 16
        self.rollback = sizes.integer("rollback_tokens", sizes.integer("max_tree_nodes") or 64)
        self.max_checkpoints = sizes.integer("max_checkpoints") or 1
        self.max_draft_states = sizes.integer("max_draft_states")
        self.tp_rank = sizes.integer("tp_rank")
        self.has_storage = sizes.words.get("storage") != "none"
        self.pools = [Pool(self._total(group, sizes)) for group in self.groups]
        self.sequences: list[Sequence] = []

    def _total(self, group: Op, sizes: Op) -> int | None:
        if group.integer("pages"):
            return group.integer("pages")
        if kind_of(group.words) not in ("full", "cross"):
            return None
        tokens, pages = sizes.integer("capacity_tokens"), sizes.integer("capacity_pages")
        return pages or -(-tokens // self.page_size) or None

    def per_row(self, layer: Layer) -> int:
        """Tokens for which a row of the layer stands."""
        return self.groups[layer.group].integer("tokens_per_row") or 1

    def token_groups(self) -> list[int]:
        return [index for index, kind in enumerate(self.kinds) if kind not in ("cross", "recurrent")]

    def growing(self, encoder_group: int | None) -> list[int]:
        return self.token_groups() if encoder_group is None else [encoder_group]

    def bounds(self, sequence: Sequence, group: int) -> tuple[int, int, int]:
        """Sinks, window, chunk of a group for a sequence; 0 = none."""
        window, chunk = self.groups[group].integer("window"), self.groups[group].integer("chunk")
        sinks, stream = sequence.stream
        if stream and self.kinds[group] == "full":
            return sinks, stream - sinks, 0
        return 0, window, chunk

    def first_seen(self, sequence: Sequence, group: int, position: int) -> int:
        """The first key, sinks aside, that a query at a position sees."""
        sinks, window, chunk = self.bounds(sequence, group)
        if chunk:
            return position // chunk * chunk
        return max(sinks, position - window + 1) if window else 0

    # ---- pages ----

    def needed(self, sequence: Sequence, group: int, tokens: int) -> int:
        stored, pages = sequence.stored_in(group), sequence.pages.setdefault(group, [])
        last = pages[-1] if pages else None
        copied = stored % self.page_size != 0 and last is not None and last.owners > 1
        return -(-(stored + tokens) // self.page_size) - len(pages) + copied

    def missing(self, rows: list[Row], encoder_group: int | None) -> tuple[int, int, int, int] | None:
        """Row, required, available, group of a batch that does not fit: of the group that is short at the first row."""
        missing = []
        for group in self.growing(encoder_group):
            total, free, first = 0, (self.pools[group].total or 0) - self.pools[group].used, None
            for index, row in enumerate(rows):
                if row.sequence is not None:
                    total += self.needed(row.sequence, group, row.count)
                first = index if first is None and total > free else first
            if first is not None:
                missing.append((first, total, free, group))
        return min(missing, key=lambda each: each[0], default=None)

    def reserve(self, step: Step) -> None:
        for row in step.rows:
            if row.sequence is None:
                continue
            sequence = row.sequence
            step.before.append((sequence, {group: list(pages) for group, pages in sequence.pages.items()}))
            for group in self.growing(step.encoder_group):
                count, stored = self.needed(sequence, group, row.count), sequence.stored_in(group)
                pages, pool = sequence.pages[group], self.pools[group]
                if stored % self.page_size and pages[-1] is not None and pages[-1].owners > 1:
                    step.held.append((group, pages.pop()))
                    pages.append(pool.take())
                    count -= 1
                pages.extend(pool.take() for _ in range(count))

    def free_behind(self, sequence: Sequence) -> None:
        for group in self.token_groups():
            sinks, window, chunk = self.bounds(sequence, group)
            if not window and not chunk:
                continue
            seen = self.first_seen(sequence, group, max(0, sequence.length - self.rollback))
            pages = sequence.pages.get(group, [])
            # The freed range grows at its end: tokens that are no longer sinks are freed with the next page after them.
            gone = [index for index, page in enumerate(pages) if page is None]
            if gone and seen // self.page_size <= gone[-1] + 1:
                continue
            for index in range(-(-sinks // self.page_size), min(seen // self.page_size, len(pages))):
                self.pools[group].drop(pages[index])
                pages[index] = None

    def cut(self, sequence: Sequence, group: int, tokens: int) -> None:
        pages, keep = sequence.pages.get(group, []), -(-tokens // self.page_size)
        for page in pages[keep:]:
            self.pools[group].drop(page)
        del pages[keep:]

    def works_at(self, sequence: Sequence, position: int) -> bool:
        """Whether a sequence can go on from a position: nothing before it is gone, or all that is gone lies before what a query
        there sees. (So positions among freed tokens never work, not even where a query would see itself alone.)"""
        for group in self.token_groups():
            sinks, first = self.bounds(sequence, group)[0], self.first_seen(sequence, group, position)
            pages = sequence.pages.get(group, [])
            gone = [index * self.page_size for index, page in enumerate(pages) if page is None]
            if gone and position > gone[0] and (sinks > gone[0] or first < gone[-1] + self.page_size):
                return False
        if "recurrent" in self.kinds:
            return position in (0, sequence.length) or position in sequence.checkpoints
        return True

    def free(self, sequence: Sequence) -> None:
        for group in sequence.pages:
            self.cut(sequence, group, 0)
        self.sequences.remove(sequence)

    def fork(self, parent: Sequence, position: int) -> Sequence:
        position = parent.length if position < 0 else position
        child = Sequence(self, position, {key: self.forked_rows(key, rows, position) for key, rows in parent.rows.items()},
                         dict(parent.encoder), stream=parent.stream, long_rope=parent.long_rope)  # fmt: skip
        for group, pages in parent.pages.items():
            whole = len(pages) if self.kinds[group] == "cross" else position // self.page_size
            partial = self.kinds[group] != "cross" and position % self.page_size != 0
            child.pages[group] = list(pages[:whole])
            for page in child.pages[group]:
                if page is not None:
                    page.owners += 1
            if partial:
                child.pages[group].append(None if pages[whole] is None else self.pools[group].take())
        self.restore_states(child, parent, position)
        self.sequences.append(child)
        return child

    def copy(self, of: Sequence) -> Sequence:
        """What a saved sequence has: no page of a pool, but where pages were."""
        return Sequence(self, of.length, dict(of.rows), dict(of.encoder), {group: list(pages) for group, pages in of.pages.items()},
                        stream=of.stream, long_rope=of.long_rope, states=dict(of.states),
                        committed_states=dict(of.committed_states), checkpoints=dict(of.checkpoints))  # fmt: skip

    def load(self, saved: Sequence) -> Sequence:
        """A sequence like a saved one, with pages of its own."""
        loaded = self.copy(saved)
        for group, pages in loaded.pages.items():
            loaded.pages[group] = [None if page is None else self.pools[group].take() for page in pages]
        self.sequences.append(loaded)
        return loaded

    def forked_rows(self, key: tuple[int, str], rows: Rows, position: int) -> Rows:
        layer = self.layers[key[0]]
        return rows if self.kinds[layer.group] == "cross" else rows[: position // self.per_row(layer)]

    def restore_states(self, to: Sequence, of: Sequence, position: int) -> None:
        """States that a sequence of `of`'s tokens has at a position."""
        states = {} if position == 0 else of.committed_states if position == of.length else of.checkpoints.get(position, {})
        checkpoints = {at: kept for at, kept in of.checkpoints.items() if at <= position}
        to.states, to.committed_states, to.checkpoints = dict(states), dict(states), checkpoints

    def truncate(self, sequence: Sequence, length: int) -> None:
        self.restore_states(sequence, sequence, length)
        sequence.parents, sequence.node_states = [], []
        sequence.length = length
        for key, rows in sequence.rows.items():
            sequence.rows[key] = self.forked_rows(key, rows, length)
        for group in self.token_groups():
            self.cut(sequence, group, length)

    def commit(self, sequence: Sequence, leaf: int) -> None:
        path: list[int] = []
        while leaf >= 0:
            path.insert(0, leaf)
            leaf = sequence.parents[leaf]
        if path:
            sequence.committed_states = dict(self.state_of_node(sequence, path[-1]))
        sequence.states, sequence.node_states = dict(sequence.committed_states), []
        keep = [*range(sequence.length), *(sequence.length + node for node in path)]
        for (layer, part), rows in sequence.rows.items():
            if self.kinds[self.layers[layer].group] != "cross":
                sequence.rows[layer, part] = rows[keep]
        sequence.length += len(path)
        sequence.parents = []
        for group in self.token_groups():
            self.cut(sequence, group, sequence.length)
        self.free_behind(sequence)

    @staticmethod
    def state_of_node(sequence: Sequence, node: int) -> dict[tuple[int, int], np.ndarray]:
        if node < 0:
            return sequence.committed_states
        return sequence.states if node == len(sequence.node_states) - 1 else sequence.node_states[node]

    def close_step(self, step: Step, kept: bool) -> None:
        for group, page in step.held:
            self.pools[group].drop(page) if kept else None
        if kept:
            self._keep(step)
        else:
            for sequence, before in step.before:
                self._give_back(step, sequence, before)
        for row in step.rows:
            if row.sequence is not None:
                row.sequence.step = None
                if row.sequence.removed:
                    self.free(row.sequence)

    def _give_back(self, step: Step, sequence: Sequence, before: dict[int, list[Page | None]]) -> None:
        for group in self.growing(step.encoder_group):
            old = before.get(group, [])
            kept = {id(page) for page in old}
            for page in sequence.pages.get(group, []):
                if id(page) not in kept:
                    self.pools[group].drop(page)
            sequence.pages[group] = old

    @staticmethod
    def states_after(step: Step, row: Row, token: int) -> dict[tuple[int, int], np.ndarray]:
        last = token == row.count - 1
        return {key[:2]: values[step.rows.index(row)] for key, values in step.states.items()
                if key[2] == token or (last and key[2] == -1)}  # fmt: skip

    def _keep(self, step: Step) -> None:
        for row in step.rows:
            if row.sequence is None:
                continue
            sequence = row.sequence
            for layer in self.layers:
                if layer.recurrent or layer.source != layer.index or layer.group not in self.growing(step.encoder_group):
                    continue
                taken = step.taken(layer, row)
                count = taken.stop - taken.start
                for part, dim in (("k", layer.dim), ("v", layer.v_dim)):
                    rows = step.new.get((layer.index, part))
                    rows = rows[taken] if rows else reference.unknown_rows(count, layer.kv_heads, dim, layer.dtype)
                    old = sequence.rows.get((layer.index, part))
                    sequence.rows[layer.index, part] = reference.joined([old, rows]) if old is not None else rows
            if step.encoder_group is not None:
                sequence.encoder[step.encoder_group] = sequence.encoder.get(step.encoder_group, 0) + row.count
                continue
            sequence.states.update(self.states_after(step, row, row.count - 1))
            if row.parents:
                sequence.parents.extend(row.parents)
                sequence.node_states.extend(self.states_after(step, row, token) for token in range(row.count))
                continue
            sequence.length += row.count
            sequence.committed_states = dict(sequence.states)
            self.free_behind(sequence)

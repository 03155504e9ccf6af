"""A cache of any layer groups, and a model of its contents and outputs: lists of tokens, float64, no code of the library."""

from dataclasses import dataclass, field

import numpy as np
from reference import rope

import kvcache

HEADS, NOPE, OUT = 4, 5, 7  # query heads; dims of a head of q and of out in MLA layers with up-projections
WINDOW, CHUNK, MAX_CHECKPOINTS = 7, 6, 2


@dataclass(eq=False)
class Token:
    position: int
    rows: dict = field(default_factory=dict)  # layer -> (k, v), each [heads, dims], before any rotation
    path: frozenset = frozenset()  # of a node: ids of its ancestors and its own
    span: int = 0


@dataclass(eq=False)
class Sequence:
    tokens: list = field(default_factory=list)
    nodes: list = field(default_factory=list)  # uncommitted (token, parent)
    frames: dict = field(default_factory=dict)  # cross group -> tokens of its encoder sequence
    states: dict = field(default_factory=dict)  # (layer, state) -> array; none = zeros
    before: dict = field(default_factory=dict)  # states before the nodes
    checkpoints: dict = field(default_factory=dict)  # length -> states
    sinks: int = 0
    window: int = 0
    dropped: set = field(default_factory=set)  # lengths whose checkpoints were dropped because there were too many

    def cut(self, length):
        """Truncates the sequence."""
        if length < len(self.tokens):
            self.states = self.checkpoints.get(length, {})
        elif self.nodes:
            self.states = self.before
        self.tokens, self.nodes = self.tokens[:length], []
        self.checkpoints = {at: states for at, states in self.checkpoints.items() if at <= length}

    def fork(self, length):
        child = Sequence(list(self.tokens), [], {g: list(f) for g, f in self.frames.items()}, self.states, {},
                         dict(self.checkpoints), self.sinks, self.window)  # fmt: skip
        child.cut(length)
        return child

    @property
    def marked(self):
        """Lengths that were checkpoints, also dropped ones."""
        return sorted({at for at in (*self.checkpoints, *self.dropped) if at < len(self.tokens)})

    def checkpoint(self):
        if self.tokens:
            self.checkpoints[len(self.tokens)] = self.states
        while len(self.checkpoints) > MAX_CHECKPOINTS:
            oldest = min(self.checkpoints)
            self.dropped.add(oldest)
            del self.checkpoints[oldest]

    def commit(self, leaf):
        path = []
        while leaf >= 0:
            token, leaf = self.nodes[leaf]
            path.append(token)
        if not path:
            self.states = self.before
        self.tokens, self.nodes = self.tokens + path[::-1], []


@dataclass
class Options:
    """The options of one call of attend."""

    causal: bool = True
    softcap: float = 0.0
    scale: float = 0.0
    slopes: np.ndarray | None = None
    sinks: np.ndarray | None = None
    w_uk: np.ndarray | None = None
    w_uv: np.ndarray | None = None

    @classmethod
    def draw(cls, rng, latent):
        options = cls(causal=rng.random() < 0.7)
        if rng.random() < 0.3:
            options.softcap = 4.0
        if rng.random() < 0.3:
            options.scale = 0.4
        if rng.random() < 0.3:
            options.slopes = rng.random(HEADS, dtype="f4")
        if rng.random() < 0.3:
            options.sinks = rng.standard_normal(HEADS, dtype="f4")
        if latent and rng.random() < 0.5:
            options.w_uk, options.w_uv = (rng.standard_normal((HEADS, n, latent), dtype="f4") / 3 for n in (NOPE, OUT))
        return options

    def keywords(self, sinks=True):
        return dict(causal=self.causal, softcap=self.softcap, softmax_scale=self.scale, alibi_slopes=self.slopes,
                    sinks=self.sinks if sinks else None, w_uk=self.w_uk, w_uv=self.w_uv)  # fmt: skip


class Attending:
    """A layer with keys, K and V or latent rows, in a group of any visibility."""

    def __init__(self, rng, kind, latent, group, source=None):
        self.kind, self.group = kind, group
        dims = (1, 12, 8, 8) if latent else (2, 8, 12, 0) if kind == "cross" else (2, 8, 8, 0)
        self.kv_heads, self.dim, self.v_dim, self.latent = dims
        self.rope = None if kind == "cross" else rng.choice([None, "on_append", "on_read"])
        self.scale, self.source = 0.3, None
        if source is not None:  # it reads what another layer stores
            self.source, self.rope, self.scale = source[0], source[1].rope, 0.2

    def layer(self):
        return kvcache.Layer(self.group, q_heads=HEADS, kv_heads=self.kv_heads, head_dim=self.dim, scale=self.scale,
                             v_head_dim=0 if self.latent else self.v_dim, latent_dim=self.latent, rope=self.rope,
                             kv_layer=self.source)  # fmt: skip

    def new_rows(self, rng, tokens):
        """k and v of new tokens; an MLA layer takes no v."""
        k = rng.standard_normal((tokens, self.kv_heads, self.dim), dtype="f4")
        return k, None if self.latent else rng.standard_normal((tokens, self.kv_heads, self.v_dim), dtype="f4")

    def rotate(self, x, position):
        """Rotates [heads, dims] at a position. Of an MLA row, only the part after the latent one."""
        x = np.asarray(x, np.float64)
        if self.rope is None:
            return x
        rotated = rope(x[None, :, self.latent :], [position])[0]
        return np.concatenate([x[:, : self.latent], rotated], axis=-1)

    def seen(self, sequence, token, step, causal):
        """The tokens that one of `step` (the new tokens of a sequence) sees."""
        if self.kind == "cross":
            return sequence.frames.get(self.group, [])
        if token.path:
            seen = sequence.tokens + [node for node, _ in sequence.nodes if id(node) in token.path]
        else:
            last = at = step.index(token)
            while token.span and last + 1 < len(step) and step[last + 1].span == token.span:
                last += 1
            seen = sequence.tokens + step[: (last if causal else len(step)) + 1]
            assert causal or last >= at
        p, s, w = token.position, sequence.sinks, sequence.window
        if self.kind == "sliding":
            return [key for key in seen if key.position > p - WINDOW]
        if self.kind == "chunked":
            return [key for key in seen if key.position // CHUNK == p // CHUNK]
        return [key for key in seen if not w or key.position < s or key.position > p - (w - s)]

    def expected(self, index, q, sequence, token, step, options):
        """out [HEADS, dims] and lse [HEADS] of a token's query."""
        streams = sequence.window > 0 and self.kind == "full"
        stored = index if self.source is None else self.source
        q = np.asarray(q, np.float64)
        if options.w_uk is not None:
            q = np.concatenate([np.einsum("hn,hnl->hl", q[:, :NOPE], options.w_uk), q[:, NOPE:]], axis=-1)
        scores, values = [], []
        for number, key in enumerate(self.seen(sequence, token, step, options.causal)):
            k, v = key.rows[stored]
            at = min(token.position, sequence.window - 1) if streams and key.position < sequence.sinks else token.position
            rotated = np.repeat(self.rotate(k, key.position), HEADS // self.kv_heads, axis=0)
            score = (options.scale or self.scale) * (self.rotate(q, at) * rotated).sum(axis=-1)
            if options.softcap:
                score = options.softcap * np.tanh(score / options.softcap)
            if options.slopes is not None:
                score = score - options.slopes * abs(at - (number if self.kind == "cross" else key.position))
            scores.append(score)
            values.append(np.repeat(k[:, : self.latent] if v is None else v, HEADS // self.kv_heads, axis=0))
        out = np.zeros((HEADS, self.v_dim))
        if options.sinks is not None:
            scores.append(options.sinks.astype(np.float64))
            values.append(np.zeros((HEADS, self.v_dim)))
        lse = np.full(HEADS, -np.inf)
        if scores:
            lse = np.logaddexp.reduce(scores, axis=0)
            out = sum(np.exp(score - lse)[:, None] * value for score, value in zip(scores, values))
        return (out if options.w_uv is None else np.einsum("hl,hvl->hv", out, options.w_uv)), lse


class Recurrent:
    """A layer with two states."""

    kind, shapes = "recurrent", ((3, 2), (5,))

    def __init__(self, group):
        self.group = group

    def layer(self):
        return kvcache.RecurrentLayer(self.group, [kvcache.StateTensor(shape) for shape in self.shapes])

    def run(self, rng, step, index, sequences):
        """Compares and replaces every state. Returns the states that the sequences have after the step."""
        after = [dict(sequence.states) for sequence in sequences]
        for number, shape in enumerate(self.shapes):
            loaded = step.load_state(index, number, np.empty((len(sequences), *shape), np.float32))
            stored = rng.standard_normal(loaded.shape, dtype="f4")
            for row, sequence in enumerate(sequences):
                np.testing.assert_array_equal(loaded[row], sequence.states.get((index, number), np.zeros(shape)))
                after[row][index, number] = stored[row]
            step.store_state(index, number, stored)
        return after


GROUPS = {
    "full": lambda row: kvcache.Full(row=row), "sliding": lambda row: kvcache.Sliding(WINDOW, row=row),
    "chunked": lambda row: kvcache.Chunked(CHUNK, row=row), "cross": lambda row: kvcache.Cross(row=row),
    "recurrent": lambda row: kvcache.Recurrent(),
}  # fmt: skip


def draw_layers(rng):
    """(groups, layers): one to five groups of any kinds, one to three layers of each."""
    kinds = [str(kind) for kind in rng.choice(list(GROUPS), rng.integers(1, 6))]
    latent = [bool(rng.random() < 0.3) for _ in kinds]
    layers = []
    for group, kind in enumerate(kinds):
        if kind == "recurrent":
            layers += [Recurrent(group) for _ in range(rng.integers(1, 3))]
            continue
        layers.append(Attending(rng, kind, latent[group], group))
        source = (len(layers) - 1, layers[-1])
        if rng.random() < 0.4:
            layers.append(Attending(rng, kind, latent[group], group, source))
        if rng.random() < 0.3:
            layers.append(Attending(rng, kind, latent[group], group))
    return [GROUPS[kind]("latent" if of else "kv") for kind, of in zip(kinds, latent)], layers

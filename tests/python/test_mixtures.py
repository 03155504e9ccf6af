"""Random calls on random mixtures of every kind of layer group, with forks, rollback, checkpoints, trees, streaming windows,
spans and encoder tokens. Attention of every token and every state are compared with float64."""

import collections

import numpy as np
import pytest
from mixture import MAX_CHECKPOINTS, Options, Recurrent, Sequence, Token, draw_layers

import kvcache

drawn = collections.Counter()


class Engine:
    def __init__(self, seed):
        self.rng = rng = np.random.default_rng(seed)
        groups, self.layers = draw_layers(rng)
        kinds = {layer.kind for layer in self.layers}
        self.recurrent, self.cross = "recurrent" in kinds, "cross" in kinds
        self.streaming = bool("full" in kinds and rng.random() < 0.6)
        deterministic = rng.random() < 0.2
        self.cache = kvcache.Cache(
            [layer.layer() for layer in self.layers], groups, page_size=int(rng.choice([1, 3, 4, 16])),
            capacity_tokens=3000, max_sequences=6, max_batch_tokens=120, rollback_tokens=int(rng.choice([0, 8, 40])), streaming=self.streaming,
            max_checkpoints=MAX_CHECKPOINTS if self.recurrent else 0, deterministic=deterministic, max_tree_nodes=32,
            share_prefixes="auto" if deterministic else str(rng.choice(["auto", "always", "never"])),
            context=kvcache.Context(threads=int(rng.integers(1, 5))))  # fmt: skip
        self.sequences = {handle: Sequence() for handle in self.cache.add(2)}

    def pick(self, trees=True):
        handles = [handle for handle, sequence in self.sequences.items() if trees or not sequence.nodes]
        return int(self.rng.choice(handles)) if handles else None

    # If the call succeeds, the model does the same. If it is refused, nearest_position gives the positions that work.
    def fork(self):
        handle = self.pick(trees=False)
        if handle is None or len(self.sequences) == 6:
            return
        length = len(self.sequences[handle].tokens)
        position = self.position(handle, length - int(self.rng.integers(0, length + 1)))
        if self.allowed(handle, position, lambda: self.sequences.update(
                {self.cache.fork(handle, position): self.sequences[handle].fork(position)})):  # fmt: skip
            drawn["fork"] += 1

    def truncate(self):
        handle = self.pick()
        length = self.position(handle, len(self.sequences[handle].tokens) - int(self.rng.integers(0, 10)))
        if self.allowed(handle, length, lambda: self.cache.truncate(handle, length)):
            self.sequences[handle].cut(length)
            drawn["truncate"] += 1

    def position(self, handle, otherwise):
        """A length: often one that has or had a checkpoint."""
        kept = self.sequences[handle].marked
        return int(self.rng.choice(kept)) if kept and self.rng.random() < 0.6 else max(0, otherwise)

    def allowed(self, handle, position, call):
        before, after = self.cache.nearest_position(handle, position)
        length = self.cache.length(handle)
        digest = self.cache.digest()
        try:
            call()
        except kvcache.Evicted:
            assert before < position and (after is None or after > position)
            assert self.cache.digest() == digest
            drawn["evicted"] += 1
            return False
        assert before == position == after
        drawn["restored"] += self.recurrent and 0 < position < length
        return True

    def remove(self):
        if len(self.sequences) > 2:
            handle = self.pick()
            self.cache.remove(handle)
            del self.sequences[handle]

    def checkpoint(self):
        handles = [handle for handle, sequence in self.sequences.items() if not sequence.nodes]
        if self.recurrent and handles:
            self.cache.checkpoint(handles)
            for handle in handles:
                self.sequences[handle].checkpoint()
            drawn["checkpoint"] += len(handles)

    def stream(self):
        handle = self.pick(trees=False)
        if not self.streaming or handle is None:
            return
        sequence, sinks = self.sequences[handle], int(self.rng.integers(0, 6))
        window = sinks + int(self.rng.integers(1, 20))
        try:
            self.cache.set_streaming(handle, sinks=sinks, window=window)
        except kvcache.Evicted:
            assert sequence.window > 0
        else:
            sequence.sinks, sequence.window = sinks, window
            drawn["stream"] += 1

    def commit(self):
        for handle, sequence in self.sequences.items():
            if not sequence.nodes or self.rng.random() < 0.3:
                continue
            nodes = len(sequence.nodes)
            leaf = int(self.rng.choice([-1, nodes - 1]) if self.recurrent else self.rng.integers(-1, nodes))
            self.cache.commit(handle, leaf)
            sequence.commit(leaf)
            assert self.cache.length(handle) == len(sequence.tokens)
            drawn["commit"] += 1

    def encode(self):
        """Appends tokens to encoder sequences."""
        handles = [handle for handle, sequence in self.sequences.items() if not sequence.nodes]
        if not self.cross or not handles:
            return
        group = int(self.rng.choice([layer.group for layer in self.layers if layer.kind == "cross"]))
        lengths = [int(n) for n in self.rng.integers(1, 9, len(handles))]
        frames = [[Token(0) for _ in range(n)] for n in lengths]
        with self.cache.forward(handles, lengths, encoder_group=group) as step:
            for index, layer in enumerate(self.layers):
                if layer.group == group and layer.source is None:
                    k, v = layer.new_rows(self.rng, sum(lengths))
                    step.append(index, k, v)
                    for row, token in enumerate(sum(frames, [])):
                        token.rows[index] = (k[row], None if v is None else v[row])
        for handle, new in zip(handles, frames):
            self.sequences[handle].frames.setdefault(group, []).extend(new)
        drawn["encode"] += 1

    def new_tokens(self, sequence):
        """(tokens, parents of nodes or None, spans) of one row of a step; nodes are added to the sequence."""
        count = int(self.rng.choice([1, 1, 2, 5, 20]))
        known, length = len(sequence.nodes), len(sequence.tokens)
        if not known and self.rng.random() < 0.6:
            spans = [0] * count if self.rng.random() < 0.7 else sorted(int(i) for i in self.rng.integers(0, 4, count))
            return [Token(length + i, span=spans[i]) for i in range(count)], None, spans
        count = min(count, 7, 32 - known)
        sequence.before = sequence.before if known else sequence.states
        tokens, parents = [], []
        for node in range(known, known + count):
            parents.append(node - 1 if self.recurrent else int(self.rng.integers(-1, node)))
            above = sequence.nodes[parents[-1]][0] if parents[-1] >= 0 else Token(length - 1)
            tokens.append(Token(above.position + 1))
            tokens[-1].path = above.path | {id(tokens[-1])}
            sequence.nodes.append((tokens[-1], parents[-1]))
        return tokens, parents, [0] * count

    def step(self):
        handles = [handle for handle in self.sequences if self.rng.random() < 0.7]
        handles = [handle for handle in handles if len(self.sequences[handle].nodes) < 32]
        self.rng.shuffle(handles)
        sequences = [self.sequences[handle] for handle in handles]
        rows = [self.new_tokens(sequence) for sequence in sequences]
        tokens = [new for new, _, _ in rows]
        flat = sum(tokens, [])
        parents, spans = [row[1] for row in rows], sum((row[2] for row in rows), [])
        with self.cache.forward(handles, [len(new) for new in tokens], parents=parents if any(parents) else None,
                                spans=spans if any(spans) else None) as step:  # fmt: skip
            assert step.positions.tolist() == [token.position for token in flat]
            for index, layer in enumerate(self.layers):
                if isinstance(layer, Recurrent):
                    for sequence, states in zip(sequences, layer.run(self.rng, step, index, sequences)):
                        sequence.states = states
                else:
                    self.attend(step, index, layer, sequences, tokens)
        for sequence, (new, row_parents, _) in zip(sequences, rows):
            sequence.tokens = sequence.tokens if row_parents else sequence.tokens + new
        drawn["trees"] += any(parents)
        drawn["spans"] += any(spans)

    def attend(self, step, index, layer, sequences, tokens):
        flat = sum(tokens, [])
        options = Options.draw(self.rng, layer.latent)
        dims = layer.dim if options.w_uk is None else options.w_uk.shape[1] + layer.dim - layer.latent
        q = self.rng.standard_normal((len(flat), 4, dims), dtype="f4")
        new = ()
        if layer.kind != "cross" and layer.source is None:
            new = layer.new_rows(self.rng, len(flat))
            for row, token in enumerate(flat):
                token.rows[index] = (new[0][row], None if new[1] is None else new[1][row])
        if layer.kind != "cross" and self.rng.random() < 0.3:
            past = step.attend(index, q, part="past", lse=True, **options.keywords())
            own = step.attend(index, q, *new, part="self", lse=True, **options.keywords(sinks=False))
            out, lse = self.cache.context.merge_states(*zip(past, own))
            drawn["parts"] += 1
        else:
            out, lse = step.attend(index, q, *new, lse=True, **options.keywords())
        row = 0
        for sequence, own_tokens in zip(sequences, tokens):
            for token in own_tokens:
                wanted = layer.expected(index, q[row], sequence, token, own_tokens, options)
                message = f"layer {index}, {layer.kind}, position {token.position}, {options}"
                np.testing.assert_allclose(lse[row], wanted[1], atol=1e-4, rtol=1e-4, err_msg=message)
                np.testing.assert_allclose(out[row], wanted[0], atol=1e-4, rtol=1e-4, err_msg=message)
                drawn["latent " * bool(layer.latent) + layer.kind] += 1
                row += 1


@pytest.mark.parametrize("seed", range(40))
def test_random_calls_on_random_groups(seed):
    engine = Engine(seed)
    calls = [engine.step] * 4 + [engine.fork, engine.truncate, engine.remove, engine.checkpoint, engine.stream,
                                 engine.commit, engine.encode]  # fmt: skip
    if engine.recurrent:
        calls += [engine.step, engine.checkpoint, engine.checkpoint, engine.truncate, engine.truncate, engine.fork]
    with engine.cache as cache:
        for _ in range(40):
            calls[engine.rng.integers(len(calls))]()
            cache.check_invariants()
        cache.remove(list(engine.sequences))
        assert cache.stats().pages_used == 0


def test_everything_was_drawn():
    """Checks that the test above drew everything. It did not test what is missing here."""
    if not drawn:
        pytest.skip("the random calls did not run")
    for what in ("full", "sliding", "chunked", "cross"):
        assert drawn[what] > 500, drawn
        assert drawn["latent " + what] > 100, drawn
    for what in ("fork", "truncate", "evicted", "checkpoint", "restored", "stream", "commit", "encode", "trees", "spans", "parts"):
        assert drawn[what] > 10, drawn

"""A scripted cache for the tests and the pictures of kvcache.inspect: a common prefix, decoding, forks, eviction, a tier."""

import numpy as np

import kvcache

HEADS, DIM = (2, 1), 8
SYSTEM = 48
SEED = 7


class Scene:
    """Requests arrive, find the system prompt in the index, decode, fork and leave."""

    secret = "987654321"  # a token id that must be in no trace

    def __init__(self, folder, pages=96):
        self._random = np.random.default_rng(SEED)
        layers = [kvcache.Layer(q_heads=HEADS[0], kv_heads=HEADS[1], head_dim=DIM, group=group) for group in (0, 0, 1)]
        groups = [kvcache.Full(pages), kvcache.Sliding(32, pages=pages)]
        self.cache = kvcache.Cache(layers, groups, page_size=8, max_sequences=12, max_batch_tokens=256, prefix_index=True,
                                   fingerprint=bytes(32), context=kvcache.Context(threads=1))  # fmt: skip
        self.cache.add_disk_tier(str(folder / "tier"))
        self.steps = []
        self._system = [int(self.secret), *range(1, SYSTEM)]
        self._active = {}  # tokens of each sequence
        self._requests = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cache.close()

    def play(self, recorder=None, rounds=40):
        """Plays the scene, one step for each item."""
        forward = recorder.forward if recorder else self.cache.forward
        for number in range(rounds):
            rows, fresh = [], {}
            for sequence, tokens in self._active.items():
                rows.append(sequence)
                fresh[sequence] = [1000 + len(tokens)]
            if number % 4 == 0 and len(self._active) < 6:
                prompt = self._system + [10_000 + self._requests * 100 + i for i in range(13)]
                self._requests += 1
                sequence, hit = self.cache.attach_prefix(prompt)
                rows.append(sequence)
                fresh[sequence] = prompt[hit.tokens :]
                self._active[sequence] = prompt[: hit.tokens]
            lengths = [len(fresh[row]) for row in rows]
            with forward(rows, lengths) as step:
                total = sum(lengths)
                for layer in range(3):
                    q, k, v = (self._random.standard_normal((total, n, DIM)).astype(np.float32) for n in (2, 1, 1))
                    step.attend(layer, q, k, v)
            self.steps.append((len(rows), sum(lengths)))
            for row in rows:
                self._active[row] += fresh[row]
            yield number
            if number % 4 == 0:
                self.cache.publish_prefix(rows[-1], self._active[rows[-1]])
            if number % 10 == 5:
                parent = rows[0]
                self._active[self.cache.fork(parent)] = list(self._active[parent])
            if number % 7 == 6 and len(self._active) > 3:
                gone = next(iter(self._active))
                self.cache.publish_prefix(gone, self._active.pop(gone))
                self.cache.remove(gone)
            if number == 20:
                self.cache.pin_prefix(self._system[:16])

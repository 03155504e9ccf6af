"""Attention by the stateless call over the tables of a plan, compared with dense attention over the keys that this kind of
step sees."""
import kvcache
import numpy as np
import pytest

Q_HEADS, KV_HEADS, DIM = 4, 2, 16


class Server:
    """Pools and a block table of random pages; rows of random lengths. Slots that hold no token are NaN."""

    def __init__(self, seed, page_size, rows=4, longest=70, extra=600):
        self.random = np.random.default_rng(seed)
        self.page_size, self.rows = page_size, rows
        self.columns = -(-(longest + extra) // page_size) + 4
        self.table = self.random.permutation(rows * self.columns).astype(np.int32).reshape(rows, -1)
        # Also around the end of a page.
        borders = [0, 1, page_size - 1, page_size, page_size + 1, 2 * page_size, longest]
        self.lengths = self.random.choice(borders + list(range(longest)), rows)
        shape = (self.table.size, page_size, KV_HEADS, DIM)
        self.k, self.v = (np.full(shape, np.nan, np.float32) for _ in range(2))

    def slot(self, row, entry):
        return self.table[row, entry // self.page_size] * self.page_size + entry % self.page_size

    def fill(self, slots):
        for pool in (self.k, self.v):
            pool.reshape(-1, KV_HEADS, DIM)[slots] = self.random.standard_normal((len(slots), KV_HEADS, DIM))

    def attend(self, q, tables, window=None):
        pools = (pool.reshape(-1, tables.page_size, KV_HEADS, DIM) for pool in (self.k, self.v))
        out, lse = kvcache.flash_attn_with_kvcache(
            q, *pools, cache_seqlens=tables.cache_seqlens, cache_leftpad=tables.leftpad, block_table=tables.block_table,
            cu_seqlens_q=tables.cu_seqlens_q, max_seqlen_q=tables.max_seqlen_q, causal=tables.causal,
            window_size=(-1, -1) if window is None else (window - 1, 0), return_softmax_lse=True)
        return out, np.ascontiguousarray(lse.T)

    def check(self, plan, visible, *, parts=("whole",), step=0, window=None):
        """visible: of each query, in the step's order, the slots that it sees."""
        self.fill(sorted({slot for slots in visible for slot in slots}))
        q = self.random.standard_normal((len(visible), Q_HEADS, DIM)).astype(np.float32)
        results = [self.attend(q, plan.tables(step, part), window) for part in parts]
        out, _ = results[0] if len(results) == 1 else kvcache.Context().merge_states(*zip(*results, strict=True))
        for query, slots in enumerate(visible):
            np.testing.assert_allclose(out[query], self.dense(q[query], slots), rtol=2e-4, atol=2e-5)

    def dense(self, q, slots):
        k, v = (np.repeat(pool.reshape(-1, KV_HEADS, DIM)[slots].astype(np.float64), Q_HEADS // KV_HEADS, axis=1)
                for pool in (self.k, self.v))
        scores = np.einsum("hd,jhd->hj", q.astype(np.float64), k) / np.sqrt(DIM)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.einsum("hj,jhd->hd", weights / weights.sum(axis=1, keepdims=True), v)


pages = pytest.mark.parametrize("page_size", [1, 3, 16, 64])
seeds = pytest.mark.parametrize("seed", range(5))


@seeds
@pages
@pytest.mark.parametrize("sees", ["all", "window", "chunk"])
def test_extend(sees, page_size, seed):
    server = Server(seed, page_size)
    new = server.random.integers(0, 9, server.rows)
    new[seed % server.rows] = 1  # a decoding row beside the others
    size = int(server.random.integers(1, 20))
    plan = kvcache.Plan("extend", page_size=page_size, window=size if sees == "window" else None,
                        chunk=size if sees == "chunk" else None)
    plan.build(server.lengths, append_lengths=new, block_table=server.table)
    first = {"all": lambda p: 0, "window": lambda p: max(0, p - size + 1), "chunk": lambda p: p // size * size}[sees]
    server.check(plan, [[server.slot(row, entry) for entry in range(first(p), p + 1)] for row in range(server.rows)
                        for p in range(server.lengths[row], server.lengths[row] + new[row])],
                 window=size if sees == "window" else None)


@seeds
@pages
def test_decode_behind_encoder_tokens(page_size, seed):
    server = Server(seed, page_size)
    encoder = server.random.integers(1, 40, server.rows)
    plan = kvcache.Plan("decode", page_size=page_size)
    plan.build(server.lengths, block_table=server.table, encoder_lens=encoder)
    rows = range(server.rows)
    server.check(plan, [[server.slot(row, encoder[row] + p) for p in range(server.lengths[row] + 1)] for row in rows])
    server.check(plan, [[server.slot(row, p) for p in range(encoder[row])] for row in rows], parts=["encoder"])


@seeds
@pages
@pytest.mark.parametrize("tree", [False, True])
def test_verify(tree, page_size, seed):
    server = Server(seed, page_size)
    drafts = int(server.random.integers(1, 9))
    parents = [[int(server.random.integers(-1, node)) if tree else node - 1 for node in range(drafts)]
               for _ in range(server.rows)]
    plan = kvcache.Plan("verify", num_draft_tokens=drafts, page_size=page_size)
    plan.build(server.lengths, block_table=server.table, tree_parents=np.ravel(parents).astype(np.int32) if tree else None)

    def ancestors(row, node):
        return [] if node < 0 else [*ancestors(row, parents[row][node]), node]

    server.check(plan, [[server.slot(row, p) for p in range(server.lengths[row])] +
                        [server.slot(row, server.lengths[row] + other) for other in ancestors(row, node)]
                        for row in range(server.rows) for node in range(drafts)],
                 parts=["prefix", "branches"] if tree else ["whole"])


@seeds
@pages
@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_draft_steps(top_k, page_size, seed):
    server, steps = Server(seed, page_size), 3
    plan = kvcache.Plan("draft_decode", num_steps=steps, top_k=top_k, page_size=page_size)
    plan.build(server.lengths, block_table=server.table)

    def keys(row, branch, step):
        length = server.lengths[row]
        whole = length // page_size * page_size
        region = -(-(length - whole + steps) // page_size) * page_size
        entries = [*range(whole), *(whole + branch * region + i for i in range(length - whole + step + 1))]
        return [server.slot(row, entry) for entry in entries]

    for step in range(steps):
        server.check(plan, [keys(row, branch, step) for row in range(server.rows) for branch in range(top_k)], step=step,
                     parts=["whole"] if top_k == 1 else ["prefix", "branches"])


def test_a_table_without_columns_has_no_keys():
    q, pool = np.ones((3, Q_HEADS, DIM), np.float32), np.full((2, 8, KV_HEADS, DIM), np.nan, np.float32)
    out, lse = kvcache.flash_attn_with_kvcache(
        q, pool, pool, cache_seqlens=np.zeros(2, np.int32), block_table=np.zeros((2, 0), np.int32),
        cu_seqlens_q=np.array([0, 1, 3], np.int32), return_softmax_lse=True)
    assert (out == 0).all() and (lse == -np.inf).all()

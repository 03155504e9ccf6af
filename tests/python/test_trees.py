"""Token trees: attention of every node compared with dense numpy, the tokens that a commit keeps, and calls that are refused
meanwhile."""

import numpy as np
import pytest
from reference import attention, rope

import kvcache

HEADS, KV_HEADS, DIM = 4, 2, 16


@pytest.fixture
def cache():
    layer = kvcache.Layer(q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM)
    with kvcache.Cache([layer], page_size=4, capacity_tokens=512, max_tree_nodes=20, rollback_tokens=0) as cache:
        yield cache


def grow(cache, qkv, sequences, lengths, parents=None):
    """A step of layer 0: (q, k, v, out, positions)."""
    q, k, v = qkv(sum(lengths), HEADS, KV_HEADS, DIM)
    with cache.forward(sequences, lengths, parents=parents) as step:
        return q, k, v, step.attend(0, q, k, v), step.positions


def path_of(parents, node):
    path = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


def test_nodes_see_the_sequence_and_their_ancestors(cache, qkv):
    a, b = cache.add(2)
    _, k, v, _, _ = grow(cache, qkv, [a, b], [9, 5])
    old_k, old_v = k[:9], v[:9]
    parents = [-1, 0, 0, 1, 2, 2, -1]
    q, k, v, out, positions = grow(cache, qkv, [b, a], [2, 7], [None, parents])
    assert positions.tolist() == [5, 6, 9, 10, 10, 11, 11, 11, 9]
    q, k, v, out = (x[2:] for x in (q, k, v, out))
    for node in range(7):
        path = path_of(parents, node)
        expected, _ = attention(q[node : node + 1], np.concatenate([old_k, k[path]]),
                                np.concatenate([old_v, v[path]]), [9 + len(path) - 1])  # fmt: skip
        np.testing.assert_allclose(out[node], expected[0], atol=2e-5)
    assert cache.lengths([a, b]) == [9, 7] and cache.tree_nodes([a, b]) == [7, 0] and cache.tree_nodes(a) == 7
    cache.commit(a, 5)
    assert cache.length(a) == 12 and cache.tree_nodes(a) == 0
    kept_k, kept_v = cache.export(a, 0)
    path = path_of(parents, 5)
    np.testing.assert_array_equal(np.asarray(kept_k), np.concatenate([old_k, k[path]]))
    np.testing.assert_array_equal(np.asarray(kept_v), np.concatenate([old_v, v[path]]))
    q, k, v, out, _ = grow(cache, qkv, [a], [1])
    expected, _ = attention(q, np.concatenate([np.asarray(kept_k), k]), np.concatenate([np.asarray(kept_v), v]), [12])
    np.testing.assert_allclose(out, expected, atol=2e-5)
    cache.check_invariants()


def test_rounds_and_commits_of_some(cache, qkv):
    a, b = cache.add(2)
    grow(cache, qkv, [a, b], [3, 3])
    grow(cache, qkv, [a, b], [1, 2], [[-1], np.array([-1, -1])])
    with cache.forward(a, 3, parents=[0, 0, 2]) as step:  # for one sequence, `parents` is one list
        assert step.positions.tolist() == [4, 4, 5]
        step.append(0, *qkv(3, HEADS, KV_HEADS, DIM)[1:])
    assert cache.tree_nodes([a, b]) == [4, 2] and cache.max_append([a, b]) == [16, 18]
    cache.commit([b], [-1])
    assert cache.lengths([a, b]) == [3, 3]
    with pytest.raises(kvcache.Cancelled):  # the step is aborted, and the first rounds stay
        with cache.forward([a], [1], parents=[[3]]) as step:
            step.cancel()
    cache.commit([a], (3,))
    assert cache.lengths([a, b]) == [6, 3]
    grow(cache, qkv, [b], [2], [[-1, 0]])
    cache.truncate(b, 3)
    assert cache.tree_nodes(b) == 0
    cache.commit([], [])


def test_rope_by_position(qkv):
    layer = kvcache.Layer(q_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, rope="on_append")
    with kvcache.Cache([layer], [kvcache.Sliding(4)], page_size=4, capacity_tokens=256) as cache:
        a = cache.add()
        _, old_k, old_v, _, _ = grow(cache, qkv, [a], [7])
        q, k, v, _, positions = grow(cache, qkv, [a], [3], [[-1, -1, 1]])
        assert positions.tolist() == [7, 7, 8]
        cache.commit(a, 2)
        kept_k, _ = cache.export(a, 0)
        expected = rope(np.concatenate([old_k, k[1:]]), np.arange(9))
        np.testing.assert_allclose(np.asarray(kept_k), expected, atol=1e-5)


@pytest.mark.parametrize("call, error, status", [
    (lambda c, a, b: c.forward([b], [2], parents=[[-1, 1]]), kvcache.InvalidArgument, 1),
    (lambda c, a, b: c.forward([b], [2], parents=[[-1, 2**40]]), kvcache.InvalidArgument, 1),
    (lambda c, a, b: c.forward([b], [2], parents=[[-1]]), kvcache.InvalidArgument, 1),
    (lambda c, a, b: c.forward([b], [1], parents=[[-1], None]), kvcache.InvalidArgument, 1),
    (lambda c, a, b: c.forward([b, a], [1, 1], parents=[[-1], [3]]), kvcache.InvalidArgument, 1),
    (lambda c, a, b: c.forward([a], [18], parents=[[-1] * 18]), kvcache.TreeTooLarge, 106),
    (lambda c, a, b: c.forward([a], [1]), kvcache.Uncommitted, 204),
    (lambda c, a, b: c.fork(a), kvcache.Uncommitted, 204),
    (lambda c, a, b: c.commit([a, b], [0, -1]), kvcache.Order, 201),
    (lambda c, a, b: c.commit(a, 3), kvcache.OutOfRange, 10),
    (lambda c, a, b: c.commit(a, -(2**70)), kvcache.OutOfRange, 10),
    (lambda c, a, b: c.commit([a, a], [0, 0]), kvcache.Duplicate, 12),
    (lambda c, a, b: c.commit([a], [0, 0]), kvcache.InvalidArgument, 1),
    (lambda c, a, b: c.commit(999, 0), kvcache.StaleId, 11),
    (lambda c, a, b: c.tree_nodes([a, 999]), kvcache.StaleId, 11),
])  # fmt: skip
def test_misuse_changes_nothing(cache, qkv, call, error, status):
    a, b = cache.add(2)
    grow(cache, qkv, [a], [3], [[-1, 0, 0]])
    before = cache.digest()
    with pytest.raises(error) as caught:
        call(cache, a, b)
    assert caught.value.status == status
    assert cache.digest() == before
    cache.check_invariants()


def test_can_fit_and_types(cache, qkv):
    a = cache.add()
    grow(cache, qkv, [a], [3], [[-1, 0, 0]])
    assert cache.can_fit([a], [17], parents=[[2] * 17]) and not cache.can_fit([a], [18], parents=[[2] * 18])
    assert not cache.can_fit([a], [1])
    with pytest.raises(kvcache.TreeTooLarge) as caught:
        cache.check_fit([a], [18], parents=[[2] * 18])
    assert (caught.value.row, caught.value.required, caught.value.available) == (0, 21, 20)
    for bad in ([["x"]], [1.5], 5, [[[0]]]):
        with pytest.raises((TypeError, kvcache.InvalidArgument)):
            cache.forward([a], [1], parents=bad)


def test_config():
    layers = [kvcache.Layer(q_heads=2, kv_heads=1, head_dim=16)]
    for make in (kvcache.Cache, kvcache.estimate):
        for bad in (-1, 1025, 2**40):
            with pytest.raises(kvcache.InvalidArgument, match="max_tree_nodes"):
                make(layers, capacity_tokens=64, max_tree_nodes=bad)
    few, many = (kvcache.estimate(layers, capacity_tokens=64, max_tree_nodes=n).bookkeeping_bytes for n in (1, 1024))
    assert few < many

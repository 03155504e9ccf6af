"""PagedAttention, which ONNX Runtime has on CUDA alone, against GroupQueryAttention of ONNX Runtime's own over contiguous caches."""
import numpy as np
import pytest
from models import PROVIDER, GroupQuery, provider_of, serialised, session, value
from onnx import TensorProto, helper

PAGES, PAGE_SIZE, Q_HEADS, KV_HEADS, DIMS = 24, 16, 8, 2, 64
INDICES = 'cumulative_sequence_length', 'past_seqlens', 'block_table'


def paged_model(**attributes) -> bytes:
    names = ['query', 'key', 'value', 'key_cache', 'value_cache', *INDICES, 'cos_cache', 'sin_cache']
    node = helper.make_node('PagedAttention', names, ['output', 'key_cache_out', 'value_cache_out'], name='paged',
                            domain='com.microsoft', num_heads=Q_HEADS, kv_num_heads=KV_HEADS, **attributes)
    cache = [PAGES, PAGE_SIZE, KV_HEADS, DIMS]
    return serialised(
        [node], [value('query', 'float16', 'tokens', Q_HEADS * DIMS), *(value(n, 'float16', 'tokens', KV_HEADS * DIMS) for n in names[1:3]),
                 *(value(n, 'float16', *cache) for n in names[3:5]), value(INDICES[0], TensorProto.INT32, 'starts'),
                 value(INDICES[1], TensorProto.INT32, 'batch'), value(INDICES[2], TensorProto.INT32, 'batch', 'pages'),
                 *(value(n, 'float16', 'positions', DIMS // 2) for n in names[8:])],
        [value('output', 'float16', 'tokens', Q_HEADS * DIMS), *(value(n, 'float16', *cache) for n in ('key_cache_out', 'value_cache_out'))])


def run_in_place(running, feed):
    """Runs with the caches bound as inputs and outputs, and returns the output. The caches of `feed` change."""
    binding = running.io_binding()
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    out = np.empty(feed['query'].shape, np.float16)
    for name, array in ('output', out), ('key_cache_out', feed['key_cache']), ('value_cache_out', feed['value_cache']):
        binding.bind_output(name, 'cpu', 0, np.float16, array.shape, array.ctypes.data)
    running.run_with_iobinding(binding)
    return out


@pytest.mark.parametrize('attributes', [{}, {'do_rotary': 1, 'local_window_size': 20}, {'softcap': 4.0, 'do_rotary': 1}])
@pytest.mark.parametrize('in_place', [True, False])
def test_ragged_rows_over_pages(attributes, in_place):
    with pytest.raises(Exception, match='PagedAttention'):
        session(paged_model(**attributes), False)
    running = session(paged_model(**attributes), True)
    assert provider_of(running, 'PagedAttention') == PROVIDER
    contiguous = GroupQuery('float16', Q_HEADS, KV_HEADS, DIMS, **attributes)
    stock = session(contiguous.model, False)

    pasts, news = [37, 0, 64], [1, 21, 5]
    table = np.full((3, 6), -1, np.int32)
    order = iter(np.random.default_rng(3).permutation(PAGES))
    for row, (past, new) in enumerate(zip(pasts, news)):
        for page in range(-(-(past + new) // PAGE_SIZE)):
            table[row, page] = next(order)
    caches = np.random.default_rng(4).standard_normal((2, PAGES, PAGE_SIZE, KV_HEADS, DIMS)).astype(np.float16)
    rows = [contiguous.feed(new, [past + new], seed=row) for row, (past, new) in enumerate(zip(pasts, news))]
    for row, feed in enumerate(rows):
        for token in range(pasts[row]):
            for side, name in enumerate(('past_key', 'past_value')):
                caches[side, table[row, token // PAGE_SIZE], token % PAGE_SIZE] = feed[name][0, :, token]
    feed = {name: np.concatenate([feed[name][0] for feed in rows]) for name in ('query', 'key', 'value')}
    longest = max(rows, key=lambda feed: len(feed['cos_cache']))
    feed |= {'key_cache': caches[0].copy(), 'value_cache': caches[1].copy(), INDICES[0]: np.cumsum([0, *news]).astype(np.int32),
             INDICES[1]: np.array(pasts, np.int32), INDICES[2]: table, 'cos_cache': longest['cos_cache'], 'sin_cache': longest['sin_cache']}
    if in_place:
        actual, stored = run_in_place(running, feed), feed['key_cache']
    else:
        actual, stored, _ = running.run(None, feed)

    untouched = np.ones((PAGES, PAGE_SIZE), bool)
    for row, (past, new) in enumerate(zip(pasts, news)):
        expected, present, _ = stock.run(None, rows[row])
        first = sum(news[:row])
        np.testing.assert_allclose(actual[first:first + new].astype(np.float32), expected[0].astype(np.float32), atol=4e-3)
        for token in range(past, past + new):
            slot = table[row, token // PAGE_SIZE], token % PAGE_SIZE
            untouched[slot] = False
            np.testing.assert_allclose(stored[slot].astype(np.float32), present[0, :, token].astype(np.float32), atol=4e-3)
    np.testing.assert_array_equal(stored[untouched], caches[0][untouched])


def test_a_page_out_of_range_is_refused():
    running = session(paged_model(), True)
    draw = np.random.default_rng(0).standard_normal
    feed = {'query': draw((1, 512)), 'key': draw((1, 128)), 'value': draw((1, 128)), 'key_cache': draw((24, 16, 2, 64)),
            'value_cache': draw((24, 16, 2, 64)), 'cos_cache': draw((64, 32)), 'sin_cache': draw((64, 32))}
    feed = {name: array.astype(np.float16) for name, array in feed.items()}
    feed |= {INDICES[0]: np.array([0, 1], np.int32), INDICES[1]: np.array([20], np.int32), INDICES[2]: np.array([[3, 24]], np.int32)}
    with pytest.raises(Exception, match="node 'paged': .*24"):
        running.run(None, feed)

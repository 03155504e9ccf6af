"""Attention nodes by the plug-in and by ONNX Runtime's own kernels, on the same inputs."""
import numpy as np
import onnxruntime
import pytest
from models import PROVIDER, Decoder, GroupQuery, generate, provider_of, session
from onnx import TensorProto

TOLERANCE = {'float32': 2e-5, 'float16': 4e-3}


def stock_and_plugin(case, **options):
    stock, plugin = session(case.model, False), session(case.model, True, **options)
    assert provider_of(stock, 'GroupQueryAttention') == 'CPUExecutionProvider'
    assert provider_of(plugin, 'GroupQueryAttention') == PROVIDER
    return stock, plugin


def assert_same(stock, plugin, case, feed, new, lengths):
    """Compares what the operator defines: output rows without padding, and the caches up to each row's length."""
    expected, actual = stock.run(None, feed), plugin.run(None, feed)
    for index, (left, right) in enumerate(zip(expected, actual)):
        assert left.shape == right.shape
        for row, length in enumerate(lengths):
            valid = (slice(min(new, length)),) if index == 0 else (slice(None), slice(length))
            a, b = (np.asarray(side[row][valid], np.float32) for side in (left, right))
            np.testing.assert_allclose(b, a, atol=TOLERANCE[case.dtype], rtol=TOLERANCE[case.dtype])
            assert index or np.abs(a).max() > 0.01


@pytest.mark.parametrize('dtype', ['float32', 'float16'])
@pytest.mark.parametrize('attributes', [
    {}, {'do_rotary': 1}, {'do_rotary': 1, 'rotary_interleaved': 1}, {'softcap': 5.0}, {'local_window_size': 7}, {'scale': 0.3},
    {'smooth_softmax': 1}, {'sink': True}, {'packed': True}, {'packed': True, 'do_rotary': 1, 'local_window_size': 5, 'softcap': 3.0},
    {'q_heads': 6, 'kv_heads': 6, 'dims': 32, 'do_rotary': 1}, {'q_heads': 7, 'kv_heads': 1, 'dims': 128}])
def test_prefill_decode_and_chunks(dtype, attributes):
    case = GroupQuery(dtype, **attributes)
    stock, plugin = stock_and_plugin(case)
    for new, lengths in (17, [17]), (1, [18]), (5, [40]), (9, [9, 9, 9]), (1, [10, 31]), (8, [3, 8]), (300, [300]), (1, [700]):
        assert_same(stock, plugin, case, case.feed(new, lengths, seed=new), new, lengths)


def test_past_with_more_room_than_tokens():
    case = GroupQuery(do_rotary=1)
    stock, plugin = stock_and_plugin(case)
    for new, lengths in (12, [12]), (1, [13, 7]), (4, [20]):
        assert_same(stock, plugin, case, case.feed(new, lengths, room=64), new, lengths)


def test_past_and_present_in_one_buffer():
    """As generators bind it: the caches stay where they are, and only the new rows change."""
    case = GroupQuery(do_rotary=1)
    results = []
    for running in stock_and_plugin(case):
        feed = case.feed(1, [20, 33], room=48)
        before = feed['past_key'].copy()
        binding = running.io_binding()
        for name, array in feed.items():
            binding.bind_cpu_input(name, array)
        out = np.empty((2, 1, case.q_heads * case.dims), np.float32)
        for name, array in ('output', out), ('present_key', feed['past_key']), ('present_value', feed['past_value']):
            binding.bind_output(name, 'cpu', 0, np.float32, array.shape, array.ctypes.data)
        running.run_with_iobinding(binding)
        changed = np.abs(feed['past_key'] - before).max(axis=(1, 3)) > 0
        assert [list(np.flatnonzero(row)) for row in changed] == [[19], [32]]
        results.append((out, feed['past_key'], feed['past_value']))
    for stock, plugin in zip(*results):
        np.testing.assert_allclose(plugin, stock, atol=2e-5)


def test_bfloat16_runs_where_stock_has_no_kernel():
    half, exact = GroupQuery('bfloat16', do_rotary=1), GroupQuery('float32', do_rotary=1)
    with pytest.raises(Exception, match='GroupQueryAttention'):
        session(half.model, False)
    running = session(half.model, True)
    feed = half.feed(6, [30])
    binding = running.io_binding()
    for name, array in feed.items():
        if array.dtype.name == 'bfloat16':
            value = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), TensorProto.BFLOAT16)
            binding.bind_ortvalue_input(name, value)
        else:
            binding.bind_cpu_input(name, array)
    out = np.empty((1, 6, half.q_heads * half.dims), np.uint16)
    binding.bind_output('output', 'cpu', 0, TensorProto.BFLOAT16, out.shape, out.ctypes.data)
    for name in 'present_key', 'present_value':
        binding.bind_output(name, 'cpu')
    running.run_with_iobinding(binding)
    wide = {name: array.astype(np.float32) if array.dtype.name == 'bfloat16' else array for name, array in feed.items()}
    expected = session(exact.model, False).run(None, wide)[0]
    actual = (out.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(actual, expected, atol=0.03)


@pytest.mark.parametrize('left', [
    {'attributes': {'causal': 0}}, {'attributes': {'qk_output': 1}, 'outputs': 4},
    {'extra': [(9, 'position_ids', TensorProto.INT64, 'batch', 'tokens')], 'attributes': {'do_rotary': 1}},
    {'extra': [(10, 'attention_bias', 'float32', 1, 1, 'tokens', 'total')]},
    {'extra': [(16, 'query_seqlens', TensorProto.INT32, 'batch')]}])
def test_what_it_cannot_compute_stays_with_onnx_runtime(left):
    case = GroupQuery(extra=left.get('extra', ()), outputs=left.get('outputs', 3), **left.get('attributes', {}))
    stock, plugin = session(case.model, False), session(case.model, True)
    assert provider_of(plugin, 'GroupQueryAttention') == 'CPUExecutionProvider'
    feed = case.feed(6, [6])
    more = {'position_ids': np.arange(6)[None] + 2, 'attention_bias': np.linspace(-1, 1, 36, dtype=np.float32).reshape(1, 1, 6, 6),
            'query_seqlens': np.array([6], np.int32)}
    feed |= {name: more[name] for _, name, *_ in left.get('extra', ())}
    if 'position_ids' in feed:
        feed |= {name: np.concatenate([feed[name]] * 2) for name in ('cos_cache', 'sin_cache')}
    for expected, actual in zip(stock.run(None, feed), plugin.run(None, feed)):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize('change, message', [
    ({'seqlens_k': np.array([50], np.int32)}, r'seqlens_k\[0\] is 50, but total_sequence_length is 20'),
    ({'seqlens_k': np.array([-1], np.int32)}, r'seqlens_k\[0\] is -1'),
    ({'seqlens_k': np.array([19, 19], np.int32)}, r'seqlens_k has shape \[2\], but there are 1 rows'),
    ({'total_sequence_length': np.array([30], np.int32), 'seqlens_k': np.array([29], np.int32)}, 'room for 19 tokens'),
    ({'key': np.zeros((1, 2, 128), np.float32)}, r'key and value have shapes \[1, 2, 128\]'),
    ({'cos_cache': np.zeros((4, 32), np.float32), 'sin_cache': np.zeros((4, 32), np.float32)}, "node 'attention': .*rotary"),
    ({'past_key': np.zeros((1, 2, 18, 64), np.float32)}, r'past_key and past_value have shapes \[1, 2, 18, 64\]')])
def test_bad_inputs_are_refused_with_their_values(change, message):
    case = GroupQuery(do_rotary=1)
    plugin = session(case.model, True)
    with pytest.raises(Exception, match=message):
        plugin.run(None, case.feed(1, [20]) | change)
    plugin.run(None, case.feed(1, [20]))


def test_a_decoder_gives_the_same_tokens():
    decoder = Decoder()
    stock, plugin = session(decoder.model, False), session(decoder.model, True, num_threads='1')
    assert provider_of(plugin, 'GroupQueryAttention') == PROVIDER and provider_of(plugin, 'MatMul') == 'CPUExecutionProvider'
    for seed in range(4):
        prompt = np.random.default_rng(seed).integers(0, decoder.VOCABULARY, 5 + 20 * seed)
        expected, margin = generate(stock, prompt, 40)
        assert margin > 1e-3 and len(set(expected)) > 20
        assert generate(plugin, prompt, 40)[0] == expected


def test_concurrent_runs_of_one_session():
    from concurrent.futures import ThreadPoolExecutor
    case = GroupQuery(do_rotary=1)
    stock, plugin = stock_and_plugin(case)
    feeds = [case.feed(1 + seed % 3, [40 + seed], seed=seed) for seed in range(24)]
    with ThreadPoolExecutor(6) as pool:
        actual = list(pool.map(lambda feed: plugin.run(None, feed), feeds))
    for feed, result in zip(feeds, actual):
        np.testing.assert_allclose(result[0], stock.run(None, feed)[0], atol=2e-5)


def test_bad_option_is_refused():
    with pytest.raises(Exception, match="num_threads of KvcacheExecutionProvider is 'many'"):
        session(GroupQuery().model, True, num_threads='many')

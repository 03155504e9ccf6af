"""MultiHeadAttention nodes by the plug-in and by ONNX Runtime's own kernels. ONNX Runtime has no kernel on the CPU for packed
layouts: those are compared with the same vectors in separate tensors."""
import numpy as np
import pytest
from models import PROVIDER, provider_of, serialised, session, value
from onnx import TensorProto, helper

HEADS = 4
TOLERANCE = {'float32': 2e-5, 'float16': 4e-3}
NAMES = ['query', 'key', 'value', 'bias', 'key_padding_mask', 'attention_bias', 'past_key', 'past_value']
RESULTS = ['output', 'present_key', 'present_value', 'qk']


def multi_head(feed: dict, outputs=1, **attributes) -> bytes:
    """A model of one node that takes the arrays of `feed`, with sizes that are known at run time only."""
    names = [name if name in feed else '' for name in NAMES]
    while not names[-1]:
        names.pop()
    node = helper.make_node('MultiHeadAttention', names, RESULTS[:outputs], name='attention', domain='com.microsoft', num_heads=HEADS,
                            **attributes)
    inputs = [value(name, helper.np_dtype_to_tensor_dtype(array.dtype), *(f'{name}{i}' for i in range(array.ndim)))
              for name, array in feed.items()]
    dtype = feed['query'].dtype.name
    results = [value(name, dtype, *(f'{name}{i}' for i in range(rank))) for name, rank in zip(RESULTS, (3, 4, 4, 4))]
    return serialised([node], inputs, results[:outputs])


def vectors(batch, tokens, keys, dims=32, v_dims=32, past=None, bias=False, mask=None, seed=0, dtype='float32') -> dict:
    """Inputs in separate tensors."""
    draw = np.random.default_rng(seed).standard_normal
    shapes = {'query': (batch, tokens, HEADS * dims), 'key': (batch, keys, HEADS * dims), 'value': (batch, keys, HEADS * v_dims)}
    if bias:
        shapes['bias'] = (HEADS * (2 * dims + v_dims),)
    if past is not None:
        shapes |= {'past_key': (batch, HEADS, past, dims), 'past_value': (batch, HEADS, past, v_dims)}
    feed = {name: draw(shape).astype(dtype) for name, shape in shapes.items()}
    return feed if mask is None else feed | {'key_padding_mask': np.array(mask, np.int32)}


def heads_of(array):
    return array.reshape(*array.shape[:2], HEADS, -1)


def packed(feed: dict, names: list) -> dict:
    """The same vectors with those of `names` in one tensor, head by head."""
    joined = np.stack([heads_of(feed[name]) for name in names], axis=3)
    return {names[0]: joined} | {name: array for name, array in feed.items() if name not in names}


def heads_first(feed: dict) -> dict:
    return feed | {name: np.ascontiguousarray(heads_of(feed[name]).transpose(0, 2, 1, 3)) for name in ('key', 'value')}


def assert_same(feed: dict, of_stock=None, outputs=1, tolerance=0.0, **attributes):
    """Compares the plug-in with ONNX Runtime, which computes `of_stock`, the same vectors in a layout that it has."""
    of_stock = of_stock or feed
    stock = session(multi_head(of_stock, outputs, **attributes), False)
    plugin = session(multi_head(feed, outputs, **attributes), True)
    assert provider_of(plugin, 'MultiHeadAttention') == PROVIDER
    tolerance = max(tolerance, TOLERANCE[feed['query'].dtype.name])
    for expected, actual in zip(stock.run(None, of_stock), plugin.run(None, feed)):
        assert actual.shape == expected.shape and actual.dtype == expected.dtype and np.abs(expected).max() > 0.1
        np.testing.assert_allclose(actual.astype(np.float32), expected.astype(np.float32), atol=tolerance, rtol=tolerance)


DTYPES = pytest.mark.parametrize('dtype', ['float32', 'float16'])
SHAPES = [(1, 1, 1), (2, 17, 17), (3, 5, 40), (1, 300, 300), (2, 1, 700)]


@DTYPES
@pytest.mark.parametrize('bias', [False, True])
@pytest.mark.parametrize('layout', ['separate', 'keys and values', 'heads first'])
def test_layouts(dtype, bias, layout):
    for shape in SHAPES:
        feed = vectors(*shape, bias=bias, dtype=dtype)
        if layout == 'separate':
            assert_same(feed)
        elif layout == 'heads first':
            assert_same(heads_first(feed))
        else:
            assert_same(packed(feed, ['key', 'value']), feed)


@DTYPES
@pytest.mark.parametrize('bias', [False, True])
def test_queries_keys_and_values_in_one_tensor(dtype, bias):
    for batch, tokens, _ in SHAPES:
        feed = vectors(batch, tokens, tokens, bias=bias, dtype=dtype)
        assert_same(packed(feed, ['query', 'key', 'value']), feed)
        assert_same(packed(feed, ['query', 'key', 'value']), feed, unidirectional=1, scale=0.3)


@DTYPES
def test_values_of_other_dims(dtype):
    assert_same(vectors(2, 7, 19, dims=16, v_dims=48, bias=True, dtype=dtype))


def test_without_keys_the_output_is_zero():
    feed = vectors(2, 3, 0)
    for plugin in False, True:
        assert not session(multi_head(feed), plugin).run(None, feed)[0].any()


MASKS = {
    'lengths': [9, 4, 1], 'lengths and offsets': [9, 4, 1, 0, 6, 12, 18, 0, 9, 13, 14], 'a row of nothing': [9, 0, 3], 'longer than the keys': [12, 5, 9],
    'right padding': [[1] * 9, [1] * 5 + [0] * 4, [1] + [0] * 8], 'left padding': [[1] * 9, [0] * 3 + [1] * 6, [0] * 8 + [1]],
    'both': [[0, 0] + [1] * 7, [0] + [1] * 4 + [0] * 4, [1] * 9], 'gaps': [[1, 0, 1, 0, 0, 1, 1, 1, 0], [1] * 9, [0, 1, 0, 1] + [0] * 5],
    'gaps and a row of nothing': [[1, 0, 1, 0, 0, 1, 1, 1, 0], [0] * 9, [0] * 4 + [1] * 5]}


@DTYPES
@pytest.mark.parametrize('layout', ['separate', 'keys and values', 'heads first', 'biased'])
@pytest.mark.parametrize('mask', MASKS.values(), ids=MASKS)
def test_key_padding_mask(dtype, layout, mask):
    feed = vectors(3, 6, 9, mask=mask, bias=layout == 'biased', dtype=dtype)
    of_nothing = any(not np.any(row) for row in mask[:3])
    tolerance = 2e-3 if of_nothing else 0.0  # of a row of nothing ONNX Runtime subtracts 10000 from all scores, and so rounds them
    if layout == 'keys and values':
        assert_same(packed(feed, ['key', 'value']), feed, tolerance=tolerance)
    else:
        assert_same(heads_first(feed) if layout == 'heads first' else feed, tolerance=tolerance)


@DTYPES
@pytest.mark.parametrize('bias', [False, True])
@pytest.mark.parametrize('causal', [0, 1])
def test_past_and_present(dtype, bias, causal):
    for batch, tokens, past in (2, 7, None), (2, 7, 0), (1, 1, 12), (3, 5, 20), (1, 40, 300):
        assert_same(vectors(batch, tokens, tokens, past=past, bias=bias, dtype=dtype), outputs=3, unidirectional=causal)
    mask = np.arange(27) % 5 > 0
    if not causal:
        assert_same(vectors(2, 7, 7, past=20, bias=bias, mask=[mask, mask[::-1]], dtype=dtype), outputs=3)


def test_causal_attention_of_other_keys():
    assert_same(vectors(2, 12, 5), unidirectional=1)
    feed = vectors(2, 5, 12)  # no query is as late as the last keys; in ONNX Runtime the last query sees them all the same
    assert_same(feed, feed | {name: feed[name][:, :5] for name in ('key', 'value')}, unidirectional=1)


@pytest.mark.parametrize('change, attributes, outputs', [
    ({'attention_bias': np.linspace(-1, 1, 36, dtype=np.float32).reshape(1, 1, 6, 6)}, {}, 1),
    ({'key_padding_mask': np.tri(6, dtype=np.int32)[None]}, {}, 1),
    ({'key_padding_mask': np.array([4], np.int32)}, {'unidirectional': 1}, 1),
    ({'key_padding_mask': np.array([4], np.int32)}, {'mask_filter_value': -2.0}, 1),
    ({}, {}, 4)], ids=['attention_bias', 'mask of three dimensions', 'causal mask', 'soft mask', 'qk'])
def test_what_it_cannot_compute_stays_with_onnx_runtime(change, attributes, outputs):
    feed = vectors(1, 6, 6) | change
    stock, plugin = (session(multi_head(feed, outputs, **attributes), with_plugin) for with_plugin in (False, True))
    assert provider_of(plugin, 'MultiHeadAttention') == 'CPUExecutionProvider'
    for expected, actual in zip(stock.run(None, feed), plugin.run(None, feed)):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize('change, message', [
    ({'key': np.zeros((2, 8, 128), np.float32)}, r'shapes \[2, 9, 128\], \[2, 8, 128\] and \[2, 9, 128\]'),
    ({'key': np.zeros((2, 9, 64), np.float32)}, r'\[2, 9, 64\]'), ({'query': np.zeros((2, 9, 130), np.float32)}, r'\[2, 9, 130\]'),
    ({'bias': np.zeros(100, np.float32)}, r'bias has shape \[100\], but must be \[384\]'),
    ({'key_padding_mask': np.zeros((2, 9), np.int32)}, r'key_padding_mask has shape \[2, 9\], but must be \[2\] or \[2, 13\]'),
    ({'past_key': np.zeros((2, 4, 3, 32), np.float32)}, r'past_key and past_value have shapes \[2, 4, 3, 32\]')])
def test_bad_inputs_are_refused_with_their_values(change, message):
    feed = vectors(2, 9, 9, past=4, bias=True, mask=np.ones((2, 13)))
    running = session(multi_head(feed, 3), True)
    with pytest.raises(Exception, match=message):
        running.run(None, feed | change)
    running.run(None, feed)

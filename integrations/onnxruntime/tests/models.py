"""Models for the tests and the benchmark: one attention node, and a decoder of two layers. Sessions with and without the plug-in."""
import os
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

PLUGIN = Path(__file__).resolve().parents[3] / 'build' / 'onnxruntime' / 'lib' / 'libkvcache_ort.so'
PLUGIN = Path(os.environ.get('KVCACHE_ORT', PLUGIN))
PROVIDER = 'KvcacheExecutionProvider'
TYPES = {'float32': TensorProto.FLOAT, 'float16': TensorProto.FLOAT16, 'bfloat16': TensorProto.BFLOAT16}


def devices():
    """The plug-in's device. The first call registers the library."""
    found = [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER]
    if not found:
        onnxruntime.register_execution_provider_library('kvcache', str(PLUGIN))
        found = [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER]
    return found


def session(model, plugin: bool, threads: int = 0, **options):
    """A session over a serialised model or a file, on ONNX Runtime's own kernels or with the plug-in."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.add_session_config_entry('session.record_ep_graph_assignment_info', '1')
    settings.log_severity_level = 3
    if plugin:
        settings.add_provider_for_devices(devices(), options)
    return onnxruntime.InferenceSession(model, settings)


def provider_of(running, op_type: str) -> str:
    """The provider that computes the model's nodes of a type."""
    found = {part.ep_name for part in running.get_provider_graph_assignment_info()
             for node in part.get_nodes() if node.op_type == op_type}
    assert len(found) == 1, found
    return found.pop()


def serialised(nodes, inputs, outputs, constants=()) -> bytes:
    graph = helper.make_graph(nodes, 'graph', inputs, outputs, list(constants))
    opsets = [helper.make_opsetid('', 21), helper.make_opsetid('com.microsoft', 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def value(name: str, dtype, *shape):
    return helper.make_tensor_value_info(name, TYPES.get(dtype, dtype), list(shape))


class GroupQuery:
    """One GroupQueryAttention node, and random inputs for it."""

    def __init__(self, dtype='float32', q_heads=8, kv_heads=2, dims=64, packed=False, sink=False, extra=(), outputs=3, **attributes):
        self.dtype, self.q_heads, self.kv_heads, self.dims, self.packed = dtype, q_heads, kv_heads, dims, packed
        names = ['query', '' if packed else 'key', '' if packed else 'value', 'past_key', 'past_value', 'seqlens_k',
                 'total_sequence_length', 'cos_cache', 'sin_cache', '', '', 'head_sink' if sink else '']
        for index, name, *_ in extra:
            names += [''] * (index + 1 - len(names))
            names[index] = name
        node = helper.make_node('GroupQueryAttention', names, ['output', 'present_key', 'present_value', 'output_qk'][:outputs],
                                name='attention', domain='com.microsoft', num_heads=q_heads, kv_num_heads=kv_heads, **attributes)
        width = dims * (q_heads + (2 * kv_heads if packed else 0))
        cache = ['batch', kv_heads, 'past', dims]
        inputs = [value('query', dtype, 'batch', 'tokens', width), value('past_key', dtype, *cache), value('past_value', dtype, *cache),
                  value('seqlens_k', TensorProto.INT32, 'batch'), value('total_sequence_length', TensorProto.INT32, 1),
                  value('cos_cache', dtype, 'positions', dims // 2), value('sin_cache', dtype, 'positions', dims // 2)]
        if not packed:
            inputs += [value(name, dtype, 'batch', 'tokens', kv_heads * dims) for name in ('key', 'value')]
        if sink:
            inputs.append(value('head_sink', dtype, q_heads))
        inputs += [value(name, *kind) for _, name, *kind in extra]
        present = ['batch', kv_heads, 'present', dims]
        results = [value('output', dtype, 'batch', 'tokens', q_heads * dims), value('present_key', dtype, *present),
                   value('present_value', dtype, *present), value('output_qk', dtype, 'batch', q_heads, 'tokens', 'total')]
        self.model = serialised([node], inputs, results[:outputs])
        self.sink = sink

    def feed(self, new: int, lengths, room=None, seed=0) -> dict:
        """Inputs with `new` tokens a row; row b has lengths[b] tokens with them. `room`: that of the past; else no more than it has."""
        draw = np.random.default_rng(seed)
        dtype = self.dtype if self.dtype != 'bfloat16' else __import__('ml_dtypes').bfloat16
        rows, total = len(lengths), max(lengths)
        past = total - new if room is None else room
        width = self.dims * (self.q_heads + (2 * self.kv_heads if self.packed else 0))
        shapes = {'query': (rows, new, width), 'past_key': (rows, self.kv_heads, past, self.dims),
                  'past_value': (rows, self.kv_heads, past, self.dims)}
        if not self.packed:
            shapes |= {name: (rows, new, self.kv_heads * self.dims) for name in ('key', 'value')}
        if self.sink:
            shapes['head_sink'] = (self.q_heads,)
        feed = {name: draw.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
        angles = np.outer(np.arange(max(past, total) + 1), 1e4 ** -(np.arange(self.dims // 2) / (self.dims // 2)))
        return feed | {'seqlens_k': np.array(lengths, np.int32) - 1, 'total_sequence_length': np.array([total], np.int32),
                       'cos_cache': np.cos(angles).astype(dtype), 'sin_cache': np.sin(angles).astype(dtype)}


class Decoder:
    """A small model with grouped heads, as an exporter writes it: random weights, token ids in, logits out."""

    VOCABULARY, WIDTH, LAYERS, Q_HEADS, KV_HEADS, DIMS, POSITIONS = 512, 128, 2, 4, 2, 32, 512

    def __init__(self, seed=0):
        draw = np.random.default_rng(seed)
        nodes, constants, self.caches = [], [], []

        def constant(name, array):
            constants.append(numpy_helper.from_array(array, name))
            return name

        def weight(name, *shape, gain=1.0):
            return constant(name, (gain * draw.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

        def node(op, inputs, output, domain='', **attributes):
            nodes.append(helper.make_node(op, inputs, [output] if isinstance(output, str) else output, domain=domain,
                                          name=f'{op}_{len(nodes)}', **attributes))
            return output

        angles = np.outer(np.arange(self.POSITIONS), 1e4 ** -(np.arange(self.DIMS // 2) / (self.DIMS // 2)))
        cos, sin = constant('cos', np.cos(angles).astype(np.float32)), constant('sin', np.sin(angles).astype(np.float32))
        ones = constant('ones', np.ones(self.WIDTH, np.float32))
        state = node('Gather', [weight('embedding', self.VOCABULARY, self.WIDTH), 'ids'], 'embedded')
        for layer in range(self.LAYERS):
            normal = node('SimplifiedLayerNormalization', [state, ones], f'normal{layer}', epsilon=1e-6)
            q, k, v = (node('MatMul', [normal, weight(f'w{name}{layer}', self.WIDTH, heads * self.DIMS, gain=2.0)], f'{name}{layer}')
                       for name, heads in (('q', self.Q_HEADS), ('k', self.KV_HEADS), ('v', self.KV_HEADS)))
            past, present = ([f'{which}_key{layer}', f'{which}_value{layer}'] for which in ('past', 'present'))
            window = {'local_window_size': 24} if layer else {}
            node('GroupQueryAttention', [q, k, v, *past, 'seqlens_k', 'total', cos, sin], [f'attended{layer}', *present],
                 'com.microsoft', num_heads=self.Q_HEADS, kv_num_heads=self.KV_HEADS, do_rotary=1, **window)
            out = node('MatMul', [f'attended{layer}', weight(f'wo{layer}', self.Q_HEADS * self.DIMS, self.WIDTH, gain=4.0)], f'out{layer}')
            state = node('Add', [state, out], f'state{layer}')
            self.caches += list(zip(past, present))
        logits = node('MatMul', [state, weight('head', self.WIDTH, self.VOCABULARY)], 'logits')
        cache = ['batch', self.KV_HEADS, 'length', self.DIMS]
        self.model = serialised(
            nodes,
            [value('ids', TensorProto.INT64, 'batch', 'tokens'), value('seqlens_k', TensorProto.INT32, 'batch'),
             value('total', TensorProto.INT32, 1), *(value(past, 'float32', *cache) for past, _ in self.caches)],
            [value(logits, 'float32', 'batch', 'tokens', self.VOCABULARY),
             *(value(present, 'float32', *cache[:2], 'grown', self.DIMS) for _, present in self.caches)], constants)


def generate(running, prompt, count: int):
    """Greedy tokens of a decoder: the prompt in one call, then token by token. And the smallest margin between the best logit and
    the next."""
    pasts = [given for given in running.get_inputs() if given.name.startswith('past_')]
    caches = {past.name: np.zeros((1, past.shape[1], 0, past.shape[3]), np.float32) for past in pasts}
    new, length, tokens, margin = list(prompt), 0, [], np.inf
    for _ in range(count):
        length += len(new)
        logits, *presents = running.run(None, {'ids': np.array([new]), 'seqlens_k': np.array([length - 1], np.int32),
                                               'total': np.array([length], np.int32)} | caches)
        caches = dict(zip(caches, presents))
        last = np.partition(logits[0, -1], -2)
        margin = min(margin, last[-1] - last[-2])
        new = [int(logits[0, -1].argmax())]
        tokens += new
    return tokens, margin

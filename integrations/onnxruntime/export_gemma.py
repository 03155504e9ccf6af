#!/usr/bin/env python3
"""Writes Gemma 3 270M as an ONNX model: token ids in, the logits after the last one out, keys and values by GroupQueryAttention.
The weights are those of examples/gemma.

    build/venv-onnxruntime/bin/python integrations/onnxruntime/export_gemma.py FOLDER     model.onnx and model.onnx.data, 1.1 GB
"""
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / 'examples' / 'gemma'))
import weights  # noqa: E402
from model import ARCHITECTURE, Config  # noqa: E402

POSITIONS = 8192     # that the rotary tables have
INLINE_BYTES = 4096  # larger weights are in the data file
ALIGNMENT = 4096     # of weights in that file, so that each can be mapped


class Graph:
    """Nodes and weights. Each method that adds a node returns the name of its output."""

    def __init__(self, data_path: Path):
        self.nodes, self.constants, self.data_path = [], [], data_path
        self.data = open(data_path, 'wb')

    def node(self, op: str, inputs: list, outputs=None, domain='', **attributes):
        name = f'{op}_{len(self.nodes)}'
        outputs = outputs or [name + '_out']
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, domain=domain, **attributes))
        return outputs[0]

    def constant(self, name: str, array) -> str:
        array = np.ascontiguousarray(array)
        if array.nbytes <= INLINE_BYTES:
            self.constants.append(numpy_helper.from_array(array, name))
            return name
        self.data.seek(-(-self.data.tell() // ALIGNMENT) * ALIGNMENT)
        place = {'location': self.data_path.name, 'offset': self.data.tell(), 'length': array.nbytes}
        self.data.write(array.data)
        tensor = TensorProto(name=name, dims=array.shape, data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
                             data_location=TensorProto.EXTERNAL)
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        self.constants.append(tensor)
        return name

    def split(self, value: str, widths: list) -> list:
        outputs = [f'{value}_part{i}' for i in range(len(widths))]
        sizes = self.constant(value + '_widths', np.array(widths, np.int64))
        self.node('Split', [value, sizes], outputs, axis=-1)
        return outputs


class Exporter:
    def __init__(self, files: weights.ModelFiles, data_path: Path):
        self.config, self.tensors, self.graph = Config.from_metadata(files.metadata), files.tensors, Graph(data_path)

    def product(self, value: str, name: str) -> str:
        return self.graph.node('MatMul', [value, self.graph.constant(name, self.tensors[name].T)])

    def normalise(self, value: str, name: str) -> str:
        weight = self.graph.constant(name, self.tensors[name] + np.float32(ARCHITECTURE['norm_weight_offset']))
        return self.graph.node('SimplifiedLayerNormalization', [value, weight], epsilon=self.config.norm_epsilon, axis=-1)

    def normalise_heads(self, value: str, name: str) -> str:
        split = self.graph.constant(name + '_heads', np.array([0, 0, -1, self.config.head_dim], np.int64))
        joined = self.graph.constant(name + '_joined', np.array([0, 0, -1], np.int64))
        heads = self.normalise(self.graph.node('Reshape', [value, split]), name)
        return self.graph.node('Reshape', [heads, joined])

    def rotary_tables(self, kind: str, theta: float) -> list:
        half = self.config.head_dim // 2
        angles = np.outer(np.arange(POSITIONS), theta ** -(np.arange(half) / half))
        return [self.graph.constant(f'{name}_{kind}', table(angles).astype(np.float32)) for name, table in (('cos', np.cos), ('sin', np.sin))]

    def layer(self, number: int, state: str, rotary: list) -> str:
        c, graph = self.config, self.graph

        def name(tensor):
            return f'blk.{number}.{tensor}.weight'

        qkv = self.product(self.normalise(state, name('attn_norm')), name('attn_qkv'))
        q, k, v = graph.split(qkv, [heads * c.head_dim for heads in (c.q_heads, c.kv_heads, c.kv_heads)])
        q, k = self.normalise_heads(q, name('attn_q_norm')), self.normalise_heads(k, name('attn_k_norm'))
        window = {} if c.is_full(number) else {'local_window_size': c.window_tokens}
        past, present = ([f'{which}_{kind}{number}' for kind in ('key', 'value')] for which in ('past', 'present'))
        attended = graph.node('GroupQueryAttention', [q, k, v, *past, 'seqlens_k', 'total', *rotary], [f'attended{number}', *present],
                              'com.microsoft', num_heads=c.q_heads, kv_num_heads=c.kv_heads, do_rotary=1, scale=c.attention_scale, **window)
        out = self.normalise(self.product(attended, name('attn_output')), name('post_attention_norm'))
        state = graph.node('Add', [state, out])

        gate_up = self.product(self.normalise(state, name('ffn_norm')), name('ffn_gate_up'))
        gate, up = graph.split(gate_up, [self.tensors[name('ffn_down')].shape[1]] * 2)
        inner = graph.node('Mul', [graph.node('Gelu', [gate], approximate='tanh'), up])
        out = self.normalise(self.product(inner, name('ffn_down')), name('post_ffw_norm'))
        return graph.node('Add', [state, out])

    def model(self) -> onnx.ModelProto:
        c, graph = self.config, self.graph
        embedding = graph.constant('token_embd.weight', self.tensors['token_embd.weight'])
        scale = graph.constant('embedding_scale', np.float32(ARCHITECTURE['embedding_scale'](c.embedding)))
        rotary = {full: self.rotary_tables('full' if full else 'sliding', theta)
                  for full, theta in ((True, c.full_rope_theta), (False, ARCHITECTURE['sliding_rope_theta']))}
        state = graph.node('Mul', [graph.node('Gather', [embedding, 'ids']), scale])
        for number in range(c.layers):
            state = self.layer(number, state, rotary[c.is_full(number)])
        last = graph.node('Gather', [state, graph.constant('last', np.array([-1], np.int64))], axis=1)
        last = self.normalise(last, 'output_norm.weight')
        graph.node('FusedMatMul', [last, embedding], ['logits'], 'com.microsoft', transB=1)
        graph.data.close()

        def value(name, kind, *shape):
            return helper.make_tensor_value_info(name, kind, list(shape))

        def caches(which, length):
            return [value(f'{which}_{kind}{number}', TensorProto.FLOAT, 'batch', c.kv_heads, length, c.head_dim)
                    for number in range(c.layers) for kind in ('key', 'value')]

        inputs = [value('ids', TensorProto.INT64, 'batch', 'tokens'), value('seqlens_k', TensorProto.INT32, 'batch'),
                  value('total', TensorProto.INT32, 1), *caches('past', 'length')]
        vocabulary = self.tensors['token_embd.weight'].shape[0]
        outputs = [value('logits', TensorProto.FLOAT, 'batch', 1, vocabulary), *caches('present', 'grown')]
        made = helper.make_graph(graph.nodes, 'gemma3', inputs, outputs, graph.constants)
        opsets = [helper.make_opsetid('', 21), helper.make_opsetid('com.microsoft', 1)]
        return helper.make_model(made, opset_imports=opsets, ir_version=10)


def export(files: weights.ModelFiles, folder: Path) -> Path:
    """Writes the model, and returns the path of model.onnx."""
    path = folder / 'model.onnx'
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(Exporter(files, folder / 'model.onnx.data').model().SerializeToString())
    return path


if __name__ == '__main__':
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(export(weights.load(report=print), Path(sys.argv[1])))

"""ONNX Runtime's GroupQueryAttention on dense K and V, past and present in one buffer."""
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from common import copies, huge, numbers, only

INPUTS = {"query": TensorProto.FLOAT, "key": TensorProto.FLOAT, "value": TensorProto.FLOAT,
          "past_key": TensorProto.FLOAT, "past_value": TensorProto.FLOAT, "seqlens_k": TensorProto.INT32,
          "total_sequence_length": TensorProto.INT32}
OUTPUTS = ("output", "present_key", "present_value")


def model(case: dict) -> bytes:
    node = helper.make_node("GroupQueryAttention", list(INPUTS), OUTPUTS, domain="com.microsoft",
                            num_heads=case["q_heads"], kv_num_heads=case["kv_heads"])
    graph = helper.make_graph(
        [node], "attention",
        [helper.make_tensor_value_info(name, kind, None) for name, kind in INPUTS.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in OUTPUTS])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


class GroupQuery:
    def __init__(self, case: dict, threads: int):
        only(case, ("decode", "prefill"), ("f32",))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(model(case), options, providers=["CPUExecutionProvider"])
        batch, new, dim, self.context = case["batch"], case["new_tokens"], case["head_dim"], case["context"]
        self.q = numbers((batch, new, case["q_heads"] * dim), 1000)
        fresh = [numbers((batch, new, case["kv_heads"] * dim), seed) for seed in (1001, 1002)]
        self.out = np.zeros_like(self.q)
        self.kv, self.bindings, self.dim = [], [], dim
        for c in range(copies(case)):
            pair = [huge((batch, case["kv_heads"], self.context, dim), "float32") for _ in range(2)]
            for seed, array in enumerate(pair):
                array[...] = numbers(array.shape, 2 * c + seed)
            self.kv.append(pair)
            binding = self.session.io_binding()
            arrays = [self.q, *fresh, *pair, np.full(batch, self.context - 1, np.int32),
                      np.array(self.context, np.int32)]
            values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in arrays]
            for name, value in zip(INPUTS, values):
                binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output("output", onnxruntime.OrtValue.ortvalue_from_numpy(self.out))
            binding.bind_ortvalue_output("present_key", values[3])
            binding.bind_ortvalue_output("present_value", values[4])
            self.bindings.append((binding, values))

    def run(self, turn: int) -> None:
        self.session.run_with_iobinding(self.bindings[turn % len(self.bindings)][0])

    def one_row(self) -> tuple:
        k, v = (value.numpy()[0, 0] for value in self.bindings[0][1][3:5])
        out = self.bindings[0][0].get_outputs()[0].numpy()
        return out[0, -1, :self.dim], self.q[0, -1, :self.dim], k, v

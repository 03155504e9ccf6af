"""The forward pass of model.py in PyTorch, on the CPU or a GPU: the same arithmetic in float32, line for line."""
import torch

from errors import ExampleError
from model import ARCHITECTURE, Config


class TorchModel:
    """Weights on one device and the forward pass. T = tokens of a step, all rows of the batch one after the other."""

    def __init__(self, config: Config, tensors: dict, device: str):
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise ExampleError(f"--device {device}: PyTorch sees no CUDA device")
        torch.set_float32_matmul_precision("highest")  # no TF32: tokens are to be those of the CPU
        self.config, self.device = config, device
        weights = {name: torch.tensor(tensor, device=device) for name, tensor in tensors.items()}
        try:
            self._embedding = weights["token_embd.weight"]  # [vocabulary, embedding], also the output matrix
            self._output_norm = weights["output_norm.weight"]
            self._blocks = [_Block(config, weights, i) for i in range(config.layers)]
        except KeyError as error:
            raise ExampleError(f"the model file lacks tensor {error.args[0]}") from error
        self._scale = float(ARCHITECTURE["embedding_scale"](config.embedding))

    @property
    def vocabulary(self) -> int:
        return self._embedding.shape[0]

    @torch.inference_mode()
    def hidden(self, tokens, attend):
        """tokens int[T] -> float32[T, embedding]; attend(layer, q, k, v) -> [T, q_heads, head_dim]."""
        x = self._embedding[torch.as_tensor(tokens, device=self.device)] * self._scale
        for layer, block in enumerate(self._blocks):
            x = block.forward(x, lambda q, k, v: attend(layer, q, k, v))
        return x

    @torch.inference_mode()
    def logits(self, hidden):
        """float32[n, embedding] -> float32[n, vocabulary], a numpy array"""
        normed = rms_norm(hidden, self._output_norm, self.config.norm_epsilon)
        return (normed @ self._embedding.T).cpu().numpy()


def rms_norm(x, weight, epsilon):
    """Over the last axis, in float32."""
    mean_square = x.square().mean(dim=-1, keepdim=True)
    return x / (mean_square + epsilon).sqrt() * (weight + ARCHITECTURE["norm_weight_offset"])


class _Block:
    """One layer: attention, then a gated feed-forward part, each with a norm before and after."""

    def __init__(self, config: Config, weights: dict, layer: int):
        def weight(name):
            return weights[f"blk.{layer}.{name}.weight"]

        self._config = config
        self._qkv, self._attention_output = weight("attn_qkv"), weight("attn_output")
        self._gate_up, self._down = weight("ffn_gate_up"), weight("ffn_down")
        self._norm_before_attention, self._norm_after_attention = weight("attn_norm"), weight("post_attention_norm")
        self._norm_before_ffn, self._norm_after_ffn = weight("ffn_norm"), weight("post_ffw_norm")
        self._q_norm, self._k_norm = weight("attn_q_norm"), weight("attn_k_norm")

    def forward(self, x, attend):
        c, norm = self._config, lambda value, weight: rms_norm(value, weight, self._config.norm_epsilon)
        rows, q_width, kv_width = len(x), c.q_heads * c.head_dim, c.kv_heads * c.head_dim

        qkv = norm(x, self._norm_before_attention) @ self._qkv.T
        q = qkv[:, :q_width].reshape(rows, c.q_heads, c.head_dim)
        k = qkv[:, q_width:q_width + kv_width].reshape(rows, c.kv_heads, c.head_dim)
        v = qkv[:, q_width + kv_width:].reshape(rows, c.kv_heads, c.head_dim)
        seen = attend(norm(q, self._q_norm), norm(k, self._k_norm), v)  # RoPE is attend's task
        x = x + norm(seen.reshape(rows, q_width) @ self._attention_output.T, self._norm_after_attention)

        gate, up = (norm(x, self._norm_before_ffn) @ self._gate_up.T).chunk(2, dim=-1)
        inner = torch.nn.functional.gelu(gate, approximate="tanh") * up
        return x + norm(inner @ self._down.T, self._norm_after_ffn)

"""Gemma 3 in numpy: everything but keys, values and attention, which the caller's `attend` does."""
import math
from dataclasses import dataclass

import numpy as np

from errors import ExampleError

# What the architecture fixes and the model file does not say (the Gemma 3 report and its published
# configuration). Everything else is read from the file's metadata, in `Config.from_metadata`.
ARCHITECTURE = {
    "name": "gemma3",
    "full_attention_every": 6,    # 5 sliding layers, then 1 full one
    "sliding_rope_theta": 1e4,    # the file's rope.freq_base is that of the full layers
    "query_scale_dim": 256,       # attention scale = this ** -0.5 (query_pre_attn_scalar)
    "embedding_scale": math.sqrt, # embeddings are multiplied by sqrt(embedding length)
    "activation": "gelu_tanh",    # in the gated feed-forward part
    "norm_weight_offset": 0.0,    # RMSNorm multiplies by 1 + w; GGUF files already hold 1 + w
}


@dataclass(frozen=True)
class Config:
    layers: int
    embedding: int
    q_heads: int
    kv_heads: int
    head_dim: int
    window_tokens: int
    full_rope_theta: float
    norm_epsilon: float
    context_tokens: int

    @staticmethod
    def from_metadata(metadata: dict) -> "Config":
        name = metadata.get("general.architecture")
        if name != ARCHITECTURE["name"]:
            raise ExampleError(f"the model file is of architecture {name!r}, not {ARCHITECTURE['name']!r}")
        try:
            return Config(
                layers=metadata["gemma3.block_count"], embedding=metadata["gemma3.embedding_length"],
                q_heads=metadata["gemma3.attention.head_count"], kv_heads=metadata["gemma3.attention.head_count_kv"],
                head_dim=metadata["gemma3.attention.key_length"],
                window_tokens=metadata["gemma3.attention.sliding_window"],
                full_rope_theta=metadata["gemma3.rope.freq_base"],
                norm_epsilon=metadata["gemma3.attention.layer_norm_rms_epsilon"],
                context_tokens=metadata["gemma3.context_length"])
        except KeyError as error:
            raise ExampleError(f"the model file's metadata lacks {error.args[0]}") from error

    def is_full(self, layer: int) -> bool:
        return layer % ARCHITECTURE["full_attention_every"] == ARCHITECTURE["full_attention_every"] - 1

    def rope_theta(self, layer: int) -> float:
        return self.full_rope_theta if self.is_full(layer) else ARCHITECTURE["sliding_rope_theta"]

    @property
    def attention_scale(self) -> float:
        return ARCHITECTURE["query_scale_dim"] ** -0.5


def rms_norm(x, weight, epsilon):
    """Over the last axis, in float32."""
    mean_square = np.mean(np.square(x), axis=-1, keepdims=True)
    return x / np.sqrt(mean_square + np.float32(epsilon)) * (weight + np.float32(ARCHITECTURE["norm_weight_offset"]))


def gelu_tanh(x):
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (np.float32(1) + np.tanh(inner))


class Model:
    """Weights and the forward pass. T = tokens of a step, all rows of the batch one after the other."""

    device = "cpu"  # where q, k and v are, and so the cache

    def __init__(self, config: Config, tensors: dict):
        self.config = config
        try:
            self._embedding = tensors["token_embd.weight"]  # [vocabulary, embedding], also the output matrix
            self._output_norm = tensors["output_norm.weight"]
            self._blocks = [Block(config, tensors, i) for i in range(config.layers)]
        except KeyError as error:
            raise ExampleError(f"the model file lacks tensor {error.args[0]}") from error
        self._scale = np.float32(ARCHITECTURE["embedding_scale"](config.embedding))

    @property
    def vocabulary(self) -> int:
        return self._embedding.shape[0]

    def hidden(self, tokens, attend):
        """tokens int[T] -> float32[T, embedding]; attend(layer, q, k, v) -> [T, q_heads, head_dim]."""
        x = self._embedding[tokens] * self._scale
        for layer, block in enumerate(self._blocks):
            x = block.forward(x, lambda q, k, v: attend(layer, q, k, v))
        return x

    def logits(self, hidden):
        """float32[n, embedding] -> float32[n, vocabulary]"""
        return rms_norm(hidden, self._output_norm, self.config.norm_epsilon) @ self._embedding.T


class Block:
    """One layer: attention, then a gated feed-forward part, each with a norm before and after. Arrays of another
    library go through it too, by the three functions that libraries call unlike names."""

    rms_norm = staticmethod(rms_norm)
    gelu_tanh = staticmethod(gelu_tanh)
    contiguous = staticmethod(np.ascontiguousarray)

    def __init__(self, config: Config, tensors: dict, layer: int):
        def weight(name):
            return tensors[f"blk.{layer}.{name}.weight"]

        self._config = config
        self._qkv, self._attention_output = weight("attn_qkv"), weight("attn_output")
        self._gate_up, self._down = weight("ffn_gate_up"), weight("ffn_down")
        self._norm_before_attention, self._norm_after_attention = weight("attn_norm"), weight("post_attention_norm")
        self._norm_before_ffn, self._norm_after_ffn = weight("ffn_norm"), weight("post_ffw_norm")
        self._q_norm, self._k_norm = weight("attn_q_norm"), weight("attn_k_norm")

    def forward(self, x, attend):
        c, norm = self._config, lambda value, weight: self.rms_norm(value, weight, self._config.norm_epsilon)
        rows, q_width, kv_width = len(x), c.q_heads * c.head_dim, c.kv_heads * c.head_dim

        qkv = norm(x, self._norm_before_attention) @ self._qkv.T
        q = qkv[:, :q_width].reshape(rows, c.q_heads, c.head_dim)
        k = qkv[:, q_width:q_width + kv_width].reshape(rows, c.kv_heads, c.head_dim)
        v = self.contiguous(qkv[:, q_width + kv_width:]).reshape(rows, c.kv_heads, c.head_dim)
        seen = attend(norm(q, self._q_norm), norm(k, self._k_norm), v)  # RoPE is attend's task
        x = x + norm(seen.reshape(rows, q_width) @ self._attention_output.T, self._norm_after_attention)

        gate_up = norm(x, self._norm_before_ffn) @ self._gate_up.T
        width = gate_up.shape[1] // 2
        inner = self.gelu_tanh(gate_up[:, :width]) * gate_up[:, width:]
        return x + norm(inner @ self._down.T, self._norm_after_ffn)

"""Gemma 3 without any cache: one teacher-forced pass over a whole text, every attention matrix dense.

It shares only the dequantised tensors with examples/gemma. It has its own norms, RoPE, masks and softmax, which are
written for reading and not for speed. Rotations are computed in float64 and rounded once.
"""
import numpy as np

EPSILON, HEADS, DIM, WINDOW = np.float32(1e-6), 4, 256, 512
THETA_SLIDING, THETA_FULL = 1e4, 1e6


def normalise(x, weight):
    return x * (1 / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON)) * weight


def rotate(x, theta):
    """x [T, heads, DIM] at positions 0..T-1; dimension i is rotated together with i + DIM/2."""
    frequency = theta ** (-2.0 * np.arange(DIM // 2) / DIM)
    turn = np.exp(1j * np.arange(len(x), dtype=np.float64)[:, None, None] * frequency)
    rotated = (x[..., :DIM // 2].astype(np.float64) + 1j * x[..., DIM // 2:]) * turn
    return np.concatenate([rotated.real, rotated.imag], -1).astype(np.float32)


def attention(q, k, v, window):
    """q [T, HEADS, DIM], one key/value head k, v [T, 1, DIM]; a query sees itself and window - 1 tokens before it."""
    distance = np.arange(len(q))[:, None] - np.arange(len(q))[None, :]
    visible = (distance >= 0) & (distance < window)
    out = np.empty_like(q)
    for head in range(HEADS):
        scores = np.where(visible, (q[:, head] @ k[:, 0].T) * np.float32(DIM ** -0.5), -np.inf)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        out[:, head] = (weights / weights.sum(1, keepdims=True)) @ v[:, 0]
    return out


def feed_forward(x, gate_up, down):
    gate, up = np.split(x @ gate_up.T, 2, axis=1)
    gelu = gate / 2 * (1 + np.tanh(np.float32(0.7978845608) * (gate + np.float32(0.044715) * gate ** 3)))
    return (gelu * up) @ down.T


def logits(tensors, ids, first_row):
    """The logits after each token of ids[first_row:], float32 [len(ids) - first_row, vocabulary]."""
    embedding = tensors["token_embd.weight"]
    x = embedding[np.asarray(ids)] * np.float32(np.sqrt(embedding.shape[1]))
    layer = 0
    while f"blk.{layer}.attn_qkv.weight" in tensors:
        w = {name: tensors[f"blk.{layer}.{name}.weight"] for name in (
            "attn_norm", "attn_qkv", "attn_q_norm", "attn_k_norm", "attn_output", "post_attention_norm",
            "ffn_norm", "ffn_gate_up", "ffn_down", "post_ffw_norm")}
        full = layer % 6 == 5
        q, k, v = np.split(normalise(x, w["attn_norm"]) @ w["attn_qkv"].T, [HEADS * DIM, (HEADS + 1) * DIM], axis=1)
        q = rotate(normalise(q.reshape(-1, HEADS, DIM), w["attn_q_norm"]), THETA_FULL if full else THETA_SLIDING)
        k = rotate(normalise(k.reshape(-1, 1, DIM), w["attn_k_norm"]), THETA_FULL if full else THETA_SLIDING)
        seen = attention(q, k, v.reshape(-1, 1, DIM), len(ids) if full else WINDOW)
        x = x + normalise(seen.reshape(len(ids), -1) @ w["attn_output"].T, w["post_attention_norm"])
        x = x + normalise(feed_forward(normalise(x, w["ffn_norm"]), w["ffn_gate_up"], w["ffn_down"]), w["post_ffw_norm"])
        layer += 1
    return normalise(x[first_row:], tensors["output_norm.weight"]) @ embedding.T

"""A stand-in for a model, without weights: two layers, and tokens that are the bytes of a text.

Every number is a hash of a token, so the programs in all five languages compute the same.
"""
import numpy as np

import kvcache

Q_HEADS, KV_HEADS, HEAD_DIM = 2, 1, 16
WIDTH = Q_HEADS * HEAD_DIM        # numbers of a token between two layers
WINDOW = 32                       # keys that a query of the first layer sees
LETTERS = range(ord("a"), ord("z") + 1)  # what the model can answer

# The groups: layers that see the same keys share page tables.
SLIDING, FULL = 0, 1
GROUPS = [kvcache.Sliding(WINDOW), kvcache.Full()]
LAYERS = [kvcache.Layer(q_heads=Q_HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM, group=group, rope="on_append")
          for group in (SLIDING, FULL)]


def encode(text):
    return list(text.encode())


def decode(tokens):
    return bytes(tokens).decode()


def embed(tokens):
    """Gives each token a vector [Q_HEADS, HEAD_DIM] of numbers from -2 to 2."""
    places = np.asarray(tokens, np.uint32)[:, None] * np.uint32(WIDTH) + np.arange(WIDTH, dtype=np.uint32)
    x = (places + np.uint32(1)) * np.uint32(2654435761)
    x ^= x >> 15
    x *= np.uint32(2246822519)
    return ((x >> 24).astype(np.float32) - 128).reshape(-1, Q_HEADS, HEAD_DIM) / 64


OUTPUT = embed([256 + letter for letter in LETTERS]).reshape(-1, WIDTH).astype(np.float64)


def project(hidden):
    """Gives q, k and v of a layer. A real model multiplies by weights here."""
    return hidden, hidden[:, :1], hidden[:, 1:]


def predict(hidden):
    """Gives, for each row, the letter that comes next."""
    return [LETTERS[best] for best in (hidden.reshape(-1, WIDTH) @ OUTPUT.T).argmax(axis=1)]


def run(step, tokens):
    """Runs the layers in an open step. Gives, for each of the step's tokens, the one that comes next."""
    hidden = embed(tokens)
    for layer in range(len(LAYERS)):
        q, k, v = project(hidden)
        hidden = hidden + step.attend(layer, q, k, v)
    return predict(hidden)

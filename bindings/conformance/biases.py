"""Lists, biases and masks of an attend, for the rows of one sequence: what they add to scores, and which keys they hide."""

import numpy as np

NAMES = ("indices", "rel_bias", "key_bias", "mask")  # operands, by name, in `given` below


def of_heads(entries: np.ndarray, heads: int) -> np.ndarray:
    """[n, 1 or Hkv, keys] for each of the q heads."""
    return np.repeat(entries, heads // entries.shape[1], axis=1)


def listed(given: dict[str, np.ndarray], tokens: slice, block: int, keys: int, heads: int) -> np.ndarray | None:
    """Which keys the lists of a row's queries name, [n, Hq, keys]."""
    if "indices" not in given:
        return None
    return of_heads((given["indices"][tokens][..., None] == np.arange(keys) // block).any(axis=2), heads)


def unmasked(given: dict[str, np.ndarray], tokens: slice, keys: int, heads: int) -> np.ndarray | None:
    """Which keys the mask leaves, [n, Hq, keys]."""
    if "mask" not in given:
        return None
    mask = given["mask"][tokens] != 0
    return of_heads((mask if mask.ndim == 3 else mask[:, None])[..., :keys], heads)


def added(given: dict[str, np.ndarray], tokens: slice, row: int, distance: np.ndarray, heads: int,
          zero_beyond: bool) -> np.ndarray | None:
    """What scores get, [n, Hq, keys]. row: of the batch. distance: p_q - p_k, [n, keys]."""
    total = np.zeros((distance.shape[0], heads, distance.shape[1]))
    if "rel_bias" in given:
        table = given["rel_bias"].astype(np.float64)
        table = table[tokens] if table.ndim == 3 else np.broadcast_to(table, (distance.shape[0], *table.shape))
        near = np.clip(distance, 0, table.shape[-1] - 1)
        entries = np.take_along_axis(table, np.repeat(near[:, None], heads, axis=1), axis=2)
        total += np.where((near != distance)[:, None] & zero_beyond, 0.0, entries)
    if "key_bias" in given:
        total += of_heads(given["key_bias"][row, : distance.shape[1]].T[None].astype(np.float64), heads)
    return total if "rel_bias" in given or "key_bias" in given else None

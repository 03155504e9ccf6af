"""Page keys: names of tokens that are equal in every process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import _kvcache


def page_keys(
    tokens: Any,
    page_size: int,
    fingerprint: bytes | None = None,
    *,
    adapter: bytes = b"",
    salt: bytes = b"",
    salt_begin: int = 0,
    parent: bytes | None = None,
    begin: int = 0,
    media: Iterable[tuple[int, int, bytes]] = (),
) -> list[bytes]:
    """The keys of all whole pages of a token array, 32 bytes each: docs/reference/keys.md says what they cover.

    Args:
        tokens: token ids; an int32 array is read without a copy.
        page_size: tokens of a page.
        fingerprint: 32 bytes that name the model: weights, quantisation, tokenizer. Not needed with a parent.
        adapter: the name of a LoRA adapter or the like.
        salt: separates tenants. It holds from the page that contains position salt_begin on.
        parent: the key of the page that ends at position begin, to continue from it.
        begin: position of tokens[0], a multiple of page_size.
        media: spans of tokens that stand for an image or the like, by position: (position, tokens, 32-byte hash).

    Raises: OutOfRange, InvalidArgument, NullArgument (neither fingerprint nor parent).
    """
    return _kvcache.page_keys(tokens, page_size, fingerprint, adapter, salt, salt_begin, parent, begin, media)

"""Text to token ids and back, with the vocabulary that the model file carries.

The file holds a SentencePiece vocabulary (tokens and scores) but no merge list. Joining two pieces
into the token with the best score is exactly a BPE merge with that token's rank, so the list of merges
follows from the scores, and the `tokenizers` package does the rest.
"""
import json
import re
from itertools import pairwise
from pathlib import Path

from errors import ExampleError

# Token kinds of GGUF (gguf.TokenType); the others take no special path here.
NORMAL, CONTROL, USER_DEFINED, BYTE = 1, 3, 4, 6
SPACE_MARK = "\u2581"  # SentencePiece writes a space inside a token as this
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")  # a byte of a character that has no token


def merges_from_scores(tokens, scores, kinds):
    """All (left, right) pairs that join into a normal token, best score first."""
    vocabulary = set(tokens)
    ranked = []
    for token, score, kind in zip(tokens, scores, kinds):
        if kind != NORMAL or len(token) < 2:
            continue
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocabulary and right in vocabulary:
                ranked.append((-score, left, right))
    ranked.sort(key=lambda entry: entry[0])  # stable: ties keep the file's order
    return [(left, right) for _, left, right in ranked]


def build(tokens, scores, kinds, unknown_id):
    """A `tokenizers.Tokenizer` for this vocabulary (seconds: keep the result as JSON)."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    model = models.BPE(
        vocab={token: index for index, token in enumerate(tokens)},
        merges=merges_from_scores(tokens, scores, kinds),
        unk_token=tokens[unknown_id], fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", SPACE_MARK)
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    # Runs of newlines, spaces and tabs: matched in the raw text before anything else. Control tokens
    # are not: a prompt's text cannot smuggle in an end of sequence (ids can be given for that).
    tokenizer.add_tokens([AddedToken(token, normalized=False)
                          for token, kind in zip(tokens, kinds) if kind == USER_DEFINED])
    return tokenizer


class Tokenizer:
    """`encode` puts the begin-of-sequence id first; `decode` leaves control tokens out."""

    def __init__(self, path: Path, bos_id: int, control_ids):
        from tokenizers import Tokenizer as Backend

        try:
            self._backend = Backend.from_file(str(path))
        except Exception as error:  # the package raises plain Exception
            raise ExampleError(f"cannot read the cached tokenizer {path}: {error}") from error
        self._bos_id = bos_id
        self._control_ids = frozenset(control_ids)

    def encode(self, text: str) -> list[int]:
        return [self._bos_id, *self._backend.encode(text, add_special_tokens=False).ids]

    def decode(self, ids) -> str:
        return self._backend.decode([i for i in ids if i not in self._control_ids], skip_special_tokens=False)

    def piece(self, index: int) -> bytes:
        """What the token adds to a text; nothing if it is a control token."""
        token = self._backend.id_to_token(index)
        if index in self._control_ids:
            return b""
        byte = BYTE_TOKEN.fullmatch(token)
        return bytes.fromhex(byte[1]) if byte else token.replace(SPACE_MARK, " ").encode()

    def kinds(self, size: int) -> bytes:
        """The kind of each token: NORMAL, CONTROL, USER_DEFINED or BYTE. Of two adjacent pairs of normal tokens, the one that
        joins into the token with the lower id is joined first."""
        described = json.loads(self._backend.to_str())
        vocabulary = described["model"]["vocab"]
        joined = [vocabulary[left + right] for left, right in described["model"]["merges"]]
        if any(left > right for left, right in pairwise(joined)):
            raise ExampleError("the vocabulary's scores are not in the order of its ids: no decoder could tell the merges")
        user_defined = {token["id"] for token in described["added_tokens"]}

        def kind(index):
            if index in self._control_ids:
                return CONTROL
            if index in user_defined:
                return USER_DEFINED
            return BYTE if BYTE_TOKEN.fullmatch(self._backend.id_to_token(index)) else NORMAL

        return bytes(map(kind, range(size)))

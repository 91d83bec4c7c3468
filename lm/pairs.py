"""Pairs of texts as token ids: each text is tokenised once, and one named side gives way where both are too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from lm.text import clean, shorten
from lm.transformer import Row

Side: TypeAlias = Literal["first", "second"]
LEAST = 16
"""Tokens that the side which is cut keeps, or all that it has: with less of it, there is nothing to compare."""

_PROBES = (("a", "b"), ("the", "the"), ("1", "2"))


class PairTokenizer:
    """Token ids of pairs as the model's own tokenizer joins them, but no text can smuggle in special tokens.

    Args:
        tokenizer: Of transformers.
        cut: The side that is cut at its end; the other one never is.
        max_length: Tokens of a pair, special ones included.
        token_types: Whether rows have segment ids, where the tokenizer makes them.
    """

    def __init__(self, tokenizer: Any, cut: Side, max_length: int, token_types: bool = True) -> None:
        self.tokenizer = tokenizer
        self.cut = cut
        self.max_length = max_length
        self.pieces, self.types = _template(tokenizer)
        self.token_types = token_types and bool(self.types)
        self.room = max_length - sum(map(len, self.pieces))
        if self.room < 2 * LEAST:
            raise ValueError(
                f"max_length={max_length}: expected at least {2 * LEAST + max_length - self.room} for pairs"
            )

    def rows(self, pairs: Sequence[tuple[str, str]]) -> list[Row | None]:
        """The ids of each pair; None where the side that is not cut leaves too little room for the other one."""
        ids = self._ids({text for pair in pairs for text in pair})
        return [self._row(ids[first], ids[second]) for first, second in pairs]

    def _row(self, first: list[int], second: list[int]) -> Row | None:
        kept, given = (second, first) if self.cut == "first" else (first, second)
        left = self.room - len(kept)
        if left < min(LEAST, len(given)):
            return None
        if self.cut == "first":
            first = first[:left]
        else:
            second = second[:left]
        before, between, behind = self.pieces
        row = {"input_ids": [*before, *first, *between, *second, *behind]}
        if self.token_types:
            sizes = (len(before), len(first), len(between), len(second), len(behind))
            row["token_type_ids"] = [kind for kind, size in zip(self.types, sizes, strict=True) for _ in range(size)]
        return row

    def _ids(self, texts: set[str]) -> dict[str, list[int]]:
        """Text -> ids, without special tokens: what looks like one in a text is split into ordinary ones."""
        order = sorted(texts)
        found = encode(self.tokenizer, [self._shorten(clean(text)) for text in order])
        return dict(zip(order, found, strict=True))

    def _shorten(self, text: str) -> str:
        return shorten(text, self.max_length, lambda part: len(encode(self.tokenizer, [part])[0]))


def encode(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """The ids of texts without special tokens; what looks like a special token in them is split into ordinary ones.

    Some vocabularies hold special tokens as words too, and find them anyhow: there they are left out.
    """
    if not texts:
        return []
    options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    found: list[list[int]] = tokenizer(list(texts), **options)["input_ids"]
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special} - {tokenizer.unk_token_id}
    return [ids if special.isdisjoint(ids) else [each for each in ids if each not in special] for ids in found]


def surround(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and behind a text.

    Raises:
        ValueError: It changes the text itself.
    """
    for probe, _ in _PROBES:
        ids, whole = encode(tokenizer, [probe])[0], tokenizer(probe, verbose=False)["input_ids"]
        start = _find(whole, ids, 0)
        if ids and start >= 0:
            return whole[:start], whole[start + len(ids) :]
    raise ValueError(f"{type(tokenizer).__name__} does not keep a text as it is: it cannot be used here")


def _template(tokenizer: Any) -> tuple[tuple[list[int], list[int], list[int]], tuple[int, ...]]:
    """What the tokenizer puts before, between and behind two texts; and the segment ids of all five parts."""
    for first, second in _PROBES:
        a, b = encode(tokenizer, [first, second])
        both = tokenizer(first, second, verbose=False)
        whole = both["input_ids"]
        start = _find(whole, a, 0)
        middle = _find(whole, b, start + len(a))
        if not a or not b or start < 0 or middle < 0:
            continue
        ends = (start, start + len(a), middle, middle + len(b), len(whole))
        pieces = (whole[: ends[0]], whole[ends[1] : ends[2]], whole[ends[3] :])
        kinds = both.get("token_type_ids")
        types = tuple(kinds[max(0, end - 1)] for end in ends) if kinds else ()
        return pieces, types
    raise ValueError(f"{type(tokenizer).__name__} does not join two texts as they are: it cannot be used for pairs")


def _find(ids: list[int], part: list[int], start: int) -> int:
    """Where the part begins, from ``start`` on; -1: nowhere."""
    places = range(start, len(ids) - len(part) + 1)
    return next((place for place in places if ids[place : place + len(part)] == part), -1)

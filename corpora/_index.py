"""Sorted arrays that find 16-byte keys: the part of a segment store that lives in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

UInt64: TypeAlias = NDArray[np.uint64]
Keys: TypeAlias = NDArray[np.uint8] | Sequence[bytes]
"""Keys as uint8 (n, 16) or as a list of n byte strings."""


def halves(keys: Keys) -> tuple[UInt64, UInt64]:
    """Returns the first and the last eight bytes of each key as numbers in the order of the bytes, uint64 (n,) each."""
    if not isinstance(keys, np.ndarray):
        wrong = next((key for key in keys if len(key) != 16), None)
        if wrong is not None:
            raise ValueError(f"a key has 16 bytes, got {len(wrong)}: {wrong!r}")
        keys = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, 16)
    if keys.dtype != np.uint8 or keys.ndim != 2 or keys.shape[1] != 16:
        raise ValueError(f"keys are uint8 (n, 16), got {keys.dtype} {keys.shape}")
    words = np.ascontiguousarray(keys).view(">u8")
    return words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)


def joined(high: UInt64, low: UInt64) -> NDArray[np.uint8]:
    """Returns the keys, uint8 (n, 16), of their two halves."""
    words = np.empty((len(high), 2), ">u8")
    words[:, 0], words[:, 1] = high, low
    return words.view(np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class KeyIndex:
    """Distinct keys in ascending order, with columns.

    Attributes:
        columns: Arrays (n,): ``high`` and ``low`` (the halves of the keys), ``digest`` (of the record: where several
            records have one key, the smallest wins, whatever the order that they came in) and any others.
    """

    columns: dict[str, NDArray[Any]]

    @classmethod
    def build(
        cls, pieces: Mapping[str, list[NDArray[Any]]], kind: Literal["quicksort", "stable"] = "quicksort"
    ) -> KeyIndex:
        """Returns the index of the pieces put together; empties the lists, to need little memory."""
        high = _take_all(pieces["high"])
        order = np.argsort(high, kind=kind)
        high = high[order]
        low, digest = _take_all(pieces["low"]), _take_all(pieces["digest"])
        same = high[1:] == high[:-1]
        if same.any():
            tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
            rows = order[tied]
            rows = rows[np.lexsort((digest[rows], low[rows], high[tied]))]
            order[tied] = rows
            repeated = (low[rows][1:] == low[rows][:-1]) & (high[tied][1:] == high[tied][:-1])
            order = np.delete(order, tied[1:][repeated])
            high = np.delete(high, tied[1:][repeated])
        columns: dict[str, NDArray[Any]] = {"high": high, "low": low[order]}
        del low
        columns["digest"] = digest[order]
        del digest
        for name in pieces.keys() - {"high", "low", "digest"}:
            columns[name] = _take_all(pieces[name])[order]
        return cls(columns)

    @classmethod
    def merge(cls, indexes: Sequence[KeyIndex]) -> KeyIndex:
        """Returns one index of several, and empties these, to need little memory."""
        pieces = {name: [index.columns[name] for index in indexes] for name in indexes[0].columns}
        for index in indexes:
            index.columns.clear()
        return cls.build(pieces, "stable")  # this algorithm is fast on a few sorted pieces

    def __len__(self) -> int:
        return len(self.columns["high"])

    def find(self, high: UInt64, low: UInt64) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Returns the positions of keys, intp (n,), and where they are valid, bool (n,)."""
        mine_high, mine_low = self.columns["high"], self.columns["low"]
        if not len(self):
            return np.zeros(len(high), np.intp), np.zeros(len(high), np.bool_)
        last = len(self) - 1
        order = np.argsort(high)  # neighbours in the query are then neighbours in memory
        position = np.empty(len(high), np.intp)
        position[order] = np.searchsorted(mine_high, high[order])
        np.minimum(position, last, out=position)
        while True:  # keys that share their first half: walk on; hardly ever more than no step
            step = (mine_high[position] == high) & (mine_low[position] < low) & (position < last)
            if not step.any():
                return position, (mine_high[position] == high) & (mine_low[position] == low)
            position[step] += 1

    def where(self, mask: NDArray[np.bool_]) -> KeyIndex:
        """Returns the index without the entries where the mask, bool (n,), is False."""
        return KeyIndex({name: column[mask] for name, column in self.columns.items()})


def _take_all(pieces: list[NDArray[Any]]) -> NDArray[Any]:
    whole = np.concatenate(pieces)
    pieces.clear()
    return whole

"""Texts become rows of token ids, and rows go through a model: in windows, batch by batch, results as they finish."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lm.batching import Batcher, Finished, Forward
from lm.transformer import Row

WINDOW = 8192
"""Items that are tokenised and sorted by length at a time: enough for full batches, few enough to hold."""

Item = TypeVar("Item")


def stream_rows(
    items: Sequence[Item],
    read: Callable[[Sequence[Item]], list[Row | None]],
    forwards: Callable[[list[Row]], list[Forward]],
    batcher: Batcher,
    width: int,
    check: Callable[[NDArray[np.float32], list[Item]], None],
) -> Iterator[Finished]:
    """Positions of items and what a model makes of them, float32 (n, width), batch by batch as they finish.

    Args:
        items: Any number.
        read: Items -> their rows; None for an item that does not fit, which comes back as NaN.
        forwards: Rows -> one function per device, which takes places in these rows.
        batcher: Makes the batches.
        width: Numbers per item.
        check: Refuses numbers of items that a model must not make.
    """
    for start in range(0, len(items), WINDOW):
        rows = read(items[start : start + WINDOW])
        unread = [start + place for place, row in enumerate(rows) if row is None]
        if unread:
            yield unread, np.full((len(unread), width), np.nan, np.float32)
        order = [start + place for place, row in enumerate(rows) if row is not None]
        known = [row for row in rows if row is not None]
        if not known:
            continue
        for part, found in batcher.stream([len(row["input_ids"]) for row in known], forwards(known)):
            positions = [order[place] for place in part]
            check(found, [items[position] for position in positions])
            yield positions, found


def check_numbers(found: NDArray[np.float32], texts: Sequence[Sequence[str]], model: object, dtype: str) -> None:
    """Refuses NaN and infinity that a model made.

    Raises:
        ValueError: Shows the texts of the first row concerned.
    """
    bad = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if bad.size:
        hint = "try dtype=bf16 or fp32" if dtype == "fp16" else "the model or its weights are broken"
        parts = texts[int(bad[0])]
        shown = " and ".join(repr(text if len(text) < 60 else f"{text[:57]}...") for text in parts)
        raise ValueError(f"model {model} returned NaN or infinity for {shown}: {hint}")

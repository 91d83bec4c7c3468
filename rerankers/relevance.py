"""Relevance from a retriever's scores: on one scale, so that it can be weighed against similarity."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corpora.types import Pool

Norm: TypeAlias = Literal["question", "dataset", "minmax"]


def relevance(pools: Sequence[Pool], norm: Norm) -> list[NDArray[np.float64]]:
    """float64 (n,) per pool: the scores of its hits, normalised.

    Args:
        pools: All pools of a data set.
        norm: ``question``: divided by the pool's own highest score; ``dataset``: by the highest of all pools;
            ``minmax``: from 0 to 1 within each pool, which is also used, with a warning, where any score of the data
            set is negative, because a share of a negative maximum means nothing.
    """
    scores = [np.array([hit.score for hit in pool.ranking], dtype=np.float64) for pool in pools]
    whole = np.concatenate(scores) if scores else np.empty(0)
    if norm != "minmax" and whole.size and whole.min() < 0:
        warnings.warn(f"norm={norm}: some scores are negative (lowest {whole.min():.4g}): minmax is used", stacklevel=3)
        norm = "minmax"
    if norm == "minmax":
        return [minmax(each) for each in scores]
    tops = [whole.max() if norm == "dataset" else each.max() if each.size else 0.0 for each in scores]
    return [each / top if top > 0 else each for each, top in zip(scores, tops, strict=True)]


def minmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values of each column scaled to 0 ... 1; 0 where all are equal."""
    if not values.size:
        return values
    low = values.min(axis=0)
    width = values.max(axis=0) - low
    scaled: NDArray[np.float64] = (values - low) / np.where(width > 0, width, 1.0)
    return scaled


def shares(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each column as a distribution over the pool: minmax, then divided by its sum; uniform where all are equal."""
    scaled = minmax(values)
    totals = scaled.sum(axis=0)
    flat = np.full_like(scaled, 1 / max(len(scaled), 1))
    return np.where(totals > 0, scaled / np.where(totals > 0, totals, 1.0), flat)

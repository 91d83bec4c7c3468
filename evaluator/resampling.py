"""Means over questions that are drawn again: what the intervals of error-aware scores are made of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from evaluator.prevalence import Floats, Integers


def generator(seed: str) -> np.random.Generator:
    """Random numbers that depend on the seed only, on every machine."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:16], "big")))


def strata_of(questions: Sequence[str], groups: Mapping[str, str] | None, macro: bool) -> list[Integers]:
    """Which questions have equal weights: all, or with ``macro`` those of a group."""
    if not macro:
        return [np.arange(len(questions))]
    if groups is None or any(question not in groups for question in questions):
        raise ValueError("a macro mean needs the group of each question")
    names = np.array([groups[question] for question in questions])
    return [np.flatnonzero(names == name) for name in sorted(set(names.tolist()))]


def resampled(random: np.random.Generator, strata: Sequence[Integers], n: int, draws: int) -> Floats:
    """How often each question stands in each of several resamples, float64 (draws, n); strata are drawn apart."""
    counts = np.zeros((draws, n))
    for stratum in filter(len, strata):
        counts[:, stratum] = random.multinomial(len(stratum), np.full(len(stratum), 1 / len(stratum)), draws)
    return counts


def means(values: Floats, weights: Floats, strata: Sequence[Integers]) -> Floats:
    """Weighted means over the questions where a metric is defined, float64 (metrics, draws); of the strata's means.

    Args:
        values: float64 (metrics, draws, n).
        weights: float64 (draws or 1, n).
        strata: A stratum without a defined question is left out.
    """
    defined = ~np.isnan(values)
    filled = np.where(defined, values, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = [
            (filled[..., s] * weights[:, s]).sum(axis=2) / (defined[..., s] * weights[:, s]).sum(axis=2) for s in strata
        ]
    table = np.stack(parts)
    there = ~np.isnan(table)
    return np.asarray(np.where(there, table, 0).sum(axis=0) / np.where(there.any(axis=0), there.sum(axis=0), np.nan))


def middle(draws: Floats) -> Floats:
    """The mean of the draws that have a value, float64 (metrics,); NaN where none has."""
    there = ~np.isnan(draws)
    counts = there.sum(axis=1)
    return np.asarray(np.where(there, draws, 0).sum(axis=1) / np.where(counts, counts, np.nan))


def interval(draws: Floats) -> Floats:
    """The 2.5th and the 97.5th percentile of draws that have a value, float64 (metrics, 2); NaN where none has."""
    ends = np.full((len(draws), 2), np.nan)
    for i, row in enumerate(draws):
        if not np.isnan(row).all():
            ends[i] = np.nanpercentile(row, (2.5, 97.5), method="weibull")
    return ends

"""The intent-aware metrics of the TREC Web tracks, equal to NIST's ndeval 4.5 topic by topic.

All follow one scheme. A passage gains (1 - alpha) ** r for each perspective that it supports, r being the number of
passages above that support the same perspective; gains are discounted by rank, and normalised either by a ranking in
which every passage supports everything (independent of the collection) or by the ideal ranking of the pool (``n...``),
which is built greedily, as ndeval does: the best possible ranking is NP-hard to find. Unknown labels count as
unsupporting.

ndeval does not know perspectives that no passage supports: ``drop_unsupported`` first gives its values. Where nothing
in the pool is supporting, ndeval prints 0 (or nan), these metrics are undefined. ndeval leaves ERR-IA@1 and
alpha-DCG@1 unnormalised by mistake (its loops start at the second rank); here they are normalised.

Source: Clarke et al. 2011, A Comparative Analysis of Cascade Measures for Novelty and Diversity,
https://doi.org/10.1145/1935826.1935847; program: https://trec.nist.gov/data/web/12/ndeval.c.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from evaluator.metric import Labels, Metric, Stances

Vector: TypeAlias = NDArray[np.float64]

_BLOCK = 64  # ideal rankings are made in multiples of it, so that all cut-offs of a question share one


@lru_cache(maxsize=16)
def _gains(labels: bytes, m: int, alpha: float) -> Vector:
    """float64 (k,): what each passage gains; the labels come as bytes so that all metrics of a question share it."""
    supports = np.frombuffer(labels, dtype=np.int8).reshape(-1, m) == 1
    above = supports.cumsum(axis=0) - supports
    gains: Vector = np.where(supports, (1.0 - alpha) ** above, 0.0).sum(axis=1)
    gains.flags.writeable = False
    return gains


@lru_cache(maxsize=16)
def _ideal_gains(pool: bytes, m: int, alpha: float, depth: int) -> Vector:
    """float64 (n,), n <= depth: the gains of the greedy ideal ranking; ties go to the earlier row of the pool."""
    supports = np.frombuffer(pool, dtype=np.int8).reshape(-1, m) == 1
    supports = supports[supports.any(axis=1)]
    flat, alike = supports.tobytes(), dict[bytes, list[int]]()
    for row in range(len(supports) - 1, -1, -1):
        alike.setdefault(flat[row * m : (row + 1) * m], []).append(row)
    # Passages that support the same perspectives are one choice: the next of them is the last of the list.
    choices = [([j for j in range(m) if pattern[j]], rows) for pattern, rows in alike.items()]
    weight = [1.0] * m
    gains = np.zeros(min(depth, len(supports)))
    for rank in range(len(gains)):
        most, best = -1.0, choices[0]
        for choice in choices:
            gain = 0.0
            for j in choice[0]:  # one by one, as ndeval adds: sum() rounds otherwise, and what ties would change
                gain += weight[j]
            if gain > most or (gain == most and choice[1][-1] < best[1][-1]):
                most, best = gain, choice
        gains[rank] = most
        best[1].pop()
        if not best[1]:
            choices.remove(best)
        for j in best[0]:
            weight[j] *= 1.0 - alpha
    gains.flags.writeable = False
    return gains


def _ideal(pool: Labels | None, alpha: float, depth: int | None) -> Vector:
    """The ideal gains of a pool to some depth (None: to the end)."""
    if pool is None:
        raise ValueError("an ideal ranking needs a pool")
    needed = len(pool) if depth is None else math.ceil(depth / _BLOCK) * _BLOCK
    return _ideal_gains(_bytes(pool), pool.shape[1], alpha, needed)[:depth]


def _bytes(labels: Labels) -> bytes:
    return labels.astype(np.int8, copy=False).tobytes()


@lru_cache(maxsize=256)
def _logarithmic(depth: int) -> Vector:
    """1 / log2(rank + 1), the discount of DCG."""
    return 1.0 / np.log2(np.arange(2, depth + 2))


@lru_cache(maxsize=256)
def _reciprocal(depth: int) -> Vector:
    """1 / rank, the discount of ERR."""
    return 1.0 / np.arange(1, depth + 1)


def _discounted(gains: Vector, discount: Callable[[int], Vector]) -> float:
    return float((gains * discount(len(gains))).sum())


def _normalised(value: float, ideal: float) -> float:
    """The value over the ideal, undefined where nothing can be gained."""
    return value / ideal if ideal > 0 else math.nan


def _check_alpha(metric: Metric, alpha: float) -> None:
    if not 0 <= alpha <= 1:
        raise ValueError(f"{metric}: alpha must be between 0 and 1")


@dataclass(frozen=True)
class AlphaDCG(Metric):
    """Discounted gain of novel supports, normalised by a ranking in which every passage supports everything.

    Formula: sum over ranks i <= k of g(i) / log2(i + 1), g(i) = sum over the supported perspectives of
    (1 - alpha) ** (number of supports above); divided by m * sum over i <= k of (1 - alpha) ** (i - 1) / log2(i + 1).
    Range: [0, 1]. Direction: higher is better. Empty ranking: 0. One passage: its share of the perspectives, over
    the sum in the divisor. No perspective: undefined.

    Source: Clarke et al. 2008, https://doi.org/10.1145/1390334.1390446; normalised as in ndeval.
    """

    alpha: float = 0.5

    title = "alpha_DCG"
    monotone = True

    def _check(self) -> None:
        _check_alpha(self, self.alpha)

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        m, k = labels.shape[1], self.k or 1
        gains = _gains(_bytes(labels), m, self.alpha)[:k]
        return _discounted(gains, _logarithmic) / _discounted(m * (1.0 - self.alpha) ** np.arange(k), _logarithmic)


@dataclass(frozen=True)
class AlphaNDCG(Metric):
    """Discounted gain of novel supports, normalised by the ideal ranking of the pool.

    Formula: DCG / ideal DCG, both as in alpha_DCG. Range: [0, 1]; a little more is possible where the greedy ideal is
    not the best. Direction: higher is better. Empty ranking: 0. One passage: its number of perspectives over the
    ideal. No perspective, or none supported in the pool: undefined.

    Source: Clarke et al. 2008, https://doi.org/10.1145/1390334.1390446.
    """

    alpha: float = 0.5

    title = "alpha_nDCG"
    needs = "pool"

    def _check(self) -> None:
        _check_alpha(self, self.alpha)

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        gains = _gains(_bytes(labels), labels.shape[1], self.alpha)[: self.k]
        ideal = _ideal(pool, self.alpha, self.k)
        return _normalised(_discounted(gains, _logarithmic), _discounted(ideal, _logarithmic))


@dataclass(frozen=True)
class ErrIA(Metric):
    """Intent-aware expected reciprocal rank, normalised by a ranking in which every passage supports everything.

    Formula: sum over ranks i <= k of g(i) / i, divided by m * sum over i <= k of 0.5 ** (i - 1) / i; g as in
    alpha_DCG with alpha = 0.5, a reader being satisfied by a supporting passage half of the time. Range: [0, 1].
    Direction: higher is better. Empty ranking: 0. One passage: its share of the perspectives, over the sum in the
    divisor. No perspective: undefined.

    Source: Chapelle et al. 2009, https://doi.org/10.1145/1645953.1646033; normalised as in ndeval.
    """

    title = "ERR_IA"
    monotone = True

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        m, k = labels.shape[1], self.k or 1
        gains = _gains(_bytes(labels), m, 0.5)[:k]
        return _discounted(gains, _reciprocal) / _discounted(m * 0.5 ** np.arange(k), _reciprocal)


@dataclass(frozen=True)
class NErrIA(Metric):
    """Intent-aware expected reciprocal rank, normalised by the ideal ranking of the pool.

    Formula: sum over ranks i <= k of g(i) / i, divided by the same sum for the ideal ranking; g as in ERR_IA. Range:
    [0, 1]; a little more is possible where the greedy ideal is not the best. Direction: higher is better. Empty
    ranking: 0. One passage: its number of perspectives over the ideal. No perspective, or none supported in the pool:
    undefined.

    Source: Chapelle et al. 2009, https://doi.org/10.1145/1645953.1646033; normalised as in ndeval.
    """

    title = "nERR_IA"
    needs = "pool"

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        gains = _gains(_bytes(labels), labels.shape[1], 0.5)[: self.k]
        ideal = _ideal(pool, 0.5, self.k)
        return _normalised(_discounted(gains, _reciprocal), _discounted(ideal, _reciprocal))


@dataclass(frozen=True)
class NRBP(Metric):
    """Novelty- and rank-biased precision: a reader goes on to the next passage with probability beta.

    Formula: (1 - (1 - alpha) * beta) / m * sum over all ranks i of g(i) * beta ** (i - 1), g as in alpha_DCG. Range:
    [0, 1]. Direction: higher is better. Empty ranking: 0. One passage: its share of the perspectives times
    1 - (1 - alpha) * beta. No perspective: undefined.

    Source: Clarke, Kolla and Vechtomova 2009, https://doi.org/10.1007/978-3-642-04417-5_17.
    """

    alpha: float = 0.5
    beta: float = 0.5

    title = "NRBP"
    cutoff = "none"
    monotone = True

    def _check(self) -> None:
        _check_alpha(self, self.alpha)
        if not 0 <= self.beta < 1:
            raise ValueError(f"{self}: beta must be at least 0 and below 1")

    def _sum(self, gains: Vector) -> float:
        return float((gains * self.beta ** np.arange(len(gains))).sum())

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        m: int = labels.shape[1]
        return (1 - (1 - self.alpha) * self.beta) / m * self._sum(_gains(_bytes(labels), m, self.alpha))


@dataclass(frozen=True)
class NNRBP(NRBP):
    """Novelty- and rank-biased precision, normalised by the ideal ranking of the pool.

    Formula: NRBP / NRBP of the ideal ranking. Range: [0, 1]; a little more is possible where the greedy ideal is not
    the best. Direction: higher is better. Empty ranking: 0. One passage: its number of perspectives over the ideal.
    No perspective, or none supported in the pool: undefined.

    Source: Clarke, Kolla and Vechtomova 2009, https://doi.org/10.1007/978-3-642-04417-5_17.
    """

    title = "nNRBP"
    needs = "pool"
    monotone = False

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        # Greedy gains never rise, so that what follows rank d adds at most beta ** d / (1 - beta) of the first gain.
        depth = 1 if self.beta == 0 else math.ceil(math.log(1e-14 * (1 - self.beta)) / math.log(self.beta))
        gains = _gains(_bytes(labels), labels.shape[1], self.alpha)
        return _normalised(self._sum(gains), self._sum(_ideal(pool, self.alpha, depth)))


@dataclass(frozen=True)
class ApIA(Metric):
    """Intent-aware average precision: the mean over the perspectives of the average precision of each.

    Formula: 1/m * sum over perspectives of 1/R * sum over the ranks i of passages that support it of (supports up to
    i) / i, R being the number of passages of the pool that support it; 0 for a perspective with R = 0. Range: [0, 1].
    Direction: higher is better. Empty ranking: 0. One passage: the mean over the perspectives of 1/R where it
    supports. No perspective, or none supported in the pool: undefined.

    Source: Agrawal et al. 2009, Diversifying Search Results, https://doi.org/10.1145/1498759.1498766.
    """

    title = "AP_IA"
    cutoff = "none"
    needs = "pool"

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        relevant = np.count_nonzero(pool == 1, axis=0)
        if not relevant.any():
            return math.nan
        supports = labels == 1
        precision = supports.cumsum(axis=0) * _reciprocal(len(labels))[:, None]
        return float(((precision * supports).sum(axis=0) / np.maximum(relevant, 1)).mean())


@dataclass(frozen=True)
class PIA(Metric):
    """Intent-aware precision: the mean over the perspectives of the share of the top k passages that support it.

    Formula: (number of supports in the top k) / (k * m). Range: [0, 1]. Direction: higher is better. Empty ranking:
    0. One passage: its share of the perspectives, over k. No perspective: undefined.

    Source: Agrawal et al. 2009, Diversifying Search Results, https://doi.org/10.1145/1498759.1498766.
    """

    title = "P_IA"
    monotone = True

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        m: int = labels.shape[1]
        return int(np.count_nonzero(labels[: self.k] == 1)) / ((self.k or 1) * m)

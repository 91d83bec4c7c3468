"""Metrics of sets: which perspectives, and how many passages, do the top k reach? They read the ranking only.

In the formulas k is the cut-off, m the number of perspectives, and n the number of perspectives that at least one of
the top k passages supports. Unknown labels count as unsupporting. Missing ranks count as passages that support
nothing. Without perspectives (m = 0) every metric is undefined.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evaluator.metric import Labels, Metric, Stances


def _covered(labels: Labels, depth: int | None) -> int:
    """The number of perspectives that the first passages support."""
    return int(np.count_nonzero((labels[:depth] == 1).any(axis=0)))


@dataclass(frozen=True)
class MRecall(Metric):
    """Whether the top k passages cover all perspectives, or k of them where there are more than k.

    Formula: m > k: [n >= k]; else [n = m]. Range: 0 or 1. Direction: higher is better. Empty ranking: 0. One
    passage: 1 if it supports min(m, k) perspectives, else 0. No perspective: undefined.

    Source: Min et al. 2021, Joint Passage Ranking for Diverse Multi-Answer Retrieval, https://arxiv.org/abs/2104.08445;
    for perspectives: Chen and Choi 2024, https://arxiv.org/abs/2409.18110.
    """

    title = "MRecall"
    until_covered = True
    monotone = True

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        return float(_covered(labels, self.k) >= min(labels.shape[1], self.k or 0))


@dataclass(frozen=True)
class Precision(Metric):
    """The share of the top k passages that support at least one perspective.

    Formula: (number of such passages) / k, also where fewer than k were retrieved. Range: [0, 1]. Direction: higher
    is better. Empty ranking: 0. One passage: 1/k or 0. No perspective: undefined.

    Source: Chen and Choi 2024, https://arxiv.org/abs/2409.18110.
    """

    title = "Precision"
    monotone = True

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        return int(np.count_nonzero((labels[: self.k] == 1).any(axis=1))) / (self.k or 1)


@dataclass(frozen=True)
class StRecall(Metric):
    """Subtopic recall: the share of the perspectives that the top k passages cover.

    Formula: n / m. Range: [0, 1]. Direction: higher is better. Empty ranking: 0. One passage: the share of the
    perspectives that it supports. No perspective: undefined. (Figure 1 of BERDS prints this value as MRecall.)

    Source: Zhai, Cohen and Lafferty 2003, Beyond Independent Relevance, https://doi.org/10.1145/860435.860440.
    """

    title = "StRecall"
    until_covered = True
    monotone = True

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        m: int = labels.shape[1]
        return _covered(labels, self.k) / m


@dataclass(frozen=True)
class Covered(Metric):
    """Whether the top k passages (without a cut-off: all that were retrieved) cover every perspective.

    Formula: [n = m]; the companion of CoverageDepth, which is undefined where this is 0. Range: 0 or 1. Direction:
    higher is better. Empty ranking: 0. One passage: 1 if it supports all. No perspective: undefined.

    Source: Chen and Choi 2024, Tables 5 and 6, https://arxiv.org/abs/2409.18110.
    """

    title = "Covered"
    cutoff = "optional"
    until_covered = True
    monotone = True

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        return float(_covered(labels, self.k) == labels.shape[1])


@dataclass(frozen=True)
class CoverageDepth(Metric):
    """The size of the smallest prefix of the ranking that covers all perspectives.

    Formula: the largest over the perspectives of the rank of the first passage that supports it. Range: 1 to the
    number retrieved (or k). Direction: lower is better, but only beside Covered: questions that are not covered
    within k (without a cut-off: at all) are undefined and left out of the mean, as in the source. Empty ranking:
    undefined. One passage: 1 if it supports all, else undefined. No perspective: undefined.

    Source: Chen and Choi 2024, Table 5, https://arxiv.org/abs/2409.18110.
    """

    title = "CoverageDepth"
    cutoff = "optional"
    until_covered = True
    higher_is_better = False

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        supports = labels[: self.k] == 1
        if not len(supports) or not supports.any(axis=0).all():
            return math.nan
        return float(supports.argmax(axis=0).max() + 1)


@dataclass(frozen=True)
class OracleMRecall(Metric):
    """The best MRecall@k that any re-ordering of the first ``depth`` retrieved passages reaches.

    Formula: [u >= min(m, k)] with u = number of perspectives that these passages support. That is exact and needs no
    set-cover search: one passage for each of min(m, k) supported perspectives is at most k passages, and no k
    passages support what none of them supports. Range: 0 or 1. Direction: higher is better: the ceiling of every
    reranker of this pool. Empty ranking: 0. One passage: as MRecall. No perspective: undefined.

    Source: this project; the oracle of Min et al. 2021, https://arxiv.org/abs/2104.08445, made exact.
    """

    depth: int = 100  # a parameter here

    title = "OracleMRecall"
    until_covered = True
    monotone = True

    def _check(self) -> None:
        if self.depth < (self.k or 1):
            raise ValueError(f"{self}: the depth {self.depth} must not be below the cut-off {self.k}")

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        return float(_covered(labels, self.depth) >= min(labels.shape[1], self.k or 0))


@dataclass(frozen=True)
class Redundancy(Metric):
    """The share of the supports in the top k that repeat a perspective which a passage above supports already.

    Formula: 1 - n / s with s = number of pairs (passage of the top k, perspective that it supports). Range: [0, 1).
    Direction: lower is better at equal coverage; read it beside StRecall. Empty ranking, or no support in the top k:
    undefined. One passage: 0 if it supports anything. No perspective: undefined.

    Source: this project; redundancy with respect to subtopics: Zhai, Cohen and Lafferty 2003,
    https://doi.org/10.1145/860435.860440; nuggets: Clarke et al. 2008, https://doi.org/10.1145/1390334.1390446.
    """

    title = "Redundancy"
    higher_is_better = False

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        supports = int(np.count_nonzero(labels[: self.k] == 1))
        return 1 - _covered(labels, self.k) / supports if supports else math.nan


@dataclass(frozen=True)
class Judged(Metric):
    """The share of the top k retrieved passages that have at least one known label.

    Formula: (number of such passages) / min(k, number retrieved). Range: [0, 1]. Direction: no merit of a system,
    but the lower it is, the less the other metrics say. Empty ranking: undefined. One passage: 0 or 1. No
    perspective: undefined.

    Source: as Judged in ir_measures, MacAvaney et al. 2022, https://arxiv.org/abs/2111.13466.
    """

    title = "Judged"
    higher_is_better = None

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        known = (labels[: self.k] != -1).any(axis=1)
        return int(np.count_nonzero(known)) / len(known) if len(known) else math.nan


@dataclass(frozen=True)
class _Sides(Metric):
    """Which of the two sides of a binary question the top k passages support."""

    sides: ClassVar[tuple[bool, bool]]
    default_k = 5
    until_covered = True
    higher_is_better: ClassVar[bool | None] = None

    def _value(self, labels: Labels, pool: Labels | None, stances: Stances | None) -> float:
        if stances is None or len(stances) != 2 or set(stances) != {"supporting", "opposing"}:
            return math.nan
        reached = (labels[: self.k] == 1).any(axis=0)
        supporting = list(stances).index("supporting")
        return float((bool(reached[supporting]), bool(reached[1 - supporting])) == self.sides)


@dataclass(frozen=True)
class OnlySupporting(_Sides):
    """Whether the top k passages support the supporting perspective and not the opposing one.

    Formula: [supporting reached and opposing not]. Range: 0 or 1; with OnlyOpposing, Both and Neither it sums to 1.
    Direction: none. Empty ranking: 0. One passage: 1 if it supports that side only. Undefined unless the question has
    exactly one supporting and one opposing perspective. ``OnlySupporting`` alone means k = 5.

    Source: Chen and Choi 2024, Figure 2, https://arxiv.org/abs/2409.18110.
    """

    title = "OnlySupporting"
    sides = (True, False)


@dataclass(frozen=True)
class OnlyOpposing(_Sides):
    """Whether the top k passages support the opposing perspective and not the supporting one.

    Formula: [opposing reached and supporting not]. Range, direction, edge cases and source: as OnlySupporting.
    """

    title = "OnlyOpposing"
    sides = (False, True)


@dataclass(frozen=True)
class Both(_Sides):
    """Whether the top k passages support both sides of a binary question.

    Formula: [both reached], which is MRecall@k for k > 1. Higher is better. Range, edge cases and source: as
    OnlySupporting.
    """

    title = "Both"
    sides = (True, True)
    monotone = True
    higher_is_better = True


@dataclass(frozen=True)
class Neither(_Sides):
    """Whether the top k passages support neither side of a binary question.

    Formula: [neither reached]. Lower is better. Empty ranking: 1. Range, other edge cases and source: as
    OnlySupporting.
    """

    title = "Neither"
    sides = (False, False)
    higher_is_better = False

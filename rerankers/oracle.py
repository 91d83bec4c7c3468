"""The oracle: what an order that knows the labels would give. A bound for others, never a system.

Greedy maximum coverage (Nemhauser, Wolsey and Fisher, 1978, https://doi.org/10.1007/BF01588971: at least 1 - 1/e of
the best): the next passage is the one that supports the most perspectives that nothing above it supports; among equals
one that supports any, then the retriever's order. The exact bound of MRecall is the metric ``OracleMRecall@k``. O(n^2
m).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from corpora.types import Pool, Ranking
from rerankers.base import reordered


class Oracle:
    """Orders each pool by its labels; every table says that it is an oracle."""

    version: ClassVar[int] = 1
    oracle: ClassVar[bool] = True
    per_question: ClassVar[bool] = True

    def rerank(self, pools: Sequence[Pool]) -> list[Ranking]:
        """Whole pools; a ValueError where a pool carries no labels."""
        rankings = []
        for pool in pools:
            if pool.labels is None:
                raise ValueError(f"oracle: the pool of question {pool.query.question_id!r} carries no labels")
            rankings.append(reordered(pool, greedy_coverage(pool.labels == 1)))
        return rankings


def greedy_coverage(supports: NDArray[np.bool_]) -> list[int]:
    """All positions, by new perspectives; ``supports`` is bool (n, m)."""
    supported = supports.astype(np.float64)
    open_, value, bonus = np.ones(supports.shape[1]), np.empty(len(supports)), np.zeros(len(supports))
    bonus[supports.any(axis=1)] = 0.5  # among equals one that supports any
    order = []
    for _ in range(len(supports)):
        np.dot(supported, open_, out=value)
        value += bonus
        pick = int(value.argmax())
        order.append(pick)
        bonus[pick] = -np.inf
        open_[supports[pick]] = 0
    return order

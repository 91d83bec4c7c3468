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
    n, m = supports.shape
    left, covered = list(range(n)), np.zeros(m, np.bool_)
    order = []
    any_support: NDArray[np.bool_] = supports.max(axis=1, initial=False)
    while left:
        new = (supports[left] & ~covered).sum(axis=1)
        pick = left[int((2 * new + any_support[left]).argmax())]
        order.append(pick)
        left.remove(pick)
        covered |= supports[pick]
    return order

"""Round-robin by aspect: each aspect in turn places the passage that suits it best.

The merging that BERDS uses for expanded queries (Chen and Choi, 2024, https://arxiv.org/abs/2409.18110), as a reranker
of one pool: aspect i takes the passage that is left with the highest P(d | q_i). Ties keep the order. O(a n log n).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rerankers.aspects import AspectReranker


class RoundRobin(AspectReranker):
    """Orders each pool by taking turns; aspects of weight 0 have none, and other weights count alike."""

    per_question: ClassVar[bool] = True

    def select(
        self, relevance: NDArray[np.float64], by_aspect: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> list[int]:
        """Positions in the order of the picks."""
        return round_robin(by_aspect[:, weights > 0])


def round_robin(by_aspect: NDArray[np.float64]) -> list[int]:
    """All positions, from P(d | q_i) (n, a)."""
    lists = [np.argsort(-column, kind="stable").tolist() for column in by_aspect.T]
    taken: dict[int, None] = {}
    at = [0] * len(lists)
    while len(taken) < len(by_aspect):
        for i, positions in enumerate(lists):
            while at[i] < len(positions) and positions[at[i]] in taken:
                at[i] += 1
            if at[i] < len(positions):
                taken[positions[at[i]]] = None
    return list(taken)

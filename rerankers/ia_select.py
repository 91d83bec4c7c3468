"""IA-Select: greedy maximisation of the chance that some passage satisfies the reader.

Agrawal, Gollapudi, Halverson and Ieong (2009): Diversifying search results, WSDM,
https://doi.org/10.1145/1498759.1498766. With U(i) = the weight of aspect i at first, the next pick is the argmax over
what is left of

    sum over aspects i of U(i) * V(d | i),   and then U(i) *= 1 - V(d | i)

V(d | i) is P(d | q_i) on the scale that is asked for. Ties keep the retriever's order. O(n^2 a).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rerankers.aspects import AspectReranker


class IASelect(AspectReranker):
    """Orders each pool by IA-Select; it has no arguments but those of ``AspectReranker``."""

    per_question: ClassVar[bool] = True

    def select(
        self, relevance: NDArray[np.float64], by_aspect: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> list[int]:
        """Positions in the order of the picks."""
        return ia_select(by_aspect, weights)


def ia_select(by_aspect: NDArray[np.float64], weights: NDArray[np.float64]) -> list[int]:
    """All positions, from V(d | i) (n, a) in [0, 1] and U (a,)."""
    open_, left = weights.copy(), np.ones(len(by_aspect), np.bool_)
    order = []
    for _ in range(len(by_aspect)):
        pick = int(np.where(left, by_aspect @ open_, -1.0).argmax())
        order.append(pick)
        left[pick] = False
        open_ *= 1 - by_aspect[pick]
    return order

"""Facility location: picks that between them are near to every passage of the pool.

Lin and Bilmes (2011): A class of submodular functions for document summarization, ACL,
https://aclanthology.org/P11-1052. Greedy maximisation of the monotone submodular function

    lambda * sum over p in S of relevance(p) + (1 - lambda) * sum over v of max over p in S of max(cosine(v, p), 0)

for picks S and passages v of the pool, both divided by n. Lazy evaluation (Minoux, 1978,
https://doi.org/10.1007/BFb0006528) looks anew only at passages whose old gain could still be the highest: O(n^3) at
worst, close to O(n^2) on real pools. Ties keep the retriever's order.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from corpora.fingerprint import digest
from corpora.types import Pool, Ranking
from lm.base import Encoder
from rerankers.base import reordered
from rerankers.relevance import Norm, relevance
from rerankers.similarity import Embedder, cosines

ROUNDING = 1e-12
"""Gains that differ by less are equal: an old gain may be smaller than its new value by rounding alone."""


class FacilityLocation:
    """Orders each pool by facility location.

    Args:
        lambda_: Weight of relevance, 0 to 1; the rest is the weight of being near to all.
        norm: What relevance is, see ``rerankers.relevance``.
        encoder: Whose cosines tell how near two passages are.
        encoder_args: The encoder's own arguments, ``name=value`` each.
        device: Where the encoder runs.
        batch_size: Texts that it takes at a time.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        lambda_: float = 0.5,
        norm: Norm = "minmax",
        encoder: str | Encoder = "uae",
        encoder_args: tuple[str, ...] = (),
        device: str | None = None,
        batch_size: int | None = None,
    ) -> None:
        if not 0 <= lambda_ <= 1:
            raise ValueError(f"lambda={lambda_}: expected a number from 0 to 1")
        self.lambda_, self.norm = lambda_, norm
        self.encoder, self.encoder_args = encoder, encoder_args
        self.device, self.batch_size = device, batch_size

    @cached_property
    def embedder(self) -> Embedder:
        """Gives the passages' vectors."""
        return Embedder(self.encoder, self.encoder_args, self.device, self.batch_size)

    @property
    def fingerprint(self) -> str:
        """A hash of all that changes an order."""
        return digest(["FacilityLocation", self.version, self.lambda_, self.norm, self.embedder.model.fingerprint])

    def prefetch(self) -> None:
        """Downloads the encoder."""
        self.embedder.prefetch()

    def rerank(self, pools: Sequence[Pool]) -> list[Ranking]:
        """Whole pools, in the order of the picks."""
        scored = relevance(pools, self.norm)
        return [
            reordered(pool, facility_location(each, cosines(units), self.lambda_))
            for pool, each, units in zip(pools, scored, self.embedder.units(pools), strict=True)
        ]


def facility_location(relevance: NDArray[np.floating], similarity: NDArray[np.floating], lambda_: float) -> list[int]:
    """All positions in the order of the picks.

    Args:
        relevance: (n,), in the retriever's order.
        similarity: (n, n), symmetric.
        lambda_: Weight of relevance.
    """
    n = len(relevance)
    own = lambda_ * np.asarray(relevance, dtype=np.float64) / max(n, 1)
    near = (1 - lambda_) * np.maximum(np.asarray(similarity, dtype=np.float64), 0.0) / max(n, 1)
    cover = np.zeros(n)
    first = own + near.sum(axis=1)
    heap = [(-gain, position) for position, gain in enumerate(first.tolist())]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        fresh: list[tuple[float, int]] = []
        best = np.inf
        while heap and heap[0][0] <= best + ROUNDING:
            _, position = heapq.heappop(heap)
            gain = own[position] + np.maximum(near[position] - cover, 0.0).sum()
            fresh.append((-float(gain), position))
            best = min(best, -float(gain))
        pick = min(position for negative, position in fresh if negative <= best + ROUNDING)
        order.append(pick)
        np.maximum(cover, near[pick], out=cover)
        for item in fresh:
            if item[1] != pick:
                heapq.heappush(heap, item)
    return order

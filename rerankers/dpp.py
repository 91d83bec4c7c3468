"""Determinantal point process: the likeliest diverse subset, grown greedily.

Chen, Zhang and Zhou (2018): Fast greedy MAP inference for determinantal point process to improve recommendation
diversity, NeurIPS, https://arxiv.org/abs/1709.05135. The kernel is L_ij = q_i * cosine(i, j) * q_j with q_i =
exp(alpha * relevance_i) and alpha = theta / (2 (1 - theta)). Each pick is the argmax over what is left of log det(L of
the picked and it) - log det(L of the picked) = log d_i^2, and an incremental Cholesky factor gives all d_i^2 in O(n k)
for the k-th pick: O(n k^2) in all, where the plain way takes O(n k^4). Ties keep the retriever's order. When nothing
left adds volume (duplicates of what is picked), the rest keeps its order.
"""

from __future__ import annotations

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

EMPTY = 1e-5
"""A squared height below this adds no volume; fp32 cosines of duplicates differ from 1 by about 1e-7."""


class DPP:
    """Orders each pool by the greedy MAP of a determinantal point process.

    Args:
        theta: Weight of relevance, from 0 (diversity alone) to below 1.
        norm: What relevance is, see ``rerankers.relevance``.
        encoder: Whose cosines tell how alike two passages are.
        encoder_args: The encoder's own arguments, ``name=value`` each.
        device: Where the encoder runs.
        batch_size: Texts that it takes at a time.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        theta: float = 0.9,
        norm: Norm = "minmax",
        encoder: str | Encoder = "uae",
        encoder_args: tuple[str, ...] = (),
        device: str | None = None,
        batch_size: int | None = None,
    ) -> None:
        if not 0 <= theta < 1:
            raise ValueError(f"theta={theta}: expected a number from 0 to below 1")
        self.theta, self.norm = theta, norm
        self.encoder, self.encoder_args = encoder, encoder_args
        self.device, self.batch_size = device, batch_size

    @cached_property
    def embedder(self) -> Embedder:
        """Gives the passages' vectors."""
        return Embedder(self.encoder, self.encoder_args, self.device, self.batch_size)

    @property
    def fingerprint(self) -> str:
        """A hash of all that changes an order."""
        return digest(["DPP", self.version, self.theta, self.norm, self.embedder.model.fingerprint])

    def prefetch(self) -> None:
        """Downloads the encoder."""
        self.embedder.prefetch()

    def rerank(self, pools: Sequence[Pool]) -> list[Ranking]:
        """The picks; what adds no volume is left out, and follows in its old order."""
        scored = relevance(pools, self.norm)
        return [
            reordered(pool, dpp(each, cosines(units), self.theta))
            for pool, each, units in zip(pools, scored, self.embedder.units(pools), strict=True)
        ]


def dpp(relevance: NDArray[np.floating], similarity: NDArray[np.floating], theta: float) -> list[int]:
    """Positions in the order of the picks, until nothing adds volume.

    Args:
        relevance: (n,), in the retriever's order.
        similarity: (n, n), positive semidefinite, 1 on the diagonal.
        theta: Weight of relevance.
    """
    n = len(relevance)
    # The factor q scales a row's heights: cis = c / q stays within the cosines' range, whatever alpha is.
    weight = theta / (1 - theta) * np.asarray(relevance, dtype=np.float64)  # log q^2
    heights = np.array(np.diagonal(similarity), dtype=np.float64)
    factor = np.zeros((n, n))
    order: list[int] = []
    left = np.ones(n, np.bool_)
    for i in range(n):
        open_ = left & (heights > EMPTY)
        if not open_.any():
            break
        value = np.full(n, -np.inf)
        value[open_] = weight[open_] + np.log(heights[open_])
        pick = int(value.argmax())
        column = (similarity[pick] - factor[:i].T @ factor[:i, pick]) / np.sqrt(heights[pick])
        factor[i] = column
        heights = heights - column**2
        order.append(pick)
        left[pick] = False
    return order

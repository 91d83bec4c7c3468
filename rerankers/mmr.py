"""Maximal marginal relevance: relevant passages that are unlike those above them.

Carbonell and Goldstein (1998): The use of MMR, diversity-based reranking for reordering documents and producing
summaries, SIGIR, https://doi.org/10.1145/290941.291025. After the first pick, the next is the argmax over what is left
of

    lambda * relevance(d) - (1 - lambda) * max over the picked p of cosine(d, p)

Ties keep the retriever's order. O(n^2) time and memory for a pool of n passages, beside the n embeddings. As in BERDS
(Chen and Choi, 2024, https://arxiv.org/abs/2409.18110): UAE-Large-V1 embeds text and title, the first pick is rank 1,
and scores are divided by the question's highest, as their code does (their paper says: by the data set's). Lambdas
they tuned on dev: Wikipedia BM25 .99, DPR .95, Contriever .75; Sphere .99, .99, .95; web BM25 .95, Contriever .95.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from corpora.fingerprint import digest
from corpora.types import Pool, Ranking
from lm.base import Encoder
from rerankers.base import reordered
from rerankers.relevance import Norm, relevance
from rerankers.similarity import Embedder, cosines


class MMR:
    """Orders each pool by maximal marginal relevance.

    Args:
        lambda_: Weight of relevance, 0 to 1; the rest is the weight of being different.
        norm: What relevance is, see ``rerankers.relevance``: ``question``, ``dataset`` or ``minmax``.
        first: The first pick: ``rank1`` (the retriever's), or ``argmax`` (the most relevant, then as all others).
        encoder: Whose cosines tell how alike two passages are; ``minilm`` is small and works offline.
        encoder_args: The encoder's own arguments, ``name=value`` each.
        device: Where the encoder runs.
        batch_size: Texts that it takes at a time.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        lambda_: float = 0.9,
        norm: Norm = "question",
        first: Literal["rank1", "argmax"] = "rank1",
        encoder: str | Encoder = "uae",
        encoder_args: tuple[str, ...] = (),
        device: str | None = None,
        batch_size: int | None = None,
    ) -> None:
        if not 0 <= lambda_ <= 1:
            raise ValueError(f"lambda={lambda_}: expected a number from 0 to 1")
        self.lambda_, self.norm, self.first = lambda_, norm, first
        self.encoder, self.encoder_args = encoder, encoder_args
        self.device, self.batch_size = device, batch_size

    @cached_property
    def embedder(self) -> Embedder:
        """Gives the passages' vectors."""
        return Embedder(self.encoder, self.encoder_args, self.device, self.batch_size)

    @property
    def fingerprint(self) -> str:
        """A hash of all that changes an order."""
        return digest([self.version, self.lambda_, self.norm, self.first, self.embedder.model.fingerprint])

    def prefetch(self) -> None:
        """Downloads the encoder."""
        self.embedder.prefetch()

    def rerank(self, pools: Sequence[Pool]) -> list[Ranking]:
        """Whole pools, in the order of the picks."""
        scored = relevance(pools, self.norm)
        return [
            reordered(pool, mmr(each, cosines(units), self.lambda_, self.first == "rank1"))
            for pool, each, units in zip(pools, scored, self.embedder.units(pools), strict=True)
        ]


def mmr(
    relevance: NDArray[np.floating], similarity: NDArray[np.floating], lambda_: float, rank1: bool = True
) -> list[int]:
    """All positions in the order of the picks.

    Args:
        relevance: (n,), in the retriever's order.
        similarity: (n, n).
        lambda_: Weight of relevance.
        rank1: Whether the first pick is position 0, whatever its relevance.
    """
    n = len(relevance)
    if not n:
        return []
    gain = lambda_ * np.asarray(relevance, dtype=np.float64)
    loss = (1 - lambda_) * np.asarray(similarity, dtype=np.float64)  # scaled once: rounding keeps the order of maxima
    pick = 0 if rank1 else int(gain.argmax())
    order, value = [pick], np.empty(n)
    worst = loss[pick].copy()
    gain[pick] = -np.inf
    for _ in range(n - 1):
        np.subtract(gain, worst, out=value)
        pick = int(value.argmax())  # the first of equal ones
        order.append(pick)
        gain[pick] = -np.inf
        np.maximum(worst, loss[pick], out=worst)
    return order

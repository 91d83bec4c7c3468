"""VRSD: passages whose sum of vectors points where the question points.

Gao and Zhang (2024): VRSD: Rethinking similarity and diversity for retrieval in large language models,
https://arxiv.org/abs/2407.04573. The first pick has the highest cosine with the question; every next one is the argmax
over what is left of cosine(sum of the picked + d, question): similarity and diversity without a weight between them.
The problem is NP-complete; this is the paper's heuristic. Ties keep the retriever's order. O(n^2) from precomputed
products.
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
from rerankers.similarity import Embedder, cosines, unit


class VRSD:
    """Orders each pool by the sum-vector heuristic, on vectors of length 1.

    Args:
        encoder: Embeds passages and questions.
        encoder_args: The encoder's own arguments, ``name=value`` each.
        device: Where the encoder runs.
        batch_size: Texts that it takes at a time.
    """

    version: ClassVar[int] = 1
    per_question: ClassVar[bool] = True

    def __init__(
        self,
        encoder: str | Encoder = "uae",
        encoder_args: tuple[str, ...] = (),
        device: str | None = None,
        batch_size: int | None = None,
    ) -> None:
        self.encoder, self.encoder_args = encoder, encoder_args
        self.device, self.batch_size = device, batch_size

    @cached_property
    def embedder(self) -> Embedder:
        """Gives the vectors."""
        return Embedder(self.encoder, self.encoder_args, self.device, self.batch_size)

    @property
    def fingerprint(self) -> str:
        """A hash of all that changes an order."""
        return digest(["VRSD", self.version, self.embedder.model.fingerprint])

    def prefetch(self) -> None:
        """Downloads the encoder."""
        self.embedder.prefetch()

    def rerank(self, pools: Sequence[Pool]) -> list[Ranking]:
        """Whole pools, in the order of the picks."""
        asked = unit(self.embedder.embeddings.queries([pool.query for pool in pools]))
        return [
            reordered(pool, vrsd(units @ query, cosines(units)))
            for pool, query, units in zip(pools, asked, self.embedder.units(pools), strict=True)
        ]


def vrsd(to_question: NDArray[np.floating], similarity: NDArray[np.floating]) -> list[int]:
    """All positions in the order of the picks.

    Args:
        to_question: (n,), cosines of passages and question.
        similarity: (n, n), cosines of passages.
    """
    aim = np.asarray(to_question, dtype=np.float64)
    products = np.asarray(similarity, dtype=np.float64)
    own = np.diagonal(products)
    left = np.ones(len(aim), np.bool_)
    dot, squared, to_sum = 0.0, 0.0, np.zeros(len(aim))  # of the sum s: s.q, |s|^2, s.d for each d
    order = []
    for _ in range(len(aim)):
        length = np.sqrt(np.maximum(squared + 2 * to_sum + own, 1e-12))
        pick = int(np.where(left, (dot + aim) / length, -np.inf).argmax())
        order.append(pick)
        left[pick] = False
        dot, squared = dot + aim[pick], squared + 2 * to_sum[pick] + own[pick]
        to_sum += products[pick]
    return order

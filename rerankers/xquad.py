"""xQuAD: passages for the aspects that those above leave open.

Santos, Macdonald and Ounis (2010): Exploiting query reformulations for web search result diversification, WWW,
https://doi.org/10.1145/1772690.1772780. The next pick is the argmax over what is left of

    (1 - lambda) * P(d | q) + lambda * sum over aspects i of w_i * P(d | q_i) * product over picks p of 1 - P(p | q_i)

P(d | q) is the retriever's score, on the scale of P(d | q_i). Ties keep the retriever's order. O(n^2 a).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lm.base import Encoder
from rerankers.aspects import AspectReranker, Scale, Source


class XQuAD(AspectReranker):
    """Orders each pool by xQuAD.

    Args:
        lambda_: Weight of the aspects, 0 to 1; the rest is the weight of relevance.
        source: See ``rerankers.aspects.AspectReranker``, as for all that follows.
        model: The encoder or cross-encoder.
        model_args: Its own arguments.
        scale: ``sum`` or ``max``.
        weights: Of the aspects.
        device: Where the model runs.
        batch_size: Texts that it takes at a time.
    """

    per_question: ClassVar[bool] = True

    def __init__(
        self,
        lambda_: float = 0.5,
        source: Source = "encoder",
        model: str | Encoder | None = None,
        model_args: tuple[str, ...] = (),
        scale: Scale = "sum",
        weights: tuple[float, ...] = (),
        device: str | None = None,
        batch_size: int | None = None,
    ) -> None:
        super().__init__(source, model, model_args, scale, weights, device, batch_size)
        if not 0 <= lambda_ <= 1:
            raise ValueError(f"lambda={lambda_}: expected a number from 0 to 1")
        self.lambda_ = lambda_

    def _own(self) -> object:
        return self.lambda_

    def select(
        self, relevance: NDArray[np.float64], by_aspect: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> list[int]:
        """Positions in the order of the picks."""
        return xquad(relevance, by_aspect, weights, self.lambda_)


def xquad(
    relevance: NDArray[np.float64], by_aspect: NDArray[np.float64], weights: NDArray[np.float64], lambda_: float
) -> list[int]:
    """All positions, from P(d | q) (n,), P(d | q_i) (n, a) and the aspects' weights (a,)."""
    base, open_ = (1 - lambda_) * relevance, lambda_ * weights
    order = []
    for _ in range(len(relevance)):
        pick = int((base + by_aspect @ open_).argmax())
        order.append(pick)
        open_ = open_ * (1 - by_aspect[pick])
        base[pick] = -np.inf
    return order

"""PM-2: as many places for each aspect as its share of the votes.

Dang and Croft (2012): Diversity by proportionality: an election-based approach to search result diversification,
SIGIR, https://doi.org/10.1145/2348283.2348296. With votes v_i (weights) and seats s_i taken so far, each place goes to
the aspect i* with the highest quotient v_i / (2 s_i + 1) (Sainte-Lague), and there to the argmax over what is left of

    lambda * q_i* * P(d | q_i*) + (1 - lambda) * sum over other aspects i of q_i * P(d | q_i)

then every aspect's s_i grows by P(d | q_i) / sum over aspects of P(d | q_i). Ties keep the order. O(n^2 a).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lm.base import Encoder
from rerankers.aspects import AspectReranker, Scale, Source


class PM2(AspectReranker):
    """Orders each pool by PM-2.

    Args:
        lambda_: Weight of the aspect whose turn it is, 0 to 1; the rest is that of the others.
        source: See ``rerankers.aspects.AspectReranker``, as for all that follows.
        model: The encoder or cross-encoder.
        model_args: Its own arguments.
        scale: ``sum`` or ``max``.
        weights: Votes of the aspects.
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
        return pm2(by_aspect, weights, self.lambda_)


def pm2(by_aspect: NDArray[np.float64], votes: NDArray[np.float64], lambda_: float) -> list[int]:
    """All positions, from P(d | q_i) (n, a) and votes (a,)."""
    seats, left = np.zeros(len(votes)), np.ones(len(by_aspect), np.bool_)
    order = []
    for _ in range(len(by_aspect)):
        quotients = votes / (2 * seats + 1)
        turn = int(quotients.argmax())
        factors = (1 - lambda_) * quotients
        factors[turn] = lambda_ * quotients[turn]
        pick = int(np.where(left, by_aspect @ factors, -1.0).argmax())
        order.append(pick)
        left[pick] = False
        total = by_aspect[pick].sum()
        if total > 0:
            seats += by_aspect[pick] / total
    return order

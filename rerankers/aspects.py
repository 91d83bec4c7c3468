"""P(passage | aspect): how relevant each passage of a pool is to each aspect of its question.

Aspects are queries that an expander wrote (``--expander``, ``--expand-for aspects``); gold perspectives and judges
have no part in it. The source of the numbers is an encoder (cosine of passage and aspect), a cross-encoder (its
logit), or the retriever's own score of the passage when the aspect was searched for (the lowest of that ranking where
it was not found). Each aspect's numbers are scaled from 0 to 1 over the pool, then divided by their sum.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corpora.fingerprint import digest
from corpora.types import Pool, Query, Ranking
from lm.base import Encoder
from rerankers.base import reordered
from rerankers.relevance import minmax, shares
from rerankers.similarity import Embedder, unit

Source: TypeAlias = Literal["encoder", "cross_encoder", "retriever"]
Scale: TypeAlias = Literal["sum", "max"]
Select: TypeAlias = Callable[[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]], list[int]]
"""Relevance (n,), P(passage | aspect) (n, a), weights (a,) -> positions in the order of the picks."""


class AspectReranker:
    """What rerankers by aspect have in common: arguments, probabilities, weights.

    Args:
        source: Where P(passage | aspect) comes from: ``encoder``, ``cross_encoder`` or ``retriever``.
        model: The encoder or cross-encoder by name, model id or folder; None: ``uae`` as an encoder, the default of
            ``lm.cross_encoder`` as a cross-encoder.
        model_args: Its own arguments, ``name=value`` each.
        scale: ``sum``: a distribution over the pool (Santos and others, 2010); ``max``: only scaled to 0 ... 1, which
            lets a passage satisfy an aspect at once.
        weights: Of the aspects, in the expander's order, relative to each other; none given: uniform.
        device: Where the model runs.
        batch_size: Texts that it takes at a time.
    """

    version: ClassVar[int] = 1
    aspects: ClassVar[bool] = True

    def __init__(
        self,
        source: Source = "encoder",
        model: str | Encoder | None = None,
        model_args: tuple[str, ...] = (),
        scale: Scale = "sum",
        weights: tuple[float, ...] = (),
        device: str | None = None,
        batch_size: int | None = None,
    ) -> None:
        if any(not 0 <= weight < float("inf") for weight in weights) or (weights and not sum(weights)):
            raise ValueError(f"weights={','.join(map(str, weights))}: expected numbers of 0 or more, not all 0")
        if source == "retriever" and (model is not None or model_args):
            raise ValueError("source=retriever uses no model: leave out model and model_args")
        self.source, self.model, self.model_args = source, model, model_args
        self.scale, self.weights = scale, weights
        self.device, self.batch_size = device, batch_size

    @property
    def aspect_rankings(self) -> bool:
        """Whether the retriever has to be asked for the aspects as well."""
        return self.source == "retriever"

    @property
    def fingerprint(self) -> str:
        """A hash of all that changes an order."""
        own = [type(self).__name__, self.version, self.source, self.scale, list(self.weights), self._own()]
        return digest([*own, None if self._scorer is None else self._scorer.fingerprint])

    def prefetch(self) -> None:
        """Downloads the model."""
        if self._scorer is not None and hasattr(self._scorer, "prefetch"):
            self._scorer.prefetch()

    def rerank(self, pools: Sequence[Pool]) -> list[Ranking]:
        """Whole pools, in the order of the picks; a pool without aspects keeps its order, and is counted."""
        without = sum(not pool.aspects for pool in pools)
        if without:
            name = type(self).__name__
            warnings.warn(f"{name}: {without} of {len(pools)} questions have no aspects and keep their order",
                          stacklevel=2)  # fmt: skip
        scale = shares if self.scale == "sum" else minmax
        rankings = []
        for pool, raw in zip(pools, self._raw(pools), strict=True):
            scores = np.array([hit.score for hit in pool.ranking], dtype=np.float64)
            order = list(range(len(scores)))
            if pool.aspects and len(order):
                order = self.select(scale(scores), scale(raw), self._weights(pool))
            rankings.append(reordered(pool, order))
        return rankings

    def select(
        self, relevance: NDArray[np.float64], by_aspect: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> list[int]:
        """Positions in the order of the picks, from (n,), (n, a) and (a,)."""
        raise NotImplementedError

    def _own(self) -> object:
        """What else a subclass' order depends on."""
        return None

    def _weights(self, pool: Pool) -> NDArray[np.float64]:
        a = len(pool.aspects)
        if not self.weights:
            return np.full(a, 1 / a)
        if len(self.weights) < a:
            raise ValueError(
                f"weights: {len(self.weights)} given, and question {pool.query.question_id!r} has {a} aspects"
            )
        given = np.array(self.weights[:a])
        return given / given.sum() if given.sum() else np.full(a, 1 / a)

    @cached_property
    def _scorer(self) -> Any:
        if self.source == "retriever":
            return None
        if self.source == "encoder":
            return _ByEncoder(Embedder(self.model or "uae", self.model_args, self.device, self.batch_size))
        from rerankers.cross_encoder import PassageScorer  # it needs torch

        return PassageScorer(self.model, self.model_args, self.device, self.batch_size)

    def _raw(self, pools: Sequence[Pool]) -> Iterator[NDArray[np.float64]]:
        """Yields float64 (n, a) for each pool."""
        if self._scorer is not None:
            yield from self._scorer.scores(pools)
            return
        for pool in pools:
            if pool.aspects and len(pool.aspect_rankings) != len(pool.aspects):
                raise ValueError("source=retriever needs the retriever's rankings of the aspects, and there are none")
            yield _found(pool)


def _found(pool: Pool) -> NDArray[np.float64]:
    """float64 (n, a): the retriever's scores of the pool's passages for each aspect.

    A passage that was not found for an aspect is one average step below the last one that was.
    """
    columns = np.empty((len(pool.ranking), len(pool.aspect_rankings)))
    for i, ranking in enumerate(pool.aspect_rankings):
        scores = {hit.passage_id: hit.score for hit in ranking}
        high, low = max(scores.values(), default=1.0), min(scores.values(), default=0.0)
        step = (high - low) / max(len(scores) - 1, 1) or abs(low) or 1.0
        columns[:, i] = [scores.get(hit.passage_id, low - step) for hit in pool.ranking]
    return columns


class _ByEncoder:
    """Cosines of passages and aspects."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    @property
    def fingerprint(self) -> str:
        return self._embedder.model.fingerprint

    def prefetch(self) -> None:
        self._embedder.prefetch()

    def scores(self, pools: Sequence[Pool]) -> Iterator[NDArray[np.float64]]:
        asked: dict[str, Query] = {aspect.text: aspect for pool in pools for aspect in pool.aspects}
        rows = {text: row for row, text in enumerate(asked)}
        vectors = unit(self._embedder.embeddings.queries(list(asked.values())))
        for pool, units in zip(pools, self._embedder.units(pools), strict=True):
            wanted = vectors[[rows[aspect.text] for aspect in pool.aspects]]
            yield (units @ wanted.T).astype(np.float64)

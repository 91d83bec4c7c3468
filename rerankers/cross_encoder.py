"""A cross-encoder as a reranker: question and passage are read together, and its score alone makes the order.

Nogueira and Cho (2019): Passage re-ranking with BERT, https://arxiv.org/abs/1901.04085. Any sequence-classification
model; the default is https://huggingface.co/cross-encoder/ms-marco-MiniLM-L6-v2 (whatever commit the cache or the hub
has as ``main``; it becomes part of the fingerprint). n forward passes for a pool of n passages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from corpora.fingerprint import digest
from corpora.registry import Registry
from corpora.types import Hit, Passage, Pool, Ranking
from lm.cross_encoder import CrossEncoder as Model

DEFAULT = "cross-encoder/ms-marco-MiniLM-L6-v2"
_MODELS: Registry[Model] = Registry("cross-encoders", {"cross_encoder": "lm.cross_encoder:CrossEncoder"})


class PassageScorer:
    """Scores of passages for texts, by a model with one logit, or with two (then their difference).

    Args:
        model: Model id or folder, or a ``lm.cross_encoder.CrossEncoder``; None: ``DEFAULT``.
        model_args: Of ``lm.cross_encoder.CrossEncoder``, ``name=value`` each.
        device: Where it runs.
        batch_size: Pairs at a time.
    """

    def __init__(
        self, model: Any, model_args: Sequence[str] = (), device: str | None = None, batch_size: int | None = None
    ) -> None:
        self.model, self.model_args, self.device, self.batch_size = model, model_args, device, batch_size

    @cached_property
    def encoder(self) -> Model:
        """The model, made on first use."""
        if isinstance(self.model, Model):
            return self.model
        given = {"device": self.device, "batch_size": self.batch_size}
        arguments = [f"model={os.fspath(self.model or DEFAULT)}", "cut=second", *self.model_args]
        arguments += [f"{name}={value}" for name, value in given.items() if value is not None]
        return _MODELS.create("cross_encoder", arguments)

    @property
    def fingerprint(self) -> str:
        """Of the model."""
        return self.encoder.fingerprint

    def prefetch(self) -> None:
        """Downloads the model."""
        self.encoder.prefetch()

    def scores(self, pools: Sequence[Pool]) -> Iterator[NDArray[np.float64]]:
        """Yields float64 (n, a) for each pool: its passages' scores for its aspects."""
        for pool in pools:
            texts = [aspect.text for aspect in pool.aspects]
            pairs = [(text, _read(passage)) for passage in pool.passages for text in texts]
            yield self.logits(pairs).reshape(len(pool.passages), len(texts))

    def logits(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """float64 (n,): the score of each pair of a text and a passage.

        Raises:
            ValueError: A model with more than two labels, or a text that leaves no room for the passage.
        """
        found = np.full(len(pairs), np.nan)
        labels = len(self.encoder.labels)
        if labels > 2:
            raise ValueError(f"cross-encoder {self.model}: it has {labels} labels, expected one, or two (no and yes)")
        for positions, logits in self.encoder.scores(pairs):
            found[list(positions)] = logits[:, 0] if labels == 1 else logits[:, 1] - logits[:, 0]
        if np.isnan(found).any():
            text = pairs[int(np.flatnonzero(np.isnan(found))[0])][0]
            raise ValueError(f"cross-encoder {self.model}: the text {text[:60]!r}... leaves no room for a passage")
        return found


class CrossEncoder:
    """Orders each pool by a cross-encoder's scores, ties by the old order.

    Args:
        model: Model id or folder of a sequence-classification model with one logit, or two (no and yes).
        model_args: Arguments of ``lm.cross_encoder.CrossEncoder``, such as ``revision=...,dtype=bf16,max_length=256``.
        device: Where it runs.
        batch_size: Pairs at a time.
    """

    version: ClassVar[int] = 1
    per_question: ClassVar[bool] = True

    def __init__(
        self,
        model: str = DEFAULT,
        model_args: tuple[str, ...] = (),
        device: str | None = None,
        batch_size: int | None = None,
    ) -> None:
        self.model, self.model_args, self.device, self.batch_size = model, model_args, device, batch_size

    @cached_property
    def scorer(self) -> PassageScorer:
        """The model."""
        return PassageScorer(self.model, self.model_args, self.device, self.batch_size)

    @property
    def fingerprint(self) -> str:
        """A hash of all that changes an order."""
        return digest(["CrossEncoder", self.version, self.scorer.fingerprint])

    def prefetch(self) -> None:
        """Downloads the model."""
        self.scorer.prefetch()

    def rerank(self, pools: Sequence[Pool]) -> list[Ranking]:
        """Whole pools with the model's scores."""
        rankings = []
        for pool in tqdm(pools, desc="cross-encoder", unit="question", disable=None, leave=False):
            scores = self.scorer.logits([(pool.query.text, _read(passage)) for passage in pool.passages])
            order = np.argsort(-scores, kind="stable")
            rankings.append(tuple(Hit(pool.ranking[i].passage_id, float(scores[i])) for i in order))
        return rankings


def _read(passage: Passage) -> str:
    return f"{passage.title} {passage.text}".strip()

"""The prevalence model of questions with any number of perspectives: given the question, they are independent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluator.prevalence import Drawn, Floats, Integers, PrevalenceModel, Rates, bins_of

_STATES = 3  # 0, 1 or unknown


class _Posterior(NamedTuple):
    """What the labels say.

    Attributes:
        values: float64 (n_unique,), log-likelihood of each question.
        question: float64 (n_unique, a), weights of the nodes of a.
        column: float64 (columns, a, b), weights of the nodes of b given those of a.
        true: float64 (classes, states, a, b), probability of a true support for each observed state.
        prior: float64 (classes, states, a, b), the same before it was observed.
    """

    values: Floats
    question: Floats
    column: Floats
    true: Floats
    prior: Floats


class ColumnModel(PrevalenceModel):
    """Questions with m other than 2. The number of perspectives should be among the covariates: see the module."""

    def __init__(
        self, labels: Sequence[NDArray[np.int8]], covariates: Floats, questions: Integers, clustered: bool
    ) -> None:
        super().__init__(labels, covariates, questions, clustered)
        self.labels = labels
        size = self.n_bins * _STATES
        counts = np.zeros((sum(each.shape[1] for each in labels), size + 1))
        column_class = np.repeat(self.class_of, [each.shape[1] for each in labels])
        start = 0
        for each in labels:
            for state, group in zip(each % 3, bins_of(len(each)), strict=True):
                np.add.at(counts, (np.arange(start, start + each.shape[1]), group * _STATES + state), 1)
            start += each.shape[1]
        counts[:, -1] = column_class
        unique, column_of = np.unique(counts, axis=0, return_inverse=True)
        self.states = np.flatnonzero(unique[:, :-1].any(axis=0))  # each is a group of ranks and a label
        self.counts, self.column_class = unique[:, self.states], unique[:, -1].astype(np.intp)
        self.columns = np.split(column_of.ravel(), np.cumsum([each.shape[1] for each in labels])[:-1])
        keys: dict[tuple[int, ...], int] = {}
        sorted_columns = [np.sort(each) for each in self.columns]
        self.index = np.array([keys.setdefault(tuple(each.tolist()), len(keys)) for each in sorted_columns], np.intp)
        self.n_unique = len(keys)
        self.flat = np.array([column for key in keys for column in key], np.intp)
        self.starts = np.cumsum([0, *[len(key) for key in keys]])[:-1]
        self.unique_class = self.column_class[self.flat[self.starts]]

    def evaluate(self, theta: Floats, rates: Rates) -> tuple[Floats, Floats]:
        """See the base class."""
        found = self._posterior_of(theta, rates)
        terms = found.true - found.prior  # by class, state, a, b
        by_bin = np.stack([self._columns(found, terms, group) for group in range(self.n_bins)], axis=2)
        own = by_bin.sum(axis=2)
        varied = self._columns(found, terms * self.nodes.points)
        parts = np.concatenate([by_bin, (own * self.nodes.points)[:, :, None], varied[:, :, None]], axis=2)
        summed = np.add.reduceat(parts[self.flat], self.starts, axis=0)
        means = np.einsum("qa,qap->qp", found.question, summed)
        covariates = means[:, : self.n_bins].sum(axis=1)[:, None] * self.classes[self.unique_class]
        return found.values, np.concatenate([means[:, : self.n_bins], covariates, means[:, self.n_bins :]], axis=1)

    def draw(self, theta: Floats, rates: Rates, draws: int, random: np.random.Generator) -> list[Drawn]:
        """See the base class."""
        found = self._posterior_of(theta, rates)
        question, column = found.question.cumsum(axis=1), found.column.cumsum(axis=2)
        shapes: dict[tuple[int, int], list[int]] = {}
        for i, each in enumerate(self.labels):
            shapes.setdefault((each.shape[0], each.shape[1]), []).append(i)
        drawn = []
        for (k, m), chosen in shapes.items():
            columns = np.array([self.columns[i] for i in chosen]).reshape(len(chosen), m)
            states = np.array([self.labels[i] for i in chosen]).reshape(len(chosen), k, m) % 3
            states = np.searchsorted(self.states, states + (bins_of(k) * _STATES)[None, :, None])
            a = (question[self.index[chosen]] < random.random((draws, len(chosen), 1))).sum(axis=2)
            a = np.minimum(a, question.shape[1] - 1)  # where rounding leaves the sum below 1
            b = (column[columns, a[:, :, None]] < random.random((draws, len(chosen), m, 1))).sum(axis=3)
            b = np.minimum(b, question.shape[1] - 1)
            classes = self.class_of[chosen][None, :, None, None]
            chance = found.true[classes, states[None], a[:, :, None, None], b[:, :, None, :]]
            labels = (random.random(chance.shape) < chance).astype(np.uint8)
            drawn.append(Drawn(self.questions[chosen], labels))
        return drawn

    def _posterior_of(self, theta: Floats, rates: Rates) -> _Posterior:
        points, log_weights = self.nodes
        spread = theta[self.sigma.start] * points[:, None] + theta[self.sigma.start + 1] * points[None, :]
        logits = self._bases(theta)[:, self.states // _STATES, None, None] + spread
        prior = 1 / (1 + np.exp(-logits))
        channel = rates.channel()[:, self.states % _STATES, None, None]
        positive = prior * channel[1]
        observed = positive + (1 - prior) * channel[0]
        columns = np.einsum("vs,vsab->vab", self.counts, np.log(observed)[self.column_class])
        columns, totals = _normalised(columns + log_weights)
        joint = np.add.reduceat(totals[self.flat], self.starts, axis=0) + log_weights
        question, values = _normalised(joint)
        return _Posterior(values, question, columns, positive / observed, prior)

    def _columns(self, found: _Posterior, terms: Floats, group: int | None = None) -> Floats:
        """float64 (columns, a): counts times terms of one group of ranks or all, summed, and the mean over b."""
        chosen = slice(None) if group is None else self.states // _STATES == group
        summed = np.einsum("vs,vsab->vab", self.counts[:, chosen], terms[self.column_class][:, chosen])
        return np.asarray((summed * found.column).sum(axis=2))


def _normalised(logs: Floats) -> tuple[Floats, Floats]:
    """Weights that sum to 1 over the last axis, and the logarithms of the sums."""
    top = logs.max(axis=-1, keepdims=True)
    weights = np.exp(logs - top)
    total = weights.sum(axis=-1, keepdims=True)
    return weights / total, (np.log(total) + top)[..., 0]

"""The prevalence model of questions with two perspectives: a passage's two labels may attract or exclude each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluator.prevalence import Bits, Drawn, Floats, Integers, PrevalenceModel, Rates, bins_of

_FIRST = np.array([0.0, 1.0, 0.0, 1.0])
_SECOND = np.array([0.0, 0.0, 1.0, 1.0])
_STATES = 9  # a passage's two labels, each 0, 1 or unknown


class _Tables(NamedTuple):
    """What a passage says, by class, observed state (with its group of ranks), true state (4) and quadrature node.

    Attributes:
        prior: float64 (classes, states, 4, nodes), of the true state.
        observed: float64 (classes, states, nodes), probability of the observed state.
        posterior: float64 (classes, states, 4, nodes), of the true state given the observed one.
    """

    prior: Floats
    observed: Floats
    posterior: Floats


class PairModel(PrevalenceModel):
    """Questions with m = 2; the last parameter is log gamma, the odds ratio of a passage's two labels."""

    extra = 1

    def __init__(
        self, labels: Sequence[NDArray[np.int8]], covariates: Floats, questions: Integers, clustered: bool
    ) -> None:
        super().__init__(labels, covariates, questions, clustered)
        # A state is a group of ranks and two labels; which states a question has, and how often, is all that counts.
        states = [bins_of(len(each)) * _STATES + (each % 3) @ np.array([3, 1]) for each in labels]
        self.states, places = np.unique(np.concatenate([*states, []]).astype(np.intp), return_inverse=True)
        lengths = np.array([len(each) for each in states])
        rows = np.split(places.ravel(), np.cumsum(lengths)[:-1])
        self.by_length = [
            (chosen, np.array([rows[i] for i in chosen], dtype=np.intp).reshape(len(chosen), k))
            for k in np.unique(lengths).tolist()
            for chosen in [np.flatnonzero(lengths == k)]
        ]
        counts = np.zeros((len(labels), 1 + len(self.states)))
        counts[:, 0] = self.class_of
        for i, row in enumerate(rows):
            np.add.at(counts[i], row + 1, 1)
        unique, index = np.unique(counts, axis=0, return_inverse=True)  # sorted, so that classes stand together
        self.index, self.n_unique = index.ravel(), len(unique)
        self.unique_class, self.counts = unique[:, 0].astype(np.intp), unique[:, 1:]
        ends = np.searchsorted(self.unique_class, np.arange(len(self.classes) + 1))
        self.parts = [slice(*each) for each in pairwise(ends.tolist())]
        self.in_bin = (self.states[:, None] // _STATES == np.arange(self.n_bins)).astype(np.float64)
        first, second, third = np.meshgrid(*[self.nodes.points] * 3, indexing="ij")
        self.a, self.b = first.ravel(), (second.ravel(), third.ravel())
        self.log_weights = np.add.outer(
            np.add.outer(self.nodes.log_weights, self.nodes.log_weights), self.nodes.log_weights
        ).ravel()

    def evaluate(self, theta: Floats, rates: Rates) -> tuple[Floats, Floats]:
        """See the base class."""
        tables = self._tables(theta, rates)
        values, nodes = self._nodes(tables)
        both = tables.posterior - tables.prior
        first, second = both[:, :, 1] + both[:, :, 3], both[:, :, 2] + both[:, :, 3]
        by_column = first * self.b[0] + second * self.b[1]
        terms = np.stack([first + second, (first + second) * self.a, by_column, both[:, :, 3]], axis=1)
        found = np.empty((self.n_unique, 4, len(self.states)))
        for part, term in zip(self.parts, terms, strict=True):
            found[part] = (nodes[part] @ term.reshape(-1, term.shape[2]).T).reshape(
                len(nodes[part]), 4, len(self.states)
            )
        found *= self.counts[:, None]
        by_bin, totals = found[:, 0] @ self.in_bin, found.sum(axis=2)
        covariates = totals[:, :1] * self.classes[self.unique_class]
        return values, np.concatenate([by_bin, covariates, totals[:, 1:]], axis=1)

    def draw(self, theta: Floats, rates: Rates, draws: int, random: np.random.Generator) -> list[Drawn]:
        """See the base class."""
        tables = self._tables(theta, rates)
        nodes = self._nodes(tables)[1].cumsum(axis=1)
        below = tables.posterior.cumsum(axis=2)[:, :, :3].transpose(0, 1, 3, 2)
        drawn = []
        for chosen, rows in self.by_length:
            node = (nodes[self.index[chosen]] < random.random((draws, len(chosen), 1))).sum(axis=2)
            node = np.minimum(node, nodes.shape[1] - 1)  # where rounding leaves the sum below 1
            thresholds = below[self.class_of[chosen][:, None], rows, node[:, :, None]]
            true = (thresholds < random.random((*thresholds.shape[:3], 1))).sum(axis=3)
            labels: Bits = np.stack([true & 1, true >> 1], axis=3).astype(np.uint8)
            drawn.append(Drawn(self.questions[chosen], labels))
        return drawn

    def _tables(self, theta: Floats, rates: Rates) -> _Tables:
        own, columns = self._bases(theta)[:, :, None], theta[self.sigma.start + 1]
        shared = own + theta[self.sigma.start] * self.a
        first, second = shared + columns * self.b[0], shared + columns * self.b[1]
        logits = np.stack([np.zeros_like(first), first, second, first + second + theta[-1]], axis=2)
        prior = np.exp(logits - logits.max(axis=2, keepdims=True))
        prior /= prior.sum(axis=2, keepdims=True)
        prior = prior[:, self.states // _STATES]
        code, one = self.states % _STATES, rates.channel()
        channel = one[_FIRST.astype(int)][:, code // 3] * one[_SECOND.astype(int)][:, code % 3]
        posterior = prior * channel.T[None, :, :, None]
        observed = posterior.sum(axis=2)
        return _Tables(prior, observed, posterior / observed[:, :, None])

    def _nodes(self, tables: _Tables) -> tuple[Floats, Floats]:
        """Log-likelihoods, float64 (n_unique,), and posterior weights of the nodes, float64 (n_unique, nodes)."""
        logs = np.log(tables.observed)
        joint = np.empty((self.n_unique, len(self.a)))
        for part, log in zip(self.parts, logs, strict=True):
            joint[part] = self.counts[part] @ log + self.log_weights
        top = joint.max(axis=1, keepdims=True)
        weights = np.exp(joint - top)
        total = weights.sum(axis=1, keepdims=True)
        return (np.log(total) + top).ravel(), weights / total

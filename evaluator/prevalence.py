"""How often passages really support perspectives, estimated from a judge's labels and its known error rates.

The true labels of a question follow a model of few parameters. Passage at rank i and perspective j:

    logit P(true) = alpha(rank of i) + beta * (group, number of perspectives) + a(question) + b(question, j)

with a and b normal with mean 0: some questions, and some perspectives, are easy to find passages for. For questions
with two perspectives, gamma is the odds ratio by which one passage supports both. Without a, b and gamma this is
prevalence by rank with independent labels, and the fit is what the EM algorithm for label shift converges to (Saerens,
Latinne and Decaestecker 2002, https://doi.org/10.1162/089976602753284446). Real labels are not like that: supports
come in clusters, and whoever spreads them evenly over questions overstates MRecall more than the judge's errors do.

The posterior mode is found by scoring with the outer product of the gradients (Berndt, Hall, Hall and Hausman 1974),
the normal variables are integrated out by three-point Gauss-Hermite quadrature, and equal questions are computed once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.intp]
Bits: TypeAlias = NDArray[np.uint8]

RANK_BINS = (1, 2, 3, 4, 5, 6, 11, 21, 51)
"""First ranks of the groups of ranks that share a prevalence."""
_ALPHA_SPREAD, _BETA_SPREAD, _SIGMA_SPREAD, _GAMMA_SPREAD = 1.5, 1.0, 1.0, 1.5  # of the weak normal priors
_LARGEST_STEP = 1.0
_TOLERANCE = 5e-3  # of the log posterior


class Rates(NamedTuple):
    """A judge's sensitivity and specificity."""

    sensitivity: float
    specificity: float

    def channel(self) -> Floats:
        """float64 (2, 3): the probability of the label 0, 1, or unknown (which says nothing) for a true 0 and 1."""
        hit, reject = self.sensitivity, self.specificity
        return np.array([[reject, 1 - reject, 1.0], [1 - hit, hit, 1.0]])


class Drawn(NamedTuple):
    """True labels that were drawn for some questions of one shape.

    Attributes:
        questions: int (n,), which questions.
        labels: uint8 (draws, n, k, m).
    """

    questions: Integers
    labels: Bits


class Nodes(NamedTuple):
    """Points and logarithmic weights of a quadrature."""

    points: Floats
    log_weights: Floats


def quadrature(clustered: bool) -> Nodes:
    """The three-point Gauss-Hermite rule for a standard normal variable; one point where nothing varies."""
    if not clustered:
        return Nodes(np.zeros(1), np.zeros(1))
    return Nodes(np.array([-math.sqrt(3), 0.0, math.sqrt(3)]), np.log([1 / 6, 2 / 3, 1 / 6]))


def bins_of(k: int) -> Integers:
    """Int (k,): the group of ranks of each of the first k ranks."""
    return np.searchsorted(RANK_BINS, np.arange(1, k + 1), side="right") - 1


class PrevalenceModel(ABC):
    """The model of the true labels of some questions of a run; parameters: alpha, beta, sigma of a and of b, and more.

    Args:
        labels: int8 (k, m) per question, as judged, -1 unknown.
        covariates: float64 (n, c), of each question.
        questions: int (n,), what these questions are called in ``Drawn``.
        clustered: Whether a, b and gamma are there; else labels are independent.

    Attributes:
        index: int (n,), the place of each question among the different ones, of which there are ``n_unique``.
        classes: float64 (classes, c), the different covariates.
        class_of: int (n,).
    """

    extra = 0
    """Parameters after the two sigmas."""
    index: Integers
    n_unique: int

    def __init__(
        self, labels: Sequence[NDArray[np.int8]], covariates: Floats, questions: Integers, clustered: bool
    ) -> None:
        self.questions, self.clustered = questions, clustered
        self.classes, class_of = np.unique(covariates, axis=0, return_inverse=True)
        self.class_of: Integers = class_of.ravel()
        self.n_bins = int(bins_of(max(len(each) for each in labels)).max(initial=0)) + 1
        self.n_known = sum(int(np.count_nonzero(each >= 0)) for each in labels)
        self.n_positive = sum(int(np.count_nonzero(each == 1)) for each in labels)
        self.nodes = quadrature(clustered)

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self.n_bins + int(self.classes.shape[1]) + 2 + self.extra

    @property
    def sigma(self) -> slice:
        """Where the two sigmas stand."""
        return slice(self.n_bins + self.classes.shape[1], self.n_bins + self.classes.shape[1] + 2)

    @abstractmethod
    def evaluate(self, theta: Floats, rates: Rates) -> tuple[Floats, Floats]:
        """Log-likelihoods, float64 (n_unique,), and their gradients, float64 (n_unique, size)."""

    @abstractmethod
    def draw(self, theta: Floats, rates: Rates, draws: int, random: np.random.Generator) -> list[Drawn]:
        """True labels of all questions, given their judged labels."""

    def start(self, rates: Rates) -> Floats:
        """Parameters to begin with: one prevalence everywhere, and some clustering, from where it can grow or go."""
        observed = (self.n_positive + 0.5) / (self.n_known + 1)
        share = (observed - (1 - rates.specificity)) / (rates.sensitivity + rates.specificity - 1)
        share = min(max(share, 0.02), 0.98)
        theta = np.zeros(self.size)
        theta[: self.n_bins] = math.log(share / (1 - share))
        theta[self.sigma] = 0.7 * self.clustered
        return theta

    def fit(self, rates: Rates, weights: Floats | None = None, start: Floats | None = None, steps: int = 60) -> Floats:
        """The parameters with the highest posterior density, float64 (size,).

        Args:
            rates: The judge's.
            weights: float64 (n,), how often each question counts; default: once.
            start: Where to begin.
            steps: At most so many improvements.
        """
        counts = np.bincount(self.index, weights, self.n_unique).astype(np.float64)
        centre = self.start(rates)
        precision = self._precision()
        theta = centre if start is None else start
        centre = np.where(np.arange(self.size) < self.n_bins, centre, 0.0)
        free = np.flatnonzero(np.isfinite(precision))
        value, gradients = self._posterior(theta, rates, counts, centre, precision)
        for _ in range(steps):
            slope = counts @ gradients - np.where(np.isfinite(precision), precision, 0) * (theta - centre)
            curvature = (gradients.T * counts) @ gradients + np.diag(np.where(np.isfinite(precision), precision, 1))
            step = np.zeros(self.size)
            step[free] = np.linalg.solve(curvature[np.ix_(free, free)], slope[free])
            step *= min(1.0, _LARGEST_STEP / max(np.abs(step).max(), 1e-12))
            for _ in range(12):
                best, found = self._posterior(theta + step, rates, counts, centre, precision)
                if best >= value:
                    break
                step /= 2
            else:
                break
            theta, gradients, gain, value = theta + step, found, best - value, best
            if gain < _TOLERANCE:
                break
        return theta

    def _precision(self) -> Floats:
        """Of the priors of all parameters; infinite where a parameter is fixed."""
        clustering = [_SIGMA_SPREAD] * 2 + [_GAMMA_SPREAD] * self.extra
        spread = [_ALPHA_SPREAD] * self.n_bins + [_BETA_SPREAD] * self.classes.shape[1]
        spread += clustering if self.clustered else [0.0] * len(clustering)
        with np.errstate(divide="ignore"):
            return np.asarray(1 / np.square(spread))

    def _posterior(
        self, theta: Floats, rates: Rates, counts: Floats, centre: Floats, precision: Floats
    ) -> tuple[float, Floats]:
        values, gradients = self.evaluate(theta, rates)
        finite = np.isfinite(precision)
        penalty = 0.5 * float((precision[finite] * (theta - centre)[finite] ** 2).sum())
        return float(counts @ values) - penalty, gradients

    def _bases(self, theta: Floats) -> Floats:
        """float64 (classes, bins): alpha + beta * covariates."""
        alpha, beta = theta[: self.n_bins], theta[self.n_bins : self.n_bins + self.classes.shape[1]]
        return np.asarray(alpha[None, :] + (self.classes @ beta)[:, None])

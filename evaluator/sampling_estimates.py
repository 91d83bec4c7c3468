"""Scores of a run of which people labelled a probability sample: prediction-powered estimates, without a model.

What is drawn is a whole question: every passage down to the metric's depth with every perspective. Then each metric has
its true value on the drawn questions, whatever it does with its labels, and the judge's labels of all questions serve
as predictions:

    mean over all of lambda * judged + weighted mean over the sample of (true - lambda * judged)

is unbiased for any lambda, and shortest for the regression coefficient of the true on the judged values, in [0, 1]:
the difference estimator of survey sampling with weights 1 / inclusion probability (Hajek 1971; Saerndal, Swensson and
Wretman 1992, chapter 6), known as prediction-powered inference (Angelopoulos et al. 2023,
https://doi.org/10.1126/science.adi6000; for lambda, https://arxiv.org/abs/2311.01453). No assumption about the judge's
errors is needed. With lambda = 0 it is the Horvitz-Thompson estimate in Hajek's form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from evaluator.correction import CorrectedScores, Correction, checked, naive_values, unknown_labels
from evaluator.metric import Labels, Metric, Stances
from evaluator.prevalence import Floats
from evaluator.question_samples import Sample
from evaluator.resampling import means, strata_of

MIN_QUESTIONS = 30
"""Fewer drawn questions say too little, and their intervals would be too short."""
MIN_IN_GROUP = 10
"""Of each group, where the groups' means are averaged."""


def sampled_scores(
    metrics: Sequence[Metric],
    labels: Mapping[str, Labels],
    sample: Sample,
    *,
    stances: Mapping[str, Stances] | None = None,
    groups: Mapping[str, str] | None = None,
    macro: bool = False,
) -> Correction:
    """The scores of a judged run, corrected by people's labels of some whole questions of it.

    Args:
        metrics: ``Judged``, which has no true value, is left out, and so are metrics that look deeper than people did.
        labels: question_id -> int8 (k, m), the judge's.
        sample: What people labelled.
        stances: question_id -> one stance per perspective.
        groups: question_id -> group; needed with ``macro``.
        macro: Whether the mean is the mean of the groups' means; then each group needs a sample of its own.

    Raises:
        ValueError: Too few drawn questions, or all metrics look deeper than these are labelled.
    """
    metrics, deep = _split(checked(metrics), labels, sample)
    questions = sorted(labels)
    strata = strata_of(questions, groups, macro)
    weights = np.array([_weight(question, labels, sample) for question in questions])
    drawn = np.array([question in sample.labels for question in questions])
    _check([int(drawn[s].sum()) for s in strata])
    judged = naive_values(metrics, questions, labels, stances)
    true = np.full_like(judged, np.nan)
    known = {question: sample.labels.get(question, labels[question]) for question in questions}
    there = np.flatnonzero(weights)
    true[:, there] = naive_values(metrics, [questions[i] for i in there.tolist()], known, stances)
    scores = []
    for metric, own, people in zip(metrics, judged, true, strict=True):
        found = combined([estimate(own[s], people[s], weights[s]) for s in strata if not np.isnan(own[s]).all()])
        naive = float(means(own[None, None], np.ones((1, len(own))), strata)[0, 0])
        n = int(np.count_nonzero(~np.isnan(own)))
        scores.append(CorrectedScores(metric.name, *found, naive, n, unknown_labels(metric, labels)))
    note = (
        f"Measured on {drawn.sum()} of {len(questions)} questions, drawn with known probabilities and labelled whole "
        f"to rank {sample.depth}: estimates and intervals take the judge's labels of all questions as predictions and "
        "assume nothing about its errors."
    )
    notes = [note, f"Left out, as they look deeper: {', '.join(each.name for each in deep)}."] if deep else [note]
    return Correction("prediction-powered", tuple(scores), tuple(notes))


def _weight(question: str, labels: Mapping[str, Labels], sample: Sample) -> float:
    """How many questions this one stands for; one without passages needs no labels, and stands for itself."""
    if question in sample.labels:
        return 1 / sample.probabilities[question]
    return 0.0 if len(labels[question]) else 1.0


def _check(drawn: Sequence[int]) -> None:
    """Refuses samples that are too small; how many questions were drawn comes by stratum."""
    if sum(drawn) < MIN_QUESTIONS:
        raise ValueError(
            f"no error-aware scores: {sum(drawn)} labelled questions, expected {MIN_QUESTIONS}: label more"
        )
    if len(drawn) > 1 and min(drawn) < MIN_IN_GROUP:
        raise ValueError(
            f"no error-aware macro mean: a group has {min(drawn)} labelled questions, expected {MIN_IN_GROUP}: "
            "label more"
        )


def _split(
    metrics: Sequence[Metric], labels: Mapping[str, Labels], sample: Sample
) -> tuple[list[Metric], list[Metric]]:
    """The metrics that look no deeper than the drawn questions are labelled, and the others."""
    sizes = [(len(labels[each]), len(found)) for each, found in sample.labels.items() if each in labels]
    deep = [metric for metric in metrics if any(min(k, metric.depth or k) > labelled for k, labelled in sizes)]
    if len(deep) == len(metrics) > 0:
        raise ValueError(
            f"no error-aware scores: people labelled the first {sample.depth} ranks, and {deep[0]} looks deeper: draw "
            "a deeper sample"
        )
    return [metric for metric in metrics if metric not in deep], deep


class Estimate(NamedTuple):
    """An estimated mean, the middle of its interval (which may be another), its variance, and on how many it rests."""

    mean: float
    middle: float
    variance: float
    n: int


def estimate(judged: Floats, true: Floats, weights: Floats) -> Estimate:
    """The prediction-powered estimate of a mean.

    A metric of two values, such as MRecall, may be the same on all drawn questions by chance. Its interval is therefore
    that of a sample with four more questions, one for each way in which judge and people may say so (Agresti and Coull
    1998, https://doi.org/10.1080/00031305.1998.10480550); the mean is not.

    Args:
        judged: float64 (n,), values on the judge's labels.
        true: float64 (n,), values on people's labels; NaN where not drawn, or undefined.
        weights: float64 (n,), 1 / inclusion probability; 0 where not drawn.
    """
    drawn = weights > 0
    if (np.isnan(judged[drawn]) == np.isnan(true[drawn])).all():
        kept = ~np.isnan(judged)  # whether it is defined hangs on the question, not on the labels
        judged, true, weights = judged[kept], true[kept], weights[kept]
    else:
        weights = np.where(np.isnan(true), 0.0, weights)
        judged = np.zeros_like(judged)  # no prediction: the judge does not know where it is defined
    drawn = weights > 0
    n = int(np.count_nonzero(drawn))
    if n < 2:
        return Estimate(math.nan, math.nan, math.nan, n)
    mean, variance = _difference(judged, true, weights)
    both = np.unique(np.concatenate([judged, true[drawn]]))
    if len(both) > 2:
        return Estimate(mean, mean, variance, n)
    low, high = (0.0, 1.0) if len(both) < 2 else both.tolist()
    more = np.full(4, weights[drawn].mean())
    middle, variance = _difference(
        np.append(judged, [low, low, high, high]), np.append(true, [low, high, low, high]), np.append(weights, more)
    )
    return Estimate(mean, middle, variance, n)


def _difference(judged: Floats, true: Floats, weights: Floats) -> tuple[float, float]:
    """The difference estimate, and its variance over samples of questions and over other questions."""
    drawn = weights > 0
    share = _slope(judged[drawn], true[drawn], weights[drawn])
    rest = np.where(drawn, true - share * judged, 0.0)
    middle = float((weights * rest).sum() / weights.sum())
    # Linearised: what each question contributes to the error of both means.
    scale = len(judged) / weights.sum()
    parts = share * (judged - judged.mean()) + scale * weights * np.where(drawn, rest - middle, 0.0)
    n = int(np.count_nonzero(drawn))
    variance = float((parts**2).sum()) / len(judged) ** 2 * n / (n - 1)
    return share * float(judged.mean()) + middle, variance


def _slope(judged: Floats, true: Floats, weights: Floats) -> float:
    """The weighted regression coefficient of true on judged values, in [0, 1]; 0 where the judged do not vary."""
    centred = judged - np.average(judged, weights=weights)
    spread = float((weights * centred**2).sum())
    return min(max(float((weights * centred * true).sum()) / spread, 0.0), 1.0) if spread > 0 else 0.0


def combined(parts: Sequence[Estimate]) -> tuple[float, float, float]:
    """Mean, and ends of the 95 % interval, of the mean of several groups' means (or of one)."""
    if not parts:
        return math.nan, math.nan, math.nan
    variances = np.array([each.variance for each in parts])
    total = float(variances.sum())
    # Welch and Satterthwaite: the degrees of freedom of a sum of variances.
    freedom = total**2 / float((variances**2 / [max(each.n - 1, 1) for each in parts]).sum()) if total > 0 else 1e9
    half = _student(freedom) * math.sqrt(total) / len(parts)
    mean, middle = (math.fsum(column) / len(parts) for column in list(zip(*parts, strict=True))[:2])
    return mean, max(0.0, middle - half), middle + half  # no metric is negative


def _student(freedom: float) -> float:
    """The 97.5th percentile of Student's t, to 0.01 from 5 degrees on (Abramowitz and Stegun 1964, 26.7.5)."""
    z = NormalDist().inv_cdf(0.975)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3

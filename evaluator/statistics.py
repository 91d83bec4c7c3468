"""Means over questions and what can be concluded from them: intervals, detectable differences, bounds.

A question where a metric is undefined (NaN) is left out and counted, never taken as 0. With ``macro`` the mean is the
mean of the groups' means, as BERDS reports it; a group without a defined question is left out of it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluator.metric import Labels, Metric, Stances
from evaluator.types import Scores

RESAMPLES = 10_000
_CHUNK = 1 << 18  # numbers drawn at once; part of the random stream, so a change changes the last digits of intervals


class Aggregate(NamedTuple):
    """A metric over several questions; the fields are those of ``Scores``."""

    mean: float
    low: float
    high: float
    detectable: float
    n: int
    n_undefined: int


def bootstrap(
    values: NDArray[np.float64],
    groups: NDArray[np.intp] | None = None,
    macro: bool = False,
    resamples: int = RESAMPLES,
    seed: str | int = 0,
) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the mean over questions (Efron and Tibshirani 1993, chapter 13).

    The questions are the sample: the interval says how the mean would vary over other questions of the same kind, not
    over other labels. With ``macro`` each group is resampled by itself, and groups have equal weights. The draws
    depend on the seed and the number of questions only, so they are the same on every machine and for any choice of
    other metrics; values must come in a fixed order.

    Where all values are equal the interval has no width, although 0 of 50 is compatible with a rate of up to 6 %
    (3/n, the rule of three): read such an interval together with n.

    Args:
        values: float64 (n,); NaN is undefined and left out.
        groups: int (n,), the group of each question; read with ``macro`` only.
        macro: Whether the mean is the mean of the groups' means.
        resamples: How many resamples are drawn.
        seed: Where the random numbers start; any string, hashed with SHA-256.

    Returns:
        The 2.5th and the 97.5th percentile; NaN for fewer than two questions, in any group with ``macro``: one value
        tells nothing of how values vary.
    """
    samples = _samples(values, groups, macro)
    if not samples or min(map(len, samples)) < 2:
        return math.nan, math.nan
    digest = hashlib.sha256(str(seed).encode()).digest()
    random = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))
    means = np.zeros(resamples)
    for sample in samples:
        rows = max(1, _CHUNK // len(sample))
        for start in range(0, resamples, rows):
            drawn = random.integers(0, len(sample), (min(rows, resamples - start), len(sample)), dtype=np.uint32)
            means[start : start + rows] += sample[drawn].mean(axis=1) / len(samples)
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)


def detectable_difference(
    values: NDArray[np.float64], groups: NDArray[np.intp] | None = None, macro: bool = False
) -> float:
    """The smallest difference to another system that a two-sided 5 % test finds with 80 % power.

    Formula: (z(.975) + z(.80)) * sqrt(2) * se, with se the standard error of this system's mean. It supposes that the
    other system's values spread as much, over as many questions, and are uncorrelated with this one's. Systems are
    usually compared on the same questions and correlated positively; then smaller differences are found. A published
    difference below this number calls for the paired test, not for belief.

    Source: Card et al. 2020, With Little Power Comes Great Responsibility,
    https://aclanthology.org/2020.emnlp-main.745; Sakai 2016, https://doi.org/10.1145/2911451.2911492.

    Args:
        values: float64 (n,); NaN is undefined and left out.
        groups: int (n,), the group of each question; read with ``macro`` only.
        macro: Whether the mean is the mean of the groups' means; its variance is then the mean of theirs over the
            number of groups.

    Returns:
        The difference, in units of the metric; NaN where the spread is unknown: fewer than two questions in a group,
        or all values equal.
    """
    samples = _samples(values, groups, macro)
    if not samples or min(map(len, samples)) < 2:
        return math.nan
    variance = sum(float(sample.var(ddof=1)) / len(sample) for sample in samples) / len(samples) ** 2
    if variance == 0:
        return math.nan
    z = NormalDist()
    return (z.inv_cdf(0.975) + z.inv_cdf(0.80)) * math.sqrt(2 * variance)


def aggregate(
    metric: str,
    per_question: Mapping[str, float],
    groups: Mapping[str, str] | None = None,
    macro: bool = False,
    seed: str | int = 0,
) -> Aggregate:
    """The mean over questions with its interval; the order of the questions does not matter.

    Args:
        metric: Its name: together with the seed it fixes the resamples.
        per_question: question_id -> value, NaN where undefined.
        groups: question_id -> group; needed with ``macro``.
        macro: Whether groups have equal weights.
        seed: Of the bootstrap.
    """
    values, codes = _arrays(per_question, groups, macro)
    low, high = bootstrap(values, codes, macro, seed=f"{seed}/{metric}")
    n = int(np.count_nonzero(~np.isnan(values)))
    detectable = detectable_difference(values, codes, macro)
    return Aggregate(_mean(values, codes, macro), low, high, detectable, n, len(values) - n)


class Value(NamedTuple):
    """A metric for one question.

    Attributes:
        value: NaN where undefined.
        upper: The value with every unknown label taken as a support; the same as ``value`` for metrics that more
            supports may lower.
        unjudged: Passages that the metric consults and of which it misses a label.
    """

    value: float
    upper: float
    unjudged: int


def question_values(
    metrics: Sequence[Metric],
    labels: Mapping[str, Labels],
    *,
    pools: Mapping[str, Labels] | None = None,
    stances: Mapping[str, Stances] | None = None,
) -> dict[str, dict[str, Value]]:
    """Metric name -> question_id -> value, for every metric and question.

    Args:
        metrics: What to compute.
        labels: question_id -> int8 (k, m); questions without a ranking have k = 0 and are not left out.
        pools: question_id -> int8 (p, m), for the metrics that need them.
        stances: question_id -> one stance per perspective.

    Raises:
        ValueError: Where a metric needs a pool that is not there or cannot hold the ranking, naming the question.
    """
    table: dict[str, dict[str, Value]] = {metric.name: {} for metric in metrics}
    for question in sorted(labels):
        pool = None if pools is None else pools.get(question)
        sides = None if stances is None else stances.get(question)
        known, optimistic = labels[question], _optimistic(labels[question])
        for metric in metrics:
            try:
                value = metric.score(known, pool, sides)
                if optimistic is known:
                    table[metric.name][question] = Value(value, value, 0)
                    continue
                best = metric.score(optimistic, pool, sides) if metric.monotone or math.isnan(value) else value
            except ValueError as error:
                raise ValueError(f"question {question}: {error}") from error
            # A metric that no label could define, such as a share of the binary questions, misses none.
            unjudged = 0 if math.isnan(best) else _unjudged(metric, known)
            table[metric.name][question] = Value(value, best if metric.monotone else value, unjudged)
        if pool is not None and any(metric.needs == "pool" for metric in metrics):
            _check_pool(question, known, pool)
    return table


def summarise(
    metric: Metric,
    values: Mapping[str, Value],
    groups: Mapping[str, str] | None = None,
    macro: bool = False,
    seed: str | int = 0,
) -> Scores:
    """One metric over several questions.

    ``upper`` is the mean with every unknown label taken as a support, for the metrics that more supports never lower;
    it equals the mean where nothing is unknown. ``n_unjudged`` counts the passages within the metric's depth with an
    unknown label; for a metric that reads a perspective only until it is covered, labels below that point do not count.

    Args:
        metric: Which.
        values: question_id -> its value there.
        groups: question_id -> group; needed with ``macro``.
        macro: Whether groups have equal weights.
        seed: Of the bootstrap.
    """
    per_question = {question: each.value for question, each in values.items()}
    uppers = {question: each.upper for question, each in values.items()}
    return Scores(
        metric=metric.name,
        upper=_mean(*_arrays(uppers, groups, macro), macro) if metric.monotone else None,
        n_unjudged=sum(each.unjudged for each in values.values()),
        per_question=per_question,
        **aggregate(metric.plain_name, per_question, groups, macro, seed)._asdict(),
    )


def score_run(
    metrics: Sequence[Metric],
    labels: Mapping[str, Labels],
    *,
    pools: Mapping[str, Labels] | None = None,
    stances: Mapping[str, Stances] | None = None,
    groups: Mapping[str, str] | None = None,
    macro: bool = False,
    seed: str | int = 0,
) -> list[Scores]:
    """The scores of a run, one for each metric, in their order: ``question_values``, summarised."""
    table = question_values(metrics, labels, pools=pools, stances=stances)
    return [summarise(metric, table[metric.name], groups, macro, seed) for metric in metrics]


def by_perspectives(scores: Scores, m_of_question: Mapping[str, int]) -> dict[int, tuple[float, int]]:
    """Breaks a score down by the number of perspectives.

    Args:
        scores: One metric.
        m_of_question: question_id -> number of perspectives.

    Returns:
        Number of perspectives -> (mean over the questions where the metric is defined, how many these are), sorted;
        the mean is NaN for none. Groups have no weights here.
    """
    values: dict[int, list[float]] = {}
    for question, value in scores.per_question.items():
        values.setdefault(m_of_question[question], []).append(value)
    table = {}
    for m in sorted(values):
        defined = [value for value in values[m] if not math.isnan(value)]
        table[m] = (math.fsum(defined) / len(defined) if defined else math.nan, len(defined))
    return table


def _check_pool(question: str, labels: Labels, pool: Labels) -> None:
    """Refuses a pool with fewer supports than the ranking: it must hold the retrieved passages too."""
    if (np.count_nonzero(labels == 1, axis=0) > np.count_nonzero(pool == 1, axis=0)).any():
        raise ValueError(f"question {question}: the pool lacks retrieved passages that support a perspective")


def _optimistic(labels: Labels) -> Labels:
    """The labels with unknown as supports; the very same array where nothing is unknown."""
    unknown = labels == -1
    return np.where(unknown, np.int8(1), labels) if unknown.any() else labels


def _unjudged(metric: Metric, labels: Labels) -> int:
    """Passages within the metric's depth of which it misses a label."""
    consulted = labels[: metric.depth]
    missing = consulted == -1
    if metric.until_covered:
        missing &= (consulted == 1).cumsum(axis=0) == 0
    return int(np.count_nonzero(missing.any(axis=1)))


def _arrays(
    per_question: Mapping[str, float], groups: Mapping[str, str] | None, macro: bool
) -> tuple[NDArray[np.float64], NDArray[np.intp] | None]:
    """Values and codes of the groups, both in the order of the sorted question ids."""
    questions = sorted(per_question)
    values = np.array([per_question[question] for question in questions], dtype=np.float64)
    if not macro:
        return values, None
    if groups is None:
        raise ValueError("a macro mean needs the group of each question")
    missing = [question for question in questions if question not in groups]
    if missing:
        raise ValueError(f"a macro mean needs the group of each question: {len(missing)} have none, as {missing[0]}")
    codes = {group: code for code, group in enumerate(sorted({groups[question] for question in questions}))}
    return values, np.array([codes[groups[question]] for question in questions], dtype=np.intp)


def _samples(values: NDArray[np.float64], groups: NDArray[np.intp] | None, macro: bool) -> list[NDArray[np.float64]]:
    """The defined values: one array, or with macro one for each group that has any."""
    defined = ~np.isnan(values)
    if not macro:
        return [values[defined]] if defined.any() else []
    if groups is None:
        raise ValueError("a macro mean needs the group of each question")
    return [values[defined & (groups == group)] for group in np.unique(groups[defined])]


def _mean(values: NDArray[np.float64], groups: NDArray[np.intp] | None, macro: bool) -> float:
    """The mean, or the mean of the groups' means; exact sums, so that no machine differs in the last digit."""
    samples = _samples(values, groups, macro)
    means = [math.fsum(sample) / len(sample) for sample in samples]
    return math.fsum(means) / len(means) if means else math.nan

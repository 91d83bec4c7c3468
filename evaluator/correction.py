"""Error-aware scores: metrics as they would be if the judge made no errors, as far as its known error rates can tell.

They are a second line under a metric, never the headline: they rest on assumptions that no run can prove (``notes``).
How they come about, and how often their intervals hold the truth, stands in docs/error-aware-scores.md.

For each of several hundred rounds, sensitivity and specificity are drawn (evaluator/error_rates.py), the prevalence is
estimated on resampled questions (evaluator/prevalence.py), and true labels of all questions are drawn given the judged
ones. The metrics of these labels, over questions resampled once more, are the draws of the interval: drawn labels
stand for what is not known about these questions, the last resampling for other questions (multiple imputation, Rubin
1987, https://doi.org/10.1002/9780470316696). Correcting each pair or each score by itself would not do: Precision is
an OR over perspectives and MRecall an AND of ORs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluator.column_model import ColumnModel
from evaluator.coverage import Judged
from evaluator.error_rates import JudgeErrors
from evaluator.metric import Labels, Metric, Stances
from evaluator.pair_model import PairModel
from evaluator.pattern_values import PatternValues
from evaluator.prevalence import Floats, Integers, PrevalenceModel, Rates
from evaluator.resampling import generator, interval, means, middle, resampled, strata_of

DRAWS = 1000
_FITS = 200  # rounds; each has draws / rounds draws of true labels
_POINT_DRAWS = 200
_STEPS = 12  # of a fit to resampled questions, which begins at the fit to all
_LEAST_SPREAD = 0.5  # sigmas begin no lower: at 0 the likelihood is flat
_LEAST_GROUP = 30  # questions of a group that gets a prevalence of its own
_FEW_QUESTIONS = 20
ASSUMPTIONS = (
    "Assumed: the judge errs on this run as often as on the labelled pairs, at every rank, in every group, for every "
    "perspective.",
    "Assumed: it errs on each pair by itself, whatever it says about other pairs of the passage or question.",
    "Assumed: questions and perspectives differ in how often passages support them, independently of one another and "
    "of the rank (evaluator/prevalence.py).",
)
"""Printed with corrected scores: what no run can prove."""


@dataclass(frozen=True)
class CorrectedScores:
    """One metric, corrected.

    Attributes:
        metric: Its name as printed.
        mean: Estimate of its mean over questions, had the true labels been known; NaN where undefined.
        low: Lower end of the 95 % interval.
        high: Upper end of it.
        naive: The mean on the judge's labels, which is the headline.
        n: Questions in the mean ``naive``.
        n_unknown: Unknown labels that the metric consults.
    """

    metric: str
    mean: float
    low: float
    high: float
    naive: float
    n: int
    n_unknown: int


@dataclass(frozen=True)
class Correction:
    """Corrected scores and what they rest on.

    Attributes:
        method: In a few words.
        scores: One per metric.
        notes: What was measured and what is assumed, a line each, to be printed with the scores.
    """

    method: str
    scores: tuple[CorrectedScores, ...]
    notes: tuple[str, ...]


def corrected_scores(
    metrics: Sequence[Metric],
    labels: Mapping[str, Labels],
    errors: JudgeErrors,
    *,
    stances: Mapping[str, Stances] | None = None,
    groups: Mapping[str, str] | None = None,
    macro: bool = False,
    clustered: bool = True,
    seed: str | int = 0,
    draws: int = DRAWS,
) -> Correction:
    """The scores of a judged run, corrected by the judge's error rates.

    Args:
        metrics: ``Judged``, which has no true value, is left out.
        labels: question_id -> int8 (k, m), the judge's; unknown ones (-1) count as missing at random, which holds for
            labels that were left out because a passage above was judged to support the perspective.
        errors: The judge's, on labelled pairs.
        stances: question_id -> one stance per perspective.
        groups: question_id -> group; groups of 30 questions or more have prevalences of their own.
        macro: Whether the mean is the mean of the groups' means.
        clustered: False: prevalence by rank and independent labels only, for comparison.
        seed: Where the random numbers start.
        draws: Of which the interval is made.

    Raises:
        ValueError: The error rates are too uncertain to correct by, no label is known, or a metric needs a pool.
    """
    metrics = checked(metrics)
    errors.check()
    if draws < 1:
        raise ValueError(f"draws {draws}: expected 1 or more")
    reach = None if any(metric.depth is None for metric in metrics) else max((m.depth or 0 for m in metrics), default=0)
    labels = {question: labels[question][:reach] for question in labels}
    strata = strata_of(sorted(labels), groups, macro)
    scores: dict[str, CorrectedScores] = {}
    for depth in sorted({metric.depth or 0 for metric in metrics}, key=lambda each: each or math.inf):
        chosen = [metric for metric in metrics if (metric.depth or 0) == depth]
        seen = {question: each[: depth or None] for question, each in labels.items()}
        random = generator(f"{seed}/correction/{depth}")
        models = _models(sorted(labels), seen, groups, clustered)
        if any(each.size for each in seen.values()) and not sum(model.n_known for model in models):
            raise ValueError("no error-aware scores: not one label of this run is known")
        scores |= _at_depth(chosen, seen, models, errors, stances, strata, random, draws)
    notes = _notes(errors, labels, generator(f"{seed}/notes"))
    return Correction("modelled", tuple(scores[metric.name] for metric in metrics), notes)


def _at_depth(
    metrics: Sequence[Metric],
    labels: Mapping[str, Labels],
    models: Sequence[PrevalenceModel],
    errors: JudgeErrors,
    stances: Mapping[str, Stances] | None,
    strata: Sequence[Integers],
    random: np.random.Generator,
    draws: int,
) -> dict[str, CorrectedScores]:
    """Scores by name of metrics that look equally deep: the model is fitted to what they see, whatever others see."""
    questions = sorted(labels)
    values = PatternValues(metrics, [None if stances is None else stances.get(each) for each in questions])
    rates = Rates(errors.sensitivity, errors.specificity)
    best = [model.fit(rates) for model in models]
    once = np.ones((1, len(questions)))
    point = middle(means(_drawn(models, best, rates, _POINT_DRAWS, values, random), once, strata))
    times = max(2, -(-draws // _FITS))
    rounds = []
    for pair in errors.draw(-(-draws // times), random).tolist():
        rates, weights = Rates(*pair), resampled(random, strata, len(questions), 1)[0]
        parameters = [
            model.fit(rates, weights[model.questions], _begin(model, theta), _STEPS)
            for model, theta in zip(models, best, strict=True)
        ]
        found = _drawn(models, parameters, rates, times, values, random)
        rounds.append(means(found, resampled(random, strata, len(questions), times), strata))
    ends = interval(np.concatenate(rounds, axis=1)[:, :draws])
    naive = naive_values(metrics, questions, labels, stances)
    return {
        metric.name: _entry(metric, point[i], ends[i], naive[i], labels, strata) for i, metric in enumerate(metrics)
    }


def _drawn(
    models: Sequence[PrevalenceModel],
    parameters: Sequence[Floats],
    rates: Rates,
    draws: int,
    values: PatternValues,
    random: np.random.Generator,
) -> Floats:
    """Float64 (metrics, draws, n): the metrics of drawn true labels; NaN for questions without perspectives."""
    found = np.full((len(values.metrics), draws, values.n), np.nan)
    for model, theta in zip(models, parameters, strict=True):
        for part in model.draw(theta, rates, draws, random):
            found[:, :, part.questions] = values.score(part.questions, part.labels)
    return found


def checked(metrics: Sequence[Metric]) -> list[Metric]:
    """The metrics that have a corrected value.

    Raises:
        ValueError: A metric needs a pool, whose labels are no judge's.
    """
    pooled = [metric.name for metric in metrics if metric.needs == "pool"]
    if pooled:
        raise ValueError(f"no error-aware scores for {', '.join(pooled)}: they need gold labels, which have no judge")
    return [metric for metric in metrics if not isinstance(metric, Judged)]


def naive_values(
    metrics: Sequence[Metric],
    questions: Sequence[str],
    labels: Mapping[str, Labels],
    stances: Mapping[str, Stances] | None,
) -> Floats:
    """Float64 (metrics, n): values on the judge's labels."""
    sides = {} if stances is None else stances
    return np.array(
        [[metric.score(labels[each], None, sides.get(each)) for each in questions] for metric in metrics]
    ).reshape(len(metrics), len(questions))


def unknown_labels(metric: Metric, labels: Mapping[str, Labels]) -> int:
    """Unknown labels that a metric consults: down to its depth, or only until a perspective is covered."""
    total = 0
    for each in labels.values():
        consulted = each[: metric.depth]
        unknown = consulted == -1
        if metric.until_covered:
            unknown &= np.cumsum(consulted == 1, axis=0) == 0
        total += int(np.count_nonzero(unknown))
    return total


def _entry(
    metric: Metric,
    mean: float,
    ends: Floats,
    naive: Floats,
    labels: Mapping[str, Labels],
    strata: Sequence[Integers],
) -> CorrectedScores:
    plain = float(means(naive[None, None], np.ones((1, len(naive))), strata)[0, 0])
    n = int(np.count_nonzero(~np.isnan(naive)))
    low, high = ends.tolist() if len(naive) > 1 else (math.nan, math.nan)
    return CorrectedScores(metric.name, float(mean), low, high, plain, n, unknown_labels(metric, labels))


def _models(
    questions: Sequence[str], labels: Mapping[str, Labels], groups: Mapping[str, str] | None, clustered: bool
) -> list[PrevalenceModel]:
    """One model for the questions with two perspectives and one for the others; those with none have no labels."""
    sizes = np.array([labels[question].shape[1] for question in questions])
    names = np.array(["" if groups is None else groups.get(question, "") for question in questions])
    models: list[PrevalenceModel] = []
    for kind, chosen in (
        (PairModel, np.flatnonzero(sizes == 2)),
        (ColumnModel, np.flatnonzero((sizes != 2) & (sizes > 0))),
    ):
        if not len(chosen):
            continue
        found, counts = np.unique(names[chosen], return_counts=True)
        own = [names[chosen] == name for name, n in zip(found, counts, strict=True) if n >= _LEAST_GROUP]
        covariates: list[NDArray[np.floating]] = [each.astype(np.float64) for each in own] if len(found) > 1 else []
        if kind is ColumnModel:
            covariates.append(np.log(sizes[chosen] / 2))
        table = np.stack(covariates, axis=1) if covariates else np.zeros((len(chosen), 0))
        models.append(kind([labels[questions[i]] for i in chosen.tolist()], table, chosen, clustered))
    return models


def _begin(model: PrevalenceModel, theta: Floats) -> Floats:
    """Where the fit to resampled questions begins."""
    begin = theta.copy()
    if model.clustered:
        begin[model.sigma] = np.maximum(np.abs(begin[model.sigma]), _LEAST_SPREAD)
    return begin


def _notes(errors: JudgeErrors, labels: Mapping[str, Labels], random: np.random.Generator) -> tuple[str, ...]:
    """What was measured and what is assumed."""
    ends = 100 * np.percentile(errors.draw(4000, random), (2.5, 97.5), axis=0)
    unknown, negative, positive = (
        sum(int(np.count_nonzero(each == value)) for each in labels.values()) for value in (-1, 0, 1)
    )
    known = negative + positive
    notes = [
        f"Measured on {errors.n_positives + errors.n_negatives} labelled pairs of {len(errors.positives)} questions "
        f"({errors.n_positives} supports): sensitivity {100 * errors.sensitivity:.1f} "
        f"[{ends[0, 0]:.1f}, {ends[1, 0]:.1f}], specificity {100 * errors.specificity:.1f} "
        f"[{ends[0, 1]:.1f}, {ends[1, 1]:.1f}] percent.",
        *ASSUMPTIONS,
    ]
    if len(errors.positives) < _FEW_QUESTIONS:
        notes.append(
            f"The labelled pairs come from fewer than {_FEW_QUESTIONS} questions: the intervals are too short."
        )
    if errors.n_unknown:
        notes.append(f"{errors.n_unknown} labelled pairs without a label or without a readable answer were left out.")
    if unknown:
        notes.append(f"{unknown} of {known + unknown} labels of the run are unknown: taken as missing at random.")
    if known and positive / known < 1 - ends[1, 1] / 100:
        notes.append(
            f"The judge says Yes to {100 * positive / known:.1f} percent of this run, less than its false alarms alone "
            "would give: it errs otherwise here than on the labelled pairs, so do not believe the corrected scores."
        )
    return tuple(notes)

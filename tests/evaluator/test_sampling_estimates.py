"""Prediction-powered scores from whole questions that people labelled."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from corpora.types import Hit, Passage, Perspective, Question
from evaluator.metrics import parse, parse_all
from evaluator.pairs import LabelledPair
from evaluator.question_samples import Sample, is_sample, whole_questions
from evaluator.sampling_estimates import combined, estimate, sampled_scores
from evaluator.types import Pair

NAN = math.nan


def column(*values):
    return np.array(values, dtype=np.float64)


def test_without_predictions_it_is_the_weighted_mean():
    # The judge says the same everywhere: (2 * 1 + 2 * 0 + 4 * .5) / 8.
    found = estimate(column(1, 1, 1, 1), column(1, 0, NAN, 0.5), column(2, 2, 0, 4))
    assert (found.mean, found.n) == (pytest.approx(0.5), 3)


def test_a_judge_that_is_right_makes_the_mean_of_all():
    values = np.random.default_rng(0).random(50)
    sampled = np.arange(50) < 10
    found = estimate(values, np.where(sampled, values, NAN), np.where(sampled, 5.0, 0.0))
    assert found.mean == pytest.approx(values.mean())
    # Nothing is left to sampling; the questions vary as they do.
    assert found.variance == pytest.approx(values.var() / 50 * 10 / 9)


def test_all_samples_together_give_the_mean_of_all():
    true = column(0.3, 0.9, 0.1, 0.6, 0.7, 0.2)
    means = []
    for drawn in itertools.combinations(range(6), 3):
        chosen = np.isin(np.arange(6), drawn)
        means.append(estimate(np.zeros(6), np.where(chosen, true, NAN), chosen * 2.0).mean)
    assert len(means) == 20
    assert np.mean(means) == pytest.approx(true.mean())


def test_with_the_regression_coefficient_by_hand():
    # Drawn: judged 0, 1, 0, 1; true 0, .6, .2, .8: covariance .15, variance .25: .6. Rest: 0, 0, .2, .2, mean .1.
    judged = column(0, 1, 0, 1, 1, 1, 0.5, 0.5)
    true = column(0, 0.6, 0.2, 0.8, NAN, NAN, NAN, NAN)
    assert estimate(judged, true, column(2, 2, 2, 2, 0, 0, 0, 0)).mean == pytest.approx(0.6 * 5 / 8 + 0.1)


def test_undefined_values():
    # Both undefined on the same drawn questions: these are no part of the mean.
    judged, true = column(NAN, 1, 0, 1, NAN), column(NAN, 1, 0, NAN, NAN)
    assert estimate(judged, true, column(5, 5, 5, 0, 0)).mean == pytest.approx(2 / 3)
    # The judge cannot tell where it is defined: people's values only, (1 + 4) / 2.
    assert estimate(column(NAN, 2, 3, 3), column(1, 4, NAN, NAN), column(2, 2, 2, 0)).mean == pytest.approx(2.5)
    assert math.isnan(estimate(column(NAN, NAN), column(NAN, NAN), column(1, 1)).mean)


def test_a_sample_without_one_success_does_not_exclude_all():
    true = np.where(np.arange(200) < 40, 0.0, NAN)
    mean, low, high = combined([estimate(np.zeros(200), true, np.where(np.arange(200) < 40, 5.0, 0.0))])
    assert (mean, low) == (0, 0)
    # The exact upper end for 0 of 40 (Clopper and Pearson) is 1 - .025^(1/40) = 8.8 percent.
    assert 0.06 < high < 0.15


@pytest.mark.parametrize("n, drawn", [(200, 30), (400, 60)])
def test_intervals_hold_the_truth(n, drawn):
    random, held, widths = np.random.default_rng(n), np.zeros(2), np.zeros(2)
    for _ in range(600):
        chance = random.random(n) ** 2  # mean 1/3
        true = (random.random(n) < chance).astype(np.float64)
        judged = np.where(random.random(n) < 0.15, 1 - true, true)
        chosen = np.zeros(n, np.bool_)
        chosen[random.permutation(n)[:drawn]] = True
        values = np.where(chosen, true, NAN), chosen * (n / drawn)
        for i, predictions in enumerate((judged, np.zeros(n))):
            _, low, high = combined([estimate(predictions, *values)])
            held[i] += low <= 1 / 3 <= high
            widths[i] += high - low
    # 600 simulations: a standard error of .9 points.
    assert (held / 600 > 0.925).all()
    assert (held / 600 < 0.98).all()
    assert widths[0] < 0.9 * widths[1]


def test_groups_and_students_t():
    parts = [estimate(np.zeros(40), column(*range(20), *[NAN] * 20) ** p, (np.arange(40) < 20) * 2.0) for p in (1, 0.5)]
    mean, low, high = combined(parts)
    a, b = np.arange(20.0), np.sqrt(np.arange(20.0))
    assert mean == pytest.approx((a.mean() + b.mean()) / 2)
    va, vb = a.var(ddof=1) / 20, b.var(ddof=1) / 20
    freedom = (va + vb) ** 2 / (va**2 / 19 + vb**2 / 19)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(va + vb) / 2
    assert (low, high) == pytest.approx((mean - half, mean + half), rel=1e-3)


# --- samples of runs ---

SIDES = (Perspective("p", "It is."), Perspective("c", "It is not."))
QUESTIONS = [Question(f"q{i}", f"Question {i}?", SIDES, group="x" if i % 2 else "y") for i in range(80)]
RUN = {q.question_id: tuple(Hit(f"{q.question_id}-{j}", 9.0 - j) for j in range(4)) for q in QUESTIONS[:79]}


def pairs_of(n, depth=3, label=lambda i, j, side: bool((i + j) % 2)):
    return [
        LabelledPair(Pair(q, p, Passage(f"{q.question_id}-{j}", "Text.")), label(i, j, s), n / 79, j + 1)
        for i, q in enumerate(QUESTIONS[:n])
        for j in range(depth)
        for s, p in enumerate(SIDES)
    ]


def changed(pair, **fields):
    own = {name: getattr(pair, name) for name in ("pair", "label", "inclusion_probability", "rank")}
    return LabelledPair(**{**own, **fields})


def test_whole_questions_become_matrices():
    pairs = pairs_of(30)
    assert is_sample(pairs, RUN, QUESTIONS)
    sample = whole_questions(list(reversed(pairs)), RUN, QUESTIONS)
    assert (len(sample.labels), sample.depth) == (30, 3)
    assert sample.labels["q1"].tolist() == [[1, 1], [0, 0], [1, 1]]
    assert sample.probabilities["q1"] == 30 / 79


WRONG = [
    (lambda p: [*p[1:]], "question q0: 1 of 6 pairs of its top 3 are not in the sample"),
    (lambda p: [changed(p[0], inclusion_probability=0.1), *p[1:]], "question q0 was drawn with several probabilities"),
    (lambda p: [changed(p[0], rank=2), *p[1:]], "passage q0-0, perspective p.* is not at rank 2 of this run"),
    (lambda p: [changed(p[0], rank=9), *p[1:]], "passage q0-0, perspective p.* is not of this run"),
]


@pytest.mark.parametrize("change, message", WRONG)
def test_what_is_no_sample_of_whole_questions_is_told(change, message):
    pairs = change(pairs_of(30))
    assert not is_sample(pairs, RUN, QUESTIONS)
    with pytest.raises(ValueError, match=message) as error:
        whole_questions(pairs, RUN, QUESTIONS)
    assert "\n" not in str(error.value)


def test_pairs_of_no_run_are_no_sample():
    assert not is_sample([], RUN, QUESTIONS)
    assert not is_sample([changed(each, rank=0) for each in pairs_of(30)], RUN, QUESTIONS)
    unlabelled = [changed(pairs_of(30)[0], label=None), *pairs_of(30)[1:]]
    assert is_sample(unlabelled, RUN, QUESTIONS)
    with pytest.raises(ValueError, match=r"question q0, passage q0-0, perspective p\) has no label"):
        whole_questions(unlabelled, RUN, QUESTIONS)


def judged():
    labels = {name: np.ones((4, 2), np.int8) for name in RUN}
    return {**labels, "q79": np.zeros((0, 2), np.int8)}


def test_scores_of_a_sample():
    sample = whole_questions(pairs_of(40), RUN, QUESTIONS)
    metrics = parse_all(["Precision@3", "MRecall@3", "Judged@3"])
    found = sampled_scores(metrics, judged(), sample)
    recall, precision = found.scores
    assert (found.method, recall.metric, precision.metric) == ("prediction-powered", "MRecall@3", "Precision@3")
    # Question 79 has no passages: both say 0. The judge says 1 of all others. People: 20 of 40 questions have two of
    # three passages, 20 have one. The judge's slope is cut to 1: 79/80 + weighted mean of (true - judged), where the
    # drawn questions stand for 79 and the empty one for itself: -79 * .5 / 80.
    assert precision.mean == pytest.approx((79 - 79 * 0.5) / 80)
    assert (precision.naive, precision.n, precision.n_unknown) == (pytest.approx(79 / 80), 80, 0)
    assert recall.mean == pytest.approx(79 / 80)  # every question has a passage for both
    assert precision.low < precision.mean < precision.high
    assert "40 of 80 questions" in found.notes[0]


def test_macro_needs_a_sample_of_each_group():
    groups = {q.question_id: q.group for q in QUESTIONS}
    sample = whole_questions(pairs_of(40, label=lambda i, j, side: bool(i % 2)), RUN, QUESTIONS)
    (score,) = sampled_scores([parse("Precision@3")], judged(), sample, groups=groups, macro=True).scores
    assert score.mean == pytest.approx(0.5, abs=0.02)  # 1 in group x, 0 in group y
    lopsided = {name: "x" if i < 35 else "y" for i, name in enumerate(groups)}
    with pytest.raises(ValueError, match="a group has 5 labelled questions, expected 10"):
        sampled_scores([parse("Precision@3")], judged(), sample, groups=lopsided, macro=True)


def test_small_and_shallow_samples_are_refused():
    with pytest.raises(ValueError, match="29 labelled questions, expected 30"):
        sampled_scores([parse("Precision@3")], judged(), whole_questions(pairs_of(29), RUN, QUESTIONS))
    sample = whole_questions(pairs_of(30), RUN, QUESTIONS)
    with pytest.raises(ValueError, match="people labelled the first 3 ranks, and Precision@4 looks deeper"):
        sampled_scores([parse("Precision@4")], judged(), sample)
    found = sampled_scores(parse_all(["Precision@3", "Precision@4", "CoverageDepth"]), judged(), sample)
    assert [each.metric for each in found.scores] == ["Precision@3"]
    assert found.notes[1] == "Left out, as they look deeper: CoverageDepth, Precision@4."
    with pytest.raises(ValueError, match="no error-aware scores for alpha_nDCG@3"):
        sampled_scores([parse("alpha_nDCG@3")], judged(), sample)
    other = Sample({"elsewhere": np.zeros((3, 2), np.int8)}, {"elsewhere": 0.5}, 3)
    with pytest.raises(ValueError, match="0 labelled questions"):
        sampled_scores([parse("Precision@3")], judged(), other)

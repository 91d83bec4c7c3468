"""Means, bootstrap intervals, detectable differences and the scores of a run."""

from __future__ import annotations

import hashlib
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from evaluator.metrics import parse, parse_all
from evaluator.statistics import aggregate, bootstrap, by_perspectives, detectable_difference, score_run

NAN = math.nan


def array(*rows):
    return np.array([[{"1": 1, "0": 0, "?": -1}[c] for c in row] for row in rows], dtype=np.int8)


# --- bootstrap ---


def test_the_interval_of_three_values_is_that_of_all_27_resamples():
    values = np.array([0.0, 1.0, 5.0])
    means = sorted(sum(drawn) / 3 for drawn in itertools.product(values, repeat=3))
    # 2.5 % of 27 is 0.675, so the 1st mean of 27 (0, weight 1/27 = 3.7 %) and the last (5).
    assert (means[0], means[-1]) == (0, 5)
    assert bootstrap(values, seed="a") == (0, 5)
    # Two values 0 and 1: means 0, 1/2, 1 with weights 1/4, 1/2, 1/4.
    assert bootstrap(np.array([0.0, 1.0])) == (0, 1)


def test_the_resampled_means_have_the_weights_of_the_enumeration():
    # 8 zeros and 2 ones: the mean of 10 draws is B(10, 1/5) / 10. P(X = 0) = .107 > 2.5 %: low 0.
    # P(X >= 5) = .0328 > 2.5 % > P(X >= 6) = .0064: high 5/10.
    assert bootstrap(np.array([0.0] * 8 + [1.0] * 2), seed="weights") == pytest.approx((0, 0.5))


def test_the_interval_nears_the_normal_approximation():
    values = np.random.default_rng(1).normal(3, 2, 500)
    half = 1.959964 * values.std() / math.sqrt(500)
    low, high = bootstrap(values, seed="normal")
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.06 * half)


def test_the_macro_interval_nears_the_normal_approximation():
    random = np.random.default_rng(2)
    first, second = random.normal(0, 1, 400), random.normal(5, 3, 100)
    half = 1.959964 * math.sqrt(first.var() / 400 + second.var() / 100) / 2
    middle = (first.mean() + second.mean()) / 2
    values, groups = np.concatenate([second, first]), np.array([1] * 100 + [0] * 400)
    assert bootstrap(values, groups, True, seed="macro") == pytest.approx(
        (middle - half, middle + half), abs=0.06 * half
    )
    # Without macro the difference between the groups widens it, and the larger group draws it down.
    assert bootstrap(values, groups, False, seed="macro")[1] < middle - half


def test_an_interval_is_reproducible_and_depends_on_the_seed():
    values = np.random.default_rng(3).random(40)
    assert bootstrap(values, seed="0/MRecall@5") == bootstrap(values, seed="0/MRecall@5")
    assert bootstrap(values, seed="0/MRecall@5") != bootstrap(values, seed="0/MRecall@10")
    assert bootstrap(values, seed=0) != bootstrap(values, seed=1)
    with_gaps = np.insert(values, [0, 7, 40], NAN)
    assert bootstrap(with_gaps, seed="x") == bootstrap(values, seed="x")


def test_pcg64_seeded_by_sha256_gives_these_numbers():
    # The recipe written out without the code under test: SHA-256 of the seed, its first 16 bytes, PCG64.
    digest = hashlib.sha256(b"0/MRecall@5").digest()
    random = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))
    values = np.arange(10.0)
    means = values[random.integers(0, 10, (10_000, 10), dtype=np.uint32)].mean(axis=1)
    assert bootstrap(values, seed="0/MRecall@5") == pytest.approx(tuple(np.percentile(means, (2.5, 97.5))), abs=1e-12)


def test_few_or_equal_values():
    assert all(map(math.isnan, bootstrap(np.array([]))))
    assert all(map(math.isnan, bootstrap(np.array([NAN, NAN]))))
    assert all(map(math.isnan, bootstrap(np.array([1.0]))))
    assert bootstrap(np.zeros(50)) == (0, 0)
    # One question in each of two groups: how values vary within a group is unknown.
    assert all(map(math.isnan, bootstrap(np.array([0.0, 1.0]), np.array([0, 1]), True)))


def test_nineteen_of_twenty_intervals_hold_the_truth():
    # 300 samples of 60 from an exponential distribution with mean 1. The percentile bootstrap of skewed data covers
    # a little less than 95 % (about 93.5 %); 300 draws have a standard error of 1.4 points.
    random = np.random.default_rng(4)
    held = 0
    for case in range(300):
        low, high = bootstrap(random.exponential(1, 60), resamples=1000, seed=case)
        held += low <= 1 <= high
    assert 0.89 < held / 300 < 0.98


# --- detectable difference ---


def test_detectable_difference_by_hand():
    # 50 zeros and 50 ones: variance .25 * 100/99, se = sqrt(.25/99); (1.959964 + .841621) * sqrt(2) * se.
    values = np.array([0.0, 1.0] * 50)
    expected = 2.801585 * math.sqrt(2) * math.sqrt(0.25 / 99)
    assert detectable_difference(values) == pytest.approx(expected, rel=1e-6)
    assert detectable_difference(np.append(values, NAN)) == pytest.approx(expected, rel=1e-6)
    # Two groups of it: variance of the macro mean is (v + v) / 4 = v / 2.
    doubled, groups = np.tile(values, 2), np.repeat([0, 1], 100)
    assert detectable_difference(doubled, groups, True) == pytest.approx(expected / math.sqrt(2), rel=1e-6)


def test_the_detectable_difference_is_found_in_four_of_five_experiments():
    random = np.random.default_rng(5)
    difference = detectable_difference(random.normal(0, 1, 200))
    first, second = random.normal(0, 1, (2000, 200)), random.normal(difference, 1, (2000, 200))
    z = (second - first).mean(axis=1) / np.sqrt((first.var(axis=1, ddof=1) + second.var(axis=1, ddof=1)) / 200)
    assert np.mean(np.abs(z) > 1.96) == pytest.approx(0.8, abs=0.08)


def test_without_a_spread_no_difference_is_known():
    assert math.isnan(detectable_difference(np.array([])))
    assert math.isnan(detectable_difference(np.array([1.0, NAN])))
    assert math.isnan(detectable_difference(np.array([1.0, 0.0, 1.0]), np.array([0, 0, 1]), True))
    assert math.isnan(detectable_difference(np.ones(5)))


# --- aggregates ---


def test_macro_and_plain_means_by_hand():
    values = {"a": 1.0, "b": 0.0, "c": 0.0, "d": NAN, "e": 1.0, "f": NAN}
    groups = {"a": "x", "b": "x", "c": "x", "d": "x", "e": "y", "f": "z"}
    plain = aggregate("M", values)
    assert (plain.mean, plain.n, plain.n_undefined) == (2 / 4, 4, 2)
    # Group x: 1/3, y: 1, z has no defined question and is left out: (1/3 + 1) / 2.
    macro = aggregate("M", values, groups, macro=True)
    assert macro.mean == pytest.approx(2 / 3)
    assert (macro.n, macro.n_undefined) == (4, 2)
    none = aggregate("M", {"a": NAN}, groups, macro=True)
    assert (none.n, none.n_undefined) == (0, 1)
    assert all(map(math.isnan, none[:4]))
    assert math.isnan(aggregate("M", {}).mean)


def test_the_order_of_the_questions_does_not_matter():
    values = {f"q{i}": i % 7 / 7 for i in range(30)}
    groups = {question: question[-1] for question in values}
    turned = dict(reversed(values.items()))
    for macro in (False, True):
        assert aggregate("M", values, groups, macro) == aggregate("M", turned, groups, macro)


def test_each_metric_has_resamples_of_its_own():
    values = {f"q{i}": i * 0.37 % 1 for i in range(30)}
    assert aggregate("M", values).low != aggregate("N", values).low
    assert aggregate("M", values).mean == aggregate("N", values).mean


def test_a_macro_mean_needs_groups():
    with pytest.raises(ValueError, match="needs the group of each question"):
        aggregate("M", {"a": 1.0}, macro=True)
    with pytest.raises(ValueError, match="1 have none, as b"):
        aggregate("M", {"a": 1.0, "b": 1.0}, {"a": "x"}, macro=True)


# --- the scores of a run ---

LABELS = {
    "a": array("10", "01"),  # covered at rank 2
    "b": array("1?", "?0", "00"),  # perspective 0 at rank 1; perspective 1 unknown at rank 1
    "c": np.zeros((0, 2), np.int8),  # nothing retrieved
    "d": np.zeros((3, 0), np.int8),  # no perspective
}


def test_scores_of_a_run_by_hand():
    metrics = parse_all(["MRecall@2", "Precision@2", "Redundancy@2", "CoverageDepth"])
    scores = {score.metric: score for score in score_run(metrics, LABELS)}
    assert list(scores) == [str(metric) for metric in metrics]
    recall = scores["MRecall@2"]
    assert recall.per_question == pytest.approx({"a": 1, "b": 0, "c": 0, "d": NAN}, nan_ok=True)
    assert (recall.mean, recall.n, recall.n_undefined) == (pytest.approx(1 / 3), 3, 1)
    # With perspective 1 at rank 1 of b: 2 of 3. The ? of rank 2 is below the first support of perspective 0.
    assert (recall.upper, recall.n_unjudged) == (pytest.approx(2 / 3), 1)
    precision = scores["Precision@2"]
    # a: 2/2, b: 1/2, c: 0; b's upper bound: 2/2; both rows of b miss a label.
    assert precision.mean == pytest.approx(1.5 / 3)
    assert (precision.upper, precision.n_unjudged) == (pytest.approx(2 / 3), 2)
    # a: 1 - 2/2; b: 1 - 1/1; more supports may lower or raise it: no bound.
    assert (scores["Redundancy@2"].mean, scores["Redundancy@2"].n, scores["Redundancy@2"].upper) == (0, 2, None)
    assert (scores["CoverageDepth"].mean, scores["CoverageDepth"].n, scores["CoverageDepth"].upper) == (2, 1, None)


def test_the_upper_bound_is_the_mean_where_all_is_known():
    (scores,) = score_run([parse("StRecall@2")], {"a": array("10"), "b": array("11")})
    assert (scores.mean, scores.upper, scores.n_unjudged) == (0.75, 0.75, 0)


def test_macro_scores_and_their_upper_bounds():
    groups = {"a": "x", "b": "y", "c": "y", "d": "y"}
    (scores,) = score_run([parse("MRecall@2")], LABELS, groups=groups, macro=True)
    # x: 1; y: 0 of b and c, d undefined; with the unknown as support b is 1.
    assert (scores.mean, scores.upper) == (0.5, 0.75)


def test_scores_do_not_depend_on_the_other_metrics_or_on_the_order():
    many = {f"q{i}": array("10", "01" if i % 3 else "??") for i in range(20)}
    alone = score_run([parse("MRecall@2")], many, seed=3)
    among = score_run(parse_all(["Covered", "MRecall@2", "P_IA@2"]), dict(reversed(many.items())), seed=3)
    assert alone[0] == among[1]
    assert list(among[1].per_question) == sorted(many)
    assert alone[0].low < alone[0].mean < alone[0].high
    assert score_run([parse("MRecall@2")], many, seed=4)[0].mean == alone[0].mean


def test_pools_and_stances_reach_the_metrics():
    metrics = parse_all(["alpha_nDCG@2", "Both@2"])
    labels = {"a": array("10", "01")}
    both, ndcg = score_run(
        sorted(metrics, key=str), labels, pools={"a": array("11", "01")}, stances={"a": ("supporting", "opposing")}
    )
    assert both.metric == "Both@2"
    assert both.mean == 1
    # Gains 1, 1; ideal 2, 1/2.
    assert ndcg.mean == pytest.approx((1 + 1 / math.log2(3)) / (2 + 0.5 / math.log2(3)))
    assert ndcg.upper is None
    with pytest.raises(ValueError, match=r"question a: alpha_nDCG@2 has nothing to normalise by: it needs qrels"):
        score_run([parse("alpha_nDCG@2")], labels)
    with pytest.raises(ValueError, match="question a"):
        score_run([parse("alpha_nDCG@2")], labels, pools={"b": array("11")})
    # Perspective 0 has two supports in the ranking and one in the pool.
    with pytest.raises(ValueError, match="question a: the pool lacks retrieved passages"):
        score_run([parse("AP_IA")], {"a": array("10", "10")}, pools={"a": array("11", "01")})


def test_a_breakdown_by_the_number_of_perspectives():
    labels = {"a": array("10", "01"), "b": array("10"), "c": array("111"), "d": np.zeros((1, 0), np.int8)}
    (scores,) = score_run([parse("StRecall@5")], labels)
    table = by_perspectives(scores, {question: each.shape[1] for question, each in labels.items()})
    assert list(table) == [0, 2, 3]
    assert math.isnan(table[0][0])
    assert table[0][1] == 0
    assert table[2] == (0.75, 2)
    assert table[3] == (1, 1)


runs = st.dictionaries(
    st.text("abc", min_size=1, max_size=3),
    st.tuples(st.integers(0, 5), st.integers(0, 3)).flatmap(
        lambda shape: hnp.arrays(np.int8, shape, elements=st.sampled_from([-1, 0, 1]))
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=30, deadline=None)
@given(labels=runs)
def test_the_upper_bound_is_never_below_the_mean(labels):
    metrics = parse_all(["MRecall@2", "Precision@3", "StRecall@2", "alpha_DCG@3", "NRBP", "OracleMRecall@2", "P_IA@2"])
    for scores in score_run(metrics, labels):
        assert scores.n + scores.n_undefined == len(labels)
        if scores.n:
            assert scores.upper >= scores.mean - 1e-12
            assert scores.n_unjudged or scores.upper == pytest.approx(scores.mean)
        if scores.n > 1:
            assert scores.low - 1e-12 <= scores.mean <= scores.high + 1e-12

"""Agreement with labels: measures against scikit-learn, SciPy and arithmetic; intervals; the command line."""

from __future__ import annotations

import itertools
import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, norm
from sklearn import metrics as sk

from evaluator import agreement_statistics
from evaluator.agreement import main
from evaluator.agreement_results import PUBLISHED
from evaluator.agreement_statistics import (
    MEASURES,
    Sample,
    agreement,
    difference,
    estimate,
    random_answers,
    shares,
)

PLUGS = "tests.evaluator.plugged_judges"
NAN = math.nan


def sample(labels, questions=None, inclusion=None):
    questions = [f"q{i:04}" for i in range(len(labels))] if questions is None else list(questions)
    return Sample.of([bool(each) for each in labels], questions, inclusion)


def values(statistic, n, weights=None):
    found = statistic(np.ones((1, n)) if weights is None else np.array([weights], dtype=float))
    return {name: float(value[0]) for name, value in found.items()}


def measured(labels, probabilities, threshold=0.5):
    return values(agreement(sample(labels), np.array(probabilities, dtype=float), threshold), len(labels))


# --- measures ---


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("weighted", [False, True])
def test_measures_are_those_of_scikit_learn(seed, weighted):
    random = np.random.default_rng(seed)
    y = random.random(80) < 0.3
    p = random.integers(0, 12, 80) / 11  # many ties
    weights = random.integers(0, 4, 80) if weighted else np.ones(80)
    found = values(agreement(sample(y), p), 80, weights)
    yes = p >= 0.5
    expected = {
        "predicted_positive": np.average(yes, weights=weights),
        "accuracy": sk.accuracy_score(y, yes, sample_weight=weights),
        "f1": sk.f1_score(y, yes, sample_weight=weights),
        "precision": sk.precision_score(y, yes, sample_weight=weights),
        "recall": sk.recall_score(y, yes, sample_weight=weights),
        "auc": sk.roc_auc_score(y, p, sample_weight=weights),
        "kappa": sk.cohen_kappa_score(y, yes, sample_weight=weights),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_auc_counts_ties_half_as_the_rank_test_does():
    # Yes: .9, .5, .5; No: .5, .1. Of 6 couples: .9 wins 2, each .5 wins 1 and ties 1: (2 + 1.5 + 1.5) / 6.
    assert measured([1, 1, 1, 0, 0], [0.9, 0.5, 0.5, 0.5, 0.1])["auc"] == pytest.approx(5 / 6)
    random = np.random.default_rng(0)
    y, p = random.random(300) < 0.2, np.round(random.random(300), 1)
    u = mannwhitneyu(p[y], p[~y]).statistic
    assert measured(y, p)["auc"] == pytest.approx(u / (y.sum() * (~y).sum()))


def test_kappa_and_f1_by_hand():
    # tp 2, fp 1, fn 1, tn 6: accuracy .8; chance (3 * 3 + 7 * 7) / 100 = .58; kappa (.8 - .58) / .42; F1 4 / 6.
    found = measured([1, 1, 1, 0, 0, 0, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0, 0, 0, 0, 0])
    assert (found["accuracy"], found["kappa"], found["f1"]) == pytest.approx((0.8, 0.22 / 0.42, 4 / 6))
    assert (found["precision"], found["recall"], found["predicted_positive"]) == pytest.approx((2 / 3, 2 / 3, 0.3))


def test_calibration_error_by_hand():
    # Bin [.1, .2): p .1 and .19, labels 0, 1: |.29 - 1| = .71. Bin [.9, 1]: p .9, 1, labels 1, 1: |1.9 - 2| = .1.
    # Bin [.5, .6): p .5, label 0: .5. Sum 1.31 over 5 pairs.
    assert measured([0, 1, 1, 1, 0], [0.1, 0.19, 0.9, 1.0, 0.5])["ece"] == pytest.approx(1.31 / 5)
    # Every edge belongs to the bin above it: ten lone pairs, |p - y| each, and 1.0 joins 0.9.
    assert measured([0] * 10, [i / 10 for i in range(10)])["ece"] == pytest.approx(4.5 / 10)
    assert measured([1, 0], [1.0, 0.95])["ece"] == pytest.approx(0.95 / 2)  # |1.95 - 1| / 2


def test_the_threshold_belongs_to_yes():
    assert measured([1, 0], [0.5, 0.4])["accuracy"] == 1
    assert measured([1, 0], [0.5, 0.4], threshold=0.4)["predicted_positive"] == 1


@pytest.mark.parametrize(
    ("labels", "probabilities", "undefined"),
    [
        ([1, 1], [0.9, 0.2], {"auc"}),
        ([0, 0], [0.1, 0.2], {"auc", "f1", "precision", "recall", "kappa"}),
        ([0, 0], [0.9, 0.2], {"auc", "recall"}),
        ([1, 0], [0.1, 0.2], {"precision"}),
        ([1, 1], [0.9, 0.9], {"auc", "kappa"}),
        ([1, 0], [NAN, NAN], set(MEASURES)),
    ],
)
def test_undefined_is_nan_and_not_zero(labels, probabilities, undefined):
    found = measured(labels, probabilities)
    assert {name for name in MEASURES if math.isnan(found[name])} == undefined


def test_unparsed_answers_are_left_out_and_bounded_by_their_worst_reading():
    labels, told = [1, 1, 0, 0, 0, 1], [0.9, NAN, 0.8, 0.1, NAN, 0.2]
    found = measured(labels, told)
    known = measured([1, 0, 0, 1], [0.9, 0.8, 0.1, 0.2])
    assert {name: found[name] for name in MEASURES} == pytest.approx(known)
    assert found["unparsed"] == pytest.approx(2 / 6)
    readings = [
        measured(labels, [0.9, first, 0.8, 0.1, second, 0.2]) for first, second in itertools.product((0, 1), repeat=2)
    ]
    assert found["accuracy_worst"] == pytest.approx(min(each["accuracy"] for each in readings))
    assert found["f1_worst"] == pytest.approx(min(each["f1"] for each in readings))
    assert "f1_worst" not in known


def test_random_answers_are_the_mean_of_many_draws():
    # Table 7 has 91 of 542 pairs labelled Yes; its random row is 16.8 / 72.1 / 16.9.
    labels = np.arange(542) < 91
    pairs = sample(labels, np.arange(542) % 3)
    expected = values(random_answers(pairs), 3)
    random = np.random.default_rng(0)
    draws = [values(agreement(pairs, np.float64(random.random(542) < 91 / 542)), 3) for _ in range(2000)]
    for name in MEASURES:
        assert np.mean([each[name] for each in draws]) == pytest.approx(expected[name], abs=0.004), name
    shown = [100 * expected[name] for name in ("predicted_positive", "accuracy", "f1")]
    assert shown == pytest.approx([16.8, 72.1, 16.9], abs=0.15)


def test_pairs_of_a_sample_count_by_their_inverse_probability():
    # Yes labels drawn with 1/2, No labels all: each Yes stands for two. tp 2 * 1, fn 2 * 1, tn 1, fp 1.
    drawn = sample([1, 1, 0, 0], inclusion=[0.5, 0.5, 1.0, 1.0])
    p = np.array([0.9, 0.1, 0.9, 0.1])
    found = values(agreement(drawn, p), 4)
    doubled = measured([1, 1, 1, 1, 0, 0], [0.9, 0.9, 0.1, 0.1, 0.9, 0.1])
    assert found == pytest.approx(doubled)
    assert values(random_answers(drawn), 4)["predicted_positive"] == pytest.approx(4 / 6)
    equal = sample([1, 0], inclusion=[0.25, 0.25])
    assert equal.weights.tolist() == [1, 1]


def test_no_pair_is_refused():
    with pytest.raises(ValueError, match="no labelled pair"):
        sample([])


# --- intervals ---


def test_the_interval_is_that_of_all_resamples_of_three_questions():
    # Questions of 2, 1 and 3 pairs with 2, 0 and 1 answers Yes. The 27 resamples, as sums over sums:
    sizes, yes = (2, 1, 3), (2, 0, 1)
    means = sorted(
        sum(yes[i] for i in drawn) / sum(sizes[i] for i in drawn) for drawn in itertools.product(range(3), repeat=3)
    )
    # 1/27 = 3.7 % of them are 0 (the second question thrice) and 3.7 % are 1 (the first thrice).
    assert (means[0], means[1] > 0, means[-1], means[-2] < 1) == (0, True, 1, True)
    questions = np.array([0, 0, 1, 2, 2, 2])
    inside = {"yes": (np.array([1, 1, 0, 1, 0, 0], bool), np.ones(6, bool))}
    found = estimate(shares(inside, questions), 3)["yes"]
    assert (found.value, found.low, found.high, found.undefined) == (0.5, 0, 1, 0)


def test_pairs_said_twice_make_no_interval_narrower():
    random = np.random.default_rng(0)
    y, p, questions = random.random(60) < 0.4, random.random(60), np.repeat(np.arange(20), 3)
    once = estimate(agreement(sample(y, questions), p), 20)
    thrice = [np.repeat(each, 3) for each in (y, p, questions)]
    again = estimate(agreement(sample(thrice[0], thrice[2]), thrice[1]), 20)
    for name in MEASURES:
        assert again[name] == pytest.approx(once[name]), name
    by_pair = estimate(agreement(sample(thrice[0]), thrice[1]), 180)
    assert by_pair["accuracy"].high - by_pair["accuracy"].low < 0.75 * (once["accuracy"].high - once["accuracy"].low)


def test_resamples_without_a_value_are_counted():
    # All Yes labels are in one of three questions: (2/3)^3 = 29.6 % of the resamples have none.
    found = estimate(agreement(sample([1, 1, 0, 0], "aabc"), np.array([0.9, 0.1, 0.9, 0.1])), 3)
    assert found["recall"].undefined == pytest.approx(10_000 * 8 / 27, abs=150)
    assert (found["recall"].low, found["recall"].high) == (0.5, 0.5)
    assert found["accuracy"].undefined == 0


def test_one_question_has_no_interval():
    found = estimate(agreement(sample([1, 0], "qq"), np.array([0.9, 0.1])), 1)
    assert found["accuracy"].value == 1
    assert math.isnan(found["accuracy"].low)
    assert math.isnan(found["accuracy"].high)


def test_intervals_are_reproducible_and_follow_the_seed():
    random = np.random.default_rng(3)
    y, p, questions = random.random(40) < 0.4, random.random(40), np.repeat(np.arange(10), 4)
    statistic = agreement(sample(y, questions), p)
    assert estimate(statistic, 10, 500) == estimate(statistic, 10, 500)
    assert estimate(statistic, 10, 500)["auc"] != estimate(statistic, 10, 500, seed=1)["auc"]


def test_intervals_over_questions_hold_the_truth_and_intervals_over_pairs_do_not():
    # Errors shared within a question: P(right) is .5 or .9 by question, .7 in the mean; 40 questions of 10 pairs.
    random = np.random.default_rng(4)
    questions, held, held_by_pair = np.repeat(np.arange(40), 10), 0, 0
    for case in range(200):
        right = random.random(400) < np.where(random.random(40) < 0.5, 0.5, 0.9)[questions]
        counted = {"accuracy": (right, np.ones(400, bool))}
        found = estimate(shares(counted, questions), 40, 400, case)["accuracy"]
        naive = estimate(shares(counted, np.arange(400)), 400, 400, case)["accuracy"]
        held += found.low <= 0.7 <= found.high
        held_by_pair += naive.low <= 0.7 <= naive.high
    assert 0.90 <= held / 200 <= 0.99  # standard error 1.6 points
    assert held_by_pair / 200 < 0.85  # expected about 70 %: the standard error is 1.8 times too small


@pytest.mark.parametrize("matrix", [1024, 0])
def test_the_interval_of_the_auc_nears_that_of_delong(matrix, monkeypatch):
    monkeypatch.setattr(agreement_statistics, "MATRIX", matrix)  # 0: the way for many questions
    random = np.random.default_rng(5)
    y = np.arange(600) < 200
    p = norm.cdf(random.normal(y, 1))
    found = estimate(agreement(sample(y), p), 600, 2000)["auc"]
    above, below = (np.array([np.mean(p[~y] < a) for a in p[y]]), np.array([np.mean(p[y] > b) for b in p[~y]]))
    half = 1.96 * math.sqrt(above.var(ddof=1) / 200 + below.var(ddof=1) / 400)  # DeLong et al. 1988
    assert (found.low, found.high) == pytest.approx((found.value - half, found.value + half), abs=0.12 * half)


@pytest.mark.parametrize("seed", range(3))
def test_both_ways_to_the_auc_agree(seed, monkeypatch):
    random = np.random.default_rng(seed)
    y, p, questions = random.random(90) < 0.3, random.integers(0, 9, 90) / 8, random.integers(0, 12, 90)
    p[random.random(90) < 0.1] = NAN
    drawn = sample(y, questions, random.choice([0.1, 0.5, 1.0], 90))
    weights = random.integers(0, 3, (50, drawn.n_questions)).astype(float)
    first = agreement(drawn, p)(weights)["auc"]
    monkeypatch.setattr(agreement_statistics, "MATRIX", 0)
    second = agreement(drawn, p)(weights)["auc"]
    assert second == pytest.approx(first, nan_ok=True)
    known = ~np.isnan(p)
    counted = weights[7, drawn.questions[known]] * drawn.weights[known]
    assert first[7] == pytest.approx(sk.roc_auc_score(y[known], p[known], sample_weight=counted))


def test_differences_are_paired():
    random = np.random.default_rng(6)
    y, questions = random.random(200) < 0.4, np.repeat(np.arange(50), 4)
    first = np.clip(y * 0.4 + random.random(200) * 0.6, 0, 1)
    second = np.where(random.random(200) < 0.03, 1 - first, first)
    pairs = sample(y, questions)
    a, b = agreement(pairs, first), agreement(pairs, second)
    assert {(each.value, each.low, each.high) for each in estimate(difference(a, a), 50).values()} == {(0, 0, 0)}
    paired, alone = estimate(difference(a, b), 50), estimate(b, 50)
    assert paired["f1"].value == pytest.approx(sk.f1_score(y, second >= 0.5) - sk.f1_score(y, first >= 0.5))
    assert paired["f1"].high - paired["f1"].low < 0.7 * (alone["f1"].high - alone["f1"].low)


def test_a_part_is_measured_as_if_it_were_alone():
    random = np.random.default_rng(7)
    y, p, inside = random.random(60) < 0.4, random.random(60), random.random(60) < 0.5
    found = values(agreement(sample(y).part(inside), p[inside]), 60)
    assert found == pytest.approx(measured(y[inside], p[inside]))


# --- the command line ---


def write(path, rows):
    """Rows (question, what Told is to answer, perspective, label) as a file of pairs."""
    lines = [
        json.dumps({"question": q, "document": f"passage {i} p={p}", "perspective": v, "label": y})
        for i, (q, p, v, y) in enumerate(rows)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


ROWS = [
    ("Tax?", 0.9, "Yes to tax.", 1), ("Tax?", 0.6, "No to tax.", 0), ("Tax?", 0.1, "No to tax.", 0),
    ("Park?", 0.8, "A park is good.", 1), ("Park?", 0.2, "A park is bad.", 1), ("Park?", 0.0, "A park is bad.", 0),
    ("War?", 0.3, "War is good.", 0), ("War?", "?", "War is bad.", 1), ("War?", "?", "War is a game.", 0),
]  # fmt: skip
"""Told at 0.5: tp 2, fp 1, fn 1, tn 3, and two unparsed (one Yes)."""


@pytest.fixture
def pairs(tmp_path):
    return write(tmp_path / "pairs.jsonl", ROWS)


def row(text, name):
    """The numbers of the first line that begins with a name, intervals left out."""
    line = next(line for line in text.splitlines() if line.startswith(name + " "))
    return re.sub(r"\[.*?\]", "", line.removeprefix(name)).split()


def test_table(pairs, capsys):
    assert main(["--judge", f"{PLUGS}:Told", "--pairs", str(pairs)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("pairs.jsonl: 9 pairs of 3 questions, 4 labelled Yes (44.4 %)\n")
    # 3 of 7 Yes; 5 of 7 right; F1 4 / (4 + 1 + 1)
    assert row(out, f"{PLUGS}:Told") == ["42.9", "71.4", "66.7"]
    # 4 of 9: q = 4/9, q^2 + (1 - q)^2 = 41/81; always Yes: F1 8/13; always No: F1 0
    assert row(out, "random (expected)") == ["44.4", "50.6", "44.4"]
    assert row(out, "always Yes") == ["100.0", "44.4", "61.5"]
    assert row(out, "always No") == ["0.0", "55.6", "0.0"]
    second = out[out.index("precision %") :]
    # Yes .9, .8, .2; No .6, .1, .0, .3: 4 + 4 + 2 of 12. kappa: chance (3 * 3 + 4 * 4) / 49. ECE: bins 0: .1 (.0, .1),
    # .2: .8, .3: .3, .6: .6, .8: .2, .9: .1: sum 2.1 of 7.
    kappa = (5 / 7 - 25 / 49) / (1 - 25 / 49)
    assert row(second, f"{PLUGS}:Told") == ["66.7", "66.7", f"{10 / 12:.3f}", f"{kappa:.3f}", "0.300"]
    assert row(second, "always No")[0] == "NaN"
    # all wrong: 5 of 9 right, F1 4 / (4 + 2 + 2)
    lost = out[out.index("unparsed answers") :]
    assert row(lost, f"{PLUGS}:Told") == ["2", "1", "55.6", "50.0"]
    assert "9 pairs needed, 0 reused, 9 judged" in err
    assert "10,000 bootstrap resamples" in out
    assert "3 questions are few" in out


def test_published_rows_are_marked_as_such(pairs, capsys):
    main(["--judge", f"{PLUGS}:Told", "--pairs", str(pairs)])
    out = capsys.readouterr().out
    before, after = out.split("as published, on all 542 human pairs of BERDS and not on these:")
    assert "fine-tuned" not in before
    assert row(after, "Mistral-7B, fine-tuned") == ["15.8", "87.6", "62.2"]
    assert row(after, "GPT-4, one-shot") == ["15.4", "89.1", "67.8"]
    assert len(PUBLISHED) == 11


def test_judgements_are_kept(pairs, capsys, tmp_path):
    command = ["--judge", f"{PLUGS}:Told", "--pairs", str(pairs), "--cache", str(tmp_path / "cache")]
    assert main(command) == 0
    first = capsys.readouterr().out
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert out == first
    assert "9 pairs needed, 9 reused, 0 judged" in err
    assert main([*command[:4], "--store", str(tmp_path / "cache" / "judgements")]) == 0
    assert "9 reused" in capsys.readouterr().err


def test_json(pairs, capsys):
    assert main(["--judge", f"{PLUGS}:Told", "--pairs", str(pairs), "--json", "--resamples", "200", "--seed", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    judge = found["judges"][0]
    assert (found["pairs"], found["questions"], found["labelled_yes"]) == (9, 3, 4)
    assert (found["resamples"], found["seed"], judge["n_unparsed"], judge["n_unparsed_labelled_yes"]) == (200, 3, 2, 1)
    assert judge["measures"]["f1"]["value"] == pytest.approx(4 / 6)
    assert judge["judging"] == {"needed": 9, "reused": 0, "judged": 9, "cost_usd": 0}
    assert found["baselines"]["always No"]["precision"]["value"] is None
    assert set(MEASURES) < set(judge["measures"])


def test_a_probability_sample_counts_by_inverse_probability(tmp_path, capsys):
    records = [("a", 0.9, 1, 0.5), ("b", 0.1, 0, 1.0), ("c", 0.8, 0, 1.0)]  # weights 2, 1, 1: 3 of 4 right
    lines = [
        json.dumps({"question": q, "document": f"p={p}", "perspective": "v", "label": y, "inclusion_probability": w})
        for q, p, y, w in records
    ]
    (tmp_path / "sample.jsonl").write_text("\n".join(lines))
    assert main(["--judge", f"{PLUGS}:Told", "--pairs", str(tmp_path / "sample.jsonl")]) == 0
    out = capsys.readouterr().out
    assert row(out, f"{PLUGS}:Told") == ["75.0", "75.0", "80.0"]
    assert "Pairs count by 1 / inclusion probability" in out


def test_judges_are_compared_on_what_both_answered(pairs, capsys):
    command = ["--judge", f"{PLUGS}:Told", "--judge", f"{PLUGS}:Told", "--judge-args", "shift=0.3"]
    assert main([*command, "--pairs", str(pairs), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in found["judges"]] == [f"{PLUGS}:Told", f"{PLUGS}:Told shift=0.3"]
    both = found["differences"][0]
    # With .3 more, .2 (Yes) and .3 (No) become Yes: tp 3, fp 2, fn 0, tn 2; F1 6/8 instead of 4/6.
    assert (both["pairs"], both["other_labels"]) == (7, 2)
    assert both["same_label"]["value"] == pytest.approx(5 / 7)
    assert both["measures"]["f1"]["value"] == pytest.approx(6 / 8 - 4 / 6)
    assert both["measures"]["recall"]["value"] == pytest.approx(1 / 3)
    assert both["second_measures"]["f1"]["value"] == pytest.approx(6 / 8)
    # first Yes 3 of 7, second 5 of 7, both 3: kappa by scikit-learn
    kappa = sk.cohen_kappa_score([1, 1, 0, 1, 0, 0, 0], [1, 1, 0, 1, 1, 0, 1])
    assert both["kappa_of_both"]["value"] == pytest.approx(kappa)
    assert main([*command, "--pairs", str(pairs)]) == 0
    out = capsys.readouterr().out
    assert "labels that differ: 2 of 7; same label 71.4 %" in out
    assert row(out[out.index("on the 7 pairs") :], "F1 %") == ["66.7", "75.0", "+8.3"]


def test_parse_difference(pairs, capsys):
    command = ["--judge", f"{PLUGS}:Told", "--judge-args", "parse=authors", "shift=0.0", "--pairs", str(pairs)]
    assert main([*command, "--parse-difference", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = [each["name"] for each in found["judges"]]
    assert names == [f"{PLUGS}:Told parse=probability", f"{PLUGS}:Told parse=authors"]
    both = found["differences"][0]
    assert (both["pairs"], both["other_labels"], both["answered_by_one"]) == (7, 1, 2)  # .6 is not above .7
    assert main([*command[:2], "--pairs", str(pairs), "--parse-difference"]) == 0
    assert "answered by one of the two only, and in none of these numbers: 2 pairs" in capsys.readouterr().out
    assert main(["--judge", f"{PLUGS}:Lines", "--pairs", str(pairs), "--parse-difference"]) == 2
    assert "has no argument 'parse'" in capsys.readouterr().err


def test_pairs_of_one_class_still_print(tmp_path, capsys):
    path = write(tmp_path / "ones.jsonl", [("a", 0.9, "v", 1), ("b", 0.2, "v", 1), ("c", 0.8, "v", 1)])
    assert main(["--judge", f"{PLUGS}:Told", "--pairs", str(path)]) == 0
    out, err = capsys.readouterr()
    assert row(out, f"{PLUGS}:Told") == ["66.7", "66.7", "80.0"]
    assert row(out[out.index("precision %") :], f"{PLUGS}:Told")[2] == "NaN"
    assert err.count("\n") == 1


def test_an_interrupted_command_goes_on(pairs, capsys, monkeypatch):
    from tests.evaluator import plugged_judges

    whole = plugged_judges.Told.judge

    def half(self, pairs):
        for count, answer in enumerate(whole(self, pairs)):
            if count == 4:
                raise KeyboardInterrupt
            yield answer

    command = ["--judge", f"{PLUGS}:Told", "--pairs", str(pairs)]
    monkeypatch.setattr(plugged_judges.Told, "judge", half)
    assert main(command) == 130
    monkeypatch.setattr(plugged_judges.Told, "judge", whole)
    assert main(command) == 0
    assert "9 pairs needed, 4 reused, 5 judged" in capsys.readouterr().err


TOLD = f"--judge {PLUGS}:Told"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("--judge gold --pairs {pairs}", "--judge gold: the labels are the gold here"),
        ("--judge nope --pairs {pairs}", "unknown judge 'nope'"),
        (f"--judge {PLUGS}:NoJudge --pairs {{pairs}}", "NoJudge has no methods judge and render"),
        ("--pairs {pairs}", "required: --judge"),
        (f"{TOLD}", "required: --pairs"),
        (f"{TOLD} --pairs none.tsv", "none.tsv: there is no such file"),
        (f"{TOLD} --pairs {{empty}}", "empty.tsv has no pair"),
        (f"{TOLD} --pairs {{open}}", "open.tsv:2: label is empty"),
        (f"{TOLD} --judge-args nope=1 --pairs {{pairs}}", "no argument 'nope'"),
        (f"{TOLD} {TOLD} --pairs {{pairs}}", "given twice"),
        (f"{TOLD} --judge-args shift=1 {TOLD} --judge-args shift=1 --pairs {{pairs}}", "given twice"),
        (f"--judge-args a=1 {TOLD} --pairs {{pairs}}", "name the judge before its arguments"),
        (f"{TOLD} --pairs {{pairs}} --threshold 0", "--threshold 0.0: give a probability above 0"),
        (f"{TOLD} --pairs {{pairs}} --threshold nan", "--threshold nan: give a probability above 0"),
        (f"{TOLD} --pairs {{pairs}} --resamples 0", "--resamples 0: give 1 or more"),
        (f"{TOLD} --pairs {{pairs}} --probe-pairs 0", "--probe-pairs 0: give 1 or more"),
        (f"{TOLD} --pairs {{pairs}} --store a --cache b", "--store and --cache exclude each other"),
        (f"{TOLD} --pair {{pairs}}", "see --help"),
    ],
)
def test_mistakes_are_one_line(command, message, pairs, tmp_path, capsys):
    header = "question\tdocument\tperspective\tlabel\n"
    (tmp_path / "empty.tsv").write_text(header)
    (tmp_path / "open.tsv").write_text(f"{header}q\td p=0.5\tv\t\n")
    places = {"pairs": pairs, "empty": tmp_path / "empty.tsv", "open": tmp_path / "open.tsv"}
    assert main(command.format(**places).split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


def test_a_bug_of_a_judge_keeps_its_traceback(pairs):
    with pytest.raises(ValueError, match="invalid literal"):
        main(["--judge", f"{PLUGS}:Broken", "--pairs", str(pairs)])


def test_strange_texts(tmp_path, capsys):
    path = tmp_path / "strange.jsonl"
    texts = ["\ud800 half", "速度限制 🚗", "\u202eleft", "a\u2028b", "word " * 5000]
    records = [
        {"question": f"{t}?", "document": f"{t} p={i / 5}", "perspective": f"{t} is good", "label": i % 2}
        for i, t in enumerate(texts)
    ]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records))
    assert main(["--judge", f"{PLUGS}:Lines", "--pairs", str(path), "--probes"]) == 0
    assert "probes of" in capsys.readouterr().out


def run(*arguments):
    command = [sys.executable, "-m", "evaluator.agreement", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8")


def test_it_runs_as_a_command_with_a_plug_in(pairs, tmp_path):
    arguments = ("--judge", f"{PLUGS}:WordShare", "--pairs", pairs, "--probes", "--cache", tmp_path / "cache")
    done = run(*arguments)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    assert "agreement with the labels" in done.stdout
    assert f"probes of {PLUGS}:WordShare" in done.stdout
    again = run(*arguments)
    assert again.stdout == done.stdout
    assert " 0 judged" in again.stderr
    wrong = run("--judge", "nope", "--pairs", pairs)
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)


def test_two_processes_at_once_share_a_store(pairs, tmp_path):
    command = [sys.executable, "-m", "evaluator.agreement", "--judge", f"{PLUGS}:Told", "--pairs", str(pairs)]
    command += ["--cache", str(tmp_path / "cache")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(2)]
    texts = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert texts[0] == texts[1] != ""


def test_help_imports_nothing_heavy():
    code = (
        "import sys, evaluator.agreement as a\n"
        "try: a.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'pyarrow', 'torch', 'transformers', 'tqdm', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--parse-difference" in done.stdout

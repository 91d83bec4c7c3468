"""Error-aware scores: error rates of a judge, prevalence, drawn true labels, and intervals that hold the truth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from corpora.types import Hit, Passage, Perspective, Question
from evaluator.column_model import ColumnModel
from evaluator.correction import corrected_scores
from evaluator.error_aware import error_aware
from evaluator.error_rates import JudgeErrors
from evaluator.judgements import JudgementStore
from evaluator.labels import judged_labels
from evaluator.metrics import parse, parse_all
from evaluator.pair_model import PairModel
from evaluator.pairs import LabelledPair
from evaluator.pattern_values import PatternValues
from evaluator.prevalence import Rates, bins_of
from evaluator.statistics import score_run
from evaluator.types import Judgement, Pair

NAN = math.nan
RATES = Rates(0.6, 0.93)


def judged(true, rates=RATES, seed=0):
    chance = np.random.default_rng([seed, 1]).random(true.shape)
    return np.where(true == 1, chance < rates.sensitivity, chance >= rates.specificity).astype(np.int8)


def independent(n, prevalence, seed=0, k=5, m=2):
    return (np.random.default_rng(seed).random((n, k, m)) < prevalence).astype(np.int8)


def clustered(n, seed=0, m=2, k=5):
    random = np.random.default_rng([seed, 2])
    logits = -1.5 + 1.2 * random.normal(size=(n, 1, 1)) + 0.8 * random.normal(size=(n, 1, m))
    return (random.random((n, k, m)) < 1 / (1 + np.exp(-logits))).astype(np.int8)


def named(matrices):
    return {f"q{i:05d}": each for i, each in enumerate(matrices)}


def errors(rates=RATES, pairs=2000, positives=0.3, questions=100):
    """Answers with exactly these shares of right ones, spread evenly over questions."""
    n = int(pairs * positives)
    hits, rejections = round(n * rates.sensitivity), round((pairs - n) * rates.specificity)
    labels = [True] * n + [False] * (pairs - n)
    answers = [i < hits for i in range(n)] + [i >= rejections for i in range(pairs - n)]
    return JudgeErrors.from_answers([str(i % questions) for i in range(pairs)], labels, answers)


# --- sensitivity and specificity ---


def pair(question, label, chance=1.0, rank=0, passage="d", perspective="p"):
    texts = Question(question, "Is it?"), Perspective(perspective, "It is."), Passage(passage, "Text.")
    return LabelledPair(Pair(*texts), label, chance, rank)


def test_counts_by_question_with_thresholds_weights_and_gaps():
    pairs = [pair("a", True), pair("a", False), pair("b", True, 0.5), pair("b", True, 0.5), pair("b", None)]
    answers = [Judgement("ok", p) for p in (0.7, 0.2, 0.69, 0.71, 1.0)]
    found = JudgeErrors.from_pairs([*pairs, pair("c", True)], [*answers, Judgement("unparsed", None)], 0.7)
    # Weights 1, 1, 2, 2 are divided by their mean 3/2.
    assert found.positives.tolist() == pytest.approx([2 / 3, 8 / 3])
    assert found.hits.tolist() == pytest.approx([2 / 3, 4 / 3])
    assert found.negatives.tolist() == found.rejections.tolist() == pytest.approx([2 / 3, 0])
    assert (found.n_positives, found.n_negatives, found.n_unknown) == (3, 1, 2)
    # (2/3 + 4/3 + 1/2) / (10/3 + 1)
    assert found.sensitivity == pytest.approx(2.5 / (13 / 3))
    with pytest.raises(ValueError, match="1 judgements for 5 labelled pairs"):
        JudgeErrors.from_pairs(pairs, answers[:1])


def test_one_pair_a_question_gives_the_posterior_of_jeffreys():
    # 40 of 50 hits and 190 of 200 rejections: Beta(40.5, 10.5) and Beta(190.5, 10.5).
    found = JudgeErrors.from_answers(
        [str(i) for i in range(250)],
        [True] * 50 + [False] * 200,
        [True] * 40 + [False] * 10 + [False] * 190 + [True] * 10,
    )
    drawn = found.draw(40_000, np.random.default_rng(0))
    for column, (a, b) in zip(drawn.T, [(40.5, 10.5), (190.5, 10.5)], strict=True):
        assert column.mean() == pytest.approx(a / (a + b), abs=0.001)
        assert column.std() == pytest.approx(math.sqrt(a * b / (a + b + 1)) / (a + b), rel=0.03)


def test_answers_that_are_alike_within_questions_say_less():
    labels = [True] * 200 + [False] * 200
    right = [i % 40 < 30 for i in range(200)] * 2  # 40 pairs of each of 10 questions, of one mind below
    answers = [label == each for label, each in zip(labels, right, strict=True)]
    spread = JudgeErrors.from_answers([str(i % 40 // 4) for i in range(400)], labels, answers)
    alone = JudgeErrors.from_answers([str(i) for i in range(400)], labels, answers)
    wide, narrow = (each.draw(4000, np.random.default_rng(0)).std(axis=0) for each in (spread, alone))
    # 20 equal answers count as one: the standard deviation is sqrt(20) times as large, less for the prior and 10 only.
    assert (wide > 3.3 * narrow).all()
    assert (wide < 4.6 * narrow).all()


@pytest.mark.parametrize(
    "labels, answers, message",
    [
        ([True] * 29 + [False] * 99, [True] * 29 + [False] * 99, "29 labelled supports, expected 30"),
        ([True] * 99 + [False] * 29, [True] * 99 + [False] * 29, "29 labelled pairs that are no supports, expected 30"),
        # Sensitivity 50.5/101 = .5, specificity 69.5/101 = .688: .188.
        ([True] * 100 + [False] * 100, [True] * 50 + [False] * 50 + [True] * 31 + [False] * 69, "Youden index.* 0.19"),
    ],
)
def test_what_says_too_little_is_refused_in_one_line(labels, answers, message):
    found = JudgeErrors.from_answers([str(i) for i in range(len(labels))], labels, answers)
    with pytest.raises(ValueError, match=message) as error:
        corrected_scores([parse("MRecall@5")], named(independent(40, 0.2)), found)
    assert "\n" not in str(error.value)


# --- the model of the true labels ---


def nodes():
    return [(-math.sqrt(3), 1 / 6), (0.0, 2 / 3), (math.sqrt(3), 1 / 6)]


def logistic(x):
    return 1 / (1 + math.exp(-x))


def by_hand(labels, logits, sigma, gamma, rates):
    """The weight of each true matrix, summed over the nodes of a and b: prior times channel, cell by cell."""
    (k, m), weights = labels.shape, {}
    for a, *b in itertools.product(nodes(), repeat=1 + m):
        node = a[1] * math.prod(each[1] for each in b)
        for bits in itertools.product((0, 1), repeat=k * m):
            weight = node
            for i in range(k):
                row = bits[i * m : (i + 1) * m]
                odds = [math.exp(logits[i] + sigma[0] * a[0] + sigma[1] * each[0]) for each in b]

                def part(values, odds=odds):
                    return math.prod(o**v for o, v in zip(odds, values, strict=True)) * gamma ** (sum(values) > 1)

                weight *= part(row) / sum(part(other) for other in itertools.product((0, 1), repeat=m))
                for true, seen in zip(row, labels[i], strict=True):
                    yes = rates.sensitivity if true else 1 - rates.specificity
                    weight *= {1: yes, 0: 1 - yes, -1: 1.0}[int(seen)]
            weights[bits] = weights.get(bits, 0.0) + weight
    return weights


CASES = [
    (PairModel, np.array([[1, 0], [0, 0]]), 2.5),
    (PairModel, np.array([[1, -1], [-1, -1]]), 0.4),
    (PairModel, np.array([[1, 1]]), 1.0),
    (ColumnModel, np.array([[1, 0, 0], [0, -1, 0]]), 1.0),
    (ColumnModel, np.array([[1], [0], [1]]), 1.0),
]


@pytest.mark.parametrize("kind, labels, gamma", CASES)
def test_likelihood_and_draws_are_those_of_the_enumeration(kind, labels, gamma):
    labels, logits, sigma = labels.astype(np.int8), [-0.5, -1.2, 0.3], (0.9, 0.6)
    others = np.zeros((3, labels.shape[1]), np.int8)  # so that all three ranks have a prevalence
    model = kind([others, labels], np.zeros((2, 0)), np.array([7, 9]), True)
    theta = np.array([*logits, *sigma, *([math.log(gamma)] if kind is PairModel else [])])
    weights = by_hand(labels, logits, sigma, gamma, RATES)
    total = sum(weights.values())
    assert model.evaluate(theta, RATES)[0][model.index[1]] == pytest.approx(math.log(total))
    n = 60_000
    (drawn,) = (
        part.labels[:, part.questions.tolist().index(9)]
        for part in model.draw(theta, RATES, n, np.random.default_rng(1))
        if 9 in part.questions
    )
    codes, counts = np.unique(drawn.reshape(n, -1), axis=0, return_counts=True)
    found = {tuple(code.tolist()): count / n for code, count in zip(codes, counts, strict=True)}
    for bits, weight in weights.items():
        share = weight / total
        assert found.get(bits, 0) == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / n) + 1e-4)


@pytest.mark.parametrize("kind, sizes", [(PairModel, [2]), (ColumnModel, [1, 3, 6])])
def test_gradients_are_differences(kind, sizes):
    random = np.random.default_rng(0)
    labels = [random.integers(-1, 2, (random.integers(0, 8), random.choice(sizes))).astype(np.int8) for _ in range(30)]
    model = kind(labels, random.normal(size=(30, 2)).round(), np.arange(30), True)
    theta, step = random.normal(size=model.size), 1e-5 * np.eye(model.size)
    gradients = model.evaluate(theta, RATES)[1]
    for i in range(model.size):
        difference = (model.evaluate(theta + step[i], RATES)[0] - model.evaluate(theta - step[i], RATES)[0]) / 2e-5
        assert gradients[:, i] == pytest.approx(difference, abs=1e-6)


def test_without_clusters_it_is_em_for_label_shift_by_rank():
    true = np.concatenate([independent(6000, p, i, k=1) for i, p in enumerate((0.4, 0.2, 0.1))], axis=1)
    seen = judged(true)
    expected = []
    for rank in range(3):
        prevalence, share = 0.5, seen[:, rank].mean()
        for _ in range(2000):  # Saerens et al. 2002: posterior, then mean of the posteriors
            yes = prevalence * 0.6 / (prevalence * 0.6 + (1 - prevalence) * 0.07)
            no = prevalence * 0.4 / (prevalence * 0.4 + (1 - prevalence) * 0.93)
            prevalence = share * yes + (1 - share) * no
        expected.append(prevalence)
    for kind, m in ((PairModel, 2), (ColumnModel, 1)):
        matrices = list(seen) if m == 2 else [seen[i, :, [j]].T for i in range(6000) for j in range(2)]
        model = kind(matrices, np.zeros((len(matrices), 0)), np.arange(len(matrices)), False)
        found = model.fit(RATES)
        assert [logistic(x) for x in found[:3]] == pytest.approx(expected, abs=0.003)
        assert not found[3:].any()


def test_clusters_are_found_where_they_are():
    true = clustered(4000)
    model = PairModel(list(judged(true)), np.zeros((4000, 0)), np.arange(4000), True)
    found = model.fit(RATES)
    assert np.abs(found[model.sigma]) == pytest.approx([1.2, 0.8], abs=0.3)
    assert found[-1] == pytest.approx(0, abs=0.6)
    assert found[: model.n_bins] == pytest.approx([-1.5] * 5, abs=0.25)


def test_ranks_share_prevalences_further_down():
    assert bins_of(12).tolist() == [0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 6, 6]
    assert bins_of(0).tolist() == []


@pytest.mark.parametrize("k, m", [(5, 2), (0, 2), (30, 2), (3, 7), (40, 11)])
def test_remembered_values_are_the_values(k, m):
    random = np.random.default_rng(0)
    metrics = parse_all(["MRecall@5", "Precision@2", "alpha_DCG@10", "CoverageDepth", "OnlySupporting@5"])
    sides = [("supporting", "opposing")[:: (-1) ** i] if m == 2 else None for i in range(10)]
    labels = (random.random((3, 10, k, m)) < 0.3).astype(np.uint8)
    values = PatternValues(metrics, sides)
    for _ in range(2):
        found = values.score(np.arange(10), labels)
        for i, draw, question in np.ndindex(found.shape):
            expected = metrics[i].score(labels[draw, question].astype(np.int8), None, sides[question])
            assert found[i, draw, question] == pytest.approx(expected, nan_ok=True)


# --- corrected scores ---


@pytest.mark.parametrize("prevalence, true_recall, observed", [(0.05, 5.2, 15.7), (0.35, 77.9, 59.3)])
def test_what_a_judge_does_to_mrecall_and_what_is_made_good(prevalence, true_recall, observed):
    # (1 - .95^5)^2 = .0512, and observed 1 - (1 - .0965)^5 squared = .158; (1 - .65^5)^2 = .781, and .595.
    true = independent(20_000, prevalence)
    mean = [100 * np.mean([parse("MRecall@5").score(one) for one in each]) for each in (true, judged(true))]
    assert mean == pytest.approx([true_recall, observed], abs=0.6)
    labels = named(judged(true)[:1000])
    (found,) = corrected_scores([parse("MRecall@5")], labels, errors(), draws=60).scores
    assert found.low < true_recall / 100 < found.high
    assert not found.low < found.naive < found.high
    assert abs(found.mean - true_recall / 100) < 0.25 * abs(found.naive - true_recall / 100)


def test_labels_in_clusters_need_a_model_with_clusters():
    true = clustered(1200, 3)
    labels = named(judged(true))
    expected = true.any(axis=1).all(axis=1).mean()
    wide, plain = (
        corrected_scores([parse("MRecall@5")], labels, errors(), clustered=each, draws=60).scores[0]
        for each in (True, False)
    )
    assert wide.low < expected < wide.high
    # Spread evenly over questions, the labels that the judge missed complete far too many of them.
    assert plain.low > expected
    assert plain.mean > expected + 0.05


def test_intervals_hold_the_truth_and_naive_ones_do_not():
    # A small share of tests/simulation/correction.py: 14 simulations, of which 95 % hold on average.
    metrics, held, naive = [parse("MRecall@5"), parse("Precision@5")], np.zeros(2), np.zeros(2)
    # (1 - .95^5)^2 and 1 - .95^2; a judge sees 15.8 and 18.4 percent.
    truth = [(1 - 0.95**5) ** 2, 1 - 0.95**2]
    for seed in range(14):
        labels = named(judged(independent(150, 0.05, seed), seed=100 + seed))
        random = np.random.default_rng([seed, 3])
        labelled = random.random(600) < 0.25
        answers = np.where(labelled, random.random(600) < 0.6, random.random(600) < 0.07)
        rates = JudgeErrors.from_answers([str(i % 50) for i in range(600)], labelled.tolist(), answers.tolist())
        for i, score in enumerate(corrected_scores(metrics, labels, rates, seed=seed, draws=60).scores):
            held[i] += score.low <= truth[i] <= score.high
        for i, score in enumerate(score_run(metrics, labels)):
            naive[i] += score.low <= truth[i] <= score.high
    assert (held >= 11).all()
    assert (naive <= 1).all()


def test_a_perfect_judge_is_left_alone():
    labels = named(clustered(300))
    metrics = parse_all(["MRecall@5", "Precision@5", "alpha_DCG@5", "CoverageDepth"])
    found = corrected_scores(metrics, labels, errors(Rates(1, 1), 40_000, 0.5), draws=200)
    for score, naive in zip(found.scores, score_run(metrics, labels), strict=True):
        assert score.naive == pytest.approx(naive.mean)
        assert score.n == naive.n
        assert score.mean == pytest.approx(naive.mean, rel=0.02)
        assert (score.low, score.high) == pytest.approx((naive.low, naive.high), rel=0.06)


def test_questions_of_any_shape_and_unknown_labels():
    random = np.random.default_rng([0, 4])
    labels = named([*judged(independent(120, 0.3)), *judged(independent(60, 0.3, m=5)), *independent(20, 0.3, m=1)])
    labels |= {"none": np.zeros((5, 0), np.int8), "empty": np.zeros((0, 2), np.int8), "short": np.ones((2, 2), np.int8)}
    full = corrected_scores(parse_all(["MRecall@5", "StRecall@5"]), labels, errors(), draws=40)
    hidden = {q: np.where(random.random(each.shape) < 0.3, np.int8(-1), each) for q, each in labels.items()}
    holes = corrected_scores(parse_all(["MRecall@5", "StRecall@5", "Judged@5"]), hidden, errors(), draws=40)
    assert [each.metric for each in holes.scores] == ["MRecall@5", "StRecall@5"]
    unknown = sum(int((each == -1).sum()) for each in hidden.values())
    # Both metrics ask only until a perspective is covered: what is unknown below a support is not consulted.
    consulted = sum(
        int(column[i] == -1 and not (column[:i] == 1).any())
        for each in hidden.values()
        for column in each.T
        for i in range(len(column))
    )
    assert consulted < unknown
    for before, after in zip(full.scores, holes.scores, strict=True):
        assert (before.n, after.n) == (202, 202)
        assert (before.n_unknown, after.n_unknown) == (0, consulted)
        assert after.naive < before.naive - 0.05  # as if the judge had said No
        assert after.mean == pytest.approx(before.mean, abs=0.08)
        assert after.low < after.mean < after.high
    assert any(f"{unknown} of {sum(each.size for each in hidden.values())} labels" in n for n in holes.notes)


def test_labels_left_out_below_a_support_do_no_harm():
    true = independent(600, 0.25, 5)
    seen = judged(true)
    covered = np.cumsum(seen, axis=1) - seen > 0  # a passage above supports the perspective
    lazy = np.where(covered, np.int8(-1), seen)
    full, partly = (
        corrected_scores([parse("MRecall@5")], named(each), errors(), draws=60).scores[0] for each in (seen, lazy)
    )
    assert full.naive == partly.naive
    assert partly.mean == pytest.approx(full.mean, abs=0.06)
    assert partly.low < (1 - 0.75**5) ** 2 < partly.high


def test_only_ranks_that_metrics_read_count():
    labels = named(judged(independent(80, 0.2)))
    deeper = {q: np.concatenate([each, np.full((60, 2), -1, np.int8)]) for q, each in labels.items()}
    metrics = parse_all(["MRecall@5", "Precision@3"])
    assert corrected_scores(metrics, deeper, errors(), draws=20) == corrected_scores(
        metrics, labels, errors(), draws=20
    )


def test_the_same_seed_gives_the_same_scores_in_any_order():
    labels = named(judged(independent(80, 0.2)))
    first = corrected_scores([parse("MRecall@5")], labels, errors(), seed="x", draws=40)
    assert first == corrected_scores([parse("MRecall@5")], dict(reversed(labels.items())), errors(), seed="x", draws=40)
    assert first != corrected_scores([parse("MRecall@5")], labels, errors(), seed="y", draws=40)


def test_macro_means_have_equal_weights_and_prevalences_of_their_own():
    many, few = judged(independent(360, 0.05, 1), seed=1), judged(independent(40, 0.5, 2), seed=2)
    labels = named([*many, *few])
    groups = {q: "many" if i < 360 else "few" for i, q in enumerate(labels)}
    metric = [parse("Precision@5")]
    macro = corrected_scores(metric, labels, errors(), groups=groups, macro=True, draws=40).scores[0]
    plain = corrected_scores(metric, labels, errors(), groups=groups, draws=60).scores[0]
    truth = 1 - 0.95**2, 1 - 0.5**2
    assert macro.mean == pytest.approx(sum(truth) / 2, abs=0.08)
    assert plain.mean == pytest.approx(0.9 * truth[0] + 0.1 * truth[1], abs=0.05)
    assert macro.low < sum(truth) / 2 < macro.high
    with pytest.raises(ValueError, match="a macro mean needs the group of each question"):
        corrected_scores(metric, labels, errors(), macro=True)


def test_metrics_that_need_a_pool_are_refused_and_undefined_ones_are_nan():
    labels = named(independent(40, 0.2))
    with pytest.raises(ValueError, match="no error-aware scores for alpha_nDCG@5"):
        corrected_scores([parse("alpha_nDCG@5")], labels, errors())
    (found,) = corrected_scores([parse("Both@5")], labels, errors(), draws=20).scores  # no stances: undefined
    assert all(map(math.isnan, (found.mean, found.low, found.high, found.naive)))
    assert found.n == 0
    for nothing in ({}, named(np.zeros((3, 5, 0), np.int8))):
        (found,) = corrected_scores([parse("MRecall@5")], nothing, errors(), draws=20).scores
        assert math.isnan(found.mean)
    (found,) = corrected_scores([parse("MRecall@5")], named(np.zeros((9, 0, 2), np.int8)), errors(), draws=20).scores
    assert (found.mean, found.low, found.high) == (0, 0, 0)
    assert corrected_scores([], labels, errors(), draws=20).scores == ()


def test_nothing_known_and_no_draws_are_refused():
    with pytest.raises(ValueError, match="not one label of this run is known"):
        corrected_scores([parse("MRecall@5")], named(np.full((9, 5, 2), -1, np.int8)), errors())
    with pytest.raises(ValueError, match="draws 0: expected 1 or more"):
        corrected_scores([parse("MRecall@5")], named(independent(9, 0.2)), errors(), draws=0)


def test_the_notes_say_what_was_measured_and_what_is_assumed():
    notes = " ".join(corrected_scores([parse("MRecall@5")], named(independent(40, 0.2)), errors(), draws=20).notes)
    # 600 supports, 360 hits: 360.5/601 = .5998.
    assert "2000 labelled pairs of 100 questions (600 supports): sensitivity 60.0" in notes
    assert notes.count("Assumed:") == 3
    silent = corrected_scores([parse("MRecall@5")], named(np.zeros((200, 5, 2), np.int8)), errors(), draws=20)
    assert "do not believe" in silent.notes[-1]
    few = errors(pairs=400, questions=7)
    assert "fewer than 20 questions" in " ".join(
        corrected_scores([parse("MRecall@5")], named(independent(40, 0.2)), few, draws=20).notes
    )


# --- from a result's labels and a file of pairs ---


class Words:
    """Says what the passage's text says."""

    fingerprint = "words-1"

    def __init__(self):
        self.asked = 0

    def render(self, pair):
        return f"{pair.passage.text}\n{pair.perspective.text}"

    def judge(self, pairs):
        for i, each in enumerate(pairs):
            self.asked += 1
            yes = each.perspective.text in each.passage.text.split()
            yield i, Judgement("ok", float(yes))


def collection(n=40, k=3):
    """Questions whose passages name the perspectives that a judge will find in them."""
    random = np.random.default_rng(0)
    sides = (Perspective("p", "pro", "supporting"), Perspective("c", "con", "opposing"))
    questions = [Question(f"q{i}", f"Question {i}?", sides, group="all") for i in range(n)]
    texts = {
        f"q{i}-{j}": Passage(f"q{i}-{j}", " ".join(w for w in ("pro", "con") if random.random() < 0.4) + f" x{i} {j}")
        for i in range(n)
        for j in range(k)
    }
    run = {q.question_id: tuple(Hit(f"{q.question_id}-{j}", float(k - j)) for j in range(k)) for q in questions}
    return questions, texts, run


def labelled(questions, texts, run, chosen, label):
    return [
        LabelledPair(
            Pair(q, p, texts[hit.passage_id]), label(p, texts[hit.passage_id]), len(chosen) / len(questions), i
        )
        for q in questions
        if q.question_id in chosen
        for i, hit in enumerate(run[q.question_id], 1)
        for p in q.perspectives
    ]


def test_pairs_of_anywhere_measure_the_judge_and_whole_questions_are_used_as_such(tmp_path):
    questions, texts, run = collection()
    store, judge = JudgementStore(tmp_path), Words()
    table, _ = judged_labels(run, questions, 3, lambda ids: [texts[i] for i in ids], judge, "words-1", store)
    asked = judge.asked
    pairs = labelled(questions, texts, run, {f"q{i}" for i in range(30)}, lambda p, d: p.text in d.text.split())
    metrics = parse_all(["MRecall@3", "Precision@3", "Both@3"])

    def scores(pairs):
        return error_aware(metrics, table, run, questions, pairs, judge, "words-1", store, draws=20)

    whole = scores(pairs)
    assert whole.method == "prediction-powered"
    # People agree with the judge everywhere: its labels of all questions are right.
    assert [each.mean for each in whole.scores] == pytest.approx([each.naive for each in whole.scores])
    assert scores(pairs[:-1]).method == "modelled"  # a hole: no sample of whole questions
    assert scores([LabelledPair(each.pair, each.label) for each in pairs]).method == "modelled"  # of no run
    assert scores(pairs[: 29 * 6]).method == "modelled"  # too few questions
    assert judge.asked == asked  # all from the store
    with pytest.raises(ValueError, match=r"question q0, passage q0-0, perspective p\) has no label"):
        scores([LabelledPair(pairs[0].pair, None, pairs[0].inclusion_probability, 1), *pairs[1:]])

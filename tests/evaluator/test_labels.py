"""Labels from qrels and from judges, and the matrices made of them."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow.compute as pc
import pytest

from corpora.types import Hit, Passage, Perspective, Question
from evaluator import judging
from evaluator.depths import Depths, needed
from evaluator.judgements import JudgementStore
from evaluator.labels import check_metrics, gold_labels, gold_pools, judged_labels, matrices, table_depths
from evaluator.metrics import METRICS, parse
from evaluator.statistics import score_run
from evaluator.types import Judgement

Q1 = Question("q1", "one", (Perspective("a", "first"), Perspective("b", "second")))
Q2 = Question("q2", "two", (Perspective("a", "third"),))
NONE = Question("q3", "no perspectives at all")
RUN = {"q1": (Hit("x", 3.0), Hit("y", 2.0), Hit("z", 1.0)), "q2": (), "q3": (Hit("x", 1.0),)}
QRELS = {"q1": {"a": {"x": 1, "y": 0}, "b": {"w": 2, "x": -2}}}
TEXTS = {name: Passage(name, f"text of {name}") for name in "wxyz"}


def test_gold_labels_tell_no_from_unjudged():
    table = gold_labels(RUN, [Q1, Q2, NONE], QRELS, 100)
    labels = matrices(table, RUN, [Q1, Q2, NONE])
    # x supports a (relevance 1) and not b (-2); y was seen and supports nothing; z has no line: unknown.
    assert labels["q1"].tolist() == [[1, 0], [0, 0], [-1, -1]]
    assert labels["q2"].shape == (0, 1)
    assert labels["q3"].shape == (1, 0)
    assert table["status"].to_pylist() == ["ok"] * 4 + ["unjudged"] * 2


def test_pools_hold_every_judged_passage_in_descending_order_of_id():
    pools = gold_pools([Q1, Q2], QRELS)
    assert pools["q1"].tolist() == [[0, 0], [1, 0], [0, 1]]  # y, x, w
    assert pools["q2"].shape == (0, 1)


class Judge:
    """Says yes to x, is unsure about y, and cannot answer for z."""

    def __init__(self):
        self.asked = []

    def render(self, pair):
        return f"{pair.passage.text}/{pair.perspective.text}"

    def judge(self, pairs):
        for i, pair in reversed(list(enumerate(pairs))):
            self.asked.append((pair.passage.passage_id, pair.perspective.perspective_id))
            answers = {"x": 1.0, "y": 0.6, "z": None}
            probability = answers[pair.passage.passage_id]
            yield i, Judgement("unparsed" if probability is None else "ok", probability)


def texts(ids):
    return [TEXTS[passage_id] for passage_id in ids]


def test_judged_labels_take_the_threshold_when_scoring_and_judge_once(tmp_path):
    judge, store = Judge(), JudgementStore(tmp_path)
    table, counts = judged_labels(RUN, [Q1, NONE], 100, texts, judge, "judge-1", store)
    assert (counts.needed, counts.reused, counts.judged) == (6, 0, 6)
    assert matrices(table, RUN, [Q1, NONE], 0.5)["q1"].tolist() == [[1, 1], [1, 1], [-1, -1]]
    assert matrices(table, RUN, [Q1, NONE], 0.7)["q1"].tolist() == [[1, 1], [0, 0], [-1, -1]]
    assert matrices(table, RUN, [Q1, NONE], 0.6)["q1"].tolist() == [[1, 1], [1, 1], [-1, -1]]  # at or above
    again, counts = judged_labels(RUN, [Q1, NONE], 100, texts, judge, "judge-1", JudgementStore(tmp_path))
    assert (counts.needed, counts.reused, counts.judged) == (6, 6, 0)
    assert again.equals(table)
    assert len(judge.asked) == 6
    assert judged_labels(RUN, [Q1], 100, texts, judge, "judge-2", store)[1].judged == 6, (
        "another judge, other judgements"
    )


def test_stored_only_asks_nothing(tmp_path):
    judge = Judge()
    store = JudgementStore(tmp_path)
    table, counts = judged_labels(RUN, [Q1], 100, texts, judge, "judge-1", store, stored_only=True)
    assert judge.asked == []
    assert counts.judged == 0
    assert np.array_equal(matrices(table, RUN, [Q1])["q1"], np.full((3, 2), -1))


def test_deeper_labels_are_added_below_those_that_are_there(tmp_path):
    judge = Judge()
    run = {"q1": RUN["q1"], "q2": RUN["q1"]}
    upper, counts = judged_labels(run, [Q1, Q2], 1, texts, judge, "judge-1", JudgementStore(tmp_path))
    assert counts.needed == 3
    assert matrices(upper, run, [Q1, Q2])["q1"].tolist() == [[1, 1], [-1, -1], [-1, -1]]
    # Another store, where the first rank would be judged otherwise: what the table has is kept.
    judge.render = lambda pair: f"other {pair.passage.text}/{pair.perspective.text}"
    whole, counts = judged_labels(run, [Q1, Q2], 3, texts, judge, "j", JudgementStore(tmp_path), known=upper)
    assert counts.needed == 6
    assert matrices(whole, run, [Q1, Q2])["q1"].tolist() == [[1, 1], [1, 1], [-1, -1]]
    assert whole["passage_id"].to_pylist() == [*"xxyyzz", *"xyz"]
    assert whole["key"].to_pylist()[:2] == upper["key"].to_pylist()[:2]


def test_matrices_refuse_the_labels_of_another_run():
    table = gold_labels(RUN, [Q1], QRELS, 100)
    swapped = {"q1": (Hit("y", 3.0), Hit("x", 2.0), Hit("z", 1.0))}
    with pytest.raises(ValueError, match="--overwrite"):
        matrices(table, swapped, [Q1])
    with pytest.raises(ValueError, match="--overwrite"):
        matrices(table, {"q1": RUN["q1"][:2]}, [Q1])
    with pytest.raises(ValueError, match="--overwrite"):
        matrices(table, {"q1": (*RUN["q1"], Hit("w", 0.0))}, [Q1])


class Oracle:
    """Answers from a table: question -> probabilities (n, m), None where it cannot; writes down what it is asked."""

    def __init__(self, answers):
        self.answers, self.asked, self.calls = answers, [], 0

    def render(self, pair):
        return f"{pair.question.question_id} {pair.perspective.perspective_id} {pair.passage.passage_id}"

    def judge(self, pairs):
        self.calls += 1
        for i, pair in enumerate(pairs):
            self.asked.append((pair.question.question_id, pair.perspective.perspective_id, pair.passage.passage_id))
            row, column = int(pair.passage.passage_id[1:]), int(pair.perspective.perspective_id)
            answer = self.answers[pair.question.question_id][row][column]
            yield i, Judgement("unparsed" if answer is None else "ok", answer)


def made(answers):
    """Questions and a run for a table of answers; passage d7 is row 7 of every question, in another order for each."""
    run, questions = {}, []
    for number, (name, rows) in enumerate(answers.items()):
        order = np.random.default_rng(number).permutation(len(rows))
        run[name] = tuple(Hit(f"d{row}", float(-i)) for i, row in enumerate(order))
        questions.append(Question(name, name, tuple(Perspective(str(j), f"view {j}") for j in range(len(rows[0])))))
    return run, questions


def lookup(ids):
    return [Passage(passage_id, passage_id) for passage_id in ids]


def random_answers(seed, n_questions=12, share=0.08):
    random = np.random.default_rng(seed)
    answers = {}
    for number in range(n_questions):
        drawn = random.random((int(random.integers(1, 60)), int(random.integers(1, 6))))
        rows = [[None if x > 0.95 else float(x < share) for x in row] for row in drawn]
        answers[f"q{number}"] = rows
    return answers


def rank_by_rank(answers, run, full, reach, threshold=0.5):
    """The pairs that are needed, worked out one rank after the other."""
    wanted = set()
    for name, ranking in run.items():
        for j in range(len(answers[name][0])):
            covered = False
            for rank, hit in enumerate(ranking[:reach]):
                if rank < full or not covered:
                    wanted.add((name, str(j), hit.passage_id))
                answer = answers[name][int(hit.passage_id[1:])][j]
                covered = covered or (answer is not None and answer >= threshold)
    return wanted


def rows(table, *statuses):
    chosen = table.filter(pc.is_in(table["status"], value_set=pc.cast(list(statuses), "string")))
    return set(
        zip(*(chosen[name].to_pylist() for name in ("question_id", "perspective_id", "passage_id")), strict=True)
    )


@pytest.mark.parametrize("least", [1, 7, 10_000])
@pytest.mark.parametrize("full, reach", [(0, 60), (3, 60), (5, 20), (10, 10)])
def test_lazy_labels_are_those_that_judging_rank_by_rank_would_give(tmp_path, monkeypatch, full, reach, least):
    monkeypatch.setattr(judging, "ROUND", least)
    monkeypatch.setattr(judging, "ROUND_LEAST", least)
    answers = random_answers(full + least)
    run, questions = made(answers)
    oracle, store = Oracle(answers), JudgementStore(tmp_path)
    table, counts = judged_labels(run, questions, Depths(full, reach), lookup, oracle, "o", store)
    wanted = rank_by_rank(answers, run, full, reach)
    assert rows(table, "ok", "unparsed") == wanted
    assert rows(table, "unjudged") == set()
    assert len(table) == sum(min(reach, len(each)) * len(each[0]) for each in answers.values())
    assert wanted <= set(oracle.asked)
    assert len(oracle.asked) == len(set(oracle.asked)) == counts.judged
    assert (counts.needed, counts.reused, counts.ahead) == (len(wanted), 0, counts.judged - len(wanted))
    if least == 1:
        assert counts.ahead == 0
    # The labels do not depend on how the judging went on, and what is stored is not judged again, in other rounds.
    monkeypatch.setattr(judging, "ROUND", 33)
    again, counts = judged_labels(run, questions, Depths(full, reach), lookup, oracle, "o", JudgementStore(tmp_path))
    assert again.equals(table, check_metadata=True)
    assert (counts.needed, counts.reused, counts.judged) == (len(wanted), len(wanted), 0)


def test_a_store_with_just_the_needed_labels_is_enough_whatever_the_rounds(tmp_path, monkeypatch):
    answers = random_answers(5)
    run, questions = made(answers)
    monkeypatch.setattr(judging, "ROUND", 1)
    monkeypatch.setattr(judging, "ROUND_LEAST", 1)
    judged_labels(run, questions, Depths(2, 60), lookup, Oracle(answers), "o", JudgementStore(tmp_path))
    monkeypatch.setattr(judging, "ROUND", 500)
    monkeypatch.setattr(judging, "ROUND_LEAST", 500)
    other = Oracle(answers)
    judged_labels(run, questions, Depths(2, 60), lookup, other, "o", JudgementStore(tmp_path))
    assert other.asked == []


def lazy_metrics():
    names = [
        title + {"required": "@20", "optional": "", "none": ""}[metric.cutoff] for title, metric in METRICS.items()
    ]
    return [
        metric
        for metric in map(parse, [*names, "OracleMRecall(depth=50)@20"])
        if metric.until_covered and metric.depth != 100
    ]


def test_metrics_that_may_be_judged_lazily_have_the_values_of_complete_labels(tmp_path):
    metrics = lazy_metrics()
    assert {"MRecall@20", "CoverageDepth", "Covered", "StRecall@20"} <= {metric.name for metric in metrics}
    for seed in range(20):
        answers = random_answers(seed, 5)
        run, questions = made(answers)
        tables = [
            judged_labels(run, questions, depths, lookup, Oracle(answers), "o", JudgementStore(tmp_path / str(seed)))[0]
            for depths in (needed(metrics, 60), Depths(60, 60))
        ]
        lazy, complete = (score_run(metrics, matrices(table, run, questions)) for table in tables)
        assert needed(metrics, 60) == Depths(0, 60)
        for one, other in zip(lazy, complete, strict=True):
            assert one.per_question == pytest.approx(other.per_question, nan_ok=True)
            assert one.n_unjudged == other.n_unjudged  # what was skipped is no hole; what is unparsed is one
            assert one.upper == pytest.approx(other.upper, nan_ok=True)


def test_how_deep_metrics_look():
    def depths(*names):
        return needed(map(parse, names), 100)

    assert depths("CoverageDepth") == Depths(0, 100)
    assert depths("CoverageDepth@30", "Covered@50", "Precision@10") == Depths(10, 50)
    assert depths("OracleMRecall@5", "alpha_DCG@10") == Depths(10, 100)
    assert depths("Precision@10", "MRecall@5") == Depths(10, 10)
    assert not depths("Precision@10", "MRecall@5").lazy
    assert depths("NRBP") == depths() == Depths(100, 100)
    assert Depths(5, 50) | Depths(10, 20) == Depths(10, 50)
    assert Depths(10, 50).cover(Depths(10, 20))
    assert not Depths(10, 50).cover(Depths(11, 20))
    assert not Depths(10, 50).cover(Depths(0, 51))
    with pytest.raises(ValueError, match="complete to rank 3"):
        Depths(3, 2)


def test_lazy_labels_grow_into_complete_ones_and_complete_ones_lazily_deeper(tmp_path):
    answers = random_answers(3)
    run, questions = made(answers)

    def labels(depths, known=None, store="one"):
        return judged_labels(
            run, questions, depths, lookup, Oracle(answers), "o", JudgementStore(tmp_path / store), known=known
        )

    lazy, _ = labels(Depths(0, 60))
    both, counts = labels(Depths(10, 10), lazy)
    assert table_depths(both) == Depths(10, 60)
    assert both.equals(labels(Depths(10, 60), store="two")[0], check_metadata=True)
    new = rank_by_rank(answers, run, 10, 60) - rank_by_rank(answers, run, 0, 60)
    assert counts.needed == len(new) > 20
    upper, _ = labels(Depths(10, 10), store="three")
    deeper, _ = labels(Depths(0, 60), upper, "three")
    assert deeper.equals(both, check_metadata=True)
    complete, _ = labels(Depths(60, 60), both)
    assert complete.equals(labels(Depths(60, 60), store="four")[0], check_metadata=True)
    assert set(complete.schema.metadata) == {b"depth"}, "as in tables from before there was lazy judging"


def test_labels_that_are_there_stay_as_they_are_and_decide_what_else_is_needed(tmp_path):
    first = {"q0": [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]}
    run, questions = made(first)
    upper, _ = judged_labels(run, questions, 1, lookup, Oracle(first), "o", JudgementStore(tmp_path / "a"))
    says_no = Oracle({"q0": [[0.0, 0.0]] * 4})
    table, _ = judged_labels(
        run, questions, Depths(0, 4), lookup, says_no, "n", JudgementStore(tmp_path / "b"), known=upper
    )
    top = int(run["q0"][0].passage_id[1:])
    assert table["probability"].to_pylist()[:2] == first["q0"][top]
    covered = [str(j) for j in range(2) if first["q0"][top][j] == 1]
    assert {pair[1] for pair in rows(table, "skipped")} == set(covered)


def test_what_cannot_be_read_covers_nothing(tmp_path):
    answers = {"q0": [[None], [None], [None]]}
    run, questions = made(answers)
    table, _ = judged_labels(run, questions, Depths(0, 3), lookup, Oracle(answers), "o", JudgementStore(tmp_path))
    assert table["status"].to_pylist() == ["unparsed"] * 3


def test_the_threshold_decides_what_covers(tmp_path):
    answers = {"q0": [[0.6], [0.6], [0.6]]}
    run, questions = made(answers)

    def labels(threshold):
        store = JudgementStore(tmp_path / str(threshold))
        oracle = Oracle(answers)
        return judged_labels(run, questions, Depths(0, 3), lookup, oracle, "o", store, threshold=threshold)[0]

    assert labels(0.6)["status"].to_pylist() == ["ok", "skipped", "skipped"]
    assert labels(0.7)["status"].to_pylist() == ["ok"] * 3
    assert matrices(labels(0.6), run, questions, 0.5)["q0"].tolist() == [[1], [-1], [-1]]
    with pytest.raises(ValueError, match=r"covered at 0\.6: judge it again"):
        matrices(labels(0.6), run, questions, 0.7)


def test_metrics_that_miss_what_was_left_out_are_refused(tmp_path):
    answers = {"q0": [[1.0], [0.0], [0.0]]}
    run, questions = made(answers)
    table, _ = judged_labels(run, questions, Depths(1, 3), lookup, Oracle(answers), "o", JudgementStore(tmp_path))
    check_metrics(table, map(parse, ["CoverageDepth", "Precision@1", "MRecall@3"]), 3)
    check_metrics(gold_labels(run, questions, {}, 3), map(parse, ["Precision@3"]), 3)
    if "skipped" in table["status"].to_pylist():
        with pytest.raises(
            ValueError, match=r"^Precision@3 needs labels .* below rank 1 .* with Precision@3 in --metrics$"
        ):
            check_metrics(table, map(parse, ["CoverageDepth", "Precision@3"]), 3)
    nothing_left_out = {"q0": [[0.0], [0.0], [0.0]]}
    table, _ = judged_labels(
        run, questions, Depths(1, 3), lookup, Oracle(nothing_left_out), "n", JudgementStore(tmp_path)
    )
    check_metrics(table, [parse("Precision@3")], 3)


def test_stored_only_takes_what_was_left_out_from_the_store_or_refuses(tmp_path, monkeypatch):
    monkeypatch.setattr(judging, "ROUND_LEAST", 1)
    answers = {"q0": [[1.0], [1.0], [1.0]]}
    run, questions = made(answers)
    store, oracle = JudgementStore(tmp_path), Oracle(answers)

    def labels(depths, known=None, stored_only=True):
        return judged_labels(run, questions, depths, lookup, oracle, "o", store, known=known, stored_only=stored_only)

    labels(Depths(0, 3), stored_only=False)
    oracle.asked.clear()
    lazy, _ = labels(Depths(0, 3))
    assert lazy["status"].to_pylist() == ["ok", "skipped", "skipped"]
    with pytest.raises(ValueError, match=r"^2 labels that these metrics need were left out"):
        labels(Depths(3, 3), lazy)
    assert oracle.asked == []
    labels(Depths(3, 3), stored_only=False)
    assert labels(Depths(3, 3), lazy)[0]["status"].to_pylist() == ["ok"] * 3


def test_pairs_of_one_passage_go_to_the_judge_together(tmp_path):
    answers = {f"q{i}": [[0.0, 0.0, 0.0]] * 30 for i in range(4)}
    run, questions = made(answers)
    oracle = Oracle(answers)
    judged_labels(run, questions, 30, lookup, oracle, "o", JudgementStore(tmp_path))
    passages = [passage for _, _, passage in oracle.asked]
    changes = sum(a != b for a, b in itertools.pairwise(passages))
    assert (len(passages), changes) == (360, 29)

"""Labels from qrels and from judges, and the matrices made of them."""

from __future__ import annotations

import numpy as np
import pytest

from corpora.types import Hit, Passage, Perspective, Question
from evaluator.judgements import JudgementStore
from evaluator.labels import gold_labels, gold_pools, judged_labels, matrices
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

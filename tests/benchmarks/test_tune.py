"""Tuning: the curve, the choice, overlapping questions left out, and what --tuned refuses and marks."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from benchmarks.choice import Choice
from benchmarks.config import RunConfig
from benchmarks.run import main as run
from benchmarks.tune import Point, _table, main, overlapping
from corpora.types import Perspective, Question

PLUGIN = '''
from rerankers.base import reordered


class Shift:
    """Moves the first n passages to the end; n = 9 means one in q1's own way."""

    def __init__(self, n: int = 0, other: int = 0):
        self.n, self.other = n, other

    def rerank(self, pools):
        return [reordered(p, [*range(self.n, len(p.ranking)), *range(min(self.n, len(p.ranking)))]) for p in pools]
'''
WORDS = """

class Words:
    def index(self, corpus):
        self.corpus = list(corpus)
        return self

    def search(self, queries, k):
        from corpora.types import Hit

        return [tuple(Hit(p.passage_id, 9.0 - i) for i, p in enumerate(self.corpus))[:k] for _ in queries]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Four questions; the retriever ranks p0 p1 p2. dev: p1 supports a, p2 supports b; test: p1 supports c."""
    (tmp_path / "shifting.py").write_text(PLUGIN + WORDS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    task = tmp_path / "task"
    task.mkdir()
    rows = [("a", "dev", "one view"), ("b", "dev", "a view"), ("c", "test", "view of c"), ("d", "dev", "View  of C")]
    records = [
        {"question_id": q, "question": f"{q}?", "split": s, "perspectives": [{"perspective_id": f"{q}1", "text": t}]}
        for q, s, t in rows
    ]
    (task / "questions.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (task / "corpus.jsonl").write_text("".join(f'{{"_id": "p{i}", "text": "passage {i}"}}\n' for i in range(3)))
    (task / "qrels.txt").write_text("a a1 p1 1\nb b1 p2 1\nc c1 p0 1\nd d1 p0 1\n")
    return task


def flags(folder, *more):
    return [
        "--task",
        str(folder),
        "--retriever",
        "shifting:Words",
        "--depth",
        "3",
        "--reranker",
        "shifting:Shift",
        *more,
    ]


def test_the_best_is_chosen_on_the_split(folder, capsys):
    # first passage: n=0 p0, n=1 p1, n=2 p2; MRecall@1 on dev: a needs p1, b p2, d p0
    given = flags(folder, "--split", "dev", "--grid", "n=0,1,2", "--metric", "MRecall@1")
    assert main(given) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in out[1:4]] == ["33.33", "33.33", "33.33"]
    assert out[1].endswith("<- chosen")  # the first of equal ones
    assert out[4].endswith("(ORACLE): 100.00")
    # without d, which shares a text with c but for case and blanks: 0, 50, 50
    assert main([*given, "--disjoint-from", "test", "--overwrite"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in out[1:4]] == ["0.00", "50.00", "50.00"]
    assert out[2].endswith("<- chosen")
    assert "1 questions were left out" in out[5]
    assert "chosen on 2 questions" in out[6]
    choice = json.loads((folder.parent / "tuned.json").read_text())
    assert (choice["arguments"], choice["questions"], choice["split"]) == (["n=1"], ["a", "b"], "dev")
    assert [point["mean"] for point in choice["curve"]] == [0.0, 0.5, 0.5]
    assert choice["config"]["reranker"]["arguments"] == {"n": 1, "other": 0}  # of the choice, not of the first point


def test_the_lowest_is_the_best_where_less_is_better(folder, capsys):
    # the first passage that supports: with n = 2, 1, 0 p2 p0 p1, p1 p2 p0, p0 p1 p2: a at 3, 1, 2 (p1); b at 1, 2, 3
    # (p2); d at 2, 3, 1 (p0). Without d: means 2, 1.5, 2.5, and each question's lowest is 1
    given = flags(folder, "--split", "dev", "--disjoint-from", "test", "--grid", "n=2,1,0")
    assert main([*given, "--metric", "CoverageDepth"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in out[1:4]] == ["2.00", "1.50", "2.50"]
    assert out[2].endswith("<- chosen")
    assert out[4].endswith("(ORACLE): 1.00")
    assert main([*given, "--metric", "Judged@1"]) == 2
    assert "neither high nor low values are better" in capsys.readouterr().err


def test_a_choice_is_applied_elsewhere_and_refused_at_home(folder, capsys):
    main(
        flags(
            folder, "--split", "dev", "--grid", "n=1,2", "other=5,6", "--metric", "MRecall@1", "--disjoint-from", "test"
        )
    )
    capsys.readouterr()
    tuned = flags(folder, "--tuned", "tuned.json", "--json")
    assert run([*tuned, "--split", "test"]) == 0
    config = json.loads(capsys.readouterr().out)["config"]
    assert config["reranker"]["arguments"] == {"n": 1, "other": 5}
    assert config["tuned"] == {"task": "task", "split": "dev", "metric": "MRecall@1", "overlap": "none"}
    assert run([*tuned, "--split", "dev"]) == 2
    assert "was chosen on 2 of these 3 questions (split dev)" in capsys.readouterr().err
    assert run([*tuned[:-1], "--split", "dev", "--tuned-anyway"]) == 0
    assert "tuned on task dev; 2 OF THESE QUESTIONS" in capsys.readouterr().out
    assert run([*tuned, "--split", "test", "--reranker-args", "n=3"]) == 2
    assert capsys.readouterr().err == (
        "error: --reranker-args n=3: n is given twice: --tuned tuned.json says n=1: leave one of them out\n"
    )


TUNED = json.dumps(
    {
        "reranker": ["mmr"],
        "arguments": ["lambda=0.75"],
        "given": ["encoder=minilm"],
        "task": "t",
        "split": "dev",
        "metric": "MRecall@5",
        "questions": ["a"],
    }
)


@pytest.mark.parametrize("typed", ["lambda=0.1", "lambda_=0.1", "mmr.lambda=0.1"])
def test_a_tuned_argument_is_not_given_again(folder, capsys, typed):
    (folder.parent / "x.json").write_text(TUNED)
    given = ["--task", str(folder), "--tuned", "x.json", "--reranker", "mmr", "--reranker-args", typed]
    assert run(given) == 2
    name = typed.partition("=")[0]
    assert capsys.readouterr().err == (
        f"error: --reranker-args {typed}: {name} is given twice: --tuned x.json says lambda=0.75: leave one of "
        "them out\n"
    )


def test_a_choice_for_another_reranker_is_refused_before_its_arguments(folder, capsys):
    (folder.parent / "x.json").write_text(TUNED)
    assert run(["--task", str(folder), "--tuned", "x.json", "--reranker", "vrsd"]) == 2
    assert capsys.readouterr().err == "error: --tuned x.json is for --reranker mmr, not vrsd\n"


def test_the_runs_own_arguments_win_over_those_beside_the_grid():
    choice = Choice(("mmr",), ("lambda=0.75",), "t", "dev", "MRecall@5", ("a",), given=("norm=max", "encoder=minilm"))
    config = RunConfig(reranker=("mmr",), reranker_args=("mmr.norm=minmax",))
    assert choice.completed(config) == ("mmr.norm=minmax", "lambda=0.75", "encoder=minilm")
    chain = replace(choice, reranker=("mmr", "xquad"), arguments=("mmr.lambda=0.75",), given=())
    other = RunConfig(reranker=("mmr", "xquad"), reranker_args=("xquad.lambda=0.1",))
    assert chain.completed(other) == ("xquad.lambda=0.1", "mmr.lambda=0.75")  # another reranker's


def test_a_value_that_is_there_twice_is_one_point(folder, capsys):
    given = flags(folder, "--split", "dev", "--grid", "n=2,1,2,1", "--metric", "MRecall@1")
    assert main(given) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in out[1:3]] == ["n=2", "n=1"]
    assert "(ORACLE)" in out[3]


def test_what_is_undefined_is_a_dash(folder):
    points = [
        Point(("n=1",), {"a": math.nan}, math.nan, math.nan, math.nan),
        Point(("n=2",), {"a": 0.5}, 0.5, 0.5, 0.5),
    ]
    table = _table("MRecall@1", 1, points, points[1], 1, 0, folder / "x.json").splitlines()
    assert table[1].split() == ["n=1", "-", "[-,", "-]"]
    assert table[2].split()[:2] == ["n=2", "50.00"]


def test_a_choice_is_replaced_by_the_same_command_only(folder, capsys, monkeypatch):
    given = flags(folder, "--split", "dev", "--grid", "n=1,2", "--metric", "MRecall@1", "--choice", "x.json")
    path = folder.parent / "x.json"
    assert main(given) == 0
    written = path.read_bytes()
    assert main(given) == 0  # again
    assert path.read_bytes() == written
    capsys.readouterr()
    for more in (
        ("--grid", "n=1"),
        ("--metric", "Precision@1"),
        ("--disjoint-from", "test"),
        ("--split", "test"),
        ("--reranker-args", "other=5"),
        ("--depth", "2"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr("benchmarks.run.run", None)  # no work is done
            assert main([*given, *more]) == 2
        assert capsys.readouterr().err == (
            "error: --choice x.json: it is there, and holds the choice of another command: choose another name, or "
            "give --overwrite\n"
        )
        assert path.read_bytes() == written
    for text in ("my notes", "{}", json.dumps({k: v for k, v in json.loads(written).items() if k != "curve"})):
        path.write_text(text)
        assert main(given) == 2
        assert "it is there, and is no choice of benchmarks.tune: choose another name" in capsys.readouterr().err
        assert path.read_text() == text
    assert main([*given, "--overwrite"]) == 0
    assert path.read_bytes() == written


def test_what_a_choice_was_made_with_comes_along(folder, capsys):
    tuning = flags(folder, "--split", "dev", "--disjoint-from", "test", "--grid", "n=1,2", "--metric", "MRecall@1")
    assert main([*tuning, "--reranker-args", "other=5"]) == 0
    capsys.readouterr()
    tuned = flags(folder, "--tuned", "tuned.json", "--split", "test", "--json")
    for more, other in (((), 5), (("--reranker-args", "other=7"), 7)):
        assert run([*tuned, *more]) == 0
        found = json.loads(capsys.readouterr().out)["config"]["reranker"]["arguments"]
        assert found == {"n": 1, "other": other}


def test_a_task_of_another_name_is_refused_too(folder, capsys):
    # as `arguana` and `berds` hold the same questions
    main(flags(folder, "--split", "dev", "--disjoint-from", "test", "--grid", "n=1,2", "--metric", "MRecall@1"))
    other = folder.rename(folder.parent / "renamed")
    capsys.readouterr()
    tuned = flags(other, "--tuned", "tuned.json", "--json")
    assert run([*tuned, "--split", "dev"]) == 2
    assert "was chosen on 2 of these 3 questions" in capsys.readouterr().err
    assert run([*tuned, "--split", "test"]) == 0
    # the same ids with other texts are other questions
    questions = other / "questions.jsonl"
    questions.write_text(questions.read_text().replace('"question": "', '"question": "Really, '))
    assert run([*tuned, "--split", "dev"]) == 0


def test_questions_that_share_a_text_are_told_and_marked(folder, capsys):
    # d, which was tuned on, shares a perspective's text with c
    main(flags(folder, "--split", "dev", "--grid", "n=1,2", "--metric", "MRecall@1"))
    tuned = flags(folder, "--tuned", "tuned.json", "--split", "test", "--json")
    capsys.readouterr()
    assert run(tuned) == 0
    said = capsys.readouterr()
    assert "share a text or a supporting passage with 1 of these 1: tune with --disjoint-from" in said.err
    found = json.loads(said.out)["config"]["tuned"]
    assert (found["overlap"], found["related"]) == ("none", 1)
    assert run(tuned[:-1]) == 0
    assert "; 1 of these share texts or supporting passages, labels gold" in capsys.readouterr().out
    # and choices of older versions, which hold no texts, are read
    choice = json.loads((folder.parent / "tuned.json").read_text())
    (folder.parent / "old.json").write_text(
        json.dumps({k: v for k, v in choice.items() if k not in ("texts", "given")})
    )
    assert run([*flags(folder, "--tuned", "old.json"), "--split", "dev"]) == 2
    assert "was chosen on 3 of these 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    "more, message",
    [
        (("--grid", "n=1"), "give --split"),
        (("--grid", "n", "--split", "dev"), "--grid n: expected key=value,value,..."),
        (("--grid", "n=1", "n=2", "--split", "dev"), "and each key once"),
        (("--grid", "m=1", "--split", "dev"), "no argument 'm'"),
        (("--grid", "n=1", "--split", "dev", "--disjoint-from", "dev"), "another split of task 'task' than dev: test"),
        (("--grid", "n=1", "--split", "dev", "--disjoint-from", "nosplit"), "of task 'task' than dev: test"),
        (("--grid", "n=1", "--split", "dev", "--metric", "Recal@5"), "unknown metric"),
        (("--grid", "n=1", "--split", "test", "--disjoint-from", "dev"), "all 1 questions overlap"),
    ],
)
def test_mistakes_end_in_one_line(folder, capsys, more, message):
    assert main(flags(folder, *more)) == 2
    assert message in capsys.readouterr().err


NO_CHOICE = "error: --tuned x.json is no choice of benchmarks.tune: make it anew\n"


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", NO_CHOICE),
        ("[1]", NO_CHOICE),
        ("{}", NO_CHOICE),
        ('{"reranker": "mmr"}', NO_CHOICE),
        (None, "no such file"),
    ],
)
def test_broken_choices(folder, capsys, text, message):
    if text is not None:
        (folder.parent / "x.json").write_text(text)
    assert run(flags(folder, "--tuned", "x.json")) == 2
    assert message in capsys.readouterr().err


def test_questions_overlap_by_texts_and_supports():
    def question(name, *texts):
        return Question(name, f"{name}?", tuple(Perspective(f"{name}{i}", text) for i, text in enumerate(texts)))

    mine = [question("a", "x"), question("b", "y"), question("c", "z"), Question("d", "E? ")]
    qrels = {"b": {"b0": {"p1": 1, "p2": 0}}, "c": {"c0": {"p2": 0}}, "e": {"e0": {"p1": 1}, "e1": {"p2": 1}}}
    assert overlapping(mine, [question("e", "X ", "w")], qrels) == {"a", "b", "d"}
    assert overlapping(mine, [question("e", "w")], None) == {"d"}

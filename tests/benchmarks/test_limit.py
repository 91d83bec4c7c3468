"""What rerankers are given under --limit, and what plans and tables say of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import pytest

from corpora.types import Pool, Ranking
from evaluator.types import Judgement, Pair
from rerankers.base import reordered

SEEN: list[tuple[str, list[str]]] = []


class Whole:
    """Turns pools round, and writes down which it gets."""

    def rerank(self, pools: Sequence[Pool]) -> list[Ranking]:
        SEEN.append((type(self).__name__, [pool.query.question_id for pool in pools]))
        return [reordered(pool, range(len(pool.ranking))[::-1]) for pool in pools]


class Alone(Whole):
    per_question: ClassVar[bool] = True


class Even:
    """Counts letters."""

    fingerprint = "even"

    def render(self, pair: Pair) -> str:
        return pair.passage.text + pair.perspective.text

    def judge(self, pairs: Sequence[Pair]) -> Iterator[tuple[int, Judgement]]:
        for i, pair in enumerate(pairs):
            yield i, Judgement("ok", float(len(self.render(pair)) % 2))


def seen() -> list[tuple[str, list[str]]]:
    found = SEEN[:]
    SEEN.clear()
    return found


@pytest.fixture(autouse=True)
def nothing_seen():
    SEEN.clear()


def named(*rerankers: str) -> tuple[str, ...]:
    return ("--reranker", *(name if name.islower() else f"{__name__}:{name}" for name in rerankers))


ALL = ("--split", "all", "--metrics", "Precision@1", "--json")


def test_the_others_are_left_out_where_every_reranker_looks_at_one_question_alone(cli, task):
    assert cli("--task", task, *named("Whole"), *ALL, "--limit", 2).code == 0
    assert seen() == [("Whole", ["q1"]), ("Whole", ["q2", "q3"])]
    assert "3 queries" in cli("--task", task, *named("Whole"), *ALL[:-1], "--limit", 2, "--dry-run").out
    alone = cli("--task", task, *named("Alone"), *ALL, "--limit", 2)
    assert seen() == [("Alone", ["q1"]), ("Alone", ["q2"])]
    assert "2 queries" in cli("--task", task, *named("Alone"), *ALL[:-1], "--limit", 2, "--dry-run").out
    plain = cli("--task", task, *named("Whole"), *ALL, "--limit", 2)
    assert alone.scores["scores"] == plain.scores["scores"]
    assert seen() == []


def test_one_that_wants_the_group_gets_it_from_the_whole_chain(cli, task):
    assert cli("--task", task, *named("Alone", "Whole"), *ALL, "--limit", 1).code == 0
    assert seen() == [(name, ids) for name in ("Alone", "Whole") for ids in (["q1"], ["q2", "q3"])]


def test_rankings_of_fewer_questions_do_not_stand_for_those_of_all(cli, task):
    first = cli("--task", task, *named("Alone"), *ALL, "--limit", 1)
    assert (first.scores["questions"]["n"], seen()) == (1, [("Alone", ["q1"])])
    every = cli("--task", task, *named("Alone"), *ALL)
    assert (every.scores["questions"]["n"], seen()) == (3, [("Alone", ["q1"]), ("Alone", ["q2", "q3"])])


def test_an_oracle_that_a_judge_scores_is_no_bound(cli, task):
    judge = ("--judge", f"{__name__}:Even")
    out = cli("--task", task, *named("oracle"), "--metrics", "Precision@1").out
    assert "reranker oracle (ORACLE: it sees the labels), labels gold" in out
    out = cli("--task", task, *named("oracle"), *judge, "--metrics", "Precision@1").out
    expected = f"(ORACLE: it sees the gold labels, and is scored by {__name__}:Even: no bound), labels {__name__}:Even"
    assert expected in out


def test_a_plan_counts_the_pairs_of_a_ranking_that_is_finished(cli, task):
    def judging(*metrics: str) -> str:
        own = ("--task", task, "--split", "all", *named("Alone", "Whole"), "--judge", f"{__name__}:Even")
        out = cli(*own, "--metrics", *metrics, "--dry-run").out
        return next(line for line in out.splitlines() if line.startswith("judge"))

    own = ("--task", task, "--split", "all", *named("Alone", "Whole"), "--judge", f"{__name__}:Even")
    assert cli(*own, "--until", "search").code == 0
    assert "on what the reranker gives" in judging("Precision@1")
    assert cli("--task", task, "--split", "all", *named("Alone"), "--until", "rerank").code == 0
    assert "on what the reranker gives" in judging("Precision@1"), "the second one is still to do"
    assert cli(*own, "--until", "rerank").code == 0
    seen()
    # q1 and q2 have two perspectives each, q3 has one
    assert judging("Precision@1").endswith("Even: 5 pairs, 0 stored, 5 to judge")
    assert cli(*own, "--metrics", "Precision@1").code == 0
    assert judging("Precision@1").endswith("Even: 5 pairs, 5 stored, 0 to judge")
    # cats: three passages, trains: two, both words: five; the second ranks bring five pairs more
    assert judging("Precision@2").endswith("Even: 10 pairs, 5 stored, 5 to judge")
    assert seen() == []

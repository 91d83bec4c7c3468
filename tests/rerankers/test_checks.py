"""check_reranker: every built-in passes, and every broken promise is caught and named."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from corpora.checks import CheckError
from corpora.types import Hit
from lm.base import QueryVectors
from rerankers import RERANKERS, checks
from rerankers.base import reordered
from rerankers.checks import CHECKS, check_reranker
from rerankers.dpp import DPP
from rerankers.facility_location import FacilityLocation
from rerankers.ia_select import IASelect
from rerankers.mmr import MMR
from rerankers.oracle import Oracle
from rerankers.pm2 import PM2
from rerankers.round_robin import RoundRobin
from rerankers.vrsd import VRSD
from rerankers.xquad import XQuAD


class Words:
    """Sums of a vector per word; a text without words is the zero vector."""

    fingerprint, dimension = "words", 8

    def vector(self, text):
        total = np.zeros(8, np.float32)
        for word in text.lower().split():
            seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest(), "little")
            total += np.random.default_rng(seed).standard_normal(8).astype(np.float32)
        return total

    def encode_passages(self, passages):
        return np.stack([self.vector(passage.text) for passage in passages])

    def encode_queries(self, queries):
        return QueryVectors(np.stack([self.vector(query.text) for query in queries]), np.arange(len(queries)))


@pytest.mark.parametrize("cls", [MMR, DPP, FacilityLocation, VRSD])
def test_built_ins_by_similarity_pass(cls):
    check_reranker(lambda: cls(encoder=Words()))


@pytest.mark.parametrize("cls", [XQuAD, IASelect, PM2, RoundRobin])
@pytest.mark.parametrize("arguments", [{"model": Words()}, {"source": "retriever", "scale": "max"}])
def test_built_ins_by_aspect_pass(cls, arguments):
    check_reranker(cls(**arguments))


def test_oracle_passes():
    check_reranker(Oracle)


class Same:
    def rerank(self, pools):
        return [reordered(pool, self.order(pool)) for pool in pools]

    def order(self, pool):
        return range(len(pool.ranking))


class Renames(Same):
    def __init__(self, weight: float = 1.0) -> None:
        self._weight = weight


class Opens(Same):
    def __init__(self) -> None:
        open(__file__).close()


class Counts(Same):
    def __init__(self, n: object = None) -> None:
        self.n = n

    @property
    def fingerprint(self):
        return str(getattr(self, "calls", 0))

    def rerank(self, pools):
        self.calls = 1
        return super().rerank(pools)


class Flat(Same):
    def rerank(self, pools):
        return super().rerank(pools)[:1]


class Stranger(Same):
    def rerank(self, pools):
        return [(Hit("elsewhere", 1.0),) for _ in pools]


class Twice(Same):
    def rerank(self, pools):
        return [(*pool.ranking, *pool.ranking) for pool in pools]


class NotANumber(Same):
    def rerank(self, pools):
        return [tuple(Hit(hit.passage_id, float("nan")) for hit in pool.ranking) for pool in pools]


class Rises(Same):
    def rerank(self, pools):
        return [pool.ranking[::-1] for pool in pools]


class Turns(Same):
    calls = 0

    def order(self, pool):
        type(self).calls += 1
        n = len(pool.ranking)
        return range(n) if self.calls % 2 else range(n - 1, -1, -1)


class FirstOnly(Same):
    def rerank(self, pools):
        _first, *rest = super().rerank(pools) or [()]
        return [reordered(pool, range(len(pool.ranking) - 1, -1, -1)) for pool in pools[:1]] + rest if pools else []


class Peeks(Same):
    def order(self, pool):
        n = len(pool.ranking)
        return range(n) if pool.labels is None else range(n - 1, -1, -1)


class Crosses(Same):
    """Turns a pool round that is not the longest one."""

    per_question = True

    def rerank(self, pools):
        longest = max((len(pool.ranking) for pool in pools), default=0)
        return [
            reordered(pool, range(n) if n == longest else range(n)[::-1])
            for pool, n in ((pool, len(pool.ranking)) for pool in pools)
        ]


BROKEN = [
    (Renames, "check_constructor", "not kept under their own names: weight"),
    (Opens, "check_constructor", "the constructor does"),
    (Counts, "check_fingerprint", "equal arguments give the fingerprints"),
    (Flat, "check_fingerprint", "5 pools got 1 rankings"),
    (Stranger, "check_form", "'elsewhere' is not in the pool"),
    (Twice, "check_form", "twice"),
    (NotANumber, "check_form", "expected a finite number"),
    (Rises, "check_form", "scores that rise"),
    (Turns, "check_repeatable", "other orders"),
    (FirstOnly, "check_alignment", "in another order"),
    (Peeks, "check_gold_is_not_read", "declare oracle = True"),
    (Crosses, "check_per_question", "another order alone than among others: do not declare per_question"),
]


@pytest.mark.parametrize("cls, check, message", BROKEN)
def test_broken_promises_are_named(cls, check, message):
    with pytest.raises(CheckError, match=f"{cls.__name__} fails {check}.*{message}"):
        check_reranker(cls)


def test_every_check_catches_something():
    assert {check for _, check, _ in BROKEN} == {check.__name__ for check in CHECKS}


def test_who_promises_nothing_may_weigh_questions_against_each_other():
    check_reranker(type("Crosses", (Crosses,), {"per_question": False}))


def test_who_looks_at_one_question_alone():
    alone = {name for name in RERANKERS.names() if getattr(RERANKERS.load(name), "per_question", False)}
    assert set(RERANKERS.names()) - alone == {"mmr", "dpp", "facility_location"}


def test_the_pools_hold_what_they_say():
    made = checks.pools(labels=True, aspects=True)
    assert [len(pool.passages) for pool in made] == [8, 4, 3, 1, 0]
    assert all(pool.labels.shape == (len(pool.ranking), 2) for pool in made)
    assert min(hit.score for pool in made for hit in pool.ranking) < 0

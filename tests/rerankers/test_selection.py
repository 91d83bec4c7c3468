"""Every selection against a plain one that knows nothing of it: the papers' formulas, in loops and floats."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerankers.dpp import dpp
from rerankers.facility_location import facility_location
from rerankers.ia_select import ia_select
from rerankers.mmr import mmr
from rerankers.oracle import greedy_coverage
from rerankers.pm2 import pm2
from rerankers.round_robin import round_robin
from rerankers.vrsd import vrsd
from rerankers.xquad import xquad


def best(values):
    """The first of the highest, by plain comparison."""
    top = None
    for key, value in values.items():
        if top is None or value > values[top]:
            top = key
    return top


def plain_mmr(relevance, similarity, lambda_, rank1):
    left, picked = list(range(len(relevance))), []
    while left:
        values = {}
        for d in left:
            penalty = max([(1 - lambda_) * similarity[d][p] for p in picked], default=0.0)
            values[d] = lambda_ * relevance[d] - penalty
        pick = 0 if rank1 and not picked else best(values)
        picked.append(pick)
        left.remove(pick)
    return picked


LAMBDAS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


def test_mmr_on_thousands_of_cases():
    rng = np.random.default_rng(0)
    for case in range(4000):
        n = int(rng.integers(0, 13))
        kind = case % 4
        # eighths, so that ties are exact and common; kinds: ties, negative scores, equal scores, duplicates
        relevance = rng.integers(-8 if kind == 1 else 0, 9, n) / 8
        if kind == 2:
            relevance[:] = 0.5
        half = rng.integers(-8, 9, (n, n)) / 8
        similarity = np.triu(half) + np.triu(half, 1).T
        np.fill_diagonal(similarity, 1.0)
        if kind == 3 and n > 2:
            similarity[2], similarity[:, 2] = similarity[0], similarity[:, 0]
            relevance[2] = relevance[0]
        lambda_, rank1 = LAMBDAS[case % 7], bool(case % 3)
        expected = plain_mmr(relevance.tolist(), similarity.tolist(), lambda_, rank1)
        assert mmr(relevance, similarity, lambda_, rank1) == expected


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 12), st.integers(0, 2**32), st.sampled_from(LAMBDAS), st.booleans())
def test_mmr_of_real_numbers(n, seed, lambda_, rank1):
    rng = np.random.default_rng(seed)
    relevance, similarity = rng.normal(size=n), np.corrcoef(rng.normal(size=(n, 5)))
    similarity = np.atleast_2d(similarity)
    expected = plain_mmr(relevance.tolist(), similarity.tolist(), lambda_, rank1)
    assert mmr(relevance, similarity, lambda_, rank1) == expected


def test_mmr_by_hand():
    # lambda .5. After p0: p1: .45 - .5 = -.05 (a duplicate of p0); p2: .3 - .1 = .2 -> p2; then p1, alone.
    similarity = np.array([[1, 1, 0.2], [1, 1, 0.2], [0.2, 0.2, 1]])
    assert mmr(np.array([1, 0.9, 0.6]), similarity, 0.5) == [0, 2, 1]
    # lambda 1 is the retriever's order, first pick included where it is the best
    assert mmr(np.array([0.5, 0.9, 0.6]), similarity, 1.0, rank1=False) == [1, 2, 0]
    assert mmr(np.array([0.5, 0.9, 0.6]), similarity, 1.0, rank1=True) == [0, 1, 2]


def plain_xquad(relevance, by_aspect, weights, lambda_):
    n, a = by_aspect.shape
    left, picked = list(range(n)), []
    while left:
        values = {}
        for d in left:
            gain = 0.0
            for i in range(a):
                gain += weights[i] * by_aspect[d][i] * math.prod(1 - by_aspect[p][i] for p in picked)
            values[d] = (1 - lambda_) * relevance[d] + lambda_ * gain
        pick = best(values)
        picked.append(pick)
        left.remove(pick)
    return picked


def plain_ia_select(by_aspect, weights):
    n, a = by_aspect.shape
    left, picked = list(range(n)), []
    while left:
        values = {
            d: sum(weights[i] * math.prod(1 - by_aspect[p][i] for p in picked) * by_aspect[d][i] for i in range(a))
            for d in left
        }
        picked.append(best(values))
        left.remove(picked[-1])
    return picked


def plain_pm2(by_aspect, votes, lambda_):
    n, a = by_aspect.shape
    left, picked, seats = list(range(n)), [], [0.0] * a
    while left:
        quotients = [votes[i] / (2 * seats[i] + 1) for i in range(a)]
        turn = best(dict(enumerate(quotients)))
        values = {
            d: lambda_ * quotients[turn] * by_aspect[d][turn]
            + (1 - lambda_) * sum(quotients[i] * by_aspect[d][i] for i in range(a) if i != turn)
            for d in left
        }
        pick = best(values)
        picked.append(pick)
        left.remove(pick)
        total = sum(by_aspect[pick])
        if total > 0:
            seats = [seats[i] + by_aspect[pick][i] / total for i in range(a)]
    return picked


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 2**32), st.sampled_from(LAMBDAS))
def test_aspect_methods_equal_their_formulas(n, a, seed, lambda_):
    rng = np.random.default_rng(seed)
    relevance, by_aspect, weights = rng.random(n), rng.random((n, a)), rng.dirichlet(np.ones(a))
    assert xquad(relevance.copy(), by_aspect, weights, lambda_) == plain_xquad(relevance, by_aspect, weights, lambda_)
    assert ia_select(by_aspect, weights) == plain_ia_select(by_aspect, weights)
    assert pm2(by_aspect, weights, lambda_) == plain_pm2(by_aspect, weights, lambda_)


def test_ties_keep_the_order():
    flat, weights = np.full((4, 2), 0.5), np.array([0.5, 0.5])
    assert xquad(np.full(4, 0.5), flat, weights, 0.5) == [0, 1, 2, 3]
    assert ia_select(flat, weights) == pm2(flat, weights, 0.5) == [0, 1, 2, 3]
    assert ia_select(np.ones((3, 1)), np.ones(1)) == [0, 1, 2]  # after p0 nothing is open: all gains are 0
    assert mmr(np.ones(4), np.eye(4), 0.5) == dpp(np.ones(4), np.eye(4), 0.5) == [0, 1, 2, 3]
    assert facility_location(np.ones(4), np.eye(4), 0.5) == vrsd(np.ones(4), np.eye(4)) == [0, 1, 2, 3]


def test_xquad_by_hand():
    # Two aspects of weight .5, lambda 1. First p0 (.45) over p1 (.4) and p2 (.3). Then aspect 0 is open to .1:
    # p1: .5 * .8 * .1 = .04; p2: .5 * .6 * 1 = .3 -> p2.
    by_aspect = np.array([[0.9, 0.0], [0.8, 0.0], [0.0, 0.6]])
    assert xquad(np.array([1.0, 0.9, 0.1]), by_aspect, np.array([0.5, 0.5]), 1.0) == [0, 2, 1]
    assert xquad(np.array([1.0, 0.9, 0.1]), by_aspect, np.array([0.5, 0.5]), 0.0) == [0, 1, 2]


def test_pm2_gives_places_by_votes():
    # Votes 2 : 1, six passages of one aspect each: Sainte-Lague gives aspect 0 places 1, 3, 4, aspect 1 place 2:
    # quotients 2/1, 1/1 -> 0; 2/3, 1/1 -> 1; 2/3, 1/3 -> 0; 2/5, 1/3 -> 0; 2/7, 1/3 -> 1
    by_aspect = np.array([[1, 0], [1, 0], [1, 0], [1, 0], [0, 1], [0, 1]], dtype=float)
    assert pm2(by_aspect, np.array([2.0, 1.0]), 1.0)[:5] == [0, 4, 1, 2, 5]


def test_round_robin_takes_turns():
    by_aspect = np.array([[0.9, 0.8], [0.7, 0.9], [0.8, 0.1], [0.1, 0.2]])
    # aspect 0: p0 p2 p1 p3; aspect 1: p1 p0 p3 p2 -> p0, p1, p2, p3
    assert round_robin(by_aspect) == [0, 1, 2, 3]
    # one aspect: its own order
    assert round_robin(by_aspect[:, :1]) == [0, 2, 1, 3]


def plain_dpp(relevance, similarity, theta):
    """Determinants, computed anew for every candidate."""
    alpha = theta / (2 * (1 - theta))
    quality = np.exp(alpha * np.asarray(relevance))
    kernel = quality[:, None] * similarity * quality[None, :]
    left, picked = list(range(len(relevance))), []
    while left:
        picked.append(best({d: np.linalg.slogdet(kernel[np.ix_([*picked, d], [*picked, d])])[1] for d in left}))
        left.remove(picked[-1])
    return picked


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 9), st.integers(0, 2**32), st.sampled_from((0.0, 0.3, 0.7, 0.9)))
def test_dpp_equals_determinants(n, seed, theta):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, 12))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    relevance, similarity = rng.random(n), vectors @ vectors.T
    assert dpp(relevance, similarity, theta) == plain_dpp(relevance, similarity, theta)


def test_dpp_stops_at_duplicates():
    vectors = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0.6, 0.8, 0]])
    # p1 equals p0, and p3 lies in the plane of p0 and p2: nothing is added by either
    assert dpp(np.array([1.0, 0.9, 0.5, 0.1]), vectors @ vectors.T, 0.5) == [0, 2]


def plain_vrsd(vectors, question):
    left, picked = list(range(len(vectors))), []
    while left:
        values = {}
        for d in left:
            total = sum((vectors[p] for p in picked), np.zeros(len(question))) + vectors[d]
            values[d] = total @ question / np.linalg.norm(total)
        picked.append(best(values))
        left.remove(picked[-1])
    return picked


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 9), st.integers(0, 2**32))
def test_vrsd_equals_sums_of_vectors(n, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, 6))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    question = rng.normal(size=6)
    question /= np.linalg.norm(question)
    assert vrsd(vectors @ question, vectors @ vectors.T) == plain_vrsd(vectors, question)


def test_vrsd_by_hand():
    # The question is (0, 1). p0 = (.6, .8) is nearest; p1 = (.8, .6) next to it, p2 = (-.8, .6) on the other side:
    # p0 + p1 = (1.4, 1.4): cosine .71; p0 + p2 = (-.2, 1.4): cosine .99 -> p2 before p1.
    vectors = np.array([[0.6, 0.8], [0.8, 0.6], [-0.8, 0.6]])
    assert vrsd(vectors @ np.array([0.0, 1.0]), vectors @ vectors.T) == [0, 2, 1]


def plain_facility_location(relevance, similarity, lambda_):
    n = len(relevance)

    def value(chosen):
        covered = sum(max((max(similarity[v][p], 0.0) for p in chosen), default=0.0) for v in range(n))
        return (lambda_ * sum(relevance[p] for p in chosen) + (1 - lambda_) * covered) / n

    left, picked = list(range(n)), []
    while left:
        values = {d: round(value([*picked, d]) - value(picked), 13) for d in left}
        picked.append(best(values))
        left.remove(picked[-1])
    return picked


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 9), st.integers(0, 2**32), st.sampled_from(LAMBDAS))
def test_facility_location_equals_its_objective(n, seed, lambda_):
    rng = np.random.default_rng(seed)
    relevance, similarity = rng.random(n), np.atleast_2d(np.corrcoef(rng.normal(size=(n, 4))))
    expected = plain_facility_location(relevance, similarity, lambda_)
    assert facility_location(relevance, similarity, lambda_) == expected


def test_facility_location_by_hand():
    # p0 is near to p1 (.9), p2 to p3 (.8). lambda 0: p0 and p1 cover 1.9 each, p2 and p3 1.8: p0, then p2, then p3's
    # own rest (1 - .8 = .2) before p1's (.1).
    similarity = np.array([[1, 0.9, 0, 0], [0.9, 1, 0, 0], [0, 0, 1, 0.8], [0, 0, 0.8, 1]])
    assert facility_location(np.zeros(4), similarity, 0.0) == [0, 2, 3, 1]


def test_oracle_covers_first():
    supports = np.array([[0, 0], [1, 0], [1, 0], [0, 0], [0, 1]], dtype=bool)
    # p1 covers one, p4 the other; p2 supports what is covered already; p0 and p3 nothing
    assert greedy_coverage(supports) == [1, 4, 2, 0, 3]
    assert greedy_coverage(np.zeros((3, 0), bool)) == greedy_coverage(np.zeros((3, 2), bool)) == [0, 1, 2]


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 7), st.integers(1, 4), st.integers(0, 2**32))
def test_oracle_is_near_the_best_of_all_sets(n, m, seed):
    supports = np.random.default_rng(seed).random((n, m)) < 0.3
    found = greedy_coverage(supports)
    for k in range(1, n + 1):
        most = max(supports[list(chosen)].any(axis=0).sum() for chosen in itertools.combinations(range(n), k))
        assert supports[found[:k]].any(axis=0).sum() >= (1 - 1 / math.e) * most


@pytest.mark.parametrize("n", [0, 1, 2])
def test_tiny_pools(n):
    ones, square = np.ones(n), np.eye(n)
    column = np.ones((n, 1))
    for found in (
        mmr(ones, square, 0.5),
        dpp(ones, square, 0.5),
        vrsd(ones, square),
        facility_location(ones, square, 0.5),
        xquad(ones.copy(), column, np.ones(1), 0.5),
        ia_select(column, np.ones(1)),
        pm2(column, np.ones(1), 0.5),
        round_robin(column),
        greedy_coverage(column.astype(bool)),
    ):
        assert found == list(range(n))

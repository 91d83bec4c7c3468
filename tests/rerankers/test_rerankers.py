"""Rerankers on pools: arguments, normalisation, aspects, fingerprints, embeddings that are asked for once."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from corpora.fingerprint import fingerprint
from corpora.types import Hit
from rerankers import RERANKERS
from rerankers.aspects import _found
from rerankers.dpp import DPP
from rerankers.facility_location import FacilityLocation
from rerankers.ia_select import IASelect
from rerankers.mmr import MMR
from rerankers.oracle import Oracle
from rerankers.pm2 import PM2
from rerankers.relevance import minmax, relevance, shares
from rerankers.round_robin import RoundRobin
from rerankers.vrsd import VRSD
from rerankers.xquad import XQuAD
from tests.rerankers.pools import Written, order, pool

EAST, NORTH, NEAR_EAST = (1.0, 0.0), (0.0, 1.0), (0.96, 0.28)
BY_SIMILARITY = (MMR, DPP, FacilityLocation, VRSD)
BY_ASPECT = (XQuAD, IASelect, PM2, RoundRobin)


def test_norms_by_hand():
    pools = [pool([4, 2, 1], [EAST] * 3), pool([8, 2], [EAST] * 2), pool([], [])]
    assert [each.tolist() for each in relevance(pools, "question")] == [[1, 0.5, 0.25], [1, 0.25], []]
    assert [each.tolist() for each in relevance(pools, "dataset")] == [[0.5, 0.25, 0.125], [1, 0.25], []]
    assert [each.tolist() for each in relevance(pools, "minmax")] == [[1, 1 / 3, 0], [1, 0], []]


@pytest.mark.parametrize("norm", ["question", "dataset"])
def test_a_negative_score_anywhere_means_minmax_everywhere(norm):
    pools = [pool([4, 2], [EAST] * 2), pool([1, -3], [EAST] * 2)]
    with pytest.warns(UserWarning, match=rf"norm={norm}: some scores are negative \(lowest -3\): minmax is used"):
        assert [each.tolist() for each in relevance(pools, norm)] == [[1, 0], [1, 0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relevance(pools, "minmax")
        relevance(pools[:1], norm)


def test_zero_scores_stay_zero():
    assert [each.tolist() for each in relevance([pool([0, 0], [EAST] * 2)], "question")] == [[0, 0]]


def test_minmax_and_shares_by_column():
    values = np.array([[4.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    assert minmax(values).tolist() == [[1, 0], [0.5, 0], [0, 0]]
    np.testing.assert_allclose(shares(values), [[2 / 3, 1 / 3], [1 / 3, 1 / 3], [0, 1 / 3]])


def test_mmr_diversifies_and_keeps_every_passage():
    # relevance 1, .9, .5; cosines: p0 p1 .96, p0 p2 0 -> lambda .5: p1 .45 - .48 = -.03, p2 .25 - 0 = .25
    pools = [pool([10, 9, 5], [EAST, NEAR_EAST, NORTH])]
    assert [order(each) for each in MMR(lambda_=0.5, encoder=Written()).rerank(pools)] == [[0, 2, 1]]
    assert [hit.score for hit in MMR(encoder=Written()).rerank(pools)[0]] == [3, 2, 1]
    assert order(MMR(lambda_=1, encoder=Written()).rerank(pools)[0]) == [0, 1, 2]
    assert MMR(encoder=Written()).rerank([pool([], [])]) == [()]


def test_norms_of_mmr_differ_where_they_should():
    # Alone, question and data set agree. Beside a pool with tops of 100, relevance all but vanishes: p2 is taken first.
    # question: p1 .9 * .95 - .1 * .96 = .759, p2 .9 * .5 - 0 = .45 -> p1; data set: p1 .0855 - .096 < p2 .045 -> p2
    first, big = pool([10, 9.5, 5], [EAST, NEAR_EAST, NORTH]), pool([100], [EAST], name="r")
    assert order(MMR(lambda_=0.9, norm="question", encoder=Written()).rerank([first, big])[0]) == [0, 1, 2]
    assert order(MMR(lambda_=0.9, norm="dataset", encoder=Written()).rerank([first, big])[0]) == [0, 2, 1]
    assert order(MMR(lambda_=0.9, norm="dataset", encoder=Written()).rerank([first])[0]) == [0, 1, 2]


def test_first_pick():
    unsorted = [pool([1, 3], [EAST, NORTH])]  # a run file's position decides, not its score
    assert order(MMR(lambda_=0.9, encoder=Written()).rerank(unsorted)[0]) == [0, 1]
    assert order(MMR(lambda_=0.9, first="argmax", encoder=Written()).rerank(unsorted)[0]) == [1, 0]


def test_a_grid_embeds_once(monkeypatch):
    asked = []
    monkeypatch.setattr(Written, "vector", lambda self, text: asked.append(text) or [1.0, len(text)])
    pools = [pool([3, 2, 1], ["a", "bb", "ccc"])]
    for lambda_ in (0.5, 0.75, 0.9):
        MMR(lambda_=lambda_, encoder=Written()).rerank(pools)
    DPP(encoder=Written()).rerank(pools)
    assert sorted(asked) == ["a", "bb", "ccc"]


def test_vrsd_follows_the_question():
    vectors = [(0.6, 0.8), (0.8, 0.6), (-0.8, 0.6)]
    assert order(VRSD(encoder=Written()).rerank([pool([3, 2, 1], vectors, "0 1")])[0]) == [0, 2, 1]
    assert order(VRSD(encoder=Written()).rerank([pool([3, 2, 1], vectors, "1 0")])[0])[0] == 1


def test_dpp_and_facility_location_put_a_duplicate_last():
    pools = [pool([3, 2.9, 1], [EAST, EAST, NORTH])]
    assert order(DPP(theta=0.5, encoder=Written()).rerank(pools)[0]) == [0, 2]  # the pipeline adds the rest
    assert order(FacilityLocation(lambda_=0.1, encoder=Written()).rerank(pools)[0]) == [0, 2, 1]


ASPECTS = ("1 0", "0 1")


@pytest.mark.parametrize("cls", BY_ASPECT)
def test_aspects_by_encoder(cls):
    # cosines 1, .96, 0 with aspect 0, and 0, -.28, 1 with aspect 1: each method places p2 second
    pools = [pool([3, 2, 1], [EAST, (0.96, -0.28), NORTH], aspects=ASPECTS)]
    arguments = {"lambda_": 1.0} if cls is XQuAD else {}
    assert order(cls(model=Written(), scale="max", **arguments).rerank(pools)[0]) == [0, 2, 1]


@pytest.mark.parametrize("cls", BY_ASPECT)
def test_without_aspects_the_order_stays_and_is_counted(cls):
    pools = [
        pool([3, 2], [EAST, NORTH]),
        pool([3, 2], [NORTH, EAST], aspects=ASPECTS[:1]),
        pool([], [], aspects=("0 1",)),
    ]
    with pytest.warns(UserWarning, match=f"{cls.__name__}: 1 of 3 questions have no aspects and keep their order"):
        found = cls(model=Written()).rerank(pools)
    assert (order(found[0]), found[2]) == ([0, 1], ())
    if cls is not XQuAD:  # which weighs the first one's higher score
        assert order(found[1]) == [1, 0]


def test_aspects_by_the_retriever():
    rankings = (
        (Hit("p0", 9.0), Hit("p1", 6.0)),
        (Hit("p2", 4.0), Hit("elsewhere", 3.0), Hit("p1", 2.0)),
    )
    # aspect 0: 9, 6 and, a step of 3 below them, 3; aspect 1: 2 - 1 = 1, 2, 4
    pools = [pool([3, 2, 1], [EAST] * 3, aspects=ASPECTS, aspect_rankings=rankings)]
    assert order(RoundRobin(source="retriever").rerank(pools)[0]) == [0, 2, 1]
    with pytest.raises(ValueError, match="source=retriever needs the retriever's rankings of the aspects"):
        RoundRobin(source="retriever").rerank([pool([1], [EAST], aspects=ASPECTS)])


@pytest.mark.parametrize(
    "ranking, scores",
    [
        ([("p1", 5.0)], [0.0, 5.0]),  # alone: all of its score above what was not found
        ([("p1", 0.0)], [-1.0, 0.0]),
        ([("p1", 8.0), ("x", 6.0), ("y", 2.0)], [-1.0, 8.0]),  # two steps of 3 on average: 2 - 3
        ([("p1", -3.0), ("x", -3.0)], [-6.0, -3.0]),
        ([], [-1.0, -1.0]),
    ],
)
def test_what_was_not_found_is_a_step_below(ranking, scores):
    found = _found(pool([2, 1], [EAST] * 2, aspects=("a",), aspect_rankings=[tuple(Hit(*hit) for hit in ranking)]))
    assert found.tolist() == [[scores[0]], [scores[1]]]


def test_weights_of_aspects():
    pools = [pool([3, 2, 1], [EAST, (0.9, 0.1), NORTH], aspects=ASPECTS)]
    assert order(IASelect(model=Written(), scale="max", weights=(0, 1)).rerank(pools)[0])[0] == 2
    assert order(RoundRobin(model=Written(), weights=(0, 1)).rerank(pools)[0]) == [2, 1, 0]
    with pytest.raises(ValueError, match="weights: 1 given, and question 'q' has 2 aspects"):
        IASelect(model=Written(), weights=(1,)).rerank(pools)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: MMR(lambda_=1.5), "lambda=1.5: expected a number from 0 to 1"),
        (lambda: XQuAD(lambda_=-1), "lambda=-1"),
        (lambda: PM2(lambda_=float("nan")), "lambda=nan"),
        (lambda: FacilityLocation(lambda_=2), "lambda=2"),
        (lambda: DPP(theta=1), "theta=1: expected a number from 0 to below 1"),
        (lambda: IASelect(weights=(-1.0,)), "weights=-1.0"),
        (lambda: IASelect(weights=(0.0, 0.0)), "not all 0"),
        (lambda: IASelect(source="retriever", model="uae"), "source=retriever uses no model"),
        (
            lambda: MMR(encoder="uae", encoder_args=("pooling",)).fingerprint,
            "encoder_args: 'pooling' is not of the form",
        ),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_command_line_says_lambda():
    assert RERANKERS.create("mmr", ["lambda=0.25"]).lambda_ == 0.25
    with pytest.raises(ValueError, match="no argument 'lamda'"):
        RERANKERS.create("mmr", ["lamda=0.25"])


def test_oracle_needs_labels():
    labels = np.array([[1, 0], [1, 0], [0, 1], [-1, -1]], np.int8)
    found = Oracle().rerank([pool([4, 3, 2, 1], [EAST] * 4, labels=labels)])
    assert order(found[0]) == [0, 2, 1, 3]
    assert Oracle.oracle
    with pytest.raises(ValueError, match="the pool of question 'q' carries no labels"):
        Oracle().rerank([pool([1], [EAST])])


def test_fingerprints_tell_orders_apart():
    encoder = Written()
    makers = [
        *(cls(encoder=encoder) for cls in BY_SIMILARITY),
        *(cls(model=encoder) for cls in BY_ASPECT),
        MMR(lambda_=0.5, encoder=encoder),
        MMR(norm="minmax", encoder=encoder),
        MMR(first="argmax", encoder=encoder),
        MMR(encoder=Written(3)),
        XQuAD(lambda_=0.4, model=encoder),
        XQuAD(model=encoder, scale="max"),
        XQuAD(model=encoder, weights=(1.0,)),
        XQuAD(source="retriever"),
        PM2(lambda_=0.4, model=encoder),
        DPP(theta=0.4, encoder=encoder),
        FacilityLocation(lambda_=0.4, encoder=encoder),
    ]
    prints = [fingerprint(each) for each in makers]
    assert len(set(prints)) == len(prints)
    assert fingerprint(MMR(encoder=encoder, device="cpu", batch_size=3)) == fingerprint(MMR(encoder=encoder))


def test_equal_texts_are_embedded_once_for_many_pools(monkeypatch):
    monkeypatch.setattr("rerankers.similarity.POOLS_AT_ONCE", 2)
    pools = [pool([2, 1], [EAST, NORTH], name=f"q{i}") for i in range(5)]
    assert [order(each) for each in MMR(encoder=Written()).rerank(pools)] == [[0, 1]] * 5

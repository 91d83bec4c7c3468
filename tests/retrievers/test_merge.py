"""Merging rankings: arithmetic by hand, and what must hold for any rankings."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.types import Hit
from retrievers.merge import MERGES, best_score, reciprocal_rank_fusion, round_robin, weighted_sum, with_duplicates


def ranking(**scores):
    return tuple(Hit(name, float(score)) for name, score in scores.items())


A = ranking(a=9, b=8, c=7)
B = ranking(c=0.5, d=0.4, a=0.1)


def ordered(hits):
    return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.passage_id)))


@st.composite
def rankings(draw, ties_by_id=True, least=1):
    """Rankings of few passages and few scores, so that overlaps and ties are common."""
    many = []
    for _ in range(draw(st.integers(least, 4))):
        names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8))
        scores = draw(st.lists(st.sampled_from([0.1, 0.2, 0.3, 1.5, -2.0]), min_size=len(names), max_size=len(names)))
        hits = tuple(Hit(name, score) for name, score in zip(names, scores, strict=True))
        many.append(ordered(hits) if ties_by_id else hits)
    return many


def test_with_duplicates_by_hand():
    assert with_duplicates([A, B], 9) == ("a", "c", "b", "d", "c", "a")
    assert with_duplicates([A, A[:1], B], 5) == ("a", "a", "c", "b", "d")
    assert with_duplicates([A], 2) == ("a", "b")
    assert with_duplicates([], 2) == ()


@given(rankings(), st.integers(1, 20))
def test_the_first_of_a_list_with_duplicates_are_the_first_of_round_robin(given_, k):
    once = [hit.passage_id for hit in round_robin(given_, 100)]
    distinct = list(dict.fromkeys(with_duplicates(given_, k)))
    assert distinct == once[: len(distinct)]
    assert len(with_duplicates(given_, k)) == min(k, sum(map(len, given_)))


def test_round_robin_by_hand():
    assert round_robin([A, B], 9) == ranking(a=4, c=3, b=2, d=1)  # a c, b d, (c a are there)
    assert round_robin([B, A], 2) == ranking(c=2, a=1)


def test_reciprocal_rank_fusion_by_hand():
    # a: 1/61 + 1/63, c: 1/63 + 1/61, b: 1/62, d: 1/62; ties by passage id
    both = 1 / 61 + 1 / 63
    assert reciprocal_rank_fusion([A, B], 9) == (Hit("a", both), Hit("c", both), Hit("b", 1 / 62), Hit("d", 1 / 62))
    # constant 0: a: 1 + 1/3, c: 1/3 + 1, b and d: 1/2
    assert [hit.score for hit in reciprocal_rank_fusion([A, B], 3, constant=0)] == [4 / 3, 4 / 3, 0.5]


def test_equal_scores_share_a_rank_where_ties_stand_in_the_order_of_ids():
    tied, other = ranking(x=5, y=5, z=4), ranking(y=2, x=1)
    # x: 1/61 + 1/62, y: 1/61 + 1/61, z: 1/63 (two passages are better)
    found = reciprocal_rank_fusion([tied, other], 9)
    assert found == (Hit("y", 2 / 61), Hit("x", pytest.approx(1 / 61 + 1 / 62)), Hit("z", 1 / 63))


@pytest.mark.parametrize("first", [ranking(y=5, x=5, z=4), ranking(y=1, x=2, z=3)])
def test_where_only_the_position_tells_it_counts(first):
    # not in the order of scores with ties by id: y 1/61 + 1/61, x 1/62 + 1/62, z 1/63
    found = reciprocal_rank_fusion([first, ranking(y=2, x=1)], 9)
    assert found == (Hit("y", 2 / 61), Hit("x", 2 / 62), Hit("z", 1 / 63))


def test_best_score_by_hand():
    assert best_score([A, B], 9) == ranking(a=9, b=8, c=7, d=0.4)
    assert best_score([ranking(b=-1, a=-2), ranking(a=-1)], 9) == ranking(a=-1, b=-1)


def test_weighted_sum_by_hand():
    # A scaled: a 1, b 1/2, c 0; B scaled: c 1, d 3/4, a 0
    assert weighted_sum([A, B], [0.4, 0.6], 9) == (Hit("c", 0.6), Hit("d", pytest.approx(0.45)), *ranking(a=0.4, b=0.2))
    assert weighted_sum([ranking(a=3), ranking(b=7, c=7)], [0.5, 0.25], 9) == ranking(a=0.5, b=0.25, c=0.25)
    assert weighted_sum([(), ()], [0.5, 0.5], 9) == ()
    with pytest.raises(ValueError, match="1 weights for 2 rankings"):
        weighted_sum([A, B], [1.0], 9)


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
def test_one_ranking_alone_keeps_order_and_scores(merge):
    strange = ranking(b=1, a=1, c=5)  # the position decides
    assert merge([strange], 9) == strange
    assert merge([strange], 2) == strange[:2]
    assert merge([], 5) == merge([(), ()], 5) == merge([A, B], 0) == ()


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
@given(many=rankings(ties_by_id=False), k=st.integers(0, 9))
def test_a_smaller_k_gives_the_beginning(merge, many, k):
    whole = merge(many, 99)
    assert [hit.passage_id for hit in merge(many, k)] == [hit.passage_id for hit in whole][:k]
    assert {hit.passage_id for hit in whole} == {hit.passage_id for each in many for hit in each}
    assert len(many) == 1 or whole == ordered(whole)


@pytest.mark.parametrize("merge", [reciprocal_rank_fusion, best_score])
@given(data=st.data(), many=rankings(ties_by_id=False, least=2))
def test_the_order_of_the_rankings_changes_no_bit(merge, data, many):
    assert merge(data.draw(st.permutations(many)), 99) == merge(many, 99)


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
@given(many=rankings())
def test_a_ranking_with_itself_keeps_its_order(merge, many):
    names = [hit.passage_id for hit in many[0]]
    assert [hit.passage_id for hit in merge([many[0]] * 3, 99)] == names


@given(many=rankings(ties_by_id=False))
def test_positions_without_scores_survive_fusion_with_themselves(many):
    names = [hit.passage_id for hit in many[0]]
    assert [hit.passage_id for hit in reciprocal_rank_fusion([many[0]] * 2, 99)] == names


@given(many=rankings(least=2))
def test_fused_scores_are_the_sums_of_exact_fractions(many):
    for hit in reciprocal_rank_fusion(many, 99):
        scores = [{each.passage_id: each.score for each in found} for found in many]
        exact = sum(
            Fraction(1, 61 + sum(other > found[hit.passage_id] for other in found.values()))
            for found in scores
            if hit.passage_id in found
        )
        assert math.isclose(hit.score, exact, rel_tol=1e-14)

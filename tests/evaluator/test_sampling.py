"""Strata, allocation and draws: every unit's probability is what it is said to be."""

from __future__ import annotations

import numpy as np
import pytest

from evaluator.sampling import Stratum, allocate, draw, in_any_order, shares_by_label, strata_of


def test_pairs_are_stratified_by_label_and_rank():
    labels = np.array([[1, 0], [0, 0], [1, -1], [0, 0], [1, 1], [1, 1]], np.int8)
    found = {stratum: places.tolist() for stratum, places in strata_of(labels, 5).items()}
    assert found == {
        Stratum(1, 1, 1): [[0, 0]],
        Stratum(0, 1, 1): [[0, 1]],
        Stratum(1, 2, 3): [[2, 0]],
        Stratum(0, 2, 3): [[1, 0], [1, 1]],
        Stratum(-1, 2, 3): [[2, 1]],
        Stratum(1, 4, 5): [[4, 0], [4, 1]],
        Stratum(0, 4, 5): [[3, 0], [3, 1]],
    }
    assert strata_of(np.zeros((0, 3), np.int8), 5) == {}
    assert [each[1:] for each in strata_of(np.zeros((20, 1), np.int8), 20)] == [
        (1, 1),
        (2, 3),
        (4, 7),
        (8, 15),
        (16, 20),
    ]


def test_half_of_a_sample_is_for_supports():
    sizes = {Stratum(1, 1, 1): 10, Stratum(1, 2, 3): 30, Stratum(0, 1, 1): 100, Stratum(-1, 2, 3): 100}
    shares = shares_by_label(sizes)
    assert list(shares.values()) == [0.125, 0.375, 0.25, 0.25]
    assert shares_by_label({Stratum(0, 1, 1): 3, Stratum(0, 2, 3): 9}) == {
        Stratum(0, 1, 1): 0.25,
        Stratum(0, 2, 3): 0.75,
    }


def test_allocation_draws_as_many_as_asked_and_two_of_each():
    sizes, shares = {"a": 1000, "b": 20, "c": 3, "d": 1}, {"a": 0.5, "b": 0.3, "c": 0.1, "d": 0.1}
    assert allocate(sizes, shares, 7) == {"a": 2, "b": 2, "c": 2, "d": 1}
    assert allocate(sizes, shares, 40) == {"a": 22, "b": 14, "c": 3, "d": 1}  # 20 and 12; c and d are full: 4 are left
    assert allocate(sizes, shares, 5000) == sizes
    with pytest.raises(ValueError, match=r"^6 are too few for 4 strata: expected at least 7$"):
        allocate(sizes, shares, 6)


def test_every_unit_is_drawn_equally_often():
    random, seen = np.random.default_rng(0), np.zeros(10)
    for _ in range(10_000):
        chosen = draw(10, 3, random)
        assert len(set(chosen.tolist())) == 3
        seen[chosen] += 1
    # Binomial, 10,000 x 0.3: standard deviation 46.
    assert np.abs(seen - 3000).max() < 5 * 46


def test_any_order_is_a_permutation():
    items = [f"i{n}" for n in range(50)]
    found = in_any_order(items, np.random.default_rng(1))
    assert sorted(found) == sorted(items)
    assert found != items

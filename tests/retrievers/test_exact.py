"""Exact search against float64 brute force in NumPy, whatever the shards, blocks, devices and ties."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.types import Hit
from lm.base import QueryVectors
from retrievers import exact
from retrievers.exact import canonical, search
from retrievers.shards import Shard
from retrievers.vectors import Vectors


def brute(data, queries, k, names):
    """Rankings by scores in float64; the values of the tests are eighths, so that these are exact."""
    scores = queries.vectors.astype(np.float64) @ data.astype(np.float64).T
    rankings = []
    for i in range(int(queries.query_index[-1]) + 1):
        best = scores[queries.query_index == i].max(axis=0)
        hits = sorted(zip(names, best.tolist(), strict=True), key=lambda hit: (-hit[1], hit[0]))[:k]
        rankings.append(tuple(Hit(name, score) for name, score in hits))
    return rankings


def sharded(data, edges, norm=None):
    """Vectors over shards cut at these rows, each a little longer than needed, so that they overlap."""
    edges = [0, *sorted({edge for edge in edges if 0 < edge < len(data)}), len(data)]
    shards = []
    for a, b in itertools.pairwise(edges):
        b = min(b + 1, len(data))
        shards.append(Shard(a, b, data[a:b], norm))
    return Vectors(shards[::-1], 0, len(data), "test")


def one_each(vectors):
    return QueryVectors(vectors, np.arange(len(vectors)))


def names_of(n, seed=0):
    return [f"p{i}" for i in np.random.default_rng(seed).permutation(n)]


@st.composite
def searches(draw):
    """Few distinct vectors and small whole numbers: ties everywhere."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, d = draw(st.integers(1, 150)), draw(st.integers(1, 6))
    high = draw(st.sampled_from([1, 2, 9]))
    data = rng.integers(-high, high + 1, (n, d)).astype(draw(st.sampled_from([np.float16, np.float32]))) / 8
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    index = np.repeat(np.arange(len(counts)), counts)
    queries = QueryVectors(rng.integers(-high, high + 1, (len(index), d)).astype(np.float32) / 8, index)
    edges = draw(st.lists(st.integers(1, 150), max_size=5))
    return data, queries, draw(st.integers(1, 120)), edges, draw(st.sampled_from(["cpu", "torch"]))


@given(searches(), st.sampled_from([0, 1, 3, 32]), st.sampled_from([3, 16, 4096]))
@settings(max_examples=60, deadline=None)
def test_equals_brute_force(case, margin, rows):
    data, queries, k, edges, how = case
    names = names_of(len(data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "MARGIN", margin)
        patch.setattr(exact, "block_rows", lambda d: rows)
        patch.setattr(exact, "_WIDE_ROWS", rows)
        patch.setattr(exact, "_PAIRS", 7)
        if how == "torch":
            patch.setattr(exact, "_on_cpu", lambda blocks, q, m: exact._on_torch(blocks, q, m, "cpu"))
        found = search(sharded(data, edges), queries, k, lambda rows: [names[row] for row in rows])
    assert found == brute(data, queries, k, names)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_floats_equal_brute_force_and_do_not_depend_on_shards(dtype):
    rng = np.random.default_rng(1)
    data = rng.standard_normal((5000, 48)).astype(dtype)
    queries = one_each(rng.standard_normal((30, 48)).astype(np.float32))
    names = names_of(5000)
    ids = lambda rows: [names[row] for row in rows]  # noqa: E731
    expected = brute(data, queries, 20, names)
    first = search(sharded(data, []), queries, 20, ids)
    for ranking, best in zip(first, expected, strict=True):
        assert [hit.passage_id for hit in ranking] == [hit.passage_id for hit in best]
        np.testing.assert_allclose([h.score for h in ranking], [h.score for h in best], rtol=1e-12)
    assert search(sharded(data, range(0, 5000, 700), norm=100.0), queries, 20, ids) == first  # to the last bit
    singles = [search(sharded(data, [9]), one_each(queries.vectors[i : i + 1]), 20, ids)[0] for i in range(30)]
    assert singles == first


def test_near_ties_beyond_the_margin_are_found():
    """In fp32, 2000 passages score about 1 with an error above their differences: the best is none of the first."""
    rng = np.random.default_rng(2)
    d = 256
    data = np.tile(rng.standard_normal(d), (2000, 1)).astype(np.float32)
    data[:, 0] = np.nextafter(data[:, 0], np.inf, dtype=np.float32)
    order = rng.permutation(2000)
    data[:, 1] = (1 + order * 2.0**-23).astype(np.float32)  # one bit apart
    queries = one_each(np.abs(rng.standard_normal((2, d))).astype(np.float32))
    names = [f"p{i:04}" for i in range(2000)]
    found = search(sharded(data, [100]), queries, 5, lambda rows: [names[row] for row in rows])
    best = [names[row] for row in np.argsort(-order)[:5]]
    assert [[hit.passage_id for hit in ranking] for ranking in found] == [best, best]


def test_corpus_full_of_one_text():
    data = np.ones((20_000, 4), dtype=np.float16)
    names = [f"p{i:05}" for i in range(20_000)][::-1]
    (ranking,) = search(
        sharded(data, []), one_each(np.ones((1, 4), np.float32)), 3, lambda rows: [names[r] for r in rows]
    )
    assert ranking == (Hit("p00000", 4.0), Hit("p00001", 4.0), Hit("p00002", 4.0))


def test_canonical_score_depends_on_the_pair_alone():
    rng = np.random.default_rng(3)
    data = rng.standard_normal((300, 99)).astype(np.float32)
    queries = one_each(rng.standard_normal((7, 99)).astype(np.float32))
    query, rows = rng.integers(0, 7, 500), rng.integers(0, 300, 500)
    together = canonical(sharded(data, [40]), queries, query, rows)
    for i in range(0, 500, 37):
        alone = one_each(queries.vectors[query[i] : query[i] + 1])
        assert canonical(sharded(data, []), alone, np.zeros(1, np.int64), rows[i : i + 1])[0] == together[i]


def test_part_of_the_rows():
    data = np.arange(12, dtype=np.float32).reshape(12, 1)
    part = sharded(data, [5]).part(3, 8)
    (ranking,) = search(part, one_each(np.ones((1, 1), np.float32)), 2, lambda rows: [f"r{row}" for row in rows])
    assert ranking == (Hit("r7", 7.0), Hit("r6", 6.0))


def test_nothing_to_find():
    vectors = sharded(np.ones((3, 2), np.float32), [])
    assert search(vectors, one_each(np.ones((2, 2), np.float32)), 0, lambda rows: []) == [(), ()]
    assert search(vectors, one_each(np.ones((0, 2), np.float32)), 5, lambda rows: []) == []
    assert search(Vectors([], 0, 0, ""), one_each(np.ones((1, 2), np.float32)), 5, lambda rows: []) == [()]


def test_bad_queries_are_refused():
    vectors = sharded(np.ones((3, 2), np.float32), [])
    with pytest.raises(ValueError, match=re.escape("query vectors have the shape (1, 3), expected (v, 2)")):
        search(vectors, one_each(np.ones((1, 3), np.float32)), 1, lambda rows: [])
    with pytest.raises(ValueError, match="NaN or infinite numbers for query 2"):
        search(vectors, one_each(np.array([[1, 1], [np.nan, 1]], np.float32)), 1, lambda rows: [])

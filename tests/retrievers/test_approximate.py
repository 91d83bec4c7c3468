"""Approximate search: what it finds has canonical scores, is kept, and is compared with exact search."""

import numpy as np
import pytest

from corpora.types import Hit
from lm.base import QueryVectors
from retrievers import approximate
from retrievers.approximate import ApproximateIndex, build, recall
from retrievers.exact import search
from retrievers.shards import Shard
from retrievers.vectors import Vectors

N, D = 3000, 16


@pytest.fixture(scope="module")
def vectors():
    data = np.random.default_rng(0).standard_normal((N, D)).astype(np.float16)
    return Vectors([Shard(0, 1000, data[:1000], None), Shard(1000, N, data[1000:], None)], 0, N, "made up")


@pytest.fixture(scope="module")
def queries():
    return QueryVectors(np.random.default_rng(1).standard_normal((20, D)).astype(np.float32), np.arange(20))


def ids(rows):
    return [f"p{row}" for row in rows]


def opened(vectors, factory, **parameters):
    return ApproximateIndex(build(vectors, factory), vectors, factory, parameters)


@pytest.mark.parametrize(
    "factory, parameters, least",
    [
        ("Flat", {}, 1.0),
        ("IVF16,Flat", {"nprobe": 16}, 1.0),
        ("IVF16,PQ8x4", {"nprobe": 16}, 0.9),
        ("HNSW16", {"efSearch": 200}, 0.9),
        ("RR16,IVF16,SQ8", {"nprobe": 16}, 0.9),
        ("PQ8x4", {}, 0.9),
    ],
)
def test_finds_most_with_exact_scores(vectors, queries, factory, parameters, least):
    exact = search(vectors, queries, 10, ids)
    found = opened(vectors, factory, **parameters).search(queries, 10, ids, candidates=600)
    assert recall(found, exact) >= least
    known = {(i, hit) for i, ranking in enumerate(exact) for hit in ranking}
    shared = [(i, hit) for i, ranking in enumerate(found) for hit in ranking if (i, hit) in known]
    assert len(shared) >= least * 200  # equal scores, to the last bit
    assert all(list(r) == sorted(r, key=lambda hit: (-hit.score, hit.passage_id)) for r in found)


def test_more_lists_find_more(vectors, queries):
    exact = search(vectors, queries, 10, ids)
    values = [recall(opened(vectors, "IVF64,Flat", nprobe=n).search(queries, 10, ids), exact) for n in (1, 8, 64)]
    assert values[0] < values[1] < values[2] == 1


def test_part_and_several_vectors_per_query(vectors, queries):
    part = vectors.part(500, 2500)
    several = QueryVectors(queries.vectors, np.arange(20) // 2)
    found = opened(part, "IVF4,Flat", nprobe=4).search(several, 5, ids)
    assert found == search(part, several, 5, ids)


def test_built_once(vectors, monkeypatch):
    calls = []
    plain = approximate._build
    monkeypatch.setattr(approximate, "_build", lambda *args: (calls.append(args), plain(*args)))
    assert build(vectors, "IVF8,Flat") == build(vectors, "IVF8,Flat")
    assert build(vectors, "IVF8,Flat", 1000) != build(vectors, "IVF8,Flat", 2000)
    assert len(calls) == 3


def test_mistakes_are_one_line(vectors):
    with pytest.raises(ValueError, match=r"FAISS makes no index 'Nonsense7' of 3,000 vectors of dimension 16: [^\n]+$"):
        build(vectors, "Nonsense7")
    with pytest.raises(ValueError, match=r"FAISS makes no index 'IVF4096,Flat' of 3,000 vectors[^\n]+$"):
        build(vectors, "IVF4096,Flat")
    with pytest.raises(ValueError, match=r"index 'Flat' takes no nprobe=3: [^\n]+$"):
        opened(vectors, "Flat", nprobe=3)


def test_recall_by_hand():
    best = (Hit("a", 3.0), Hit("b", 2.0))
    assert recall([(Hit("a", 3.0), Hit("c", 1.0))], [best]) == 0.5
    assert recall([(Hit("a", 3.0), Hit("c", 2.0))], [best]) == 1.0  # c ties with b
    assert recall([best, ()], [best, best]) == 0.5
    assert recall([best, ()], [best, ()]) == 1.0
    assert np.isnan(recall([()], [()]))

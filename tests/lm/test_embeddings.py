"""Embeddings that are kept: nothing twice, whoever asks; other encoders and other texts apart."""

from __future__ import annotations

import numpy as np
import pytest

from corpora.types import Passage, Query
from lm import embeddings
from lm.base import QueryVectors
from lm.embeddings import Embeddings


class Counting:
    """Vectors by text length and first letter; counts the texts that it is asked for."""

    dimension = 3

    def __init__(self, name="a", passage_name=None, per_query=1, bad=False):
        self.fingerprint, self.asked, self.per_query, self.bad = name, [], per_query, bad
        if passage_name:
            self.passage_fingerprint = passage_name

    def vector(self, text):
        return [len(text), ord(text[0]) if text else 0, np.nan if self.bad else 1]

    def encode_passages(self, passages):
        self.asked += [passage.passage_id for passage in passages]
        return np.array([self.vector(f"{p.title} {p.text}") for p in passages], dtype=np.float32)

    def encode_queries(self, queries):
        self.asked += [query.query_id for query in queries]
        vectors = np.array([self.vector(q.text) for q in queries for _ in range(self.per_query)], dtype=np.float32)
        return QueryVectors(vectors, np.repeat(np.arange(len(queries)), self.per_query))


def passages(*texts):
    return [Passage(f"p{i}", text, "t") for i, text in enumerate(texts)]


def test_aligned_and_asked_once(monkeypatch):
    monkeypatch.setattr(embeddings, "BLOCK", 2)
    encoder, texts = Counting(), passages("one", "three", "one", "", "five", "seventeen", "\udcff")
    found = Embeddings(encoder).passages(texts)
    np.testing.assert_array_equal(found, [encoder.vector(f"t {p.text}") for p in texts])
    assert found.dtype == np.float32
    assert len(encoder.asked) == 6
    again = Counting()
    np.testing.assert_array_equal(Embeddings(again).passages(texts[::-1]), found[::-1])
    assert again.asked == []
    assert Embeddings(again).passages([]).shape == (0, 3)


def test_titles_and_texts_are_told_apart():
    encoder = Counting()
    Embeddings(encoder).passages([Passage("a", "bc", "a"), Passage("b", "c", "ab"), Passage("c", "abc", "")])
    assert sorted(encoder.asked) == ["a", "b", "c"]


def test_other_encoders_have_vectors_of_their_own():
    first, second, third = Counting("a", "x"), Counting("b", "x"), Counting("a", "y")
    for encoder in (first, second, third):
        Embeddings(encoder).passages(passages("one"))
    assert (first.asked, second.asked, third.asked) == (["p0"], [], ["p0"])  # the query side is no part of it
    for encoder in (first, second):
        encoder.asked.clear()
        Embeddings(encoder).queries([Query("q", "q", "one")])
        assert encoder.asked == ["q"]


def test_queries_are_kept_and_must_have_one_vector():
    encoder, asked = Counting(), [Query("q1", "q1", "what"), Query("q2", "q2", "why?")]
    found = Embeddings(encoder).queries(asked)
    np.testing.assert_array_equal(found, [encoder.vector("what"), encoder.vector("why?")])
    Embeddings(encoder).queries(asked)
    assert encoder.asked == ["q1", "q2"]
    with pytest.raises(ValueError, match="4 vectors for 2 queries: expected one each"):
        Embeddings(Counting("c", per_query=2)).queries(asked)


def test_an_interrupt_loses_at_most_a_block(monkeypatch):
    monkeypatch.setattr(embeddings, "BLOCK", 2)

    class Stops(Counting):
        def encode_passages(self, passages):
            if len(self.asked) >= 4:
                raise KeyboardInterrupt
            return super().encode_passages(passages)

    texts = passages(*(f"text {i}" for i in range(10)))
    with pytest.raises(KeyboardInterrupt):
        Embeddings(Stops()).passages(texts)
    rest = Counting()
    Embeddings(rest).passages(texts)
    assert len(rest.asked) == 6


def test_broken_vectors_are_refused_and_not_kept():
    with pytest.raises(ValueError, match=r"NaN or infinity, expected \(1, 3\) finite numbers"):
        Embeddings(Counting(bad=True)).passages(passages("one"))
    encoder = Counting()
    Embeddings(encoder).passages(passages("one"))
    assert encoder.asked == ["p0"]

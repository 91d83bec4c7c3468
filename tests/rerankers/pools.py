"""Pools and an encoder for tests: vectors are written into the texts."""

from __future__ import annotations

import numpy as np

from corpora.types import Hit, Passage, Pool, Query
from lm.base import QueryVectors


class Written:
    """A text is its vector: numbers between blanks."""

    def __init__(self, dimension=2):
        self.dimension = dimension
        self.fingerprint = f"written {dimension}"

    def encode_passages(self, passages):
        return np.array([self.vector(passage.text) for passage in passages], dtype=np.float32)

    def encode_queries(self, queries):
        vectors = np.array([self.vector(query.text) for query in queries], dtype=np.float32)
        return QueryVectors(vectors, np.arange(len(queries)))

    def vector(self, text):
        return [float(number) for number in text.split()]


def text(vector):
    return " ".join(repr(float(number)) for number in vector)


def pool(scores, vectors, question="0 1", aspects=(), aspect_rankings=(), labels=None, name="q"):
    """A pool of passages p0, p1 ... with these scores and vectors."""
    ranking = tuple(Hit(f"p{i}", float(score)) for i, score in enumerate(scores))
    passages = tuple(Passage(f"p{i}", each if isinstance(each, str) else text(each)) for i, each in enumerate(vectors))
    asked = tuple(Query(f"{name}:{i}", name, each, f"expansion:{i}") for i, each in enumerate(aspects))
    return Pool(Query(name, name, question), ranking, passages, asked, tuple(aspect_rankings), labels)


def order(ranking):
    return [int(hit.passage_id[1:]) for hit in ranking]

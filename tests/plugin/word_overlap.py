"""Ranks passages by how many different words they share with the query."""

import heapq
from typing import ClassVar

from corpora.types import Hit


class WordOverlap:
    """Counts words in common; passages without one are not found."""

    local_scores: ClassVar[bool] = True

    def __init__(self, lower: bool = True) -> None:
        self.lower = lower

    def index(self, corpus):
        return WordOverlapIndex(self, [(p.passage_id, self.words(f"{p.title} {p.text}")) for p in corpus])

    def words(self, text):
        return set((text.lower() if self.lower else text).split())


class WordOverlapIndex:
    def __init__(self, retriever, passages):
        self.retriever, self.passages = retriever, passages

    def search(self, queries, k):
        return [self.ranking(self.retriever.words(query.text), k) for query in queries]

    def ranking(self, words, k):
        scores = ((passage_id, float(len(words & found))) for passage_id, found in self.passages)
        best = heapq.nsmallest(k, ((-score, passage_id) for passage_id, score in scores if score))
        return tuple(Hit(passage_id, -score) for score, passage_id in best)

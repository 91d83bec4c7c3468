"""How a query runs on an opened Lucene index: exact scores, and ties in the order of the passage identifiers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from corpora.java import detach_thread, java_class
from corpora.lucene_index import passage_id
from corpora.types import Hit, Query, Ranking

MARGIN = 32
"""So many hits more than asked for are taken where Lucene cannot break ties by identifier itself."""
FEEDBACK_POOL = 50
"""RM3 takes its feedback passages from so many, as Anserini's searcher does (``rerankcutoff``)."""
_FIELD = "contents"
_OPEN_READER = "(Lorg/apache/lucene/index/IndexReader;)V"


@dataclass(frozen=True, slots=True)
class Feedback:
    """The parameters of RM3."""

    fb_terms: int
    fb_docs: int
    original_query_weight: float


class LuceneIndex:
    """An opened index.

    Lucene's scores are single-precision numbers and are given as they are: pyserini rounds them to four digits and
    subtracts 0.000001 for each tie, so that equal scores no longer are.
    """

    def __init__(
        self, reader: Any, analyzer: Any, k1: float, b: float, feedback: Feedback | None, threads: int, own: bool
    ) -> None:
        self._analyzer, self._threads = analyzer, threads
        self._rows = int(reader.maxDoc())
        self._searcher = java_class("org.apache.lucene.search.IndexSearcher")(reader, signature=_OPEN_READER)
        self._searcher.setSimilarity(java_class("org.apache.lucene.search.similarities.BM25Similarity")(k1, b))
        java_class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(2**31 - 1)  # else: 1,024 words a query
        self._generator = java_class("io.anserini.search.query.BagOfWordsQueryGenerator")()
        self._documents = java_class("io.anserini.search.ScoredDocs")
        self._sort = _by_identifier(reader)
        self._exact = own and self._sort is not None
        self._feedback = feedback
        if feedback:
            self._rm3 = java_class("io.anserini.rerank.lib.Rm3Reranker")(
                analyzer,
                None,
                _FIELD,
                feedback.fb_terms,
                feedback.fb_docs,
                feedback.original_query_weight,
                False,
                True,
            )

    def search(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rankings aligned with the queries: only passages that have a word of the query, or of RM3's expansion."""
        if k < 1 or not self._rows or not queries:
            return [() for _ in queries]
        n = min(self._threads, len(queries))
        if n <= 1:
            return [self._search(query.text, k) for query in queries]
        found: list[Ranking] = [()] * len(queries)
        with ThreadPoolExecutor(n) as pool:
            for i, rankings in enumerate(pool.map(lambda i: self._slice(queries[i::n], k), range(n))):
                found[i::n] = rankings
        return found

    def _slice(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        try:
            return [self._search(query.text, k) for query in queries]
        finally:
            detach_thread()

    def _search(self, text: str, k: int) -> Ranking:
        query = self._generator.buildQuery(_FIELD, self._analyzer, text)
        run: Callable[[int], Any] = lambda n: self._top(query, n)  # noqa: E731
        if self._feedback:
            first = self._top(query, max(FEEDBACK_POOL, self._feedback.fb_docs))
            if not first.docids:
                return ()
            run = lambda n: self._expanded(first, query, text, n)  # noqa: E731
        n = k if self._exact else k + MARGIN
        while True:
            found = run(min(n, self._rows + 1))
            ids, scores = found.docids, found.scores
            if self._exact or len(ids) < n or scores[-1] < scores[k - 1]:
                return _ranking(ids, scores, k, self._exact)
            n *= 4  # the tie at the cut is longer than the margin

    def _top(self, query: Any, n: int) -> Any:
        n = min(n, self._rows + 1)
        if self._sort is None:
            return self._documents.fromTopDocs(self._searcher.search(query, n), self._searcher)
        return self._documents.fromTopDocs(self._searcher.search(query, n, self._sort, True), self._searcher)

    def _expanded(self, first: Any, query: Any, text: str, n: int) -> Any:
        arguments = java_class("io.anserini.search.SearchCollection$Args")()
        arguments.hits, arguments.arbitraryScoreTieBreak = n, self._sort is None
        words = java_class("io.anserini.analysis.AnalyzerUtils").analyze(self._analyzer, text)
        context = java_class("io.anserini.rerank.RerankerContext")(
            self._searcher, None, query, None, text, words, None, arguments
        )
        return self._rm3.rerank(first, context)


def _by_identifier(reader: Any) -> Any:
    """The order of score and identifier; None for indexes that keep identifiers in no column (Lucene 8)."""
    field = java_class("org.apache.lucene.index.FieldInfos").getMergedFieldInfos(reader).fieldInfo("id")
    if field is None or field.getDocValuesType().toString() != "BINARY":
        return None
    fields, types = (
        java_class("org.apache.lucene.search.SortField"),
        java_class("org.apache.lucene.search.SortField$Type"),
    )
    order = java_class("org.apache.lucene.search.Sort")
    return order(fields.FIELD_SCORE, fields("id", types.STRING_VAL))


def _ranking(docids: Sequence[str], scores: Sequence[float], k: int, exact: bool) -> Ranking:
    names = docids if exact else [passage_id(docid) for docid in docids]
    best: dict[str, float] = {}
    for name, score in zip(names, scores, strict=True):
        if score > 0:
            best.setdefault(name, score)  # an index made by others may hold an identifier twice
    ordered = sorted(best.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Hit(name, score) for name, score in ordered[:k])

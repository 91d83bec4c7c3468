"""The conformance checks: every built-in retriever passes, and each check catches a retriever that breaks it."""

import random
from collections import Counter
from pathlib import Path

import pytest

from corpora.types import Hit, Query, Ranking
from retrievers.bm25 import BM25
from retrievers.checks import (
    FORM_CHECKS,
    PASSAGES,
    QUERIES,
    TEXT_CHECKS,
    CheckError,
    check_retriever,
)
from retrievers.rank_bm25 import RankBM25
from retrievers.runfile import RunFile


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RETRIEVAL_DIVERSITY_CACHE", str(tmp_path / "cache"))


class Overlap:
    """A right retriever: counts words in common. What breaks a promise overrides one of its methods."""

    local_scores = True

    def __init__(self, lower: bool = True) -> None:
        self.lower = lower

    def index(self, corpus):
        return OverlapIndex(self, corpus)

    def score(self, query, text, corpus):
        return float((Counter(query.text.lower().split()) & Counter(text.lower().split())).total())

    def cut(self, hits, k):
        return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.passage_id))[:k])

    def search(self, corpus, queries, k):
        return [self.one(corpus, query, k) for query in queries]

    def one(self, corpus, query: Query, k: int) -> Ranking:
        scores = ((p.passage_id, self.score(query, p.text, corpus)) for p in corpus)
        return self.cut([Hit(passage_id, score) for passage_id, score in scores if score], k)


class OverlapIndex:
    def __init__(self, retriever, corpus):
        self.retriever, self.corpus = retriever, corpus

    def search(self, queries, k):
        return self.retriever.search(self.corpus, queries, k)


class Renames(Overlap):
    def __init__(self, lower: bool = True) -> None:
        self._lower = lower


class Changes(Overlap):
    def __init__(self, lower: object = (1,)) -> None:
        self.lower = [lower]


class Opens(Overlap):
    def __init__(self) -> None:
        Path(__file__).read_text()


class Listens(Overlap):
    def __init__(self) -> None:
        import socket

        with socket.socket() as sock:
            sock.connect_ex(("127.0.0.1", 9))


class TooMany(Overlap):
    def cut(self, hits, k):
        return super().cut(hits, k + 1)


class Twice(Overlap):
    def cut(self, hits, k):
        return tuple(hit for hit in super().cut(hits, k) for _ in range(2))[:k]


class Unknown(Overlap):
    def cut(self, hits, k):
        return tuple(Hit(f"row {i}", hit.score) for i, hit in enumerate(super().cut(hits, k)))


class NotANumber(Overlap):
    def cut(self, hits, k):
        return tuple(Hit(hit.passage_id, float("nan")) for hit in super().cut(hits, k))


class Integers(Overlap):
    def cut(self, hits, k):
        return tuple(Hit(hit.passage_id, int(hit.score)) for hit in super().cut(hits, k))


class WorstFirst(Overlap):
    def cut(self, hits, k):
        return tuple(sorted(super().cut(hits, k), key=lambda hit: (hit.score, hit.passage_id)))


class RowOrder(Overlap):
    def cut(self, hits, k):
        return tuple(sorted(hits, key=lambda hit: -hit.score)[:k])


class Pairs(Overlap):
    def cut(self, hits, k):
        return tuple((hit.passage_id, hit.score) for hit in super().cut(hits, k))


class Flat(Overlap):
    def search(self, corpus, queries, k):
        return super().search(corpus, queries, k)[:1]


class AsksForAll(Overlap):
    def one(self, corpus, query, k):
        if k > len(corpus):
            raise IndexError("kth out of bounds")
        return super().one(corpus, query, k)


class EmptyQuery(Overlap):
    def one(self, corpus, query, k):
        query.text.split()[0]
        return super().one(corpus, query, k)


class Latin(Overlap):
    def one(self, corpus, query, k):
        query.text.encode("latin-1")
        return super().one(corpus, query, k)


class CutsTies(Overlap):
    """Sorted by identifier only after the cut: what a plain partial sort gives."""

    def cut(self, hits, k):
        return super().cut(sorted(hits, key=lambda hit: -hit.score)[:k], k)


class Random(Overlap):
    def score(self, query, text, corpus):
        return random.random()


class Shared(Overlap):
    """The index is kept in the retriever: the next corpus replaces it."""

    def index(self, corpus):
        self.corpus = corpus
        return super().index(corpus)

    def search(self, corpus, queries, k):
        return super().search(self.corpus, queries, k)


class Batch(Overlap):
    """Scores divided by the longest query of the batch, as careless padding does."""

    def search(self, corpus, queries, k):
        longest = max((len(query.text) for query in queries), default=1) or 1
        rankings = super().search(corpus, queries, k)
        return [tuple(Hit(hit.passage_id, hit.score / longest) for hit in ranking) for ranking in rankings]


class Misaligned(Overlap):
    def search(self, corpus, queries, k):
        return super().search(corpus, sorted(queries, key=lambda query: query.text), k)


class ByRow(Overlap):
    """Equal texts get other scores: ties are broken by row, hidden in the score."""

    def one(self, corpus, query, k):
        rows = {p.passage_id: row for row, p in enumerate(corpus)}
        hits = super().one(corpus, query, len(corpus))
        return self.cut([Hit(hit.passage_id, hit.score - rows[hit.passage_id] * 0.01) for hit in hits], k)


class ReadsOrigin(Overlap):
    def score(self, query, text, corpus):
        return super().score(query, text, corpus) * (2 if query.origin == "question" else 1)


class ReadsQuestion(Overlap):
    def score(self, query, text, corpus):
        return super().score(query, text, corpus) * (1 + ("q" in query.question_id))


class ManyPassages(Overlap):
    def one(self, corpus, query, k):
        if len(corpus) < 2:
            raise ValueError("kth(=1) out of bounds (1)")
        return super().one(corpus, query, k)


class MeanLength(Overlap):
    def score(self, query, text, corpus):
        return super().score(query, text, corpus) / (sum(len(p.text.split()) for p in corpus) / 100)


BROKEN = [
    (Renames, "check_constructor", "are not kept under their own names: lower"),
    (Changes, "check_constructor", "keep what was given"),
    (Opens, "check_constructor", "the constructor does open"),
    (Listens, "check_constructor", "the constructor does socket.connect"),
    (TooMany, "check_form", "expected at most 1"),
    (Twice, "check_form", "is there twice"),
    (Unknown, "check_form", "'row 0' is not in the corpus"),
    (NotANumber, "check_form", "expected a finite float"),
    (Integers, "check_form", "expected a finite float"),
    (WorstFirst, "check_form", "expected the best first"),
    (RowOrder, "check_form", "sort ties by identifier"),
    (Pairs, "check_form", "expected a Hit"),
    (Flat, "check_form", "7 queries got 1 rankings"),
    (AsksForAll, "check_form", "it raises IndexError"),
    (EmptyQuery, "check_form", "it raises IndexError"),
    (Latin, "check_form", "it raises UnicodeEncodeError"),
    (CutsTies, "check_ties", "of equal passages, k=4 gives"),
    (Random, "check_prefix", "expected the same"),
    (Shared, "check_other_corpus", "after another corpus was indexed"),
    (Batch, "check_batch", "all queries at once and one by one"),
    (Misaligned, "check_batch", "expected the same"),
    (ByRow, "check_ties", "one text has the scores"),
    (ReadsOrigin, "check_query_text", "other query_id, question_id and origin"),
    (ReadsQuestion, "check_query_text", "other query_id, question_id and origin"),
    (ManyPassages, "check_small_corpora", "it raises ValueError"),
    (MeanLength, "check_small_corpora", "it raises ZeroDivisionError"),
]


@pytest.mark.parametrize("retriever, check, message", BROKEN, ids=lambda value: getattr(value, "__name__", None))
def test_a_broken_retriever_is_caught(retriever, check, message):
    with pytest.raises(CheckError) as caught:
        check_retriever(retriever)
    text = str(caught.value)
    assert text.startswith(f"{retriever.__name__} fails {check}: ")
    assert message in text
    assert "\n" not in text


def test_untrue_local_scores_are_caught():
    class Share(Overlap):
        def score(self, query, text, corpus):
            return super().score(query, text, corpus) / len(corpus)

    with pytest.raises(CheckError, match="Share fails check_local_scores: three parts merged"):
        check_retriever(Share)
    Share.local_scores = False
    check_retriever(Share)


def test_randomness_between_searches_is_caught_where_the_cut_does_not_show_it():
    class Drifts(Overlap):
        calls = 0

        def index(self, corpus):
            type(self).calls += 1
            return super().index(corpus)

        def score(self, query, text, corpus):
            return super().score(query, text, corpus) * self.calls

    with pytest.raises(CheckError, match=r"check_repeatable: a second index of the same corpus"):
        check_retriever(Drifts)


def test_every_check_has_a_retriever_that_it_catches():
    caught = {check for _, check, _ in BROKEN} | {
        "check_local_scores",
        "check_repeatable",
    }  # each has a test of its own
    assert caught == {check.__name__ for check in (*FORM_CHECKS, *TEXT_CHECKS)}


@pytest.mark.parametrize(
    "make",
    [
        Overlap,
        BM25,
        RankBM25,
        lambda: BM25(stemmer="english", stop_words=None, method="bm25+", threads=2),
        BM25(method="bm25l"),
        BM25(method="robertson", title=False),
        BM25(method="atire", k1=0.9, b=0.4),
        RankBM25(variant="plus"),
        RankBM25(variant="l", stemmer="english"),
    ],
)
def test_built_in_retrievers_pass(make):
    check_retriever(make)


def test_run_file_passes_without_the_checks_that_ask_by_text(tmp_path):
    run = tmp_path / "a.trec"
    ids = [passage.passage_id for passage in PASSAGES]
    lines = [
        f"{q.query_id} Q0 {ids[(i + j) % 17]} {j + 1} {20 - j} tag" for i, q in enumerate(QUERIES) for j in range(9)
    ]
    run.write_text("\n".join(lines) + "\n", encoding="utf-8")
    check_retriever(RunFile(run), reads_text=False)
    with pytest.raises(CheckError, match="RunFile fails"):
        check_retriever(RunFile(run))

"""PyTerrier both ways: any of its pipelines as a retriever, and any retriever as one of its transformers.

Macdonald et al. (2021): PyTerrier: Declarative experimentation in Python from BM25 to dense retrieval, CIKM,
https://doi.org/10.1145/3459637.3482013, https://pyterrier.readthedocs.io. No Java is started here: PyTerrier starts it
only for Terrier's own engine (``pt.terrier``), which it then downloads; ``pyterrier-pisa`` needs none.

A pipeline is named ``module:object``. The object is a transformer from queries (qid, query) to results (qid, docno,
score), over an index of its own, whose docnos are our passage ids; or a function that is called with our corpus and
returns one. Such a function keeps its index in an artefact, so that it is built once:

    def pisa(corpus, k1: float = 0.9, b: float = 0.4):
        def build(folder):
            index = PisaIndex(str(folder), text_field=["title", "text"])
            index.index(documents(corpus))
            index.bm25(k1=k1, b=b)  # PISA adds a file for these values: before the folder is published
        folder = artefact("index", digest({"pisa": 1, "k1": k1, "b": b, "corpus": corpus.fingerprint}), build)
        return PisaIndex(str(folder)).bm25(k1=k1, b=b, num_results=1000)

    --retriever terrier --retriever-args pipeline=my_pipelines:pisa args=k1=1.2,b=0.75

and the other way, one table for all:

    pt.Experiment([as_transformer(BM25(), corpus), pisa_bm25 >> reranker], topics, qrels, ["P_5", "ndcg_cut_10"])
"""

# mypy: allow-subclassing-any
# (pyterrier is an extra: without it, its Transformer is Any)

from __future__ import annotations

import ctypes
import importlib.util
import math
import os
import string
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt

from corpora.artefacts import content_hash
from corpora.base import Corpus
from corpora.fingerprint import digest
from corpora.registry import Registry
from corpora.trec import decreasing
from corpora.types import Hit, Query, Ranking
from retrievers.base import Index, Retriever

PIPELINES: Registry[object] = Registry("pipelines", {})
_NO_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation, " "))
_redirecting = threading.RLock()


class TerrierIndex:
    """A pipeline that is ready to search."""

    def __init__(self, pipeline: pt.Transformer, name: str, words_only: bool) -> None:
        self._pipeline, self._name, self._words_only = pipeline, name, words_only

    def search(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rankings aligned with the queries, by score, ties by passage id; of a passage found twice, the better.

        Fewer than k where the pipeline gives fewer (``num_results``, ``% 10``); among equal scores at its own cut it
        has chosen by its own rule.

        Raises:
            ValueError: Two queries of one id; or the results lack a column, a docno or a score, or are of no query.
        """
        texts: dict[str, str] = {}
        for query in queries:
            if texts.setdefault(query.query_id, query.text) != query.text:
                raise ValueError(f"pipeline {self._name!r}: two queries have the id {query.query_id!r}")
        if k < 1 or not texts:
            return [() for _ in queries]
        if self._words_only:
            texts = {query_id: text.translate(_NO_PUNCTUATION) for query_id, text in texts.items()}
        frame = pd.DataFrame({"qid": list(texts), "query": list(texts.values())}, dtype=object)
        with _quiet():
            results = self._pipeline.transform(frame)
        found = self._found(results, texts)
        rankings = {query_id: _best(scores, k) for query_id, scores in found.items()}
        return [rankings[query.query_id] for query in queries]

    def _found(self, results: pd.DataFrame, asked: dict[str, str]) -> dict[str, dict[str, float]]:
        """query_id -> passage_id -> score, checked."""
        found: dict[str, dict[str, float]] = {query_id: {} for query_id in asked}
        if not len(results):  # such frames often have no columns either
            return found
        missing = [name for name in ("qid", "docno", "score") if name not in results.columns]
        if missing:
            raise ValueError(
                f"pipeline {self._name!r} gives no column {' and no '.join(missing)}, only "
                f"{', '.join(map(str, results.columns))}: its last step has to return results"
            )
        qids, docnos = results["qid"].astype(str).tolist(), results["docno"].astype(str).tolist()
        scores = pd.to_numeric(results["score"], errors="coerce").to_numpy(dtype="float64", na_value=np.nan)
        unfit = np.flatnonzero(results["docno"].isna().to_numpy() | ~np.isfinite(scores))
        if len(unfit):
            raise ValueError(
                f"pipeline {self._name!r}: qid {qids[unfit[0]]!r} has docno {docnos[unfit[0]]!r} with score "
                f"{scores[unfit[0]]}: expected a passage id and a finite number"
            )
        for qid, docno, score in zip(qids, docnos, scores.tolist(), strict=True):
            if qid not in found:
                raise ValueError(f"pipeline {self._name!r} has results for the qid {qid!r}, which was not asked")
            found[qid][docno] = max(score, found[qid].get(docno, -math.inf))
        return found


class Terrier:
    """A PyTerrier pipeline as a retriever.

    Args:
        pipeline: ``module:object``, a transformer or a function that makes one from our corpus (its first parameter is
            called ``corpus``); in Python also a transformer itself, which has no fingerprint.
        args: ``key=value`` arguments of that function, with commas between them.
        revision: Anything that tells this version of the pipeline from another. The source of its module counts by
            itself; what that imports or reads does not: change the revision then, or results come from the cache.
        files: Files and folders that the pipeline reads (an index, a model); they count by their content.
        words_only: Replace ASCII punctuation in queries by blanks. For engines with a query language, in which
            ``what's`` or ``(a/b)`` is an error (``pt.terrier.Retriever``); PISA and dense encoders want the text as it
            is.
    """

    version: ClassVar[int] = 1
    packages: ClassVar[tuple[str, ...]] = ("pyterrier",)

    def __init__(
        self,
        pipeline: str | pt.Transformer,
        args: tuple[str, ...] = (),
        revision: str = "",
        files: tuple[Path, ...] = (),
        words_only: bool = False,
    ) -> None:
        self.pipeline = pipeline
        self.args = args
        self.revision = revision
        self.files = files
        self.words_only = words_only

    @property
    def fingerprint(self) -> str:
        """A hash of the arguments, the pipeline's module and the content of the files.

        Raises:
            ValueError: The pipeline is an object, which cannot be seen into.
        """
        if not isinstance(self.pipeline, str):
            raise ValueError(f"pipeline {self.pipeline!r} has no fingerprint: name it, as module:object")
        try:
            found = importlib.util.find_spec(self.pipeline.partition(":")[0])
        except (ModuleNotFoundError, ValueError):  # index says so, in one line
            found = None
        read = [*([Path(found.origin)] if found and found.has_location and found.origin else []), *self.files]
        given = [self.pipeline, list(self.args), self.revision, self.words_only]
        return digest([*given, *map(content_hash, read)])

    def index(self, corpus: Corpus) -> TerrierIndex:
        """The pipeline; a function is called with the corpus, an object is taken as it is.

        Raises:
            ValueError: There is no such pipeline, its arguments are wrong, or it is no transformer.
        """
        name = self.pipeline if isinstance(self.pipeline, str) else repr(self.pipeline)
        with _quiet():
            made = self._made(self.pipeline, corpus) if isinstance(self.pipeline, str) else self.pipeline
        if not isinstance(made, pt.Transformer):
            raise ValueError(f"pipeline {name!r} is a {type(made).__name__}, expected a PyTerrier transformer")
        return TerrierIndex(made, name, self.words_only)

    def _made(self, name: str, corpus: Corpus) -> object:
        if ":" not in name:
            raise ValueError(f"pipeline {name!r}: expected module:object, or module:function of the corpus")
        target = PIPELINES.load(name)
        if isinstance(target, pt.Transformer):
            if self.args:
                raise ValueError(f"pipeline {name!r} is a transformer already: args={','.join(self.args)} fits none")
            return target
        given = dict(pair.partition("=")[::2] for pair in self.args)
        if len(given) < len(self.args) or any("=" not in pair for pair in self.args):
            raise ValueError(f"pipeline {name!r}: args={','.join(self.args)}: expected key=value, each key once")
        return PIPELINES.create(name, {"corpus": corpus, **given})


class RetrieverTransformer(pt.Transformer):
    """One of our retrievers over one corpus as a PyTerrier transformer: queries to results.

    Args:
        retriever: Any retriever.
        corpus: What it searches; indexed on first use.
        k: How many results per query at most; ``% 10`` makes it fewer.
    """

    def __init__(self, retriever: Retriever, corpus: Corpus, k: int = 100) -> None:
        super().__init__()
        self.retriever, self.corpus, self.k = retriever, corpus, k
        self._index: Index | None = None

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Results with all columns of the queries and docno, score and rank (from 0).

        The scores are float32, lowered by their last digits where they would tie, so that every evaluation tool reads
        the order of our ranking.
        """
        pt.validate.query_frame(inp, extra_columns=["query"])
        if self._index is None and len(inp):
            self._index = self.retriever.index(self.corpus)
        queries = [Query(str(q), str(q), str(text)) for q, text in zip(inp["qid"], inp["query"], strict=True)]
        found = self._index.search(queries, self.k) if self._index else []
        rows = [row for row, ranking in enumerate(found) for _ in ranking]
        results = inp.iloc[rows].reset_index(drop=True)
        results["docno"] = pd.Series([hit.passage_id for ranking in found for hit in ranking], dtype=object)
        scores = [score for ranking in found for score in decreasing([hit.score for hit in ranking])]
        results["score"] = pd.Series(scores, dtype="float64")
        results["rank"] = pd.Series([rank for ranking in found for rank in range(len(ranking))], dtype="int64")
        return results

    def fuse_rank_cutoff(self, k: int) -> RetrieverTransformer | None:
        """The same with fewer results: how PyTerrier compiles ``% k``."""
        if k >= self.k:
            return None
        fewer = RetrieverTransformer(self.retriever, self.corpus, k)
        fewer._index = self._index
        return fewer

    def __repr__(self) -> str:
        return f"as_transformer({type(self.retriever).__name__}, k={self.k})"


def as_transformer(retriever: Retriever, corpus: Corpus, k: int = 100) -> pt.Transformer:
    """The retriever over this corpus as a PyTerrier transformer, for pipelines and ``pt.Experiment``."""
    return RetrieverTransformer(retriever, corpus, k)


def documents(corpus: Corpus) -> Iterator[dict[str, str]]:
    """The corpus as PyTerrier's indexers read it: docno, title and text of each passage, streaming."""
    for passage in corpus:
        yield {"docno": passage.passage_id, "title": passage.title, "text": passage.text}


def _best(scores: dict[str, float], k: int) -> Ranking:
    """The k best, ties by passage id; only these become hits, because pipelines often give a thousand."""
    ordered = sorted((-score, passage_id) for passage_id, score in scores.items())
    return tuple(Hit(passage_id, -negative) for negative, passage_id in ordered[:k])


@contextmanager
def _quiet() -> Iterator[None]:
    """What a pipeline prints goes to stderr, from compiled code too (PISA): stdout is for tables and JSON."""
    with _redirecting, redirect_stdout(sys.stderr):
        flush = ctypes.CDLL(None).fflush
        flush(None)
        stdout = os.dup(1)
        try:
            os.dup2(2, 1)
            yield
        finally:
            flush(None)
            os.dup2(stdout, 1)
            os.close(stdout)

"""BM25 on bm25s, with exact rankings: ties are broken by passage identifier, at the cut too.

Lù, X. H. (2024): BM25S: Orders of magnitude faster lexical search via eager sparse scoring.
https://arxiv.org/abs/2407.03618, https://github.com/xhluca/bm25s. The variants (``method``) are those of Kamphuis et
al. (2020): Which BM25 do you mean? https://cs.uwaterloo.ca/~jimmylin/publications/Kamphuis_etal_ECIR2020_preprint.pdf

The defaults are bm25s' own: k1 1.5, b 0.75, Lucene's variant, words of two letters or more in lower case without
English stop words, no stemming. A word that a query repeats counts as often as it stands there.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import bm25s
import numpy as np
from tqdm import tqdm

from corpora.artefacts import artefact
from corpora.base import Corpus
from corpora.fingerprint import digest, index_fingerprint
from corpora.types import Query, Ranking
from retrievers.lexical import Analyzer, best

METHODS = ("lucene", "robertson", "atire", "bm25l", "bm25+")


class BM25Index:
    """An opened index; its arrays stay on disk."""

    def __init__(self, model: bm25s.BM25, analyzer: Analyzer, corpus: Corpus, threads: int) -> None:
        self._model, self._analyzer, self._corpus, self._threads = model, analyzer, corpus, threads

    def search(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rankings aligned with the queries: only passages that score above one without any word of the query."""
        words = [self._analyzer.words(query.text) for query in queries]  # not in threads: stemmers are not safe there
        if self._threads <= 1:
            return [self._search(each, k) for each in words]
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(lambda each: self._search(each, k), words))

    def _search(self, words: list[str], k: int) -> Ranking:
        tokens = self._model.get_tokens_ids(words)
        if not tokens:
            return ()
        scores = self._model.get_scores_from_ids(tokens)
        absent = self._model.nonoccurrence_array  # BM25L and BM25+ give something for an absent word too
        floor = 0.0 if absent is None else absent[np.asarray(tokens)].sum()
        return best(scores, np.flatnonzero(scores > floor), self._corpus, k)


class BM25:
    """Lexical search; the index is kept on disk and memory-mapped.

    Args:
        k1: How slowly a repeated word saturates.
        b: How much long passages are held back, 0 to 1.
        stemmer: A language of PyStemmer, for example ``english``; None: no stemming.
        stop_words: A language of bm25s' stop word lists; None: keep every word.
        method: ``lucene``, ``robertson``, ``atire``, ``bm25l`` or ``bm25+``.
        title: Search the title too, as if it stood in front of the text.
        threads: How many queries are searched at a time; the rankings do not depend on it.
    """

    version: ClassVar[int] = 1
    packages: ClassVar[tuple[str, ...]] = ("bm25s", "PyStemmer")
    runtime_args: ClassVar[tuple[str, ...]] = ("threads",)
    index_args: ClassVar[tuple[str, ...]] = ("k1", "b", "stemmer", "stop_words", "method", "title")

    def __init__(
        self,
        k1: float = 1.5,
        b: float = 0.75,
        stemmer: str | None = None,
        stop_words: str | None = "english",
        method: str = "lucene",
        title: bool = True,
        threads: int = 1,
    ) -> None:
        self.k1 = k1
        self.b = b
        self.stemmer = stemmer
        self.stop_words = stop_words
        self.method = method
        self.title = title
        self.threads = threads

    def index(self, corpus: Corpus) -> BM25Index:
        """The index of the corpus, built where no artefact holds it.

        Raises:
            ValueError: An argument has no such value.
        """
        if self.method not in METHODS:
            raise ValueError(f"method {self.method!r} is unknown: expected one of {', '.join(METHODS)}")
        if not (self.k1 >= 0 and 0 <= self.b <= 1 and self.k1 < float("inf")):
            raise ValueError(f"k1={self.k1} b={self.b}: expected k1 of 0 or more, and b from 0 to 1")
        analyzer = Analyzer(self.stemmer, self.stop_words, self.title)
        key = digest({"retriever": index_fingerprint(self), "corpus": corpus.fingerprint})
        folder = artefact("index", key, lambda path: self._build(corpus, analyzer, path))
        try:
            model = bm25s.BM25.load(folder, mmap=True, show_progress=False)
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise ValueError(f"the index {folder} is damaged: remove this folder, and it is made anew") from error
        # Plain views of the mapped files: slices of np.memmap cost more than the additions they are for.
        model.scores = {k: np.asarray(v) if isinstance(v, np.memmap) else v for k, v in model.scores.items()}
        return BM25Index(model, analyzer, corpus, self.threads)

    def _build(self, corpus: Corpus, analyzer: Analyzer, folder: Path) -> None:
        vocabulary = {"": 0}  # never the token of a text: keeps bm25s' arrays from being empty
        quiet = not sys.stderr.isatty()
        tokens = [
            array("i", [vocabulary.setdefault(word, len(vocabulary)) for word in analyzer.passage(passage)])
            for passage in tqdm(corpus, desc="bm25: tokens", total=len(corpus), disable=quiet)
        ]
        model = bm25s.BM25(k1=self.k1, b=self.b, method=self.method, backend="numpy", csc_backend="numpy")
        with np.errstate(invalid="ignore", divide="ignore"):  # a corpus without any word has a mean length of 0
            # bm25s needs a passage; one without words never matches
            model.index((tokens or [array("i")], vocabulary), create_empty_token=False, show_progress=not quiet)
        model.save(folder, show_progress=False)

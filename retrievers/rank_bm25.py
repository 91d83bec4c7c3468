"""BM25 on the package rank-bm25, all in memory: for small corpora, such as the web pages of one question.

https://github.com/dorianbrown/rank_bm25, with the variants of Trotman, Puurula and Burgess (2014): Improvements to BM25
and language models examined, https://doi.org/10.1145/2682862.2682863. The tokens are those of ``retrievers.bm25``.

A passage matches when it has at least one word of the query, and only then it is returned: BM25+ gives every passage
a score above zero, and BM25Okapi gives zero or less to a passage whose words are in half of the corpus or more.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import rank_bm25

from corpora.base import Corpus
from corpora.types import Query, Ranking
from retrievers.lexical import Analyzer, best

VARIANTS = {"okapi": rank_bm25.BM25Okapi, "plus": rank_bm25.BM25Plus, "l": rank_bm25.BM25L}
SMALL = 200_000
"""Passages above which a warning points to ``bm25``."""


class RankBM25Index:
    """A corpus' word counts in memory."""

    def __init__(self, model: rank_bm25.BM25 | None, analyzer: Analyzer, corpus: Corpus) -> None:
        self._model, self._analyzer, self._corpus = model, analyzer, corpus

    def search(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rankings aligned with the queries: only passages with at least one word of the query."""
        return [self._search(query.text, k) for query in queries]

    def _search(self, text: str, k: int) -> Ranking:
        words = self._analyzer.words(text)
        if self._model is None or not words:
            return ()
        wanted = frozenset(words)
        matching = [row for row, counts in enumerate(self._model.doc_freqs) if not wanted.isdisjoint(counts)]
        if not matching:
            return ()
        return best(self._model.get_scores(words), np.array(matching), self._corpus, k)


class RankBM25:
    """Lexical search in memory, nothing kept on disk.

    Args:
        variant: ``okapi``, ``plus`` or ``l``.
        k1: How slowly a repeated word saturates.
        b: How much long passages are held back, 0 to 1.
        stemmer: A language of PyStemmer, for example ``english``; None: no stemming.
        stop_words: A language of bm25s' stop word lists; None: keep every word.
        title: Search the title too, as if it stood in front of the text.
    """

    version: ClassVar[int] = 1
    packages: ClassVar[tuple[str, ...]] = ("rank-bm25", "bm25s", "PyStemmer")

    def __init__(
        self,
        variant: str = "okapi",
        k1: float = 1.5,
        b: float = 0.75,
        stemmer: str | None = None,
        stop_words: str | None = "english",
        title: bool = True,
    ) -> None:
        self.variant = variant
        self.k1 = k1
        self.b = b
        self.stemmer = stemmer
        self.stop_words = stop_words
        self.title = title

    def index(self, corpus: Corpus) -> RankBM25Index:
        """The word counts of the corpus, made anew.

        Raises:
            ValueError: An argument has no such value.
        """
        if self.variant not in VARIANTS:
            raise ValueError(f"variant {self.variant!r} is unknown: expected one of {', '.join(VARIANTS)}")
        if len(corpus) > SMALL:
            warnings.warn(
                f"rank_bm25 keeps all of {len(corpus):,} passages in memory and reads them for every query: "
                "bm25 is far faster above a few thousand",
                stacklevel=2,
            )
        analyzer = Analyzer(self.stemmer, self.stop_words, self.title)
        tokens = [analyzer.passage(passage) for passage in corpus]
        # The package divides by the number of words; without any word, no passage can match.
        model = VARIANTS[self.variant](tokens, k1=self.k1, b=self.b) if any(tokens) else None
        return RankBM25Index(model, analyzer, corpus)

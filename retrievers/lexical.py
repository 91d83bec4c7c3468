"""What lexical retrievers share: tokens from text, and the best rows from scores."""

from __future__ import annotations

import re

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray

from corpora.base import Corpus
from corpora.types import Hit, Passage, Ranking

_WORD = re.compile(r"(?u)\b\w\w+\b")


class Analyzer:
    """Makes tokens from text as ``bm25s.tokenize`` does, one text at a time.

    Args:
        stemmer: A language of PyStemmer, for example ``english``; None: words as they stand.
        stop_words: A language of bm25s' stop word lists, for example ``english``; None: keep every word.
        title: Index the title in front of the text.

    Raises:
        ValueError: A language that the library does not have; names those it has.
    """

    def __init__(self, stemmer: str | None = None, stop_words: str | None = "english", title: bool = True) -> None:
        if stemmer is not None and stemmer not in Stemmer.algorithms():
            raise ValueError(
                f"stemmer {stemmer!r} is unknown: expected one of {', '.join(Stemmer.algorithms())}, or None"
            )
        try:
            self._stop_words = frozenset(bm25s.tokenization.Tokenizer(stopwords=stop_words).stopwords)
        except ValueError as error:
            message = f"stop_words {stop_words!r} is unknown: expected a language of bm25s, such as english, or none"
            raise ValueError(message) from error
        self._stem = Stemmer.Stemmer(stemmer).stemWords if stemmer else None
        self._title = title

    def words(self, text: str) -> list[str]:
        """The tokens of a text, in order, repeated words repeated."""
        words = [word for word in _WORD.findall(text.lower()) if word not in self._stop_words]
        return self._stem(words) if self._stem else words

    def passage(self, passage: Passage) -> list[str]:
        """The tokens of a passage: of its title, where it has one, and of its text."""
        return self.words(f"{passage.title} {passage.text}" if self._title and passage.title else passage.text)


def best(scores: NDArray[np.floating], rows: NDArray[np.integer], corpus: Corpus, k: int) -> Ranking:
    """The k best of these rows, best first, ties by passage identifier; exact at the cut.

    Args:
        scores: float (n,), one score per row of the corpus.
        rows: int (m,), the rows that may be returned.
        corpus: Where the rows' identifiers are.
        k: How many hits at most.
    """
    if k < 1 or not len(rows):
        return ()
    found = scores[rows]
    if len(rows) > k:
        near = found >= np.partition(found, len(rows) - k)[len(rows) - k]
        rows, found = rows[near], found[near]
    hits = zip((-found).tolist(), corpus.ids(rows.tolist()), strict=True)
    return tuple(Hit(passage_id, -negative) for negative, passage_id in sorted(hits)[:k])

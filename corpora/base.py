"""The protocol of a corpus: what is searched.

Optional: a property ``span -> corpora.types.Span`` says where a corpus lies in the whole that it is a part of, so that
what was made for a part (vectors) serves the whole, and the other way round. Without it a corpus is its own whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from corpora.types import Span

if TYPE_CHECKING:
    from corpora.types import Passage


@runtime_checkable
class Corpus(Protocol):
    """Passages in a fixed order: row numbers inside, identifiers outside.

    A corpus plug-in is made from keyword arguments with defaults and loads nothing until it is used.
    """

    @property
    def fingerprint(self) -> str:
        """A hash of the content (identifiers, titles, texts and urls, in order)."""
        ...

    def __len__(self) -> int:
        """Number of passages."""
        ...

    def __iter__(self) -> Iterator[Passage]:
        """All passages in row order, streaming."""
        ...

    def get(self, ids: Sequence[str]) -> Sequence[Passage]:
        """The passages with these identifiers, in this order.

        Raises:
            KeyError: An identifier is not in the corpus; the message names it.
        """
        ...

    def ids(self, rows: Sequence[int]) -> list[str]:
        """The passage identifiers of these rows (0-based), in this order."""
        ...

    def part(self, i: int, n: int) -> Self:
        """Part ``i`` of ``n`` (0-based): contiguous rows, cut at whole blocks; all parts together are the corpus."""
        ...

    def for_question(self, question_id: str) -> Corpus:
        """The corpus that this question is searched in: itself, or a view for corpora gathered per question."""
        ...


def span_of(corpus: Corpus) -> Span:
    """Where the corpus lies in its whole; without a ``span`` of its own it is its own whole."""
    span = getattr(corpus, "span", None)
    return span if isinstance(span, Span) else Span(corpus.fingerprint, 0, len(corpus))

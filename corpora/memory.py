"""A small corpus in memory, with the same fingerprint as a store on disk of the same passages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from corpora.store import BLOCK_ROWS, duplicate_id, part_fingerprint, part_rows, record, unknown_id
from corpora.types import Passage, Span


class MemoryCorpus:
    """A list of passages as a corpus.

    Args:
        passages: The passages, in this order; none at all is allowed (a question without pages).
        block_rows: Parts are cut at multiples of it; the fingerprint does not depend on it.

    Raises:
        ValueError: An identifier twice, empty or with white space.
    """

    def __init__(self, passages: Iterable[Passage] = (), block_rows: int = BLOCK_ROWS) -> None:
        self.passages = tuple(passages)
        self.block_rows = block_rows
        self._row_of: dict[str, int] = {}
        digest = hashlib.sha256()
        for row, passage in enumerate(self.passages):
            digest.update(record(passage, row))
            first = self._row_of.setdefault(passage.passage_id, row)
            if first != row:
                raise duplicate_id(passage.passage_id, first, row)
        self._whole, self._start, self._rows = digest.hexdigest(), 0, len(self.passages)

    @property
    def fingerprint(self) -> str:
        """A hash of identifiers, titles, texts and urls in order; of a part: of the whole's and its rows."""
        return part_fingerprint(self._whole, self._start, self._start + len(self), self._rows)

    @property
    def span(self) -> Span:
        """Where this corpus lies in the whole."""
        return Span(self._whole, self._start, self._start + len(self))

    def __len__(self) -> int:
        """Number of passages."""
        return len(self.passages)

    def __iter__(self) -> Iterator[Passage]:
        """All passages in row order."""
        return iter(self.passages)

    def get(self, ids: Sequence[str]) -> list[Passage]:
        """The passages with these identifiers, in this order.

        Raises:
            KeyError: An identifier is not in the corpus; the message names it.
        """
        for passage_id in ids:
            if passage_id not in self._row_of:
                example = self.passages[0].passage_id if self.passages else ""
                raise unknown_id(passage_id, len(self), example)
        return [self.passages[self._row_of[passage_id]] for passage_id in ids]

    def ids(self, rows: Sequence[int]) -> list[str]:
        """The passage identifiers of these rows (0-based), in this order.

        Raises:
            IndexError: A row is negative or beyond the last.
        """
        for row in rows:
            if not 0 <= row < len(self):
                raise IndexError(f"row {row}: this corpus has the rows 0 to {len(self) - 1}")
        return [self.passages[row].passage_id for row in rows]

    def part(self, i: int, n: int) -> Self:
        """Part ``i`` of ``n``: contiguous rows, cut at whole blocks; a part may be empty."""
        start, stop = part_rows(i, n, len(self), self.block_rows)
        part = type(self)(self.passages[start:stop], self.block_rows)
        part._whole, part._start, part._rows = self._whole, self._start + start, self._rows
        return part

    def for_question(self, question_id: str) -> Self:
        """This corpus: every question is searched in all of it."""
        return self

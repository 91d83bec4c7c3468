"""Asking a judge about the pairs of one or several runs, through the store, and no more than is needed.

Completely needed ranks are judged at once. Below them a perspective is judged until a passage supports it, in rounds
over all questions: each round takes the next ranks of every perspective that is still open, one rank while many are
open and more when few are, so that a judge always gets a batch worth its while. What a round judged too much of (a
perspective was covered above) goes to the store, but into no table: the labels of a run do not depend on the rounds.

Measured on Perspectrum (BM25, 222 questions, top 100, the qrels as the judge): 144,162 pairs, of which 41,146 are
needed rank by rank in 100 rounds; more figures stand in docs/judging.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corpora.types import Passage, Question, Run
from evaluator.depths import Depths
from evaluator.judgements import MISSING, Counts, JudgementStore, judgement_key, stream
from evaluator.judges.base import Judge
from evaluator.types import Pair

PAIRS_AT_ONCE = 8192
"""Pairs handed to a judge in one call: many enough to sort and batch, few enough to hold their texts."""
ROUND = 256
"""Pairs that a round of lazy judging takes at least, where there are many in all: a few batches of a large model."""
ROUND_LEAST = 16
ROUND_SHARE = 100
"""A round takes no more than this part (1/100) of what may be needed at most, so that small runs stay frugal."""
LEFT_OUT = -2
"""The status of a pair that nobody has asked for; the others are those of ``JudgementStore.lookup``."""

Texts: TypeAlias = Callable[[Sequence[str]], Sequence[Passage]]
"""The passages of these ids, in order."""


class Grid:
    """What is known of the pairs of one question's ranking, n ranks by m perspectives.

    Attributes:
        status: int8 (n, m): a number of ``STATUSES``, ``MISSING``, or ``LEFT_OUT``.
        probability: float64 (n, m), NaN unless the status is ok.
        keys: uint8 (n, m, 16), of the judgements; zeros where left out.
        stored: bool (n, m): the store had the judgement before anybody was asked.
        known: bool (n, m): the label was there before the store was asked.
        left_out: bool (n, m): it was not, although the labels were made this deep.
    """

    def __init__(self, question: Question, ids: Sequence[str], texts: Texts, depths: Depths, threshold: float) -> None:
        shape = (len(ids), len(question.perspectives))
        self.question, self.ids, self.texts, self.depths, self.threshold = question, ids, texts, depths, threshold
        self.status = np.full(shape, LEFT_OUT, np.int8)
        self.probability = np.full(shape, np.nan)
        self.keys = np.zeros((*shape, 16), np.uint8)
        self.stored, self.known, self.left_out = (np.zeros(shape, np.bool_) for _ in range(3))

    def wanted(self) -> NDArray[np.bool_]:
        """Bool (n, m): the pairs that are needed, as far as the known labels tell."""
        wanted: NDArray[np.bool_] = np.ones(self.status.shape, np.bool_)
        wanted[1:] = ~np.logical_or.accumulate(self.probability >= self.threshold, axis=0)[:-1]
        wanted[: self.depths.full] = True
        return wanted

    def missing(self) -> NDArray[np.bool_]:
        """Bool (n, m): the pairs that are needed and that nobody has asked for."""
        missing: NDArray[np.bool_] = self.wanted() & (self.status == LEFT_OUT)
        return missing


def grids(run: Run, questions: Sequence[Question], texts: Texts, depths: Depths, threshold: float) -> list[Grid]:
    """The empty grids of a run, one per question, in the order of the questions."""
    return [
        Grid(q, [hit.passage_id for hit in run.get(q.question_id, ())[: depths.reach]], texts, depths, threshold)
        for q in questions
    ]


_Row: TypeAlias = tuple[Grid, int, NDArray[np.intp]]
"""Some perspectives of one passage: the grid, the rank, the columns."""


@dataclass
class Asking:
    """A judge and its store; ``fill`` asks it about everything that grids need.

    Attributes:
        judge: Asked for what the store lacks.
        fingerprint: The judge's; with the rendered input it makes the key of a judgement.
        store: Where judgements are taken from and published to, while the judge goes on.
        stored_only: Ask nothing: what the store lacks stays ``MISSING``, and covers nothing.
        progress: Called with the number of pairs that have just been labelled.
        counts: What was judged and paid so far; ``needed`` and ``reused`` are left to those who know what they need.
    """

    judge: Judge
    fingerprint: str
    store: JudgementStore
    stored_only: bool = False
    progress: Callable[[int], object] = lambda pairs: None
    counts: Counts = field(default_factory=Counts)

    def fill(self, grids: Sequence[Grid]) -> None:
        """Looks up or judges what the grids need; pairs with the same passage go to the judge together."""
        self._ask([(grid, grid.missing() & _ranks(grid, grid.depths.full)) for grid in grids])
        open_ = [(grid, todo) for grid in grids if (todo := grid.missing()).any()]
        least = sum(int(todo.sum()) for _, todo in open_) // ROUND_SHARE
        least, ranks = min(ROUND, max(ROUND_LEAST, least)), 0
        while open_:
            n_open = sum(int(todo.any(axis=0).sum()) for _, todo in open_)
            # Looking up too much costs little, many rounds cost more.
            ranks = max(-(-least // n_open), 2 * ranks if self.stored_only else 0)
            self._ask([(grid, todo & (np.cumsum(todo, axis=0) <= ranks)) for grid, todo in open_])
            open_ = [(grid, todo) for grid, _ in open_ if (todo := grid.missing()).any()]

    def _ask(self, wanted: Sequence[tuple[Grid, NDArray[np.bool_]]]) -> None:
        by_passage: dict[str, list[_Row]] = {}
        for grid, mask in wanted:
            for rank in np.flatnonzero(mask.any(axis=1)).tolist():
                row = (grid, rank, np.flatnonzero(mask[rank]))
                by_passage.setdefault(grid.ids[rank], []).append(row)
        chunk: list[_Row] = []
        size = 0
        for rows in by_passage.values():
            for row in rows:
                chunk.append(row)
                size += len(row[2])
            if size >= PAIRS_AT_ONCE:
                self._ask_chunk(chunk)
                chunk, size = [], 0
        if chunk:
            self._ask_chunk(chunk)

    def _ask_chunk(self, rows: Sequence[_Row]) -> None:
        pairs = list(_pairs(rows))
        keys = _keys(self.judge, self.fingerprint, pairs)
        found, probability, status = self.store.lookup(keys)
        _write(rows, keys, found, found, probability, status)
        # What the store knows may cover a perspective: then nobody needs to be asked about the ranks below.
        chosen = ~found & _still_wanted(rows)
        missing = [] if self.stored_only else np.flatnonzero(chosen).tolist()
        self.progress(int(found.sum()) + int(chosen.sum()) * self.stored_only)
        asked = Counts()
        for _ in stream(self.judge, self.fingerprint, [pairs[i] for i in missing], self.store, asked):
            self.progress(1)
        self.counts.judged += asked.judged
        self.counts.cost_usd += asked.cost_usd
        if missing:  # what the store says, not what the judge said: another process may have judged the same
            self.store.refresh()
            _, probability, status = self.store.lookup(keys)
        _write(rows, keys, chosen, found, probability, status)


class Tally(NamedTuple):
    """Inputs of a judge, each counted once however many pairs share it.

    Attributes:
        needed: Those that the grids need.
        reused: Of these, those that the store had.
        missing: Of these, those that nobody has judged.
        ahead: Those that were judged, and turned out not to be needed.
    """

    needed: int
    reused: int
    missing: int
    ahead: int


def tally(grids: Sequence[Grid]) -> Tally:
    """Counts what was asked for in grids that have been filled; labels that were known before do not count."""

    def inputs(chosen: Callable[[Grid], NDArray[np.bool_]]) -> NDArray[np.bytes_]:
        found = [grid.keys[chosen(grid) & ~grid.known & (grid.status != LEFT_OUT)] for grid in grids]
        together = np.concatenate([np.zeros((0, 16), np.uint8), *found])
        return np.unique(np.ascontiguousarray(together).view("S16").ravel())

    needed = inputs(lambda grid: grid.wanted())
    missing = inputs(lambda grid: grid.wanted() & (grid.status == MISSING))
    judged = inputs(lambda grid: ~grid.stored & (grid.status != MISSING))
    ahead = len(np.setdiff1d(judged, needed))
    return Tally(len(needed), len(needed) - len(missing) - (len(judged) - ahead), len(missing), ahead)


def _write(
    rows: Sequence[_Row],
    keys: Sequence[bytes],
    chosen: NDArray[np.bool_],
    stored: NDArray[np.bool_],
    probability: NDArray[np.float64],
    status: NDArray[np.int8],
) -> None:
    """Puts the chosen ones of these pairs' labels into their grids."""
    if not chosen.any():
        return
    key_array, start = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 16), 0
    for grid, rank, columns in rows:
        part = np.flatnonzero(chosen[start : start + len(columns)]) + start
        at = columns[part - start]
        grid.status[rank, at], grid.probability[rank, at] = status[part], probability[part]
        grid.keys[rank, at], grid.stored[rank, at] = key_array[part], stored[part]
        start += len(columns)


def _still_wanted(rows: Sequence[_Row]) -> NDArray[np.bool_]:
    """Bool, one for each pair of these rows: whether it is needed, as far as the known labels tell."""
    lazy = {id(grid): grid for grid, rank, _ in rows if rank >= grid.depths.full}
    if not lazy:
        return np.ones(sum(len(columns) for _, _, columns in rows), np.bool_)
    wanted = {name: grid.wanted() for name, grid in lazy.items()}
    parts = [
        wanted[id(grid)][rank, columns] if rank >= grid.depths.full else np.ones(len(columns), np.bool_)
        for grid, rank, columns in rows
    ]
    return np.concatenate(parts)


def _ranks(grid: Grid, stop: int) -> NDArray[np.bool_]:
    return np.arange(len(grid.ids))[:, None] < stop


def _pairs(rows: Sequence[_Row]) -> Iterator[Pair]:
    """The pairs of these rows; the passages are fetched in one call for each source of texts."""
    sources = {id(grid.texts): grid.texts for grid, _, _ in rows}
    ids: dict[int, dict[str, None]] = {source: {} for source in sources}
    for grid, rank, _ in rows:
        ids[id(grid.texts)][grid.ids[rank]] = None
    found = {source: dict(zip(each, sources[source](list(each)), strict=True)) for source, each in ids.items()}
    for grid, rank, columns in rows:
        passage = found[id(grid.texts)][grid.ids[rank]]
        for column in columns.tolist():
            yield Pair(grid.question, grid.question.perspectives[column], passage)


def _keys(judge: Judge, fingerprint: str, pairs: Sequence[Pair]) -> list[bytes]:
    rendered = [judge.render(pair) for pair in pairs]
    strange = next((text for text in rendered if not isinstance(text, str)), None)
    if strange is not None:
        raise ValueError(f"judge {type(judge).__name__} renders a {type(strange).__name__}, expected a str")
    return [judgement_key(fingerprint, text) for text in rendered]

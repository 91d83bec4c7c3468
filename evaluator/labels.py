"""Labels: which passage of a run supports which perspective; from qrels, or from a judge and the store.

Both makers fill the same table (labels.parquet): a row per question, retrieved passage and perspective, in the order
of the questions, the ranks and the perspectives, down to some depth of the rankings. Metrics read the matrices that
``matrices`` makes of it; what lies deeper is unknown there.

A judge need not be asked about everything (evaluator/depths.py): below the rank to which a table is complete, the rows
of a perspective that a passage above supports have the status ``skipped``. Which rows these are depends on the labels
above alone, so the table is the same however the judging went on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpora.types import Qrels, Question, Run
from evaluator.depths import Depths, needed
from evaluator.judgements import MISSING, STATUSES, Counts, JudgementStore
from evaluator.judges.base import Judge
from evaluator.judging import LEFT_OUT, Asking, Grid, Texts, grids, tally
from evaluator.metric import Metric

SCHEMA = pa.schema(
    [
        ("question_id", pa.string()),
        ("perspective_id", pa.string()),
        ("passage_id", pa.string()),
        ("status", pa.string()),
        ("probability", pa.float64()),
        ("key", pa.binary(16)),
    ]
)
"""status: ``ok``, ``unparsed``, ``unjudged`` where nobody has judged, or ``skipped`` where nobody needed to;
probability null unless ok; key of the judgement in the store, null for gold labels and where skipped."""


def gold_labels(run: Run, questions: Sequence[Question], qrels: Qrels, depth: int) -> pa.Table:
    """The label table of a run's first ``depth`` ranks by its qrels, joined by ids.

    A passage with any line for the question was seen by an assessor: it supports the perspectives that a line with a
    relevance above 0 names, and no other. A passage without one is a hole: ``unjudged``, and unsupporting in metrics by
    TREC's custom.
    """
    table = _Builder()
    for question in questions:
        by_passage = _by_passage(qrels.get(question.question_id, {}))
        for hit in run.get(question.question_id, ())[:depth]:
            relevant = by_passage.get(hit.passage_id)
            for perspective in question.perspectives:
                label = None if relevant is None else float(perspective.perspective_id in relevant)
                status = "unjudged" if label is None else "ok"
                table.add(question.question_id, perspective.perspective_id, hit.passage_id, status, label, None)
    return table.build(Depths(depth, depth))


def gold_pools(questions: Sequence[Question], qrels: Qrels) -> dict[str, NDArray[np.int8]]:
    """question_id -> int8 (p, m): the labels of every passage that the qrels name for it, retrieved or not.

    Rows are in descending order of the passage id, which is how NIST's ndeval breaks the ties of its ideal ranking.
    """
    pools = {}
    for question in questions:
        by_passage = _by_passage(qrels.get(question.question_id, {}))
        rows = [
            [perspective.perspective_id in by_passage[passage_id] for perspective in question.perspectives]
            for passage_id in sorted(by_passage, reverse=True)
        ]
        pools[question.question_id] = np.array(rows, dtype=np.int8).reshape(len(rows), len(question.perspectives))
    return pools


def judged_labels(
    run: Run,
    questions: Sequence[Question],
    depths: Depths | int,
    texts: Texts,
    judge: Judge,
    fingerprint: str,
    store: JudgementStore,
    *,
    known: pa.Table | None = None,
    threshold: float = 0.5,
    stored_only: bool = False,
    progress: Callable[[int], object] = lambda pairs: None,
) -> tuple[pa.Table, Counts]:
    """The label table of a run by a judge; what the store has is not judged again.

    Args:
        run: question_id -> ranking.
        questions: In the order of the table.
        depths: Ranks that are labelled, completely or until each perspective is covered; a number: completely.
        texts: The passages of these ids, in order.
        judge: Asked for what the store lacks.
        fingerprint: The judge's; with the rendered input it makes the key of a judgement.
        store: Where judgements are taken from and published to, while the judge goes on.
        known: A table of this run that has less: its labels are kept as they are.
        threshold: A perspective is covered at this probability or above.
        stored_only: Ask nothing: what the store lacks stays ``unjudged``.
        progress: Called with the number of pairs that have just been labelled.

    Returns:
        The table, and how its new rows came about.

    Raises:
        ValueError: With ``stored_only``: the store lacks what was left out of ``known`` and is needed now. Such holes
            are no accident, they lie below supports, and would not be told from passages that nobody judged.
    """
    if isinstance(depths, int):
        depths = Depths(depths, depths)
    if known is not None:
        depths = depths | table_depths(known)
    own = grids(run, questions, texts, depths, threshold)
    if known is not None:
        _take(known, own, run)
    asking = Asking(judge, fingerprint, store, stored_only, progress)
    asking.fill(own)
    if lost := sum(int((grid.left_out & grid.wanted() & (grid.status == MISSING)).sum()) for grid in own):
        raise ValueError(
            f"{lost} labels that these metrics need were left out when this run was judged, and the store lacks them: "
            "judge the run with the same --metrics, without --stored-only, first"
        )
    table, counts = _Builder(), asking.counts
    for grid in own:
        new = grid.wanted() & ~grid.known
        counts.needed += int(new.sum())
        counts.reused += int((new & grid.stored).sum())
        table.add_grid(grid)
    counts.ahead = tally(own).ahead if counts.judged else 0
    return table.build(depths, threshold), counts


def table_depth(table: pa.Table) -> int:
    """Down to which rank a label table goes."""
    return table_depths(table).reach


def table_depths(table: pa.Table) -> Depths:
    """Down to which ranks a label table goes: completely, and until each perspective is covered."""
    reach = table.schema.metadata[b"depth"]
    return Depths(int(table.schema.metadata.get(b"full_depth", reach)), int(reach))


def table_threshold(table: pa.Table) -> float:
    """The highest threshold that a label table serves: that which said when a perspective is covered; else 1."""
    return float(table.schema.metadata.get(b"threshold", 1))


def check_metrics(table: pa.Table, metrics: Iterable[Metric], whole: int) -> None:
    """Raises ValueError where a metric would take labels that were left out for labels that are unknown.

    Args:
        table: The labels of a run.
        metrics: What is to be computed from them.
        whole: The depth of the rankings, for metrics without a cut-off.
    """
    depths = table_depths(table)
    deeper = [metric for metric in metrics if needed([metric], whole).full > depths.full]
    if depths.lazy and deeper and "skipped" in table["status"].unique().to_pylist():
        raise ValueError(
            f"{deeper[0]} needs labels that were left out: below rank {depths.full} this run was judged only until "
            f"each perspective was covered: judge it again with {deeper[0]} in --metrics"
        )


def matrices(
    table: pa.Table, run: Run, questions: Sequence[Question], threshold: float = 0.5
) -> dict[str, NDArray[np.int8]]:
    """question_id -> int8 (k, m) in {1, 0, -1 unknown}: does the passage at rank i support perspective j?

    Args:
        table: As made above for this run and these questions; ranks below its depth are unknown, and so is what was
            skipped.
        run: Gives k of each question.
        questions: In the table's order.
        threshold: A passage supports a perspective at this probability or above.

    Raises:
        ValueError: The table belongs to another run or to other questions; or perspectives that were covered at the
            threshold that it was judged for may not be so at this one.
    """
    judged_for = table_threshold(table)
    if threshold > judged_for:
        raise ValueError(
            f"threshold {threshold}: this run was judged until each perspective was covered at {judged_for}: judge it "
            "again with the higher threshold"
        )
    probability = table["probability"].to_numpy()
    labels = np.where(np.isnan(probability), -1, probability >= threshold).astype(np.int8)
    depth, result = table_depth(table), {}
    for question, rows in _sections(table, run, questions):
        matrix = np.full((len(run.get(question.question_id, ())), len(question.perspectives)), -1, np.int8)
        matrix[:depth] = labels[rows].reshape(-1, len(question.perspectives)) if question.perspectives else 0
        result[question.question_id] = matrix
    return result


_OTHER = "the labels were made for another run or for other questions: make them anew with --overwrite"


def _sections(table: pa.Table, run: Run, questions: Sequence[Question]) -> Iterator[tuple[Question, slice]]:
    """The rows of each question, in the order of the questions; refuses a table that was made for others."""
    ids = {name: table[name].to_numpy() for name in ("question_id", "perspective_id", "passage_id")}
    depth, start = table_depth(table), 0
    for question in questions:
        ranking, m = run.get(question.question_id, ()), len(question.perspectives)
        rows = slice(start, start := start + min(len(ranking), depth) * m)
        expected = (
            (ids["question_id"][rows][:: max(m, 1)], [question.question_id] * min(len(ranking), depth)),
            (ids["passage_id"][rows][:: max(m, 1)], [hit.passage_id for hit in ranking[:depth]]),
            (ids["perspective_id"][rows][:m], [p.perspective_id for p in question.perspectives if ranking]),
        )
        if m and any(found.tolist() != wanted for found, wanted in expected):
            raise ValueError(_OTHER)
        yield question, rows
    if start != len(table):
        raise ValueError(_OTHER)


class _Builder:
    """Columns of the label table, row by row."""

    def __init__(self) -> None:
        self.columns: tuple[list[object], ...] = tuple([] for _ in SCHEMA)

    def add(self, *row: object) -> None:
        for column, value in zip(self.columns, row, strict=True):
            column.append(value)

    def add_grid(self, grid: Grid) -> None:
        """A row for every pair of a grid, those that are not needed as skipped."""
        wanted = grid.wanted()
        names = np.where(wanted, grid.status, LEFT_OUT).ravel().tolist()
        keys, m = grid.keys.tobytes(), len(grid.question.perspectives)
        for i, (status, probability) in enumerate(zip(names, grid.probability.ravel().tolist(), strict=True)):
            self.add(
                grid.question.question_id,
                grid.question.perspectives[i % m].perspective_id,
                grid.ids[i // m],
                _NAMES[status],
                probability if _NAMES[status] == "ok" else None,
                None if status == LEFT_OUT else keys[16 * i : 16 * i + 16],
            )

    def build(self, depths: Depths, threshold: float = 1) -> pa.Table:
        """The table; one that may leave rows out says from where on, and for which threshold."""
        told = {"depth": str(depths.reach)}
        if depths.lazy:
            told |= {"full_depth": str(depths.full), "threshold": repr(threshold)}
        return pa.table(list(self.columns), schema=SCHEMA.with_metadata(told))


_NAMES = dict(enumerate(STATUSES)) | {MISSING: "unjudged", LEFT_OUT: "skipped"}


def _take(known: pa.Table, own: Sequence[Grid], run: Run) -> None:
    """Puts the labels of a table into grids, which may be deeper."""
    codes = {name: code for code, name in _NAMES.items()}
    status = np.array([codes[name] for name in known["status"].to_pylist()], np.int8)
    probability = known["probability"].to_numpy()
    keys = np.array([bytes(16) if key is None else key for key in known["key"].to_pylist()], "S16")
    key_array = np.frombuffer(keys.tobytes(), np.uint8).reshape(-1, 16)
    for grid, (question, rows) in zip(own, _sections(known, run, [grid.question for grid in own]), strict=True):
        m = len(question.perspectives)
        n = (rows.stop - rows.start) // m if m else 0
        grid.status[:n] = status[rows].reshape(n, m)
        grid.probability[:n] = probability[rows].reshape(n, m)
        grid.keys[:n] = key_array[rows].reshape(n, m, 16)
        grid.known[:n] = grid.status[:n] != LEFT_OUT
        grid.left_out[:n] = ~grid.known[:n]


def _by_passage(subtopics: Mapping[str, Mapping[str, int]]) -> dict[str, set[str]]:
    """passage_id -> the perspectives that it supports; empty where an assessor found none."""
    by_passage: dict[str, set[str]] = {}
    for perspective_id, passages in subtopics.items():
        for passage_id, relevance in passages.items():
            supported = by_passage.setdefault(passage_id, set())
            if relevance > 0:
                supported.add(perspective_id)
    return by_passage

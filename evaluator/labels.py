"""Labels: which passage of a run supports which perspective; from qrels, or from a judge and the store.

Both makers fill the same table (labels.parquet): a row per question, retrieved passage and perspective, in the order
of the questions, the ranks and the perspectives, down to some depth of the rankings. Metrics read the matrices that
``matrices`` makes of it; what lies deeper is unknown there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpora.types import Passage, Qrels, Question, Run
from evaluator.judgements import MISSING, STATUSES, Counts, JudgementStore, judgement_key, stream
from evaluator.judges.base import Judge
from evaluator.types import Pair

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
"""status: ``ok``, ``unparsed``, or ``unjudged`` where nobody has judged; probability null unless ok; key of the
judgement in the store, null for gold labels."""

PAIRS_AT_ONCE = 8192
"""Pairs handed to a judge in one call: many enough to sort and batch, few enough to hold their texts."""


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
    return table.build(depth)


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
    depth: int,
    texts: Callable[[Sequence[str]], Sequence[Passage]],
    judge: Judge,
    fingerprint: str,
    store: JudgementStore,
    *,
    known: pa.Table | None = None,
    stored_only: bool = False,
    progress: Callable[[int], object] = lambda pairs: None,
) -> tuple[pa.Table, Counts]:
    """The label table of a run's first ``depth`` ranks by a judge; what the store has is not judged again.

    Args:
        run: question_id -> ranking.
        questions: In the order of the table.
        depth: Ranks that are labelled.
        texts: The passages of these ids, in order.
        judge: Asked for what the store lacks.
        fingerprint: The judge's; with the rendered input it makes the key of a judgement.
        store: Where judgements are taken from and published to, while the judge goes on.
        known: The table of a smaller depth: its labels are kept as they are.
        stored_only: Ask nothing: what the store lacks stays ``unjudged``.
        progress: Called with the number of pairs that have just been labelled.
    """
    start = 0 if known is None else table_depth(known)
    added, counts = _Builder(), Counts()
    for pairs in _chunks(_pairs(run, questions, start, depth, texts)):
        keys = _keys(judge, fingerprint, pairs)
        found, probability, status = store.lookup(keys)
        counts.needed += len(pairs)
        counts.reused += int(found.sum())
        progress(int(found.sum()) if not stored_only else len(pairs))
        missing = [] if stored_only else np.flatnonzero(~found).tolist()
        asked = Counts()
        for _ in stream(judge, fingerprint, [pairs[i] for i in missing], store, asked):
            progress(1)
        if missing:  # what the store says, not what the judge said: another process may have judged the same
            store.refresh()
            _, probability, status = store.lookup(keys)
        counts.judged += asked.judged
        counts.cost_usd += asked.cost_usd
        for pair, key, code, value in zip(pairs, keys, status.tolist(), probability.tolist(), strict=True):
            added.add_pair(pair, key, "unjudged" if code == MISSING else STATUSES[code], value)
    table = added.build(depth)
    return (table if known is None else _interleaved(known, table, run, questions)), counts


def stored_pairs(
    run: Run,
    questions: Sequence[Question],
    depth: int,
    texts: Callable[[Sequence[str]], Sequence[Passage]],
    judge: Judge,
    fingerprint: str,
    store: JudgementStore,
) -> tuple[int, int]:
    """How many pairs the first ``depth`` ranks of a run have, and how many of these the store has judgements for."""
    needed = stored = 0
    for pairs in _chunks(_pairs(run, questions, 0, depth, texts)):
        needed += len(pairs)
        stored += int(store.lookup(_keys(judge, fingerprint, pairs))[0].sum())
    return needed, stored


def table_depth(table: pa.Table) -> int:
    """Down to which rank a label table goes."""
    return int(table.schema.metadata[b"depth"])


def matrices(
    table: pa.Table, run: Run, questions: Sequence[Question], threshold: float = 0.5
) -> dict[str, NDArray[np.int8]]:
    """question_id -> int8 (k, m) in {1, 0, -1 unknown}: does the passage at rank i support perspective j?

    Args:
        table: As made above for this run and these questions; ranks below its depth are unknown.
        run: Gives k of each question.
        questions: In the table's order.
        threshold: A passage supports a perspective at this probability or above.

    Raises:
        ValueError: The table belongs to another run or to other questions.
    """
    probability = table["probability"].to_numpy()
    labels = np.where(np.isnan(probability), -1, probability >= threshold).astype(np.int8)
    ids = {name: table[name].to_numpy() for name in ("question_id", "perspective_id", "passage_id")}
    depth, start, result = table_depth(table), 0, {}
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
        matrix = np.full((len(ranking), m), -1, np.int8)
        matrix[:depth] = labels[rows].reshape(-1, m) if m else 0
        result[question.question_id] = matrix
    if start != len(labels):
        raise ValueError(_OTHER)
    return result


_OTHER = "the labels were made for another run or for other questions: make them anew with --overwrite"


class _Builder:
    """Columns of the label table, row by row."""

    def __init__(self) -> None:
        self.columns: tuple[list[object], ...] = tuple([] for _ in SCHEMA)

    def add(self, *row: object) -> None:
        for column, value in zip(self.columns, row, strict=True):
            column.append(value)

    def add_pair(self, pair: Pair, key: bytes, status: str, probability: float) -> None:
        ids = (pair.question.question_id, pair.perspective.perspective_id, pair.passage.passage_id)
        self.add(*ids, status, probability if status == "ok" else None, key)

    def build(self, depth: int) -> pa.Table:
        return pa.table(list(self.columns), schema=SCHEMA.with_metadata({"depth": str(depth)}))


def _interleaved(known: pa.Table, added: pa.Table, run: Run, questions: Sequence[Question]) -> pa.Table:
    """The rows of both tables in the order of one: for each question the upper ranks, then the lower ones."""
    upper, depth = table_depth(known), table_depth(added)
    order, first, second = [], 0, len(known)
    for question in questions:
        k, m = len(run.get(question.question_id, ())), len(question.perspectives)
        order.append(np.arange(first, first := first + min(k, upper) * m))
        order.append(np.arange(second, second := second + max(0, min(k, depth) - upper) * m))
    both = pa.concat_tables([known.replace_schema_metadata(), added.replace_schema_metadata()])
    return both.take(np.concatenate(order)).replace_schema_metadata({"depth": str(depth)})


def _keys(judge: Judge, fingerprint: str, pairs: Sequence[Pair]) -> list[bytes]:
    rendered = [judge.render(pair) for pair in pairs]
    strange = next((text for text in rendered if not isinstance(text, str)), None)
    if strange is not None:
        raise ValueError(f"judge {type(judge).__name__} renders a {type(strange).__name__}, expected a str")
    return [judgement_key(fingerprint, text) for text in rendered]


def _by_passage(subtopics: Mapping[str, Mapping[str, int]]) -> dict[str, set[str]]:
    """passage_id -> the perspectives that it supports; empty where an assessor found none."""
    by_passage: dict[str, set[str]] = {}
    for perspective_id, passages in subtopics.items():
        for passage_id, relevance in passages.items():
            supported = by_passage.setdefault(passage_id, set())
            if relevance > 0:
                supported.add(perspective_id)
    return by_passage


def _pairs(
    run: Run,
    questions: Sequence[Question],
    start: int,
    stop: int,
    texts: Callable[[Sequence[str]], Sequence[Passage]],
) -> Iterator[Pair]:
    """The pairs of the ranks from ``start`` (0-based) to before ``stop``."""
    for question in questions:
        ranking = run.get(question.question_id, ())[start:stop]
        for passage in texts([hit.passage_id for hit in ranking]):
            for perspective in question.perspectives:
                yield Pair(question, perspective, passage)


def _chunks(pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    chunk: list[Pair] = []
    for pair in pairs:
        chunk.append(pair)
        if len(chunk) == PAIRS_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk

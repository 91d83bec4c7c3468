"""Labels: which passage of a run supports which perspective; from qrels, or from a judge and the store.

Both makers fill the same table (labels.parquet): a row per question, retrieved passage and perspective, in the order
of the questions, the ranks and the perspectives. Metrics read the matrices that ``matrices`` makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpora.types import Passage, Qrels, Question, Run
from evaluator.judgements import Counts, JudgementStore, judgement_key, stream
from evaluator.judges.base import Judge
from evaluator.types import Judgement, Pair

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


def gold_labels(run: Run, questions: Sequence[Question], qrels: Qrels) -> pa.Table:
    """The label table of a run by its qrels, joined by ids.

    A passage with any line for the question was seen by an assessor: it supports the perspectives that a line with a
    relevance above 0 names, and no other. A passage without one is a hole: ``unjudged``, and unsupporting in metrics by
    TREC's custom.
    """
    table = _Builder()
    for question in questions:
        by_passage = _by_passage(qrels.get(question.question_id, {}))
        for hit in run.get(question.question_id, ()):
            relevant = by_passage.get(hit.passage_id)
            for perspective in question.perspectives:
                label = None if relevant is None else float(perspective.perspective_id in relevant)
                status = "unjudged" if label is None else "ok"
                table.add(question.question_id, perspective.perspective_id, hit.passage_id, status, label, None)
    return table.build()


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
    texts: Callable[[Sequence[str]], Sequence[Passage]],
    judge: Judge,
    fingerprint: str,
    store: JudgementStore,
    *,
    stored_only: bool = False,
    progress: Callable[[int], object] = lambda pairs: None,
) -> tuple[pa.Table, Counts]:
    """The label table of a run by a judge; what the store has is not judged again.

    Args:
        run: question_id -> ranking.
        questions: In the order of the table.
        texts: The passages of these ids, in order.
        judge: Asked for what the store lacks.
        fingerprint: The judge's; with the rendered input it makes the key of a judgement.
        store: Where judgements are taken from and published to, while the judge goes on.
        stored_only: Ask nothing: what the store lacks stays ``unjudged``.
        progress: Called with the number of pairs that have just been labelled.
    """
    table, counts = _Builder(), Counts()
    for pairs in _chunks(_pairs(run, questions, texts)):
        rendered = [judge.render(pair) for pair in pairs]
        if not isinstance(rendered[0], str):
            raise ValueError(f"judge {type(judge).__name__} renders a {type(rendered[0]).__name__}, expected a str")
        keys = [judgement_key(fingerprint, text) for text in rendered]
        if stored_only:
            answers = store.get_many(keys)
            counts.needed += len(pairs)
            counts.reused += sum(answer is not None for answer in answers)
            progress(len(pairs))
        else:
            answers = [None] * len(pairs)
            for position, judgement in stream(judge, fingerprint, pairs, store, counts):
                answers[position] = judgement
                progress(1)
        for pair, key, answer in zip(pairs, keys, answers, strict=True):
            table.add_judgement(pair, key, answer)
    return table.build(), counts


def matrices(
    table: pa.Table, run: Run, questions: Sequence[Question], threshold: float = 0.5
) -> dict[str, NDArray[np.int8]]:
    """question_id -> int8 (k, m) in {1, 0, -1 unknown}: does the passage at rank i support perspective j?

    Args:
        table: As made above for this run and these questions.
        run: Gives k of each question.
        questions: In the table's order.
        threshold: A passage supports a perspective at this probability or above.

    Raises:
        ValueError: The table belongs to another run or to other questions.
    """
    expected = _Builder()
    for question in questions:
        for hit in run.get(question.question_id, ()):
            for perspective in question.perspectives:
                expected.add(question.question_id, perspective.perspective_id, hit.passage_id, "", None, None)
    ids = ["question_id", "perspective_id", "passage_id"]
    if not expected.build().select(ids).equals(table.select(ids)):
        raise ValueError("the labels were made for another run or for other questions: make them anew with --overwrite")
    probability = table["probability"].to_numpy()
    labels = np.where(np.isnan(probability), -1, probability >= threshold).astype(np.int8)
    result, start = {}, 0
    for question in questions:
        shape = len(run.get(question.question_id, ())), len(question.perspectives)
        result[question.question_id] = labels[start : start + shape[0] * shape[1]].reshape(shape)
        start += shape[0] * shape[1]
    return result


class _Builder:
    """Columns of the label table, row by row."""

    def __init__(self) -> None:
        self.columns: tuple[list[object], ...] = tuple([] for _ in SCHEMA)

    def add(self, *row: object) -> None:
        for column, value in zip(self.columns, row, strict=True):
            column.append(value)

    def add_judgement(self, pair: Pair, key: bytes, answer: Judgement | None) -> None:
        status = "unjudged" if answer is None else answer.status
        probability = None if answer is None else answer.probability
        ids = (pair.question.question_id, pair.perspective.perspective_id, pair.passage.passage_id)
        self.add(*ids, status, probability, key)

    def build(self) -> pa.Table:
        return pa.table(list(self.columns), schema=SCHEMA)


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
    run: Run, questions: Sequence[Question], texts: Callable[[Sequence[str]], Sequence[Passage]]
) -> Iterator[Pair]:
    for question in questions:
        ranking = run.get(question.question_id, ())
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

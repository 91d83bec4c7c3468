"""Gold labels in TREC's form with subtopics: read, check, write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from corpora.lines import InputError, decoded, raw_lines, shown, write_lines
from corpora.trec import check_column
from corpora.types import Qrels

_QRELS_COLUMNS = "4 columns (question subtopic passage relevance)"


def read_qrels(path: Path | str) -> Qrels:
    """Returns the labels of ``question subtopic passage relevance`` lines, gzip or not.

    TREC's ad-hoc qrels (``question 0 passage relevance``) have one subtopic, ``0``. A line may be repeated, but not
    with another relevance.
    """
    qrels: dict[str, dict[str, dict[str, int]]] = {}
    for line, (question_id, perspective_id, passage_id, relevance) in qrels_lines(path):
        labels = qrels.setdefault(question_id, {}).setdefault(perspective_id, {})
        if labels.setdefault(passage_id, relevance) != relevance:
            found = f"{question_id} {perspective_id} {passage_id} with relevance {relevance} after {labels[passage_id]}"
            raise InputError.at(path, line, found=found, expected="one relevance", do="remove one of the lines")
    if not qrels:
        raise InputError.at(path, None, found="no line", expected=_QRELS_COLUMNS, do="write the qrels again")
    return qrels


def qrels_lines(path: Path | str) -> Iterator[tuple[int, tuple[str, str, str, int]]]:
    """Yields (line number, (question, subtopic, passage, relevance)) of a qrels file."""
    for number, raw in raw_lines(path):
        parts = raw.split()
        if not parts or parts[0].startswith(b"#"):
            continue
        if len(parts) != 4:
            found = f"{len(parts)} columns in {shown(raw.strip())}"
            raise InputError.at(path, number, found=found, expected=_QRELS_COLUMNS, do="correct the line")
        question_id, perspective_id, passage_id = (decoded(path, number, part) for part in parts[:3])
        yield number, (question_id, perspective_id, passage_id, relevance_of(path, number, parts[3]))


def relevance_of(path: Path | str, number: int, column: bytes) -> int:
    """Returns a relevance column as an integer."""
    try:
        return int(column)
    except ValueError:
        found, do = f"relevance {shown(column)}", "write 0, 1, 2 ..."
        raise InputError.at(path, number, found=found, expected="a whole number", do=do) from None


def write_qrels(path: Path | str, qrels: Qrels) -> None:
    """Writes labels as ``question subtopic passage relevance`` lines (gzip by suffix)."""
    write_lines(path, _qrels_lines_of(qrels))


def _qrels_lines_of(qrels: Qrels) -> Iterator[str]:
    for question_id, perspectives in qrels.items():
        for perspective_id, labels in perspectives.items():
            for passage_id, relevance in labels.items():
                for what, value in (("question id", question_id), ("perspective id", perspective_id)):
                    check_column(what, value)
                check_column("passage id", passage_id)
                yield f"{question_id} {perspective_id} {passage_id} {relevance:d}"

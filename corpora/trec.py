"""TREC runs: read, check, write.

A run is ordered by score (descending), then by passage id (ascending); its rank column is checked, not used.
Columns are separated by ASCII white space, as trec_eval does it, so that ids may hold any other character.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TypeAlias

from corpora.ir_metadata import metadata_lines
from corpora.lines import InputError, decoded, raw_lines, shown, write_lines
from corpora.types import Hit, Passage, Question, Ranking, Run

_RUN_COLUMNS = "6 columns (question Q0 passage rank score tag)"
_HASH = ord("#")
_LARGEST = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]  # of float32
_LARGEST_KEY = 0x7F7FFFFF


_Row: TypeAlias = tuple[str, float, int, int]  # passage id, score, rank, line


@dataclass(frozen=True)
class RunFile:
    """What a run file holds.

    Attributes:
        run: The rankings, best first.
        passages: passage_id -> passage; empty for TREC runs, which carry no texts.
        questions: The questions found inside, in the order of the file; empty for TREC runs.
        has_ids: False where some passage ids are hashes of contents, so that they match no corpus and no qrels.
        tag: The run's name: the tag column, or the file's name.
    """

    run: Run
    passages: Mapping[str, Passage] = field(default_factory=dict)
    questions: tuple[Question, ...] = ()
    has_ids: bool = True
    tag: str = ""


class _Columns:
    """The lines of one question of a run, column by column."""

    __slots__ = ("lines", "passage_ids", "ranks", "scores")

    def __init__(self, rows: list[_Row]) -> None:
        self.passage_ids: list[str] = [row[0] for row in rows]
        self.scores: list[float] = [row[1] for row in rows]
        self.ranks: list[int] = [row[2] for row in rows]
        self.lines: list[int] = [row[3] for row in rows]


def read_trec_run(path: Path | str, questions: Sequence[Question] | None = None) -> RunFile:
    """Returns a TREC run, gzip or not; lines that start with ``#`` are skipped.

    Warns (once per file) where the rank column disagrees with the order of the scores.

    Args:
        path: The run.
        questions: Those of the task: the run must rank for at least one, and a warning counts the others.
    """
    groups, tag = _read_rows(path)
    run: dict[str, Ranking] = {}
    misplaced: list[int] = []
    for question in list(groups):
        rows = _Columns(groups.pop(question))  # frees the memory of each question once it is done
        question_id = decoded(path, rows.lines[0], question)
        if len(set(rows.passage_ids)) != len(rows.passage_ids):
            raise _repeated(path, question_id, rows)
        order = _order(rows)
        misplaced += _misplaced(rows, order)
        run[question_id] = tuple([Hit(rows.passage_ids[i], rows.scores[i]) for i in order])
    if misplaced:
        warnings.warn(
            f"{path}:{min(misplaced)}: found a rank column that disagrees with the scores in {len(misplaced)} lines, "
            "expected ranks by score descending, then passage id ascending: the scores are used",
            stacklevel=2,
        )
    if questions is not None:
        _check_known(path, run, questions)
    return RunFile(run, tag=tag)


def _read_rows(path: Path | str) -> tuple[dict[bytes, list[_Row]], str]:
    groups: dict[bytes, list[_Row]] = {}
    tag = b""
    for number, raw in raw_lines(path):
        parts = raw.split()
        if not parts or raw[0] == _HASH:
            continue
        try:
            question, _, passage, rank, score_text, tag_here = parts
            score = float(score_text)
            if score - score != 0.0 or b"_" in score_text:  # NaN and the infinities
                raise ValueError
            passage_id, rank_value = passage.decode(), int(rank)
        except ValueError:
            raise _bad_line(path, number, parts) from None
        rows = groups.get(question)
        if rows is None:
            rows = groups[question] = []
            tag = tag or tag_here
        rows.append((passage_id, score, rank_value, number))
    if not groups:
        raise InputError.at(path, None, found="no line", expected=_RUN_COLUMNS, do="write the run again")
    return groups, tag.decode(errors="replace")


def _bad_line(path: Path | str, number: int, parts: list[bytes]) -> InputError:
    """Returns the error for a line that could not be read."""
    if len(parts) != 6:
        found = f"{len(parts)} columns in {shown(b' '.join(parts))}"
        return InputError.at(path, number, found=found, expected=_RUN_COLUMNS, do="correct the line")
    try:
        parts[2].decode()
        int(parts[3])
    except UnicodeDecodeError:
        do = "save the file as UTF-8"
        return InputError.at(path, number, found=f"passage id {shown(parts[2])}", expected="UTF-8 text", do=do)
    except ValueError:
        do = "write 1, 2, 3 ... in column 4"
        return InputError.at(path, number, found=f"rank {shown(parts[3])}", expected="a whole number", do=do)
    do = "correct column 5"
    return InputError.at(path, number, found=f"score {shown(parts[4])}", expected="a finite number", do=do)


def _repeated(path: Path | str, question_id: str, rows: _Columns) -> InputError:
    seen: dict[str, int] = {}
    for passage_id, line in zip(rows.passage_ids, rows.lines, strict=True):
        if passage_id in seen:
            found = f"passage {shown(passage_id)} of question {shown(question_id)} again (first at line"
            found = f"{found} {seen[passage_id]})"
            return InputError.at(path, line, found=found, expected="each passage once", do="remove one of the lines")
        seen[passage_id] = line
    raise RuntimeError("no passage is repeated")


def _order(rows: _Columns) -> Sequence[int]:
    """Returns the positions by score descending, then passage id ascending."""
    scores, passage_ids = rows.scores, rows.passage_ids
    if all(a > b for a, b in pairwise(scores)):
        return range(len(scores))
    return sorted(range(len(scores)), key=lambda i: (-scores[i], passage_ids[i]))


def _misplaced(rows: _Columns, order: Sequence[int]) -> list[int]:
    """Returns the lines that stand elsewhere when ordered by rank; equal ranks say nothing about the order."""
    ranks = [rows.ranks[i] for i in order]
    if all(a <= b for a, b in pairwise(ranks)):
        return []
    by_rank = sorted(order, key=rows.ranks.__getitem__)
    return [rows.lines[a] for a, b in zip(order, by_rank, strict=True) if a != b]


def _check_known(path: Path | str, run: Run, questions: Sequence[Question]) -> None:
    known = {question.question_id for question in questions}
    unknown = [question_id for question_id in run if question_id not in known]
    if len(unknown) == len(run):
        found = f"question {shown(unknown[0])} and no question of the task"
        expected = f"ids such as {shown(questions[0].question_id if questions else None)}"
        raise InputError.at(path, None, found=found, expected=expected, do="give a run of this task")
    if unknown:
        warnings.warn(
            f"{path}: found {len(unknown)} questions that the task does not hold, for example {shown(unknown[0])}, "
            "expected the task's only: they are not scored",
            stacklevel=3,
        )


def decreasing(scores: Sequence[float]) -> list[float]:
    """Returns float32 values, strictly decreasing, as near to the scores as a run file allows.

    trec_eval keeps scores as float32 and breaks ties by id, so every step must survive that rounding. Works on the
    bit patterns: seen as integers they have the order of the numbers, and the next smaller float32 is the integer - 1.
    """
    if not all(score - score == 0.0 for score in scores):
        bad = next(score for score in scores if score - score != 0.0)
        raise ValueError(f"found the score {bad}, expected a finite number: correct what made the run")
    n = len(scores)
    packed = struct.pack(f"<{n}f", *(min(max(score, -_LARGEST), _LARGEST) for score in scores))
    keys = (bits if bits >= 0 else -(bits & 0x7FFFFFFF) for bits in struct.unpack(f"<{n}i", packed))
    lowered = accumulate((key + i for i, key in enumerate(keys)), min)
    # the lower end leaves one step for every passage that follows
    steps = [max(key - i, n - 1 - i - _LARGEST_KEY) for i, key in enumerate(lowered)]
    packed = struct.pack(f"<{n}I", *(key if key >= 0 else 0x80000000 | -key for key in steps))
    return list(struct.unpack(f"<{n}f", packed))


def write_run(path: Path | str, run: Run, tag: str, metadata: Mapping[str, object] | None = None) -> None:
    """Writes a TREC run (gzip by suffix), scores strictly decreasing also as float32: the position decides.

    Args:
        path: The run; questions without hits leave no line.
        run: Finite scores only.
        tag: The last column, without white space.
        metadata: Written beside the run as ``<run>.ir_metadata.yml``, by the names of ir_metadata (Breuer et al. 2022,
            https://www.ir-metadata.org): platform, research goal, implementation, resources, data, method, actor.
    """
    path = Path(path)
    check_column("tag", tag)
    for question_id in run:
        check_column("question id", question_id)
        if question_id[0] in "#{[\ufeff":
            raise ValueError(f"found the question id {question_id!r}, expected another first character: change it")
    write_lines(path, _run_lines(run, tag))
    if metadata is not None:
        write_lines(path.with_name(f"{path.name}.ir_metadata.yml"), metadata_lines({"tag": tag, **metadata}))


def _run_lines(run: Run, tag: str) -> Iterator[str]:
    for question_id, ranking in run.items():
        seen: set[str] = set()
        for rank, (hit, score) in enumerate(zip(ranking, decreasing([h.score for h in ranking]), strict=True), 1):
            check_column("passage id", hit.passage_id)
            if hit.passage_id in seen:
                raise ValueError(f"found {hit.passage_id!r} twice for {question_id!r}, expected each passage once: fix")
            seen.add(hit.passage_id)
            yield f"{question_id} Q0 {hit.passage_id} {rank} {score:.9g} {tag}"  # 9 digits tell all float32 apart


def check_column(what: str, value: str) -> None:
    """Raises if a value cannot be a column of a TREC file."""
    if value.split() != [value]:
        raise ValueError(f"found the {what} {value!r}, expected no white space and not empty: change it")

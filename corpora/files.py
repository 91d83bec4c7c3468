"""Every file form that the harness reads and writes, in one place: task folders, runs, and what they are made of.

A task folder holds ``questions.jsonl`` and optionally ``corpus.jsonl``, ``qrels.txt`` and ``task.json``; a BEIR folder
is one too. A run is TREC lines, BERDS JSONL or DPR's JSON. Every file may be gzip. Errors are ``InputError``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from corpora.beir import existing, read_beir, read_beir_qrels, write_beir
from corpora.berds import read_berds_run, read_dpr_run, write_berds, write_dpr
from corpora.lines import InputError, decoded, json_object, json_value, raw_lines, shown, to_json, write_lines
from corpora.qrels import qrels_lines, read_qrels, write_qrels
from corpora.records import (
    Record,
    passage_hash,
    read_passages,
    read_questions,
    write_passages,
    write_questions,
)
from corpora.trec import RunFile, read_trec_run, write_run
from corpora.types import Passage, Qrels, Question

__all__ = [
    "InputError",
    "RunFile",
    "TaskFiles",
    "passage_hash",
    "read_beir",
    "read_beir_qrels",
    "read_passages",
    "read_qrels",
    "read_questions",
    "read_run",
    "read_task_folder",
    "write_beir",
    "write_berds",
    "write_dpr",
    "write_passages",
    "write_qrels",
    "write_questions",
    "write_run",
    "write_task_folder",
]


@dataclass(frozen=True)
class TaskFiles:
    """What a task folder holds.

    Attributes:
        name: From task.json, else the folder's name.
        questions: In the order of the file.
        qrels: None where the folder has none.
        corpus_path: The corpus file; None where the folder has none.
        macro: Whether means are taken per group first.
        group: The field of the questions that holds the group; None where there is one group, ``all``.
    """

    name: str
    questions: tuple[Question, ...]
    qrels: Qrels | None = None
    corpus_path: Path | None = None
    macro: bool = False
    group: str | None = None


def read_run(path: Path | str, questions: Sequence[Question] | None = None) -> RunFile:
    """Returns a run, whatever its form: the content decides, not the name.

    TREC lines, BERDS JSONL and DPR's JSON list are known, gzip or not. In the two JSON forms a question's id is its
    ``question_id``, ``qid``, ``org_id`` or ``id``, and a passage's is its ``id``, ``docid`` or ``passage_id``, else a
    hash of title and text. Their lists are rankings; only where the scores disagree with the list do the scores decide,
    with a warning. A passage that comes again in a ranking is an error in TREC lines, and dropped with a warning in the
    others.

    Args:
        path: The run.
        questions: Those of the task. Records without an id of the task are then matched by text, if exactly one
            question has it. Without them, records without an id are numbered from 1.
    """
    for _, raw in raw_lines(path):
        start = raw.lstrip()[:1]
        if start == b"{":
            return read_berds_run(path, questions)
        if start == b"[":
            return read_dpr_run(path, questions)
        if start not in (b"", b"#"):
            break
    return read_trec_run(path, questions)


def read_task_folder(folder: Path | str) -> TaskFiles:
    """Returns a task from a folder in this project's form or in BEIR's; the qrels name known ids only."""
    folder = Path(folder)
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing there"
        raise InputError.at(folder, None, found=found, expected="a task folder", do="check the path")
    name, group, macro = _read_declaration(folder)
    corpus_path = existing(folder, "corpus.jsonl")
    questions_path = existing(folder, "questions.jsonl")
    if questions_path is None:
        if existing(folder, "queries.jsonl") is None:
            names = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"
            do = "name a folder with one of these"
            expected = "questions.jsonl or BEIR's queries.jsonl"
            raise InputError.at(folder, None, found=names, expected=expected, do=do)
        beir_questions, beir_qrels = read_beir(folder, group_field=group)
        return TaskFiles(name, tuple(beir_questions), beir_qrels, corpus_path, macro, group)
    questions = tuple(read_questions(questions_path, group))
    qrels_path = existing(folder, "qrels.txt")
    qrels = None
    if qrels_path is not None:
        qrels = read_qrels(qrels_path)
        _check_qrels(qrels_path, qrels, questions)
    return TaskFiles(name, questions, qrels, corpus_path, macro, group)


def _read_declaration(folder: Path) -> tuple[str, str | None, bool]:
    """Returns name, group field and macro of task.json, or what holds without that file."""
    path = folder / "task.json"
    name = folder.resolve().name
    if not path.exists():
        return name, None, False
    text = "".join([decoded(path, number, raw) + "\n" for number, raw in raw_lines(path)])
    record = Record(path, 1, json_object(path, 1, json_value(path, 1, text)))
    unknown = [field for field in record.fields if field not in ("name", "group", "macro")]
    if unknown:
        raise record.error(f"the field {shown(unknown[0])}", "name, group or macro", "correct or remove it")
    macro = record.fields.get("macro", False)
    if not isinstance(macro, bool):
        raise record.error(f"'macro' = {shown(macro)}", "true or false")
    if "name" in record.fields:
        name = record.text("name", blank=False)
    group = record.text("group", blank=False) if record.fields.get("group") is not None else None
    return name, group, macro


def _check_qrels(path: Path, qrels: Qrels, questions: Sequence[Question]) -> None:
    known = {q.question_id: {p.perspective_id for p in q.perspectives} for q in questions}
    if all(
        question_id in known and perspectives.keys() <= known[question_id]
        for question_id, perspectives in qrels.items()
    ):
        return
    for line, (question_id, perspective_id, _, _) in qrels_lines(path):
        if question_id not in known:
            found = f"question {shown(question_id)}"
        elif perspective_id not in known[question_id]:
            found = f"perspective {shown(perspective_id)} of question {shown(question_id)}"
        else:
            continue
        do = "add it to the questions or remove its labels"
        raise InputError.at(path, line, found=found, expected="ids of questions.jsonl", do=do)


def write_task_folder(
    folder: Path | str,
    questions: Sequence[Question],
    qrels: Qrels | None = None,
    passages: Iterable[Passage] | None = None,
    *,
    name: str | None = None,
    group: str | None = None,
    macro: bool = False,
) -> None:
    """Writes a task folder in this project's form; task.json only where it says something."""
    folder = Path(folder)
    write_questions(folder / "questions.jsonl", questions, group)
    if qrels is not None:
        write_qrels(folder / "qrels.txt", qrels)
    if passages is not None:
        write_passages(folder / "corpus.jsonl", passages)
    declared = {"name": name, "group": group, "macro": macro or None}
    record = {key: value for key, value in declared.items() if value is not None}
    if record:
        write_lines(folder / "task.json", [to_json(record)])

"""Tasks: sets of questions with known perspectives, and the qrels where there are some."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Protocol, runtime_checkable

import corpora
from corpora.files import TaskFiles, read_qrels, read_run, read_task_folder
from corpora.fingerprint import digest
from corpora.registry import Registry
from corpora.types import Perspective, Qrels, Question


@runtime_checkable
class Task(Protocol):
    """A question set.

    Optional attributes: ``corpus``, the name or path of the corpus that belongs to it; ``gold_families``: group ->
    family of the language model that wrote its gold perspectives (``gpt``), which tables compare with the expander's.

    A task plug-in is made from keyword arguments with defaults and reads nothing until an attribute is asked for.
    """

    @property
    def name(self) -> str:
        """Names the folder of the results."""
        ...

    @property
    def questions(self) -> tuple[Question, ...]:
        """All questions, of all splits; their order is kept everywhere."""
        ...

    @property
    def qrels(self) -> Qrels | None:
        """Gold labels, or None."""
        ...

    @property
    def macro(self) -> bool:
        """Whether the headline is the mean over groups (equal weights) and not over questions."""
        ...


TASKS: Registry[Task] = Registry(
    "tasks",
    {
        "arguana": "benchmarks.question_sets:Arguana",
        "berds": "benchmarks.question_sets:Berds",
        "demo": "benchmarks.tasks:Demo",
        "kialo": "benchmarks.question_sets:Kialo",
        "opinionqa": "benchmarks.question_sets:OpinionQA",
        "perspectrum": "benchmarks.perspectrum:Perspectrum",
    },
)


class Folder:
    """A collection on disk: questions.jsonl, corpus.jsonl, qrels.txt and task.json; or a folder in BEIR's form."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    @cached_property
    def _files(self) -> TaskFiles:
        return read_task_folder(self.path)

    @property
    def name(self) -> str:
        """From task.json, else the folder's name."""
        return self._files.name

    @property
    def questions(self) -> tuple[Question, ...]:
        """In the file's order."""
        return self._files.questions

    @property
    def qrels(self) -> Qrels | None:
        """None where the folder has none."""
        return self._files.qrels

    @property
    def macro(self) -> bool:
        """From task.json; False without it."""
        return self._files.macro

    @property
    def corpus(self) -> str | None:
        """The path of the folder's passages; None where it has none."""
        path = self._files.corpus_path
        return None if path is None else str(path)


class Demo(Folder):
    """The built-in collection (see corpora/demo/README.md)."""

    corpus = "demo"

    def __init__(self) -> None:
        super().__init__(Path(corpora.__file__).with_name("demo"))


class QrelsOnly:
    """Questions and perspectives as TREC subtopic qrels name them: enough to score a run, without any text."""

    macro = False

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    @cached_property
    def qrels(self) -> Qrels:
        """As read."""
        return read_qrels(self.path)

    @property
    def name(self) -> str:
        """The file's name without its endings."""
        return self.path.name.removesuffix(".gz").removesuffix(".txt")

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """In numeric order of the ids where they are numbers; the ids stand for the unknown texts."""
        return tuple(
            Question(
                question_id,
                question_id,
                tuple(
                    Perspective(perspective_id, perspective_id) for perspective_id in sorted(subtopics, key=_by_number)
                ),
            )
            for question_id, subtopics in sorted(self.qrels.items(), key=lambda item: _by_number(item[0]))
        )


class RunQuestions:
    """The questions and perspectives that a BERDS file carries: a judge needs no more to score it."""

    qrels = None
    macro = False

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    @property
    def name(self) -> str:
        """The file's name without its endings."""
        return self.path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json")

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """In the file's order; empty where it carries none (TREC runs)."""
        return read_run(self.path).questions


def task_fingerprint(task: Task) -> str:
    """A hash of everything that the task says: questions in order, perspectives, groups, splits, qrels, macro."""
    return digest(
        {
            "questions": [
                [
                    q.question_id,
                    q.text,
                    q.group,
                    q.split,
                    [[p.perspective_id, p.text, p.stance] for p in q.perspectives],
                ]
                for q in task.questions
            ],
            "qrels": None
            if task.qrels is None
            else {q: {p: dict(d) for p, d in s.items()} for q, s in task.qrels.items()},
            "macro": task.macro,
        }
    )


def _by_number(identifier: str) -> tuple[int, str]:
    number = identifier.isdecimal() and len(identifier) < 18
    return (int(identifier), identifier) if number else (1 << 62, identifier)

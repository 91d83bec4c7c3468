"""A small task whose numbers can be worked out by hand, and the command line called in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.run import main

# Words are chosen so that the word-overlap ranking is plain: see ``task``.
PASSAGES = {
    "a1": "cats are clean animals and cats sleep",
    "a2": "cats scratch sofas",
    "a3": "cats exist almost everywhere nowadays",
    "b1": "trains run on time trains trains",
    "b2": "trains are late",
    "c1": "nothing of interest stands here",
}
QUESTIONS = [
    {
        "question_id": "q1",
        "question": "cats",
        "split": "test",
        "set": "animals",
        "perspectives": [
            {"perspective_id": "q1.1", "text": "cats are good", "stance": "supporting"},
            {"perspective_id": "q1.2", "text": "cats are bad", "stance": "opposing"},
        ],
    },
    {
        "question_id": "q2",
        "question": "trains",
        "split": "test",
        "set": "travel",
        "perspectives": [
            {"perspective_id": "q2.1", "text": "trains punctual", "stance": None},
            {"perspective_id": "q2.2", "text": "trains comfortable", "stance": None},
        ],
    },
    {
        "question_id": "q3",
        "question": "cats trains",
        "split": "dev",
        "set": "travel",
        "perspectives": [{"perspective_id": "q3.1", "text": "anything", "stance": None}],
    },
]
QRELS = ["q1 q1.1 a1 1", "q1 q1.2 a2 1", "q1 q1.1 a3 0", "q2 q2.1 b1 1", "q2 q2.2 c1 1", "q3 q3.1 b1 1"]
# TREC: q1 ranks a1 a2 a3, q2 ranks b2 b1; b2 has no line in the qrels (a hole).
RUN = [
    "q1 Q0 a1 1 3.0 mine",
    "q1 Q0 a2 2 2.0 mine",
    "q1 Q0 a3 3 1.0 mine",
    "q2 Q0 b2 1 2.0 mine",
    "q2 Q0 b1 2 1.0 mine",
]


@dataclass
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def scores(self) -> dict:
        """Standard output as scores.json (with --json)."""
        return json.loads(self.out)

    def mean(self, metric: str, part: str = "scores") -> float:
        """The mean of a metric."""
        return self.scores[part][metric]["mean"]


def write_task(folder: Path, declaration: dict | None = None) -> Path:
    """Writes the task folder."""
    folder.mkdir(parents=True)
    (folder / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in QUESTIONS))
    (folder / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": i, "title": "", "text": text}) + "\n" for i, text in PASSAGES.items())
    )
    (folder / "qrels.txt").write_text("\n".join(QRELS) + "\n")
    if declaration is not None:
        (folder / "task.json").write_text(json.dumps(declaration))
    return folder


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """The task folder, with two groups."""
    return write_task(tmp_path / "mini", {"name": "mini", "group": "set", "macro": True})


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """The TREC run."""
    path = tmp_path / "mine.trec"
    path.write_text("\n".join(RUN) + "\n")
    return path


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Calls ``python -m benchmarks.run`` in this process, with a cache and results of the test's own."""

    def call(*arguments: object) -> Outcome:
        own = ["--cache", tmp_path / "cache", "--output", tmp_path / "results"]
        own = [each for i in (0, 2) if own[i] not in arguments for each in own[i : i + 2]]
        capsys.readouterr()
        code = main([str(argument) for argument in [*arguments, *own]])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call

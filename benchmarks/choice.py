"""What ``benchmarks.tune`` writes and ``--tuned`` takes: arguments of rerankers, and what they were chosen on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.config import RunConfig
from corpora.artefacts import write_atomic
from corpora.types import Question


@dataclass(frozen=True)
class Choice:
    """Arguments, and what they were chosen on.

    Attributes:
        reranker: The chain of rerankers.
        arguments: As ``--reranker-args`` takes them.
        task: The questions' task.
        split: Its split.
        metric: What decided.
        questions: Their ids.
    """

    reranker: tuple[str, ...]
    arguments: tuple[str, ...]
    task: str
    split: str
    metric: str
    questions: tuple[str, ...]

    def write(self, path: Path, curve: Sequence[Mapping[str, object]], config: Mapping[str, object]) -> None:
        """Writes the choice as JSON, with the curve and the configuration that it comes from; NaN becomes null."""
        points = [
            {key: None if isinstance(each, float) and math.isnan(each) else each for key, each in point.items()}
            for point in curve
        ]
        document = {**asdict(self), "curve": points, "config": config}
        write_atomic(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")

    def checked(self, config: RunConfig, task: str, questions: Sequence[Question]) -> dict[str, object]:
        """What stands of it in a result.

        Raises:
            ValueError: Other rerankers; or some of these questions are those that it was chosen on, and
                ``--tuned-anyway`` is not given.
        """
        if self.reranker != config.reranker:
            raise ValueError(
                f"--tuned {config.tuned} is for --reranker {' '.join(self.reranker)}, not {' '.join(config.reranker)}"
            )
        mine = {question.question_id for question in questions} if task == self.task else set()
        shared = len(mine & set(self.questions))
        if shared and not config.tuned_anyway:
            raise ValueError(
                f"--tuned {config.tuned} was chosen on {shared} of these {len(questions)} questions "
                f"(split {self.split}): evaluate on another --split, or give --tuned-anyway, which marks the result"
            )
        overlap = "none" if not shared else "all" if shared == len(questions) else f"{shared}"
        return {"task": self.task, "split": self.split, "metric": self.metric, "overlap": overlap}


def read_choice(path: str) -> Choice:
    """The choice of a file.

    Raises:
        ValueError: There is no such file, or it is none that ``benchmarks.tune`` wrote.
    """
    try:
        found = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
        lists = [tuple(map(str, found[name])) for name in ("reranker", "arguments", "questions")]
        task, split, metric = (str(found[name]) for name in ("task", "split", "metric"))
    except FileNotFoundError as error:
        raise ValueError(f"--tuned {path}: there is no such file") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"--tuned {path}: expected a file that benchmarks.tune wrote ({error})") from error
    return Choice(lists[0], lists[1], task, split, metric, lists[2])

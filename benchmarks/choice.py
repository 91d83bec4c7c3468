"""What ``benchmarks.tune`` writes and ``--tuned`` takes: arguments of rerankers, and what they were chosen on."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.config import RunConfig
from corpora.artefacts import write_atomic
from corpora.types import Qrels, Question


@dataclass(frozen=True)
class Choice:
    """Arguments, and what they were chosen on.

    Attributes:
        reranker: The chain of rerankers.
        arguments: Those of the grid, as ``--reranker-args`` takes them.
        task: The questions' task.
        split: Its split.
        metric: What decided.
        questions: Their ids.
        texts: Their texts, in the same order; none in files that were written before texts were kept.
        given: The other ``--reranker-args`` that they were chosen with.
    """

    reranker: tuple[str, ...]
    arguments: tuple[str, ...]
    task: str
    split: str
    metric: str
    questions: tuple[str, ...]
    texts: tuple[str, ...] = ()
    given: tuple[str, ...] = ()

    def write(self, path: Path, curve: Sequence[Mapping[str, object]], config: Mapping[str, object]) -> None:
        """Writes the choice as JSON, with the curve and the configuration that it comes from; NaN becomes null."""
        points = [
            {key: None if isinstance(each, float) and math.isnan(each) else each for key, each in point.items()}
            for point in curve
        ]
        document = {**asdict(self), "curve": points, "config": config}
        write_atomic(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")

    def completed(self, config: RunConfig) -> tuple[str, ...]:
        """All ``--reranker-args``: the run's, what was chosen, and what it was chosen with unless the run's differ.

        Raises:
            ValueError: It is for other rerankers, or the run's arguments include one that was chosen.
        """
        if self.reranker != config.reranker:
            raise ValueError(
                f"--tuned {config.tuned} is for --reranker {' '.join(self.reranker)}, not {' '.join(config.reranker)}"
            )
        given = config.reranker_args
        for item in given:
            for chosen in self.arguments:
                if _same_argument(item, chosen):
                    raise ValueError(
                        f"--reranker-args {item}: {item.partition('=')[0]} is given twice: --tuned {config.tuned} "
                        f"says {chosen}: leave one of them out"
                    )
        return (
            *given,
            *self.arguments,
            *(other for other in self.given if not any(_same_argument(other, item) for item in given)),
        )

    def checked(
        self,
        config: RunConfig,
        task: str,
        questions: Sequence[Question],
        known: Sequence[Question] = (),
        qrels: Qrels | None = None,
    ) -> dict[str, object]:
        """What stands of it in a result.

        Args:
            config: Of the run that is to use it.
            task: The name of that run's task.
            questions: Those that are evaluated.
            known: All questions of the task.
            qrels: Their supports.

        Raises:
            ValueError: Some of these questions are those that it was chosen on, and ``--tuned-anyway`` is not given.
        """
        own = self._own(known or questions, task)
        shared = sum(question.question_id in own for question in questions)
        if shared and not config.tuned_anyway:
            raise ValueError(
                f"--tuned {config.tuned} was chosen on {shared} of these {len(questions)} questions "
                f"(split {self.split}): evaluate on another --split, or give --tuned-anyway, which marks the result"
            )
        overlap = "none" if not shared else "all" if shared == len(questions) else f"{shared}"
        found: dict[str, object] = {"task": self.task, "split": self.split, "metric": self.metric, "overlap": overlap}
        others = [question for question in questions if question.question_id not in own]
        related = overlapping(others, [question for question in known if question.question_id in own], qrels)
        related |= {question.question_id for question in others if question.text in self.texts}
        if related:
            warnings.warn(
                f"--tuned {config.tuned} was chosen on questions that share a text or a supporting passage with "
                f"{len(related)} of these {len(questions)}: tune with --disjoint-from to leave them out",
                stacklevel=2,
            )
            found["related"] = len(related)
        return found

    def _own(self, questions: Sequence[Question], task: str) -> set[str]:
        """Ids of those it was chosen on: the same id in its own task, the same id and text in one of another name."""
        texts = dict(zip(self.questions, self.texts or [""] * len(self.questions), strict=True))
        return {
            question.question_id
            for question in questions
            if question.question_id in texts and (task == self.task or texts[question.question_id] == question.text)
        }


def overlapping(questions: Sequence[Question], others: Sequence[Question], qrels: Qrels | None) -> set[str]:
    """The ids of questions that share a text (their own or a perspective's) or a supporting passage with others."""
    theirs = set().union(*(_marks(question, qrels) for question in others))
    return {question.question_id for question in questions if _marks(question, qrels) & theirs}


def _marks(question: Question, qrels: Qrels | None) -> set[tuple[str, str]]:
    texts = {
        ("text", " ".join(text.lower().split())) for text in (question.text, *(p.text for p in question.perspectives))
    }
    links = (qrels or {}).get(question.question_id, {})
    return texts | {("passage", name) for found in links.values() for name, grade in found.items() if grade > 0}


def _same_argument(one: str, other: str) -> bool:
    """Whether two ``[name.]key=value`` are about one argument; without a name, it is that of any reranker."""
    (name, _, key), (name2, _, key2) = (item.partition("=")[0].rpartition(".") for item in (one, other))
    same = key.replace("-", "_").rstrip("_") == key2.replace("-", "_").rstrip("_")
    return same and (not name or not name2 or name == name2)


def read_choice(path: str) -> Choice:
    """The choice of a file.

    Raises:
        ValueError: There is no such file, or it is none that ``benchmarks.tune`` wrote.
    """
    try:
        found = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
        choice = Choice(
            reranker=_words(found["reranker"]),
            arguments=_words(found["arguments"]),
            task=str(found["task"]),
            split=str(found["split"]),
            metric=str(found["metric"]),
            questions=_words(found["questions"]),
            texts=_words(found.get("texts", [])),
            given=_words(found.get("given", [])),
        )
        if choice.texts and len(choice.texts) != len(choice.questions):
            raise ValueError("not as many texts as questions")
    except FileNotFoundError as error:
        raise ValueError(f"--tuned {path}: there is no such file") from error
    except OSError as error:
        raise ValueError(f"--tuned {path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"--tuned {path} is no choice of benchmarks.tune: make it anew") from error
    return choice


def _words(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {type(value).__name__}")
    return tuple(map(str, value))

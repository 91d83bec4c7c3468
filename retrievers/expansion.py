"""Query expansion: perspectives that somebody wrote become further queries of a question.

An expander gets the questions' queries and returns, for each, the queries that are searched in its place, or that
rerankers use as aspects (``--expand-for search|aspects|both``). It works with every retriever; ``--merge`` says how the
rankings of one question become one.

``File`` reads expansions that were written before, in the form of BERDS (Chen and Choi, 2024,
https://arxiv.org/abs/2409.18110): one JSON object per line, ``question_id`` (or ``org_id`` and ``org_q``) and ``text``:

    --expander file --expander-args path=kialo_query_exp.dev.jsonl

Their code searches for question and perspective together, their paper says the perspective alone: ``form``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

from corpora.lines import json_lines, shown
from corpora.records import Record
from corpora.types import Query

Form: TypeAlias = Literal["both", "perspective"]
"""What is searched for: question and perspective with a blank between them, or the perspective alone."""


@runtime_checkable
class Expander(Protocol):
    """Writes queries for queries.

    Optional attributes: those of retrievers (``version``, ``runtime_args``, ``fingerprint``), and ``family``: the
    family of the language model that wrote the expansions, which tables compare with that of the gold perspectives
    (where it is not given, the name of its ``model`` tells it, see ``lm.families``).
    """

    def expand(self, queries: Sequence[Query]) -> list[tuple[Query, ...]]:
        """For each query the queries in its place, with its question_id; never empty.

        What is made of a perspective has the origin ``expansion:<i>``; the query itself may be among them.
        """
        ...


def expanded(query: Query, texts: Sequence[str], form: Form, question: bool) -> tuple[Query, ...]:
    """The queries for the perspectives ``texts``; the query itself comes first if ``question``, or if no text is there.

    Blank perspectives and repetitions are left out.
    """
    kept = dict.fromkeys(text.strip() for text in texts if text.strip())
    made = tuple(
        Query(
            f"{query.query_id}::{i}",
            query.question_id,
            text if form == "perspective" else f"{query.text} {text}",
            f"expansion:{i}",
        )
        for i, text in enumerate(kept)
    )
    return (query, *made) if question or not made else made


def warn_of_empty(name: str, found: Sequence[tuple[Query, ...]]) -> None:
    """One line that counts the queries that nothing was written for."""
    empty = [each[0] for each in found if all(not query.origin.startswith("expansion:") for query in each)]
    if empty:
        warnings.warn(
            f"expander {name}: nothing for {len(empty)} of {len(found)} queries (such as {empty[0].query_id!r}): "
            "these are searched as they are",
            stacklevel=3,
        )


class File:
    """Expansions from files.

    Args:
        path: JSONL files (commas between several; ``.gz`` is unpacked), one perspective a line.
        form: What is searched for: ``both``, or ``perspective``.
        question: Whether the question itself is searched for as well; its ranking is merged with the others.
        family: The language model's family that wrote them, for example ``gpt``; None: unknown.

    Raises:
        ValueError: On use: no such file, a broken line, or a file about none of the questions.
    """

    version: ClassVar[int] = 1

    def __init__(
        self, path: tuple[Path, ...], form: Form = "both", question: bool = False, family: str | None = None
    ) -> None:
        self.path, self.form, self.question, self.family = path, form, question, family

    def expand(self, queries: Sequence[Query]) -> list[tuple[Query, ...]]:
        """The queries of the files, in their order."""
        matcher = _Matcher(queries)
        for path in self.path:
            if not Path(path).is_file():
                raise ValueError(f"expander file: path={path}: there is no such file")
            for line, fields in json_lines(path):
                matcher.add(Record(path, line, fields))
        names = ", ".join(map(str, self.path))
        if queries and not matcher.texts:
            raise ValueError(f"expander file: {names} has no line for any of {len(queries)} questions of this run")
        found = [expanded(each, matcher.texts.get(each.question_id, ()), self.form, self.question) for each in queries]
        warn_of_empty("file", found)
        return found


class _Matcher:
    """Collects perspectives by question: by id, else by a text that only one question has."""

    def __init__(self, queries: Sequence[Query]) -> None:
        self.texts: dict[str, list[str]] = {}
        self.questions: Mapping[str, str] = {query.question_id: query.text.strip() for query in queries}
        self.by_text: dict[str, list[str]] = {}
        for question_id, text in self.questions.items():
            self.by_text.setdefault(text, []).append(question_id)

    def add(self, record: Record) -> None:
        text = record.text("text", blank=False)
        question_id = self._question(record)
        if question_id is not None:
            self.texts.setdefault(question_id, []).append(text)

    def _question(self, record: Record) -> str | None:
        """The question of a record; None where it is none of this run's."""
        if "question_id" in record.fields:
            given = record.identifier("question_id", number=True)
            return given if given in self.questions else None
        number = record.identifier("org_id", number=True)
        same = self.by_text.get(record.text("org_q", blank=False).strip(), [])
        exact = [each for each in same if each == number or each.endswith(f"-{number}")]  # ours: arguana-750
        if len(exact) == 1:
            return exact[0]
        if len(same) > 1:
            found = f"org_id {shown(number)} and a text that {len(same)} questions have"
            raise record.error(found, "one question", "write the task's ids into question_id")
        return same[0] if same else None

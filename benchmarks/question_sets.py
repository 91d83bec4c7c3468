"""BERDS as a task: whole, and each of its three sets alone (Perspectrum: ``benchmarks/perspectrum.py``).

Chen and Choi, Open-World Evaluation for Retrieving Diverse Perspectives, 2024, https://arxiv.org/abs/2409.18110; data
sets ``timchen0618/Arguana``, ``Kialo`` and ``OpinionQA`` of the Hugging Face hub (MIT).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from corpora.assets import Asset, fetch
from corpora.lines import InputError, json_lines, shown
from corpora.records import Record
from corpora.types import Perspective, Question, Stance

SPLITS = ("test", "dev")
"""In the order of the authors' single files, which gives the questions their numbers."""
STANCES: tuple[Stance, Stance] = ("supporting", "opposing")


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """One of BERDS' sets as it is published.

    Attributes:
        group: Its name here, and the beginning of its questions' identifiers.
        dataset: Its data set on the hub.
        revision: The commit; None where it could not be established: then ``main``, and the checksums of the first
            download hold from then on (``corpora/assets.py``).
        stems: How its files' names may begin; those on the hub begin with the first.
        sizes: Questions of test and dev.
        binary: Whether every question has two perspectives, supporting and opposing.
        family: Of the language model that wrote the perspectives, where its card says so; None: unknown.
    """

    group: str
    dataset: str
    revision: str | None
    stems: tuple[str, ...]
    sizes: tuple[int, int]
    binary: bool
    family: str | None = None


ARGUANA = QuestionSet(
    "arguana",
    "timchen0618/Arguana",
    "93d9f1e73f09ff50552ce79c212d1c1d16ec655a",
    ("arguana", "arguana_generated"),
    (750, 250),
    True,
)
KIALO = QuestionSet("kialo", "timchen0618/Kialo", None, ("kialo",), (774, 258), False)
OPINIONQA = QuestionSet(
    "opinionqa",
    "timchen0618/OpinionQA",
    "518743b3515f6c1aea6ada1b21ea85f0d3c4fd66",
    ("opinionqa",),
    (882, 294),
    True,
    "gpt",  # its card: GPT-4 rewrote the survey's questions; perspectives were generated from the options
)


class Berds:
    """BERDS: 2,406 test and 802 dev questions in three groups; the headline is the mean over the groups.

    A question's identifier is its group and its number, ``arguana-750``: test questions are numbered from 0, dev
    questions follow. Where a question has two perspectives, the first supports and the second opposes.

    Args:
        path: A folder with the authors' files, of one split or of both; None: they are downloaded. Per set, one of:
            ``arguana.test.jsonl`` and ``arguana.dev.jsonl`` as on the hub, ``arguana.jsonl`` with the test questions
            first, or ``arguana_generated_query_exp.dev.jsonl``, where every line is one query made for a question.

    Raises:
        InputError: On first use: a file that is missing, of another size, or inconsistent (file and line named).
    """

    version: ClassVar[int] = 1
    name: ClassVar[str] = "berds"
    macro: ClassVar[bool] = True
    qrels: ClassVar[None] = None
    sets: ClassVar[tuple[QuestionSet, ...]] = (ARGUANA, KIALO, OPINIONQA)

    def __init__(self, path: Path | None = None) -> None:
        self.path = path

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """Set after set, in the order of their numbers."""
        read = _from_hub if self.path is None else _from_folder(Path(self.path))
        return tuple(question for each in self.sets for question in read(each))

    @property
    def gold_families(self) -> dict[str, str]:
        """Group -> family of the model that wrote its gold perspectives, where that is documented."""
        return {each.group: each.family for each in self.sets if each.family is not None}


class Arguana(Berds):
    """The debate questions of BERDS: 750 test and 250 dev questions, made from Arguana's debates."""

    name: ClassVar[str] = "arguana"
    sets: ClassVar[tuple[QuestionSet, ...]] = (ARGUANA,)


class Kialo(Berds):
    """The questions of BERDS from Kialo: 774 test and 258 dev questions, most of them with two perspectives."""

    name: ClassVar[str] = "kialo"
    sets: ClassVar[tuple[QuestionSet, ...]] = (KIALO,)


class OpinionQA(Berds):
    """The survey questions of BERDS: 882 test and 294 dev questions."""

    name: ClassVar[str] = "opinionqa"
    sets: ClassVar[tuple[QuestionSet, ...]] = (OPINIONQA,)


def hub_asset(each: QuestionSet, split: str) -> Asset:
    """The file of a split on the hub (``$HF_ENDPOINT``, where it is set, is a mirror of the hub)."""
    file, revision = f"{each.stems[0]}.{split}.jsonl", each.revision or "main"
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    url = f"{endpoint.rstrip('/')}/datasets/{each.dataset}/resolve/{revision}/{file}"
    return Asset(f"berds/{revision}/{file}", (url,), source=f"huggingface.co/datasets/{each.dataset}", licence="MIT")


def _from_hub(each: QuestionSet) -> Iterator[Question]:
    for split in SPLITS:
        yield from _numbered(each, split, fetch(hub_asset(each, split)))


def _from_folder(folder: Path) -> Callable[[QuestionSet], Iterator[Question]]:
    if not folder.is_dir():
        raise InputError(f"question sets: there is no folder {folder}")

    def read(each: QuestionSet) -> Iterator[Question]:
        whole = _first(folder / f"{stem}.jsonl" for stem in each.stems)
        found = 0
        for split in SPLITS:
            plain = _first(folder / f"{stem}.{name}.jsonl" for stem in each.stems for name in _names(split))
            expanded = _first(
                folder / f"{stem}_query_exp.{name}.jsonl" for stem in each.stems for name in _names(split)
            )
            if chosen := plain or whole:
                found += 1
                yield from _numbered(each, split, chosen, within=plain is None)
            elif expanded:
                found += 1
                yield from _collected(each, split, expanded)
        if not found:
            stem = each.stems[0]
            names = f"{stem}.test.jsonl, {stem}.dev.jsonl, {stem}.jsonl or {each.stems[-1]}_query_exp.dev.jsonl"
            raise InputError(f"{folder}: no questions of {each.group}: expected {names}")

    return read


def _names(split: str) -> tuple[str, ...]:
    return (split, "validation") if split == "dev" else (split,)


def _first(paths: Iterable[Path]) -> Path | None:
    return next((path for path in paths if path.is_file()), None)


def _span(each: QuestionSet, split: str) -> range:
    """The numbers of a split's questions."""
    test, dev = each.sizes
    return range(test) if split == "test" else range(test, test + dev)


def _numbered(each: QuestionSet, split: str, path: Path, *, within: bool = False) -> Iterator[Question]:
    """The questions of a file with one per line; ``within`` a file of both splits, those of one."""
    numbers = _span(each, split)
    records = [Record(path, line, fields) for line, fields in json_lines(path)]
    expected = sum(each.sizes) if within else len(numbers)
    if len(records) != expected:
        raise InputError(f"{path}: found {len(records)} questions, expected {expected}: is it another edition?")
    for number, record in zip(numbers, records[numbers.start : numbers.stop] if within else records, strict=True):
        yield _question(each, split, number, record, record.text("question", blank=False))


def _collected(each: QuestionSet, split: str, path: Path) -> Iterator[Question]:
    """The questions of a file with one line per query that was made for a question."""
    first: dict[int, Record] = {}
    numbers = _span(each, split)
    for line, fields in json_lines(path):
        record = Record(path, line, fields)
        written = record.identifier("org_id", number=True)
        number = int(written) if written.isdecimal() else -1
        if number not in numbers:
            expected = f"a number from {numbers.start} to {numbers.stop - 1}"
            raise record.error(f"org_id = {shown(written)}", expected, f"is it a file of {each.group}'s {split} split?")
        known = first.setdefault(number, record)
        for name in ("org_q", "perspectives"):
            if fields.get(name) != known.fields.get(name):
                found = f"another {name} of question {written} than at line {known.line}"
                raise record.error(found, "the same question and perspectives on all its lines")
    if missing := sorted(set(numbers) - first.keys()):
        found = f"{len(first)} questions (there is none with org_id {missing[0]})"
        raise InputError(f"{path}: found {found}, expected {len(numbers)}: is the file whole?")
    for number in numbers:
        yield _question(each, split, number, first[number], first[number].text("org_q", blank=False))


def _question(each: QuestionSet, split: str, number: int, record: Record, text: str) -> Question:
    values = record.parts("perspectives")
    texts = [
        Record(record.path, record.line, {f"perspectives[{i}]": value}).text(f"perspectives[{i}]", blank=False)
        for i, value in enumerate(values)
    ]
    if len(texts) < 2 or (each.binary and len(texts) != 2):
        expected = "two (supporting, opposing)" if each.binary else "at least two"
        raise record.error(f"{len(texts)} perspectives", expected)
    stances: tuple[Stance | None, ...] = STANCES if len(texts) == 2 else (None,) * len(texts)
    perspectives = tuple(
        Perspective(str(i), text, stance) for i, (text, stance) in enumerate(zip(texts, stances, strict=True))
    )
    return Question(f"{each.group}-{number}", text, perspectives, each.group, split)

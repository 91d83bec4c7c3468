"""Questions and passages as JSONL: read, check, write."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from corpora.lines import InputError, json_lines, shown, to_json, write_lines
from corpora.types import Passage, Perspective, Question

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON object and where it stands; its methods take fields out of it and check them."""

    path: Path | str
    line: int
    fields: Mapping[str, object]
    part: str = ""

    def error(self, found: str, expected: str, do: str = "correct this record") -> InputError:
        """Returns an error that names this record's file and line."""
        return InputError.at(self.path, self.line, found=found, expected=expected, do=do)

    def text(self, name: str, *, optional: bool = False, blank: bool = True) -> str:
        """Returns a string field; "" where it is optional and missing or null."""
        value = self.fields.get(name, _MISSING)
        if optional and (value is _MISSING or value is None):
            return ""
        if value is _MISSING:
            raise self.error(f"no field {self._name(name)} (fields: {', '.join(self.fields) or 'none'})", "a string")
        if not isinstance(value, str):
            raise self.error(f"{self._name(name)} = {shown(value)}", f"a string, not {type(value).__name__}")
        if not blank and not value.strip():
            raise self.error(f"{self._name(name)} = {shown(value)}", "a text that is not empty")
        if not value.isascii():
            self._check_unicode(name, value)
        return value

    def identifier(self, name: str, *, number: bool = False) -> str:
        """Returns an identifier: a string without white space (or, if ``number``, an integer as a string)."""
        value = self.fields.get(name, _MISSING)
        if number and isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        text = self.text(name)
        if text.split() != [text]:
            do = "change it: TREC files are separated by white space"
            raise self.error(f"{self._name(name)} = {shown(text)}", "an id without white space, not empty", do)
        return text

    def parts(self, name: str) -> list[object]:
        """Returns a list field."""
        value = self.fields.get(name, _MISSING)
        if isinstance(value, list):
            return value
        found = f"no field {self._name(name)}" if value is _MISSING else f"{self._name(name)} = {shown(value)}"
        raise self.error(found, "a list")

    def inner(self, value: object, part: str) -> Record:
        """Returns the record of an object inside this one, for example ``perspectives[2]``."""
        if not isinstance(value, dict):
            raise self.error(f"{part} = {shown(value)}", "a JSON object")
        return Record(self.path, self.line, value, part)

    def _name(self, name: str) -> str:
        return repr(f"{self.part}.{name}" if self.part else name)

    def _check_unicode(self, name: str, value: str) -> None:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            found = f"{self._name(name)} with the lone surrogate {value[error.start]!r}"
            raise self.error(found, "Unicode text", "remove or replace the character") from None


def perspective_of(record: Record) -> Perspective:
    """Returns the perspective of ``{"perspective_id", "text", "stance"}``; the stance may be missing or null."""
    stance = record.fields.get("stance")
    if stance not in ("supporting", "opposing", None):
        raise record.error(f"stance = {shown(stance)}", "'supporting', 'opposing' or null")
    return Perspective(record.identifier("perspective_id"), record.text("text", blank=False), stance)


def check_perspectives(record: Record, perspectives: Iterable[Perspective]) -> None:
    """Raises if two perspectives of a question share an id."""
    seen: set[str] = set()
    for perspective in perspectives:
        if perspective.perspective_id in seen:
            found = f"perspective_id {shown(perspective.perspective_id)} twice"
            raise record.error(found, "ids unique inside a question")
        seen.add(perspective.perspective_id)


def read_questions(path: Path | str, group_field: str | None = None) -> list[Question]:
    """Returns the questions of a ``questions.jsonl`` file, checked, in the order of the file.

    Args:
        path: The file, gzip or not: ``question_id``, ``question``, ``perspectives`` (``perspective_id``, ``text``,
            optional ``stance``) and an optional ``split``.
        group_field: The field that holds a question's group; without it every group is ``all``.
    """
    questions: list[Question] = []
    first: dict[str, int] = {}
    for line, fields in json_lines(path):
        record = Record(path, line, fields)
        question_id = record.identifier("question_id")
        check_new(record, "question_id", question_id, first)
        perspectives = tuple(
            perspective_of(record.inner(value, f"perspectives[{i}]"))
            for i, value in enumerate(record.parts("perspectives"))
        )
        check_perspectives(record, perspectives)
        group = record.text(group_field, blank=False) if group_field else "all"
        split = record.text("split", optional=True) or None
        questions.append(Question(question_id, record.text("question", blank=False), perspectives, group, split))
    return questions


def check_new(record: Record, name: str, identifier: str, first: dict[str, int]) -> None:
    """Raises if an id was seen before, else notes its line in ``first``."""
    if identifier in first:
        found = f"{name} {shown(identifier)} again (first at line {first[identifier]})"
        raise record.error(found, "unique ids", "remove one of the two or give it another id")
    first[identifier] = record.line


def write_questions(path: Path | str, questions: Iterable[Question], group_field: str | None = None) -> None:
    """Writes questions so that ``read_questions(path, group_field)`` returns them; without a field groups are lost."""
    if group_field in ("question_id", "question", "perspectives"):
        raise ValueError(f"found group_field = {group_field!r}, expected a field of its own: choose another name")
    write_lines(path, (to_json(_question_record(question, group_field)) for question in questions))


def _question_record(question: Question, group_field: str | None) -> dict[str, object]:
    record: dict[str, object] = {"question_id": question.question_id, "question": question.text}
    if question.split is not None:
        record["split"] = question.split
    if group_field is not None:
        record[group_field] = question.group
    record["perspectives"] = [
        {"perspective_id": perspective.perspective_id, "text": perspective.text, "stance": perspective.stance}
        for perspective in question.perspectives
    ]
    return record


def read_passages(path: Path | str) -> Iterator[Passage]:
    """Yields the passages of a ``corpus.jsonl`` file in BEIR's form, checked one by one.

    A passage may be empty (public collections hold such). Repeated ids are found by the store, which sees them all.

    Args:
        path: The file, gzip or not: ``_id``, ``text``, optional ``title``, and ``url`` or ``metadata.url``.
    """
    for line, fields in json_lines(path):
        record = Record(path, line, fields)
        url = record.text("url", optional=True)
        metadata = fields.get("metadata")
        if not url and metadata:
            url = record.inner(metadata, "metadata").text("url", optional=True)
        yield Passage(record.identifier("_id"), record.text("text"), record.text("title", optional=True), url)


def write_passages(path: Path | str, passages: Iterable[Passage]) -> None:
    """Writes passages as ``corpus.jsonl`` in BEIR's form; a url goes into ``url``."""
    write_lines(path, (to_json(_passage_record(passage)) for passage in passages))


def _passage_record(passage: Passage) -> dict[str, str]:
    record = {"_id": passage.passage_id, "title": passage.title, "text": passage.text}
    return {**record, "url": passage.url} if passage.url else record


def passage_hash(passage: Passage) -> str:
    """Returns an id made of title and text (ends stripped), for files that carry no passage ids."""
    content = f"{passage.title.strip()}\0{passage.text.strip()}".encode()
    return f"blake2b:{hashlib.blake2b(content, digest_size=12).hexdigest()}"

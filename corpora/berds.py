"""Rankings with texts inside: BERDS JSONL (one question per line) and DPR's JSON (one list of questions).

BERDS: ``question``, ``perspectives``, ``ctxs`` (``title``, ``text``, ``score``), see
https://github.com/timchen0618/berds; DPR: ``question``, ``answers``, ``ctxs`` (``id``, ``title``, ``text``, ``score``),
see https://github.com/facebookresearch/DPR. Both are read by the same rules: ids are taken where there are any.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from corpora.lines import InputError, decoded, json_lines, json_object, published, raw_lines, shown, to_json
from corpora.records import Record, check_perspectives, passage_hash, perspective_of
from corpora.trec import RunFile, decreasing
from corpora.types import Hit, Passage, Perspective, Question, Ranking, Run

_QUESTION_IDS = ("question_id", "qid", "org_id", "id")
_PASSAGE_IDS = ("id", "docid", "passage_id")
_REWRITE = "correct the file or write it again"


def read_berds_run(path: Path | str, questions: Sequence[Question] | None = None) -> RunFile:
    """Returns the rankings, passages and questions of a BERDS JSONL file, gzip or not (see ``read_run``)."""
    return _read(path, json_lines(path), questions)


def read_dpr_run(path: Path | str, questions: Sequence[Question] | None = None) -> RunFile:
    """Returns the rankings, passages and questions of a DPR retrieval file, gzip or not (see ``read_run``)."""
    return _read(path, _list_items(path), questions)


def _list_items(path: Path | str) -> Iterator[tuple[int, dict[str, object]]]:
    """Yields (line where it starts, object) for the items of one JSON list."""
    text = "".join([decoded(path, number, raw) + "\n" for number, raw in raw_lines(path)])
    decoder = json.JSONDecoder()
    here, mark = _skip(text, 0), "["
    line, counted = 1, 0
    while True:
        line, counted = line + text.count("\n", counted, here), here
        if text[here : here + 1] != mark:
            found = shown(text[here : here + 20]) if text[here:] else "the end of the file"
            raise InputError.at(path, line, found=found, expected=repr(mark), do=_REWRITE)
        here = _skip(text, here + 1)
        line, counted = line + text.count("\n", counted, here), here
        try:
            value, here = decoder.raw_decode(text, here)
        except (ValueError, RecursionError) as error:
            at = error.pos if isinstance(error, json.JSONDecodeError) else here
            line += text.count("\n", here, at)
            found = f"{shown(text[max(0, at - 20) : at + 20])} ({str(error).split(': line')[0]})"
            raise InputError.at(path, line, found=found, expected="a list of JSON objects", do=_REWRITE) from None
        yield line, json_object(path, line, value)
        here = _skip(text, here)
        if text[here : here + 1] == "]":
            break
        mark = ","
    rest = _skip(text, here + 1)
    if rest < len(text):
        line, found = text.count("\n", 0, rest) + 1, shown(text[rest : rest + 20])
        raise InputError.at(path, line, found=found, expected="nothing after the list", do=_REWRITE)


def _skip(text: str, position: int) -> int:
    """Returns the position of the next character that is not white space."""
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


@dataclass
class _Reading:
    """What is known while a file is read."""

    passages: dict[str, Passage] = field(default_factory=dict)
    passage_lines: dict[str, int] = field(default_factory=dict)
    has_ids: bool = True
    repeated: list[int] = field(default_factory=list)
    reordered: list[int] = field(default_factory=list)


def _read(
    path: Path | str, objects: Iterator[tuple[int, dict[str, object]]], task: Sequence[Question] | None
) -> RunFile:
    reading = _Reading()
    matcher = None if task is None else _Matcher(task)
    run: dict[str, Ranking] = {}
    lines: dict[str, int] = {}
    questions: list[Question] = []
    for number, (line, fields) in enumerate(objects, 1):
        record = Record(path, line, fields)
        question = _question(record, number, matcher)
        question_id = question.question_id
        if question_id in run:
            found = f"question {shown(question_id)} again (first at line {lines[question_id]})"
            do = "merge the lists of its queries, or give every question its own question_id"
            raise record.error(found, "one ranking per question", do)
        lines[question_id] = line
        questions.append(question)
        run[question_id] = _ranking(record, reading)
    _warn(path, reading)
    tag = Path(path).name.removesuffix(".gz").rsplit(".", 1)[0]
    return RunFile(run, reading.passages, tuple(questions), reading.has_ids, tag)


def _warn(path: Path | str, reading: _Reading) -> None:
    if reading.repeated:
        warnings.warn(
            f"{path}:{reading.repeated[0]}: found {len(reading.repeated)} passages again in the same ranking, "
            "expected each once: the first of each is kept",
            stacklevel=5,
        )
    if reading.reordered:
        warnings.warn(
            f"{path}:{reading.reordered[0]}: found scores that disagree with the order of the list in "
            f"{len(reading.reordered)} rankings, expected higher scores first: the scores are used (where they are "
            "distances, write them with a minus, or leave them out to keep the order)",
            stacklevel=5,
        )


class _Matcher:
    """Finds the task's question of a record: by id, else by text."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self.texts = {question.question_id: question.text.strip() for question in questions}
        self.by_text: dict[str, list[str]] = {}
        for question_id, text in self.texts.items():
            self.by_text.setdefault(text, []).append(question_id)

    def match(self, record: Record, found_id: str | None, text: str) -> str:
        same = self.by_text.get(text.strip(), [])
        if found_id in self.texts:
            if same and found_id not in same:
                found = f"id {shown(found_id)} with the text of question {shown(same[0])}"
                raise record.error(found, "ids of the task", "write the task's ids into question_id")
            return str(found_id)
        if len(same) == 1:
            return same[0]
        found = f"id {shown(found_id)}" if found_id is not None else "no id"
        found = f"{found} and the text {shown(text)}, which {len(same) or 'no'} questions of the task have"
        raise record.error(found, "an id or a text of exactly one question", "write the task's ids into question_id")


def _question(record: Record, number: int, matcher: _Matcher | None) -> Question:
    """Returns the question of a record; with ``org_id`` the record is one query made for a question (``org_q``)."""
    fields = record.fields
    text = record.text("question", blank=False)
    id_field = next((name for name in _QUESTION_IDS if fields.get(name) is not None), None)
    found_id = record.identifier(id_field, number=True) if id_field else None
    if id_field == "org_id" and "org_q" in fields:
        text = record.text("org_q", blank=False)
    question_id = matcher.match(record, found_id, text) if matcher else found_id or str(number)
    values = record.parts("perspectives") if fields.get("perspectives") is not None else []
    perspectives = tuple(_perspective(record, i, value) for i, value in enumerate(values))
    check_perspectives(record, perspectives)
    return Question(question_id, text, perspectives)


def _perspective(record: Record, i: int, value: object) -> Perspective:
    """Returns a perspective given as a text (its id is then its position) or as an object."""
    if isinstance(value, dict):
        return perspective_of(record.inner(value, f"perspectives[{i}]"))
    name = f"perspectives[{i}]"
    return Perspective(str(i), Record(record.path, record.line, {name: value}).text(name, blank=False))


def _ranking(record: Record, reading: _Reading) -> Ranking:
    if "ctxs" not in record.fields:
        do = "give the output of a retriever; a file without ctxs holds questions, not a run"
        raise record.error(f"no field 'ctxs' (fields: {', '.join(record.fields)})", "a list of passages", do)
    contexts = [record.inner(value, f"ctxs[{i}]") for i, value in enumerate(record.parts("ctxs"))]
    scores = [_score(context) for context in contexts]
    numbers = [score for score in scores if score is not None]
    if numbers and len(numbers) != len(scores):
        part = contexts[scores.index(None)].part
        raise record.error(f"no score in {part}", "a score in every passage or in none", "add it")
    if not numbers:
        numbers = [float(n) for n in range(len(contexts), 0, -1)]
    hits: dict[str, Hit] = {}
    for context, score in zip(contexts, numbers, strict=True):
        passage_id = _passage_id(context, reading)
        if passage_id in hits:
            reading.repeated.append(record.line)
        else:
            hits[passage_id] = Hit(passage_id, score)
    ranking = tuple(hits.values())
    if any(a.score < b.score for a, b in pairwise(ranking)):
        reading.reordered.append(record.line)
        return tuple(sorted(ranking, key=lambda hit: (-hit.score, hit.passage_id)))
    return ranking


def _score(context: Record) -> float | None:
    """Returns the score, a number or a string of one; None where it is missing or null."""
    value = context.fields.get("score")
    if value is None:
        return None
    try:
        if isinstance(value, (str, int, float)) and not isinstance(value, bool) and "_" not in str(value):
            score = float(value)
            if score - score == 0.0:
                return score
    except (ValueError, OverflowError):
        pass
    raise context.error(f"{context.part}.score = {shown(value)}", "a finite number")


def _passage_id(context: Record, reading: _Reading) -> str:
    """Returns the id of a passage (a hash of its contents where it has none) and keeps the passage."""
    text, title = context.text("text"), context.text("title", optional=True)
    url = context.text("url", optional=True)
    id_field = next((name for name in _PASSAGE_IDS if context.fields.get(name) is not None), None)
    if id_field is None:
        reading.has_ids = False
        passage_id = passage_hash(Passage("", text, title))
    else:
        passage_id = context.identifier(id_field, number=True)
    known = reading.passages.get(passage_id)
    if known is None:
        reading.passages[passage_id] = Passage(passage_id, text, title, url)
        reading.passage_lines[passage_id] = context.line
    elif (known.text.strip(), known.title.strip()) != (text.strip(), title.strip()):
        found = f"passage {shown(passage_id)} with another text or title than at line"
        found = f"{found} {reading.passage_lines[passage_id]}"
        raise context.error(found, "one passage per id", "give different passages different ids")
    return passage_id


def write_berds(path: Path | str, run: Run, questions: Sequence[Question], passages: Mapping[str, Passage]) -> None:
    """Writes a run as BERDS JSONL (gzip by suffix), with ``question_id`` and the passages' ``id`` added.

    The order is kept; so are the scores, except in a ranking where they rise (see ``decreasing``).
    """
    with published(path) as file:
        for record in _records(run, questions, passages, "perspectives"):
            file.write(f"{to_json(record)}\n".encode())


def write_dpr(path: Path | str, run: Run, questions: Sequence[Question], passages: Mapping[str, Passage]) -> None:
    """Writes a run as DPR's JSON list, one question per line; ``answers`` holds the texts of the perspectives."""
    with published(path) as file:
        file.write(b"[")
        for i, record in enumerate(_records(run, questions, passages, "answers")):
            file.write(f"{',' if i else ''}\n{to_json(record)}".encode())
        file.write(b"\n]\n")


def _records(
    run: Run, questions: Sequence[Question], passages: Mapping[str, Passage], gold: str
) -> Iterator[dict[str, object]]:
    by_id = {question.question_id: question for question in questions}
    for question_id, ranking in run.items():
        question = by_id.get(question_id)
        if question is None:
            raise ValueError(f"found question {question_id!r} in the run, expected ids of the questions: add it")
        scores = [hit.score for hit in ranking]
        if not all(score - score == 0.0 for score in scores) or any(a < b for a, b in pairwise(scores)):
            scores = decreasing(scores)
        contexts = []
        for hit, score in zip(ranking, scores, strict=True):
            passage = passages.get(hit.passage_id)
            if passage is None:
                raise ValueError(f"found passage {hit.passage_id!r} in the run, expected its text in passages: add it")
            context = {"id": hit.passage_id, "title": passage.title, "text": passage.text, "score": score}
            contexts.append({**context, "url": passage.url} if passage.url else context)
        texts = [perspective.text for perspective in question.perspectives]
        yield {"question_id": question_id, "question": question.text, gold: texts, "ctxs": contexts}

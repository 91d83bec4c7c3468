"""BEIR folders: corpus.jsonl, queries.jsonl, qrels/<split>.tsv (Thakur et al. 2021, https://github.com/beir-cellar/beir).

BEIR knows no perspectives: each query becomes a question with one perspective, ``0``, whose text is the query, so that
ordinary relevance is scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from corpora.lines import InputError, decoded, json_lines, raw_lines, shown, to_json, write_lines
from corpora.qrels import relevance_of
from corpora.records import Record, check_new, write_passages
from corpora.trec import check_column
from corpora.types import Passage, Perspective, Qrels, Question

PERSPECTIVE_ID = "0"
_HEADER = ["query-id", "corpus-id", "score"]


def read_beir_queries(path: Path | str, group_field: str | None = None) -> list[Question]:
    """Returns the queries of a ``queries.jsonl`` file as questions with one perspective each."""
    questions: list[Question] = []
    first: dict[str, int] = {}
    for line, fields in json_lines(path):
        record = Record(path, line, fields)
        query_id = record.identifier("_id")
        check_new(record, "_id", query_id, first)
        text = record.text("text", blank=False)
        group = record.text(group_field, blank=False) if group_field else "all"
        questions.append(Question(query_id, text, (Perspective(PERSPECTIVE_ID, text),), group))
    return questions


def read_beir_qrels(path: Path | str) -> Qrels:
    """Returns the labels of a ``qrels/<split>.tsv`` file (with its header), all under the perspective ``0``."""
    qrels: dict[str, dict[str, dict[str, int]]] = {}
    expected = "3 columns separated by tabs (query-id corpus-id score)"
    header = False
    for number, raw in raw_lines(path):
        parts = decoded(path, number, raw).split("\t")
        if parts == [""]:
            continue
        if not header:
            if parts != _HEADER:
                do = "put the header query-id, corpus-id, score (with tabs) on top"
                raise InputError.at(path, number, found=shown("\t".join(parts)), expected="the header", do=do)
            header = True
            continue
        if len(parts) != 3 or any(part.split() != [part] for part in parts):
            found = f"{len(parts)} columns in {shown(raw.strip())}"
            raise InputError.at(path, number, found=found, expected=expected, do="correct the line")
        relevance = relevance_of(path, number, parts[2].encode())
        labels = qrels.setdefault(parts[0], {PERSPECTIVE_ID: {}})[PERSPECTIVE_ID]
        if labels.setdefault(parts[1], relevance) != relevance:
            found = f"{parts[0]} {parts[1]} with score {relevance} after {labels[parts[1]]}"
            raise InputError.at(path, number, found=found, expected="one score", do="remove one of the lines")
    if not qrels:
        raise InputError.at(path, None, found="no label", expected="lines after the header", do="write it again")
    return qrels


def read_beir(
    folder: Path | str, split: str | None = None, group_field: str | None = None
) -> tuple[list[Question], Qrels | None]:
    """Returns the questions that have labels, and the labels; all queries and None where there is no ``qrels`` folder.

    Args:
        folder: The BEIR folder.
        split: Reads ``qrels/<split>.tsv``; without it all splits are read, and each question gets the split it is in.
        group_field: The field of queries.jsonl that holds the group.
    """
    queries_path = existing(folder, "queries.jsonl")
    if queries_path is None:
        do = "name a BEIR folder"
        raise InputError.at(folder, None, found="no queries.jsonl", expected="queries.jsonl in it", do=do)
    questions = read_beir_queries(queries_path, group_field)
    paths = _qrels_paths(folder, split)
    if not paths:
        return questions, None
    known = {question.question_id for question in questions}
    splits: dict[str, str] = {}
    qrels: dict[str, dict[str, dict[str, int]]] = {}
    for name, path in paths.items():
        for query_id, labels in read_beir_qrels(path).items():
            if query_id not in known:
                found, do = f"query {shown(query_id)}", f"add it to {queries_path.name} or remove its labels"
                line = _line_of(path, query_id)
                raise InputError.at(path, line, found=found, expected=f"ids of {queries_path.name}", do=do)
            if query_id in splits:
                found = f"query {shown(query_id)}, which is in the split {splits[query_id]!r} too"
                do, line = "read one split at a time", _line_of(path, query_id)
                raise InputError.at(path, line, found=found, expected="disjoint splits", do=do)
            splits[query_id] = name
            qrels[query_id] = {key: dict(value) for key, value in labels.items()}
    return [replace(q, split=splits[q.question_id]) for q in questions if q.question_id in splits], qrels


def existing(folder: Path | str, name: str) -> Path | None:
    """Returns ``folder/name`` or ``folder/name.gz``, whichever is there; None where neither is."""
    candidates = (Path(folder) / name, Path(folder) / f"{name}.gz")
    return next((path for path in candidates if path.exists()), None)


def _qrels_paths(folder: Path | str, split: str | None) -> dict[str, Path]:
    """Returns split -> path."""
    found = sorted([*Path(folder, "qrels").glob("*.tsv"), *Path(folder, "qrels").glob("*.tsv.gz")])
    paths = {path.name.removesuffix(".gz").removesuffix(".tsv"): path for path in found}
    if split is None:
        return paths
    if split not in paths:
        have, do = ", ".join(paths) or "none", "choose one of them"
        raise InputError.at(Path(folder, "qrels"), None, found=f"the splits {have}", expected=f"{split}.tsv", do=do)
    return {split: paths[split]}


def _line_of(path: Path, query_id: str) -> int | None:
    start = f"{query_id}\t".encode()
    return next((number for number, raw in raw_lines(path) if raw.startswith(start)), None)


def write_beir(
    folder: Path | str,
    questions: Sequence[Question],
    qrels: Qrels | None = None,
    passages: Iterable[Passage] | None = None,
) -> None:
    """Writes a BEIR folder; what BEIR cannot hold is lost.

    A passage that supports several perspectives of a question gets its highest relevance; perspectives, stances and
    groups are not written. Each split becomes a file of ``qrels`` (``test`` where a question has none).
    """
    folder = Path(folder)
    queries = ({"_id": question.question_id, "text": question.text} for question in questions)
    write_lines(folder / "queries.jsonl", map(to_json, queries))
    if passages is not None:
        write_passages(folder / "corpus.jsonl", passages)
    if qrels is None:
        return
    splits = {question.question_id: question.split or "test" for question in questions}
    unknown = [question_id for question_id in qrels if question_id not in splits]
    if unknown:
        raise ValueError(f"found labels of question {unknown[0]!r}, expected ids of the questions: add it")
    for split in dict.fromkeys(splits.values()):
        part = {question_id: labels for question_id, labels in qrels.items() if splits[question_id] == split}
        if part:
            write_lines(folder / "qrels" / f"{split}.tsv", _beir_qrels_lines(part))


def _beir_qrels_lines(qrels: Qrels) -> Iterator[str]:
    yield "\t".join(_HEADER)
    for question_id, perspectives in qrels.items():
        best: dict[str, int] = {}
        for labels in perspectives.values():
            for passage_id, relevance in labels.items():
                best[passage_id] = max(relevance, best.get(passage_id, relevance))
        check_column("question id", question_id)
        for passage_id, relevance in best.items():
            check_column("passage id", passage_id)
            yield f"{question_id}\t{passage_id}\t{relevance:d}"

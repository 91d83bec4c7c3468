"""Labelled pairs: what a detector is trained on, and what its errors are measured with.

A table with a header, tab-separated (``.tsv``), comma-separated (``.csv``), or one JSON object per line (``.jsonl``);
``.gz`` is unpacked. The columns ``question``, ``document``, ``perspective`` and ``label`` are those of the human pairs
of BERDS (Chen and Choi, 2024, https://arxiv.org/abs/2409.18110); every other column is optional.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from corpora.artefacts import atomic_file
from corpora.fingerprint import digest
from corpora.types import Passage, Perspective, Question, Stance
from evaluator.types import Pair

REQUIRED = ("question", "document", "perspective")
COLUMNS = (
    "question_id", "question", "perspective_id", "perspective", "stance", "passage_id", "title", "document", "label",
    "inclusion_probability", "rank", "group",
)  # fmt: skip
"""All columns, in the order in which they are written."""
LABELS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_STANCES = ("supporting", "opposing")


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """A pair and whether its passage supports its perspective.

    Attributes:
        pair: Ids that the file does not give are made from the texts.
        label: None where nobody has labelled the pair yet.
        inclusion_probability: With which the pair was drawn, for pairs that are a probability sample of a run.
        rank: Of the passage in that run, from 1; 0 where the pairs come from no run.
    """

    pair: Pair
    label: bool | None
    inclusion_probability: float = 1.0
    rank: int = 0


def read_pairs(path: Path | str, *, unlabelled: bool = False) -> list[LabelledPair]:
    """The pairs of a file, in its order.

    Args:
        path: ``.tsv``, ``.csv`` or ``.jsonl``, perhaps ``.gz``.
        unlabelled: Whether an empty label is taken, as None.

    Raises:
        ValueError: With the line: a missing column, an empty text, or a label that is none of 0/1, true/false, yes/no.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"pairs {path}: there is no such file")
    found = [_pair(row, f"{path}:{line}", unlabelled) for line, row in _rows(path)]
    if not found:
        raise ValueError(f"{path} has no pair: expected a header with {', '.join((*REQUIRED, 'label'))}, and rows")
    return found


def write_pairs(path: Path | str, pairs: Iterable[LabelledPair]) -> None:
    """Writes a file that ``read_pairs`` reads, all columns; the suffix says which form."""
    path = Path(path)
    suffix = _suffix(path)
    rows = (_row(each) for each in pairs)
    with atomic_file(path) as temporary, io.StringIO(newline="") as text:
        if suffix == ".jsonl":
            text.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        else:
            writer = csv.DictWriter(text, COLUMNS, delimiter=_DELIMITERS[suffix], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        data = text.getvalue().encode("utf-8", "replace")
        temporary.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def parse_label(value: object) -> bool | None:
    """A label from 0/1, true/false, yes/no in any case; None where it is empty.

    Raises:
        ValueError: Anything else.
    """
    text = ("" if value is None else str(value)).strip().lower()
    if not text:
        return None
    if text not in LABELS:
        raise ValueError(f"label {value!r}: expected 0/1, true/false or yes/no")
    return LABELS[text]


_DELIMITERS = {".tsv": "\t", ".csv": ","}


def _suffix(path: Path) -> str:
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix not in (*_DELIMITERS, ".jsonl"):
        raise ValueError(f"pairs {path}: expected a name that ends in .tsv, .csv or .jsonl (.gz may follow)")
    return suffix


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, object]]]:
    """(line, row) of a file; a record that spans lines counts by its last one."""
    suffix = _suffix(path)
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = data.decode("utf-8-sig")
    except (EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged, or not UTF-8: {error}") from error
    if suffix == ".jsonl":
        for line, record in enumerate(text.split("\n"), 1):
            if record.strip():
                yield line, _object(record, f"{path}:{line}")
        return
    csv.field_size_limit(1 << 30)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=_DELIMITERS[suffix], strict=True)
    missing = [name for name in (*REQUIRED, "label") if name not in (reader.fieldnames or ())]
    if missing:
        raise ValueError(f"{path}:1: no column {', '.join(missing)}: found {', '.join(reader.fieldnames or ('none',))}")
    try:
        for row in reader:
            if None in row or None in row.values():
                raise ValueError(f"{path}:{reader.line_num}: expected {len(reader.fieldnames or ())} columns")
            yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{path}:{reader.line_num}: {error}") from error


def _object(record: str, where: str) -> Mapping[str, object]:
    try:
        row = json.loads(record)
    except ValueError as error:
        raise ValueError(f"{where}: no JSON: {error}") from error
    missing = [name for name in REQUIRED if not isinstance(row, dict) or name not in row]
    if missing:
        raise ValueError(f"{where}: expected an object with {', '.join((*REQUIRED, 'label'))}; no {missing[0]}")
    return cast("Mapping[str, object]", row)


def _pair(row: Mapping[str, object], where: str, unlabelled: bool) -> LabelledPair:
    texts = {name: _text(row.get(name)) for name in COLUMNS}
    if empty := [name for name in REQUIRED if not texts[name].strip()]:
        raise ValueError(f"{where}: {empty[0]} is empty")
    try:
        label = parse_label(row.get("label"))
        if label is None and not unlabelled:
            raise ValueError("label is empty: expected 0/1, true/false or yes/no")
        probability = float(texts["inclusion_probability"] or 1)
        if not (math.isfinite(probability) and 0 < probability <= 1):
            raise ValueError(f"inclusion_probability {probability}: expected a number above 0, up to 1")
        rank = texts["rank"] or "0"
        if not (rank.isascii() and rank.isdigit()):
            raise ValueError(f"rank {rank!r}: expected a whole number, 0 or more")
        if int(rank) and "inclusion_probability" not in row:
            raise ValueError(
                "a rank, so this is a sample of a run, but no inclusion_probability: put the column back, as "
                "benchmarks.sample wrote it"
            )
        if texts["stance"] and texts["stance"] not in _STANCES:
            raise ValueError(f"stance {texts['stance']!r}: expected supporting, opposing or nothing")
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    stance = cast("Stance | None", texts["stance"] or None)
    perspective = Perspective(texts["perspective_id"] or _id("p", texts["perspective"]), texts["perspective"], stance)
    question = Question(
        texts["question_id"] or _id("q", texts["question"]), texts["question"], group=texts["group"] or "all"
    )
    passage_id = texts["passage_id"] or _id("d", texts["title"], texts["document"])
    passage = Passage(passage_id, texts["document"], texts["title"])
    return LabelledPair(Pair(question, perspective, passage), label, probability, int(rank))


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _id(kind: str, *texts: str) -> str:
    return f"{kind}-{digest(list(texts))[:12]}"


def _row(each: LabelledPair) -> dict[str, object]:
    question, perspective, passage = each.pair.question, each.pair.perspective, each.pair.passage
    return {
        "question_id": question.question_id,
        "question": question.text,
        "perspective_id": perspective.perspective_id,
        "perspective": perspective.text,
        "stance": perspective.stance or "",
        "passage_id": passage.passage_id,
        "title": passage.title,
        "document": passage.text,
        "label": "" if each.label is None else int(each.label),
        "inclusion_probability": repr(each.inclusion_probability),
        "rank": each.rank,
        "group": question.group,
    }


def labels_of(pairs: Sequence[LabelledPair]) -> list[bool]:
    """The labels, which all have to be there.

    Raises:
        ValueError: Some pair has none.
    """
    missing = sum(each.label is None for each in pairs)
    if missing:
        raise ValueError(f"{missing} of {len(pairs)} pairs have no label")
    return [bool(each.label) for each in pairs]

"""Perspectrum as a task: debate claims, their perspectives, and the paragraphs that support these.

Chen et al., Seeing Things from a Different Angle: Discovering Diverse Perspectives about Claims, NAACL 2019;
https://github.com/CogComp/perspectrum, folder ``data/dataset``; CC BY-SA 4.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from corpora.artefacts import artefact, content_hash
from corpora.assets import Asset, fetch
from corpora.lines import InputError, decoded, json_value, raw_lines, shown
from corpora.records import Record, write_passages
from corpora.types import Passage, Perspective, Qrels, Question, Stance

_REPOSITORY = "https://raw.githubusercontent.com/CogComp/perspectrum"
COMMITS = {
    "perspectrum_with_answers_v1.0.json": "0a8b13c1e4c78a07cc618df6a46f3153e7e3f40d",
    "perspective_pool_v1.0.json": "317ae35bdb09718024735d40eee54689d07d2b49",
    "dataset_split_v1.0.json": "317ae35bdb09718024735d40eee54689d07d2b49",
    "evidence_pool_v1.0.json": None,
}
"""File -> a commit that has it; None where none could be established: then the newest, whose checksum holds from the
first download on (``corpora/assets.py``)."""
ANSWERS, PERSPECTIVES, SPLITS, EVIDENCE = COMMITS
_STANCES: dict[str, Stance] = {"SUPPORT": "supporting", "UNDERMINE": "opposing"}


class Perspectrum:
    """Claims with the perspectives that evidence supports; the corpus is the whole pool of evidence.

    A question's identifier is ``p`` and the claim's number, a perspective's the claim's number and its position among
    the claim's perspectives (from 1), a passage's ``e`` and the paragraph's number. Perspectives are clusters of
    equivalent texts: the first that is no paraphrase written for the collection stands for the cluster. Groups are the
    sites that the claims come from. A perspective without evidence is left out: no passage could support it.

    Args:
        path: A folder with the four JSON files of version 1.0; None: they are downloaded.
        min_perspectives: Claims with fewer (with evidence) are left out.

    Raises:
        InputError: On first use: a file is missing, or a record does not fit the others.
    """

    version: ClassVar[int] = 1
    name: ClassVar[str] = "perspectrum"
    macro: ClassVar[bool] = False

    def __init__(self, path: Path | None = None, min_perspectives: int = 2) -> None:
        self.path, self.min_perspectives = path, min_perspectives

    @property
    def questions(self) -> tuple[Question, ...]:
        """In the file's order."""
        return self._read[0]

    @property
    def qrels(self) -> Qrels:
        """Relevance 1 for the evidence that the crowd linked to a perspective."""
        return self._read[1]

    @property
    def corpus(self) -> str:
        """The path of the pool of evidence, written to the cache in BEIR's form."""
        file = self._file(EVIDENCE)
        made = artefact("perspectrum", f"{content_hash(file)}-{self.version}", self._write_corpus)
        return str(made / self.name)  # the folder's name is part of the path of results

    def _write_corpus(self, folder: Path) -> None:
        passages = (Passage(f"e{number}", text) for number, text in _pool(self._file(EVIDENCE), "eId").items())
        write_passages(folder / self.name / "corpus.jsonl", passages)

    def _file(self, name: str) -> Path:
        if self.path is not None:
            file = Path(self.path) / name
            if not file.is_file():
                raise InputError(f"{file}: no such file: expected {', '.join(COMMITS)} of Perspectrum 1.0")
            return file
        url = f"{_REPOSITORY}/{COMMITS[name] or 'HEAD'}/data/dataset/{name}"
        return fetch(Asset(f"perspectrum/{name}", (url,), source="the repository's own files", licence="CC BY-SA 4.0"))

    @cached_property
    def _read(self) -> tuple[tuple[Question, ...], Qrels]:
        pool, evidence = self._file(PERSPECTIVES), _pool(self._file(EVIDENCE), "eId")
        texts = _pool(pool, "pId")
        written = {str(fields["pId"]) for fields in _records(pool) if fields.get("source") == "paraphrase"}
        splits = _json(self._file(SPLITS))
        if not isinstance(splits, dict):
            raise InputError(f"{self._file(SPLITS)}: found {shown(splits)}, expected a split for every claim")
        questions, qrels = [], {}
        answers = self._file(ANSWERS)
        for fields in _records(answers):
            claim = _Claim(Record(answers, 1, fields, f"claim {fields.get('cId')}"), texts, written, evidence)
            if len(claim.perspectives) < self.min_perspectives:
                continue
            questions.append(claim.question(splits))
            qrels[questions[-1].question_id] = claim.links
        return tuple(questions), qrels


class _Claim:
    """One record of the answers, with its perspectives that have evidence."""

    def __init__(
        self, record: Record, texts: Mapping[str, str], written: set[str], evidence: Mapping[str, str]
    ) -> None:
        self.record, self.number = record, record.identifier("cId", number=True)
        self.perspectives: list[Perspective] = []
        self.links: dict[str, dict[str, int]] = {}
        for position, value in enumerate(record.parts("perspectives"), 1):
            cluster = record.inner(value, f"claim {self.number}, perspective {position}")
            passages = [str(number) for number in cluster.parts("evidence")]
            label = str(cluster.fields.get("stance_label_3")).upper()
            pids = [str(number) for number in cluster.parts("pids")]
            unknown = [f"pId {n}" for n in pids if n not in texts] + [f"eId {n}" for n in passages if n not in evidence]
            if unknown or not pids:
                raise cluster.error(f"{unknown[0] if unknown else 'no pids'}", "numbers of the pools")
            if not passages or label not in _STANCES:
                continue
            text = texts[next((number for number in pids if number not in written), pids[0])]
            perspective = Perspective(f"{self.number}-{position}", text, _STANCES[label])
            self.perspectives.append(perspective)
            self.links[perspective.perspective_id] = {f"e{number}": 1 for number in passages}

    def question(self, splits: Mapping[str, object]) -> Question:
        split = splits.get(self.number)
        if not isinstance(split, str):
            raise self.record.error(f"claim {self.number} without a split", f"it in {SPLITS}")
        text, source = self.record.text("text", blank=False), self.record.text("source", blank=False)
        return Question(f"p{self.number}", text, tuple(self.perspectives), source, split)


def _json(path: Path) -> object:
    return json_value(path, 1, "\n".join(decoded(path, number, raw) for number, raw in raw_lines(path)))


def _records(path: Path) -> list[dict[str, object]]:
    found = _json(path)
    if not isinstance(found, list) or not all(isinstance(fields, dict) for fields in found):
        raise InputError(f"{path}: found {shown(found)}, expected a list of JSON objects")
    return found


def _pool(path: Path, key: str) -> dict[str, str]:
    """Number -> text of a pool; a number twice is refused."""
    pool: dict[str, str] = {}
    for fields in _records(path):
        record = Record(path, 1, fields, f"{key} {fields.get(key)}")
        number = record.identifier(key, number=True)
        if number in pool:
            raise record.error(f"{key} {number} twice", "unique numbers")
        pool[number] = record.text("text")
    return pool

"""Any data set of the Hugging Face hub as a corpus: its columns are named, its revision is pinned."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import datasets
from datasets.exceptions import DatasetNotFoundError
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

from corpora.artefacts import cache_root, content_hash, write_atomic
from corpora.assets import offline
from corpora.fingerprint import digest
from corpora.lines import InputError, shown
from corpora.stored import Plan, StoredCorpus
from corpora.types import Passage

_COMMIT = re.compile(r"[0-9a-f]{40}")
_UNREACHABLE = (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, OSError)


class Hub(StoredCorpus):
    """The rows of a data set as passages, read by streaming.

    Args:
        dataset: Id on the hub (``BeIR/scifact``), or a local folder of JSON, CSV or parquet files.
        config: Its configuration (``corpus``); None: the only one.
        split: Its split.
        id_column: The column with the identifiers; numbers will do.
        text_column: The column with the texts.
        title_column: The column with the titles, where there is one.
        url_column: The column with the addresses, where there is one.
        revision: Commit, tag or branch. Anything but a commit is resolved once; the commit found is kept in the cache
            and used from then on.

    Raises:
        InputError: On first use: no such data set, split or column, or a row that is no passage.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        dataset: str,
        config: str | None = None,
        split: str = "train",
        id_column: str = "_id",
        text_column: str = "text",
        title_column: str | None = None,
        url_column: str | None = None,
        revision: str | None = None,
    ) -> None:
        self.dataset, self.config, self.split, self.revision = dataset, config, split, revision
        self.id_column, self.text_column = id_column, text_column
        self.title_column, self.url_column = title_column, url_column

    def plan(self) -> Plan:
        """What is read, with the commit."""
        where = "" if self._folder() else f" at commit {self.commit}"
        return Plan(f"read {self._label()}{where} into a passage store")

    @property
    def commit(self) -> str | None:
        """The commit that is read; None for a local folder.

        Raises:
            InputError: It has to be resolved, and the hub cannot be reached or has no such data set.
        """
        if self._folder() is not None:
            return None
        if self.revision and _COMMIT.fullmatch(self.revision):
            return self.revision
        kept = cache_root() / "hub" / f"{digest([self.dataset, self.revision])}.json"
        if kept.exists():
            return str(json.loads(kept.read_text(encoding="utf-8"))["commit"])
        if forbidden := offline():
            do = f"give revision=COMMIT, or unset {forbidden.partition('=')[0]}"
            raise InputError(f"data set {self.dataset}: its commit is not known and {forbidden} forbids asking: {do}")
        try:
            found = HfApi().dataset_info(self.dataset, revision=self.revision).sha
        except _UNREACHABLE as error:
            raise InputError(f"data set {self.dataset}: {_one_line(error)}") from None
        record = {"dataset": self.dataset, "revision": self.revision, "commit": found}
        write_atomic(kept, json.dumps(record, indent=1))
        return found

    def prefetch(self) -> None:
        """Read the data set into its store: it is streamed, so that nothing else is kept of it."""
        len(self.store)

    def _folder(self) -> Path | None:
        path = Path(self.dataset).expanduser()
        return path if path.is_dir() else None

    def _label(self) -> str:
        return " ".join(["data set", self.dataset, *([self.config] if self.config else []), self.split])

    def _key(self) -> str:
        folder = self._folder()
        source = f"content:{content_hash(folder)}" if folder else f"hub:{self.dataset}@{self.commit}"
        columns = [self.id_column, self.text_column, self.title_column, self.url_column]
        return f"{digest([source, self.config, self.split, columns])}-hub{self.version}"

    def _passages(self) -> Iterator[Passage]:
        for row, fields in enumerate(self._rows(), 1):
            if row == 1:
                self._check_columns(fields)
            yield self._passage(row, fields)

    def _rows(self) -> Iterator[Mapping[str, Any]]:
        folder = self._folder()
        try:
            rows = datasets.load_dataset(
                str(folder or self.dataset), self.config, split=self.split, revision=self.commit, streaming=True
            )
        except (DatasetNotFoundError, ValueError, *_UNREACHABLE) as error:
            raise InputError(f"{self._label()}: {_one_line(error)}") from None
        yield from rows

    def _check_columns(self, fields: Mapping[str, Any]) -> None:
        arguments = ("id_column", "text_column", "title_column", "url_column")
        given = [(name, getattr(self, name)) for name in arguments if getattr(self, name) is not None]
        if wrong := [f"{name}={column}" for name, column in given if column not in fields]:
            raise InputError(f"{self._label()}: no column {', '.join(wrong)}: it has {', '.join(fields)}")

    def _passage(self, row: int, fields: Mapping[str, Any]) -> Passage:
        found = fields[self.id_column]
        passage_id = str(found) if isinstance(found, int) and not isinstance(found, bool) else found
        if not isinstance(passage_id, str) or passage_id.split() != [passage_id]:
            expected = "an id of one word"
            raise InputError(f"{self._label()}: row {row}: {self.id_column} = {shown(found)}, expected {expected}")
        texts = [self._text(row, fields, name) for name in (self.text_column, self.title_column, self.url_column)]
        return Passage(passage_id, *texts)

    def _text(self, row: int, fields: Mapping[str, Any], column: str | None) -> str:
        value = "" if column is None else fields[column]
        if value is None and column != self.text_column:
            return ""
        if not isinstance(value, str):
            raise InputError(f"{self._label()}: row {row}: {column} = {shown(value)}, expected a text")
        return value


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__

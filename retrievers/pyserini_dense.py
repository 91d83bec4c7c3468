"""Dense search in Pyserini's FAISS indexes: its prebuilt ones of Wikipedia by name, or any folder of that form.

A folder of that form holds ``index`` (FAISS) and ``docid`` (an identifier per line). It does not say which model made
its vectors, and vectors of two models have nothing to do with each other. So the query encoder is recorded: for the
prebuilt indexes in ``ENCODERS`` (from pyserini's own ``2cr`` commands and
``encoded_query_info.py``), for other folders in a file ``encoder.json``, as ``record_encoder`` writes it. Another
encoder is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import faiss
import numpy as np
from numpy.typing import NDArray

from corpora.artefacts import write_atomic
from corpora.base import Corpus
from corpora.fingerprint import digest
from corpora.types import Hit, Query, Ranking
from lm import make_encoder
from lm.base import Encoder
from retrievers._prebuilt import find_prebuilt, prebuilt_folder

ENCODERS = {
    "wikipedia-dpr-100w.dpr-multi": "facebook/dpr-question_encoder-multiset-base",
    "wikipedia-dpr-100w.dpr-single-nq": "facebook/dpr-question_encoder-single-nq-base",
    "wiki-all-6-3.dpr2-multi-retriever": "castorini/wiki-all-6-3-multi-dpr2-query-encoder",
}
"""Prebuilt index -> the query encoder that belongs to it: those that read a query as DPR does."""
_AS_DPR = {"pooling": "pooler", "token_types": False, "max_length": 256}
MARGIN = 32
CHECKED = 32
_RECORD = "encoder.json"


def record_encoder(folder: Path, encoder: str) -> None:
    """Writes down which query encoder belongs to the vectors of a folder: a model id, or an encoder's fingerprint."""
    write_atomic(folder / _RECORD, json.dumps({"encoder": encoder}) + "\n")


class PyseriniDense:
    """Search by inner product (or L2 distance, as the index was made) in a FAISS index of Pyserini's form.

    Args:
        prebuilt: One of pyserini's names, for example ``wikipedia-dpr-100w.dpr-multi``, or a folder.
        encoder: The query encoder: a model id, or an encoder made already; None: the one that is recorded.
        threads: Threads of FAISS.
    """

    version: ClassVar[int] = 1
    runtime_args: ClassVar[tuple[str, ...]] = ("threads",)

    def __init__(self, prebuilt: str, encoder: str | Encoder | None = None, threads: int = 1) -> None:
        self.prebuilt = prebuilt
        self.encoder = encoder
        self.threads = threads

    @property
    def fingerprint(self) -> str:
        """The index by name, or by its size, identifiers and first bytes, with the encoder."""
        folder = Path(self.prebuilt).expanduser()
        index = _identity(folder) if folder.is_dir() else self.prebuilt
        encoder = self.encoder if self.encoder is None or isinstance(self.encoder, str) else self.encoder.fingerprint
        return digest({"class": "PyseriniDense", "version": self.version, "encoder": encoder, "index": index})

    def prefetch(self) -> None:
        """Downloads a prebuilt index that is asked for by name (see pyserini's table: up to 60 GB)."""
        self._folder()

    def index(self, corpus: Corpus) -> DenseIndex:
        """The index, opened and checked against encoder and corpus.

        Raises:
            ValueError: There is no such index, it is of another corpus, or made by another encoder.
        """
        recorded = self._recorded()
        encoder = self._encoder(recorded)  # refused before 60 GB are downloaded
        folder = self._folder()
        try:
            index = faiss.read_index(str(folder / "index"))
        except RuntimeError as error:
            problem = str(error).splitlines()[0][-200:]
            raise ValueError(f"{folder / 'index'} cannot be opened as a FAISS index of floats: {problem}") from error
        ids = (folder / "docid").read_text(encoding="utf-8").splitlines()
        if index.ntotal != len(ids):
            raise ValueError(f"{folder}: {index.ntotal:,} vectors and {len(ids):,} identifiers: the copy is incomplete")
        if index.d != encoder.dimension:
            raise ValueError(f"{self.prebuilt} has {index.d} dimensions, its encoder {encoder.dimension}: not its own")
        _check_corpus(ids, corpus, self.prebuilt)
        return DenseIndex(index, ids, encoder, self.threads)

    def _recorded(self) -> str:
        """The query encoder that belongs to the index."""
        if Path(self.prebuilt).expanduser().is_dir():
            return _read_record(self._folder())
        if self.prebuilt not in ENCODERS:
            raise ValueError(
                f"{self.prebuilt!r} is neither a folder nor a prebuilt index whose query encoder is known: "
                f"expected one of {', '.join(ENCODERS)}"
            )
        return ENCODERS[self.prebuilt]

    def _folder(self) -> Path:
        folder = Path(self.prebuilt).expanduser()
        if not folder.is_dir():
            return prebuilt_folder(find_prebuilt(self.prebuilt, "dense"))
        if missing := [name for name in ("index", "docid") if not (folder / name).is_file()]:
            raise ValueError(f"{folder} is no FAISS index of Pyserini's form: it lacks {' and '.join(missing)}")
        return folder

    def _encoder(self, recorded: str) -> Encoder:
        if self.encoder is None or isinstance(self.encoder, str):
            if self.encoder not in (None, recorded):
                raise ValueError(f"{self.prebuilt} was made for the query encoder {recorded}, not {self.encoder}")
            if recorded in ENCODERS.values():
                return make_encoder("transformers", model=recorded, **_AS_DPR)
            return make_encoder(recorded)
        if self.encoder.fingerprint != recorded:
            given = self.encoder.fingerprint
            raise ValueError(
                f"{self.prebuilt} was made for the query encoder {recorded}, not one of fingerprint {given}"
            )
        return self.encoder


class DenseIndex:
    """An opened FAISS index; flat ones are scored again in double precision, so that equal vectors tie."""

    def __init__(self, index: Any, ids: list[str], encoder: Encoder, threads: int) -> None:
        self._index, self._ids, self._encoder, self._threads = index, ids, encoder, threads
        self._distance = index.metric_type == faiss.METRIC_L2

    def search(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rankings aligned with the queries; a query with several vectors takes each passage's best score."""
        if k < 1 or not self._ids or not queries:
            return [() for _ in queries]
        faiss.omp_set_num_threads(self._threads)
        encoded = self._encoder.encode_queries(queries)
        vectors = np.ascontiguousarray(encoded.vectors, dtype=np.float32)
        best: list[dict[str, float]] = [{} for _ in queries]
        for owner, found in zip(encoded.query_index.tolist(), self._found(vectors, k), strict=True):
            for passage_id, score in found:
                best[owner][passage_id] = max(score, best[owner].get(passage_id, score))
        ordered = [sorted(each.items(), key=lambda item: (-item[1], item[0]))[:k] for each in best]
        return [tuple(Hit(passage_id, score) for passage_id, score in each) for each in ordered]

    def _found(self, vectors: NDArray[np.float32], k: int) -> list[list[tuple[str, float]]]:
        """The best passages of each vector, at least k with all that tie at the cut."""
        n = min(k + MARGIN, len(self._ids))
        scores, rows = self._index.search(vectors, n)
        results = []
        for vector, near, row in zip(vectors, scores, rows, strict=True):
            size = n
            while size < len(self._ids) and near[k - 1] == near[-1] and row[-1] >= 0:
                size = min(4 * size, len(self._ids))
                near, row = (each[0] for each in self._index.search(vector[None], size))
            kept = row >= 0
            exact = self._exact(vector, near[kept], row[kept])
            results.append([(self._ids[i], s) for i, s in zip(row[kept].tolist(), exact, strict=True)])
        return results

    def _exact(self, vector: NDArray[np.float32], near: NDArray[np.float32], rows: NDArray[np.int64]) -> list[float]:
        sign = -1.0 if self._distance else 1.0
        if not isinstance(self._index, faiss.IndexFlat) or not len(rows):
            return [sign * float(score) for score in near]
        stored = self._index.reconstruct_batch(rows).astype(np.float64)
        if self._distance:
            return [-float(value) for value in ((stored - vector) ** 2).sum(axis=1)]
        return [float(value) for value in (stored * vector.astype(np.float64)).sum(axis=1)]


def _read_record(folder: Path) -> str:
    try:
        recorded = json.loads((folder / _RECORD).read_text(encoding="utf-8"))["encoder"]
    except FileNotFoundError as error:
        how = "retrievers.pyserini_dense.record_encoder(folder, model_id)"
        raise ValueError(f"{folder} does not say which query encoder belongs to it: record it by {how}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f'{folder / _RECORD} cannot be read: expected {{"encoder": "model id"}}') from error
    return str(recorded)


def _identity(folder: Path) -> str:
    """What tells one index from another without reading 60 GB."""
    parts: list[object] = []
    for name in ("index", "docid"):
        with (folder / name).open("rb") as file:
            parts.append([name, (folder / name).stat().st_size, file.read(1 << 20).hex()])
    return digest(parts)


def _check_corpus(ids: Sequence[str], corpus: Corpus, name: str) -> None:
    """Refuses an index of another corpus, as far as its size and some of its identifiers tell."""
    if len(ids) > len(corpus):
        raise ValueError(f"index {name} has {len(ids):,} vectors, the corpus {len(corpus):,} passages: not the same")
    for row in sorted({i * (len(ids) - 1) // (CHECKED - 1) for i in range(CHECKED)} if ids else ()):
        try:
            corpus.get([ids[row]])
        except KeyError as error:
            raise ValueError(f"index {name} holds {ids[row]!r}, which the corpus lacks: not the same corpus") from error

"""Approximate search with any index of FAISS, over vectors on disk.

Douze, M. et al. (2024): The Faiss library. https://arxiv.org/abs/2401.08281. The kinds of index are FAISS's factory
strings (https://github.com/facebookresearch/faiss/wiki/The-index-factory): ``IVF4096,PQ64``, ``HNSW32``,
``OPQ16_64,IVF1024,PQ16`` ... An index is trained on a sample that depends on nothing but the vectors' number, filled
block by block, kept as an artefact, and memory-mapped where FAISS can. What it finds is scored again by the canonical
dot product of ``retrievers/exact.py``, so that only which passages are found is approximate, not their scores.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import faiss
import numpy as np
from tqdm import tqdm

from corpora.artefacts import artefact
from corpora.fingerprint import digest
from corpora.types import Ranking
from lm.base import QueryVectors
from retrievers.exact import MARGIN, block_rows, check_queries, ranked
from retrievers.vectors import Ids, Vectors

FORMAT = 1
ROWS_PER_LIST = 64
"""Training vectors per inverted list: FAISS warns below 39."""
MIN_TRAIN_ROWS = 65536
_TAKEN = 8192


def build(vectors: Vectors, factory: str, train_rows: int | None = None) -> Path:
    """The artefact that holds the index: built once for these vectors, factory string and training rows.

    Raises:
        ValueError: No such kind of index, or too few vectors for it.
    """
    train_rows = min(train_rows or _train_rows(factory), len(vectors))
    key = digest(
        {
            "vectors": vectors.fingerprint,
            "factory": factory,
            "train_rows": train_rows,
            "faiss": faiss.__version__,
            "format": FORMAT,
        }
    )
    return artefact("faiss", key, lambda folder: _build(vectors, factory, train_rows, folder))


class ApproximateIndex:
    """An index of ``build``, opened; search-only parameters, for example ``nprobe`` or ``efSearch``, are set on it.

    Raises:
        ValueError: A parameter that this kind of index does not have.
    """

    def __init__(self, folder: Path, vectors: Vectors, factory: str, parameters: Mapping[str, int]) -> None:
        # FAISS has two ways of mapping: one for inverted lists, one for the arrays of everything else.
        flag = faiss.IO_FLAG_MMAP if "IVF" in factory else getattr(faiss, "IO_FLAG_MMAP_IFC", faiss.IO_FLAG_MMAP)
        self._index, self._vectors = (
            faiss.read_index(str(folder / "index.faiss"), flag | faiss.IO_FLAG_READ_ONLY),
            vectors,
        )
        for name, value in parameters.items():
            with _one_line(f"index {factory!r} takes no {name}={value}"):
                faiss.ParameterSpace().set_index_parameter(self._index, name, value)

    def search(self, queries: QueryVectors, k: int, ids: Ids, candidates: int | None = None) -> list[Ranking]:
        """At most k passages per query, by canonical scores, best first, ties by identifier.

        Args:
            queries: The queries' vectors.
            k: How many hits at most.
            ids: Rows of the whole -> passage identifiers.
            candidates: How many are taken from the index and scored again; None: 4 k, at least k + 32.
        """
        n = int(queries.query_index[-1]) + 1 if len(queries.query_index) else 0
        check_queries(queries, self._vectors.dimension)
        if k < 1 or not n:
            return [() for _ in range(n)]
        m = min(max(candidates or max(4 * k, k + MARGIN), k), len(self._vectors))
        _, rows = self._index.search(np.ascontiguousarray(queries.vectors, dtype=np.float32), m)
        return ranked(self._vectors, queries, np.where(rows < 0, -1, rows + self._vectors.start), k, ids)


def recall(found: Sequence[Ranking], exact: Sequence[Ranking]) -> float:
    """Mean share of the exact hits that were found, 0 to 1; a passage that ties with the last exact one counts too.

    NaN where no query has an exact hit.
    """
    shares = []
    for mine, best in zip(found, exact, strict=True):
        if best:
            hits = sum(hit.score >= best[-1].score for hit in mine[: len(best)])
            shares.append(hits / len(best))
    return float(np.mean(shares)) if shares else float("nan")


def _train_rows(factory: str) -> int:
    lists = max((int(number) for number in re.findall(r"IVF(\d+)", factory)), default=0)
    return max(MIN_TRAIN_ROWS, ROWS_PER_LIST * lists)


def _build(vectors: Vectors, factory: str, train_rows: int, folder: Path) -> None:
    with _one_line(f"FAISS makes no index {factory!r} of {len(vectors):,} vectors of dimension {vectors.dimension}"):
        index = faiss.index_factory(vectors.dimension, factory, faiss.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            rows = np.random.default_rng(0).choice(len(vectors), size=train_rows, replace=False)
            rows.sort()
            sample = np.empty((train_rows, vectors.dimension), dtype=np.float32)
            for at in range(0, train_rows, _TAKEN):
                sample[at : at + _TAKEN] = vectors.take(rows[at : at + _TAKEN] + vectors.start)
            index.train(sample)
    with tqdm(total=len(vectors), desc=factory, unit=" passages", disable=not sys.stderr.isatty()) as bar:
        for _, block in vectors.blocks(block_rows(vectors.dimension)):
            index.add(np.ascontiguousarray(block, dtype=np.float32))
            bar.update(len(block))
    faiss.write_index(index, str(folder / "index.faiss"))


@contextmanager
def _one_line(what: str) -> Iterator[None]:
    """FAISS's exceptions name its own source lines; the reason stands at the end."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].partition("Error: ")[2] or str(error).strip().splitlines()[-1]
        raise ValueError(f"{what}: {reason}") from error

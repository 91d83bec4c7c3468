"""The published dense index of Sphere, and any other in distributed-faiss' form.

Piktus et al., 2021, https://arxiv.org/abs/2112.09924; https://github.com/facebookresearch/Sphere (1.2 TiB in 32
partitions; CC BY-NC 4.0); form: https://github.com/facebookresearch/distributed-faiss. Every partition is a folder with
``index.faiss``, ``meta.pkl`` (a row per vector: id, text, title, flag), ``cfg.json`` and ``buffer.pkl`` (not read).

The vectors are DPR_web's, not those of DPR trained on Natural Questions: queries have to be encoded by the same model
(``lm/dpr_web.py``). The metric is L2, with one auxiliary dimension sqrt(phi - |x|^2) that gives all
vectors the squared norm phi. A query has 0 there, so that distance = |q|^2 + phi - 2 q.x, and the dot product follows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import faiss
import numpy as np
from numpy.typing import NDArray

from corpora.artefacts import artefact
from corpora.base import Corpus
from corpora.fingerprint import digest
from corpora.sphere_files import files_key, partitions, read_metadata, row_id
from corpora.store import FORMAT, PassageStore, build_store
from corpora.types import Hit, Passage, Query, Ranking
from lm import make_encoder
from lm.base import Encoder

DPR_WEB = "dpr_web"
RECORD = "encoder.json"
"""May lie in an index' folder: ``{"encoder": name, "fingerprint": ...}``; without it the index is DPR_web's."""


class SphereDense:
    """A dense index in distributed-faiss' form, searched partition after partition, memory-mapped.

    Args:
        path: The folder with the partitions (below it, at any depth).
        encoder: What encodes the queries: ``dpr_web``, or another name or encoder where the index says that it was
            made by it; any other is refused.
        query_model: A folder with the query encoder of DPR_web; None: it is downloaded.
        nprobe: Lists searched per query and partition; None: as the partition's ``cfg.json`` says.
        drop_flagged: Whether passages with a flag are left out, as the authors' own client does.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        path: Path,
        encoder: Encoder | str = DPR_WEB,
        query_model: Path | None = None,
        nprobe: int | None = None,
        drop_flagged: bool = True,
    ) -> None:
        self.path, self.encoder, self.query_model = path, encoder, query_model
        self.nprobe, self.drop_flagged = nprobe, drop_flagged

    @property
    def fingerprint(self) -> str:
        """A hash of the index' files (of large ones, size and both ends), the encoder and the arguments."""
        folders = partitions(Path(self.path))
        files = [files_key([folder / "index.faiss", folder / "meta.pkl"]) for folder in folders]
        encoder = self.encoder if isinstance(self.encoder, str) else self.encoder.fingerprint
        model = None if self.query_model is None else files_key(sorted(Path(self.query_model).glob("*.*")))
        return digest(["sphere_dense", self.version, files, encoder, model, self.nprobe, self.drop_flagged])

    def index(self, corpus: Corpus) -> DenseIndex:
        """The index, opened; its encoder and its passages have to be the right ones.

        Raises:
            ValueError: Another encoder, another corpus, or a damaged partition.
        """
        encoder = self._checked_encoder()
        opened = [Partition(folder, self.nprobe) for folder in partitions(Path(self.path))]
        for partition in opened:
            for passage_id in partition.store.ids([0, len(partition.store) - 1]):
                try:
                    corpus.get([passage_id])
                except KeyError:
                    raise ValueError(
                        f"{partition.folder}: its passage {passage_id!r} is not among the corpus' {len(corpus)}: "
                        "the index covers all of Sphere, so give the corpus that it was made from"
                    ) from None
        return DenseIndex(opened, encoder, self.drop_flagged)

    def _checked_encoder(self) -> Encoder:
        file = Path(self.path) / RECORD
        record = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"encoder": DPR_WEB}
        made_by, own = record["encoder"], record.get("fingerprint")
        if isinstance(self.encoder, str):
            if self.encoder != made_by:
                raise _mismatch(self.path, made_by, repr(self.encoder))
            encoder = self._named(self.encoder)
        else:
            encoder = self.encoder
        if (own is not None or encoder is self.encoder) and encoder.fingerprint != own:
            raise _mismatch(self.path, made_by, f"{type(encoder).__name__} {encoder.fingerprint}")
        return encoder

    def _named(self, name: str) -> Encoder:
        if name != DPR_WEB:
            return make_encoder(name)
        from lm.dpr_web import DprWeb  # needs torch

        return DprWeb(self.query_model)


def _mismatch(path: Path, made_by: str, given: str) -> ValueError:
    return ValueError(
        f"{path}: its vectors are {made_by}'s, and the query encoder {given} is another: take encoder={made_by}"
    )


class Partition:
    """One partition: FAISS' index, mapped, and the identifiers of its rows, converted once from the metadata."""

    def __init__(self, folder: Path, nprobe: int | None) -> None:
        self.folder = folder
        try:
            self.faiss: Any = faiss.read_index(
                str(folder / "index.faiss"), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY
            )
        except RuntimeError as error:
            raise ValueError(f"{folder / 'index.faiss'}: {str(error).splitlines()[0]}") from None
        meta = folder / "meta.pkl"
        kept = artefact("sphere_ids", f"{files_key([meta])}-{self.faiss.ntotal}-1-store{FORMAT}", self._convert)
        self.store = PassageStore(kept)
        self.flags = np.fromfile(kept / "flags.u8", np.uint8).astype(bool)
        config = json.loads((folder / "cfg.json").read_text("utf-8")) if (folder / "cfg.json").is_file() else {}
        if (chosen := nprobe or config.get("nprobe")) and hasattr(self.faiss, "nprobe"):
            self.faiss.nprobe = int(chosen)
        self.inner_product = self.faiss.metric_type == faiss.METRIC_INNER_PRODUCT

    def _convert(self, folder: Path) -> None:
        meta, n = self.folder / "meta.pkl", self.faiss.ntotal
        rows = read_metadata(meta)
        if len(rows) < n:
            raise ValueError(f"{meta}: {len(rows)} rows for {n} vectors: is it another partition's?")
        try:
            build_store((Passage(row_id(meta, row, value), "") for row, value in enumerate(rows[:n])), folder)
        except ValueError as error:
            raise ValueError(f"{meta}: {str(error).removeprefix(f'{meta}: ')}") from None
        flags = [isinstance(value, list | tuple) and len(value) > 3 and value[3] is True for value in rows[:n]]
        np.array(flags, np.uint8).tofile(folder / "flags.u8")

    @cached_property
    def norms(self) -> NDArray[np.float64]:
        """Squared norms of some stored vectors, float64 (n,): all of them phi, but for rounding and quantisation."""
        index, found = self.faiss, list[NDArray[np.float32]]()
        if not hasattr(index, "invlists"):
            found = [index.reconstruct(row) for row in range(min(64, index.ntotal))]
        for number in range(index.nlist if hasattr(index, "invlists") else 0):
            for offset in range(min(4, index.invlists.list_size(number))):
                vector = np.empty(index.d, np.float32)
                index.reconstruct_from_offset(number, offset, faiss.swig_ptr(vector))
                found.append(vector)
            if len(found) >= 64:
                break
        norms: NDArray[np.float64] = np.square(np.array(found, np.float64)).sum(axis=1)
        return norms

    def search(self, vectors: NDArray[np.float32], k: int, drop: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        """Distances or products, float32 (n, m), and rows, int64 (n, m); the caller skips -1 and flagged rows."""
        wanted = min(k, self.faiss.ntotal)
        while True:
            values, rows = self.faiss.search(vectors, wanted)
            if not drop or wanted == self.faiss.ntotal or not self.flags.any():
                return values, rows
            kept = np.asarray(((rows >= 0) & ~self.flags[rows]).sum(axis=1))
            if (kept >= k).all() or (rows < 0).any(axis=1)[kept < k].all():
                return values, rows
            wanted = min(3 * wanted, self.faiss.ntotal)  # so many more as the authors' client asks for


class DenseIndex:
    """The partitions, opened; see ``SphereDense``."""

    def __init__(self, opened: Sequence[Partition], encoder: Encoder, drop_flagged: bool) -> None:
        self.partitions, self.encoder, self.drop_flagged = opened, encoder, drop_flagged
        self.auxiliary = not opened[0].inner_product

    @cached_property
    def phi(self) -> float:
        """The squared norm that the auxiliary dimension gives to all vectors.

        Raises:
            ValueError: The stored vectors have different norms.
        """
        norms = np.concatenate([partition.norms for partition in self.partitions])
        phi = float(np.median(norms))
        if np.abs(norms - phi).max() > 0.05 * phi:
            raise ValueError(
                f"{self.partitions[0].folder.parent}: the vectors' squared norms go from {norms.min():.4g} to "
                f"{norms.max():.4g}, expected one: L2 distances without an auxiliary dimension are no dot products"
            )
        return phi

    def search(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rankings aligned with the queries, scores are dot products; ties by passage id."""
        if not queries:
            return []
        encoded = self.encoder.encode_queries(queries)
        asked = np.ascontiguousarray(encoded.vectors, np.float32)
        expected = self.partitions[0].faiss.d - self.auxiliary
        if asked.shape[1] != expected:
            raise ValueError(f"the index has vectors of {expected} dimensions, the query encoder of {asked.shape[1]}")
        if self.auxiliary:
            asked = np.hstack([asked, np.zeros((len(asked), 1), np.float32)])
        best: list[dict[str, float]] = [{} for _ in queries]
        for partition in self.partitions:
            values, rows = partition.search(asked, k, self.drop_flagged)
            scores = self._similarities(asked, values)
            for i, query in enumerate(encoded.query_index.tolist()):
                valid = rows[i] >= 0
                if self.drop_flagged:
                    valid &= ~partition.flags[rows[i]]
                for passage_id, score in zip(
                    partition.store.ids(rows[i][valid].tolist()), scores[i][valid].tolist(), strict=True
                ):
                    best[query][passage_id] = max(score, best[query].get(passage_id, score))
        return [
            tuple(
                Hit(passage_id, score)
                for passage_id, score in sorted(found.items(), key=lambda it: (-it[1], it[0]))[:k]
            )
            for found in best
        ]

    def _similarities(self, asked: NDArray[np.float32], values: NDArray[Any]) -> NDArray[np.float64]:
        """Dot products, float64 (n, m), of what FAISS returned."""
        if not self.auxiliary:
            return values.astype(np.float64)
        norms: NDArray[np.float64] = np.square(asked.astype(np.float64)).sum(axis=1, keepdims=True)
        similarities: NDArray[np.float64] = (norms + self.phi - values.astype(np.float64)) / 2
        return similarities

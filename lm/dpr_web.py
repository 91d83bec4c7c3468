"""The query encoder of DPR_web: what Sphere's published dense index is searched with.

Piktus et al., 2021, https://arxiv.org/abs/2112.09924; the checkpoint is in the README of
https://github.com/facebookresearch/Sphere, in transformers' form but pickled: it is read by
``torch.load(weights_only=True)``, which runs nothing of it. No safetensors are published.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoTokenizer, DPRQuestionEncoder

from corpora.artefacts import artefact
from corpora.assets import Asset, fetch
from corpora.sphere_files import files_key, unpack
from corpora.types import Passage, Query
from lm.base import QueryVectors

DPR_WEB = "dpr_web"
QUERY_ENCODER = Asset(
    "sphere/dpr_web_query_encoder_hf.tar.gz",
    ("https://dl.fbaipublicfiles.com/sphere/dpr_web_query_encoder_hf.tar.gz",),
    source="README of github.com/facebookresearch/Sphere (no checksum there)",
    licence="CC BY-NC 4.0",
)
TOKENIZER = ("facebook/dpr-question_encoder-single-nq-base", "d04a52f6d2f96c60117a925e8c24c4043a75f265")
MAX_LENGTH = 256


class DprWeb:
    """Encodes queries as the authors' client does: padded to 256 tokens, the last of which is always ``[SEP]``.

    Args:
        model: A folder with the model (and tokenizer, else DPR's own is taken); None: it is downloaded.
    """

    def __init__(self, model: Path | None = None) -> None:
        self.model = model

    @property
    def fingerprint(self) -> str:
        """Names the model."""
        return DPR_WEB

    @property
    def dimension(self) -> int:
        """The length of a vector."""
        return int(self._loaded[1].config.hidden_size)

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        folder = Path(self.model) if self.model is not None else _unpacked()
        own = any((folder / name).is_file() for name in ("vocab.txt", "tokenizer.json"))
        name, revision = (str(folder), None) if own else TOKENIZER
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision)
        model: Any = DPRQuestionEncoder.from_pretrained(str(folder), weights_only=True)
        return tokenizer, model.eval()

    def encode_passages(self, passages: Sequence[Passage]) -> NDArray[np.float32]:
        """Not possible: its passage encoder is published in another form only."""
        raise ValueError("dpr_web encodes queries only: Sphere's passages are encoded already")

    def encode_queries(self, queries: Sequence[Query]) -> QueryVectors:
        """One vector per query."""
        tokenizer, model = self._loaded
        vectors = []
        for start in range(0, len(queries), 32):
            texts = [query.text for query in queries[start : start + 32]]
            read = tokenizer(texts, padding="max_length", max_length=MAX_LENGTH, truncation=True, return_tensors="pt")
            read["input_ids"][:, -1] = tokenizer.sep_token_id
            with torch.no_grad():
                vectors.append(model(read["input_ids"]).pooler_output.float().numpy())
        empty = np.empty((0, 0), np.float32)
        return QueryVectors(np.concatenate(vectors) if vectors else empty, np.arange(len(queries)))


def _unpacked() -> Path:
    archive = fetch(QUERY_ENCODER)
    folder = artefact("unpacked", files_key([archive]), lambda made: unpack(archive, made))
    return next(file.parent for file in sorted(folder.rglob("config.json")))

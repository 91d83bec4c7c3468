"""Any model of sentence-transformers: short for ``dense`` with the encoder ``sentence_transformer``.

Reimers, N. and Gurevych, I. (2019): Sentence-BERT: Sentence embeddings using Siamese BERT-networks.
https://arxiv.org/abs/1908.10084, https://sbert.net. Without ``encoder``, the model is all-MiniLM-L6-v2
(https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2, its pinned revision in ``lm/encoder.py``); give
``encoder=`` a model id or a folder for another one.
"""

from __future__ import annotations

from typing import ClassVar

from retrievers.dense import Dense


class SentenceTransformer(Dense):
    """Dense retrieval with a sentence-transformers model; the arguments are those of ``dense``."""

    default_encoder: ClassVar[str] = "minilm"

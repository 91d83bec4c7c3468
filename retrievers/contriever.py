"""Contriever, fine-tuned on MS MARCO: short for ``dense`` with the encoder ``contriever``.

Izacard, G. et al. (2022): Unsupervised dense information retrieval with contrastive learning.
https://arxiv.org/abs/2112.09118, https://github.com/facebookresearch/contriever. The model is
https://huggingface.co/facebook/contriever-msmarco; its pinned revision stands in ``lm/encoder.py``.
"""

from __future__ import annotations

from typing import ClassVar

from retrievers.dense import Dense


class Contriever(Dense):
    """Dense retrieval with Contriever; the arguments are those of ``dense``."""

    default_encoder: ClassVar[str] = "contriever"

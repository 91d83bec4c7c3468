"""DPR, trained on Natural Questions: short for ``dense`` with the encoder ``dpr``.

Karpukhin, V. et al. (2020): Dense passage retrieval for open-domain question answering.
https://arxiv.org/abs/2004.04906, https://github.com/facebookresearch/DPR. The models are
https://huggingface.co/facebook/dpr-ctx_encoder-single-nq-base and
https://huggingface.co/facebook/dpr-question_encoder-single-nq-base; their pinned revisions stand in ``lm/encoder.py``.
"""

from __future__ import annotations

from typing import ClassVar

from retrievers.dense import Dense


class DPR(Dense):
    """Dense retrieval with DPR; the arguments are those of ``dense``."""

    default_encoder: ClassVar[str] = "dpr"

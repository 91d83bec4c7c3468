"""Models that are trained to tell whether a passage supports a perspective: losses, probabilities, weights.

Two kinds share one shape: a causal language model that answers a prompt, and an encoder with a classification head;
each with all its weights trained, or with low-rank adapters (https://github.com/huggingface/peft).
"""

from __future__ import annotations

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional
from transformers import AutoModelForCausalLM

from evaluator.examples import ANSWERS, Example, answer_ids
from evaluator.judges.readings import WORDS
from evaluator.recipe import Recipe
from lm.adapter import PREFIX
from lm.causal import find_label_ids
from lm.pair_head import find_classifier
from lm.transformer import DTYPES, check_max_length, pad, quiet, read_config

NAMES = {"bce": ("entailment",), "ce": ("not_entailment", "entailment")}
"""The names of a cross-encoder's logits, by its loss: those by which the judge `nli` knows what is a Yes."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a model says about some examples, one value each.

    Attributes:
        losses: float32 (n,): summed over the answer's tokens, not weighted.
        probabilities: float32 (n,): of Yes.
        parsed: bool (n,): False where a causal model's most likely next token is neither Yes nor No.
    """

    losses: torch.Tensor
    probabilities: torch.Tensor
    parsed: torch.Tensor


class Detector(ABC):
    """A model in training.

    Args:
        folder: The base model's files.
        recipe: How it is trained; its seed decides all new weights.
        tokenizer: The base model's.

    Raises:
        ValueError: The recipe does not fit the model.
    """

    task: ClassVar[str]
    """PEFT's name of the kind of model."""
    left: bool
    """On which side texts are padded."""

    def __init__(self, folder: Path, recipe: Recipe, tokenizer: Any) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.config = read_config(folder)
        check_max_length(recipe.max_length, self.config)
        _set_dropout(self.config, recipe.model_dropout)
        self.configure()
        torch.manual_seed(recipe.seed)
        dtype = DTYPES[recipe.dtype] if recipe.lora and recipe.kind == "causal" else torch.float32
        with quiet():
            base, report = self.find_class(self.config).from_pretrained(
                folder, config=self.config, dtype=dtype, use_safetensors=True, trust_remote_code=False,
                output_loading_info=True, **({"attn_implementation": recipe.attention} if recipe.attention else {}),
            )  # fmt: skip
        self.model: Any = _adapted(base, recipe, self.task)
        self.parameters = {name: each for name, each in self.model.named_parameters() if each.requires_grad}
        for parameter in self.parameters.values():
            parameter.data = parameter.data.float()
        _check_untrained(folder, report["missing_keys"], self.parameters)
        if recipe.gradient_checkpointing:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # a new name in transformers 5, the old one in 4
                self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    @staticmethod
    @abstractmethod
    def find_class(config: Any) -> Any:
        """The class of transformers that loads a model of this configuration."""

    @abstractmethod
    def configure(self) -> None:
        """Sets what the task needs in the configuration."""

    @abstractmethod
    def outcome(self, examples: Sequence[Example]) -> Outcome:
        """What the model says, with gradients; the order of the examples."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        found: torch.device = next(self.model.parameters()).device
        return found

    def state(self) -> dict[str, torch.Tensor]:
        """A copy of the trained weights, on the CPU."""
        return {name: each.detach().cpu().clone() for name, each in self.parameters.items()}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Takes weights that ``state`` gave."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(state[name])

    def save(self, folder: Path) -> None:
        """Writes the adapter in PEFT's form, or the whole model with its tokenizer; safetensors."""
        if self.recipe.lora is None:
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
            return
        # PEFT would look at the hub for the size of the base model's vocabulary, and write down where its files lay.
        self.model.peft_config["default"].base_model_name_or_path = self.recipe.base_model
        self.model.peft_config["default"].revision = self.recipe.revision
        self.model.save_pretrained(folder, save_embedding_layers=False)

    def autocast(self) -> Any:
        """The context of a forward pass."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.dtype == "bf16")

    def inputs(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """int64 (n, length) each, on the device."""
        padded = pad([each.row for each in examples], self.tokenizer.pad_token_id, self.left)
        return {name: values.to(self.device) for name, values in padded.items()}


class CausalDetector(Detector):
    """A language model that answers a prompt with Yes or No; the loss is on the answer's tokens only."""

    task, left = "CAUSAL_LM", True

    @staticmethod
    def find_class(config: Any) -> Any:
        """Any causal model."""
        return AutoModelForCausalLM

    def configure(self) -> None:
        """The tokens by which the judge reads an answer.

        Raises:
            ValueError: The tokenizer splits Yes or No, which the judge would not see.
        """
        self.yes, self.no = (list(find_label_ids(self.tokenizer, words)) for words in WORDS)
        for answer, known in zip(ANSWERS, (self.no, self.yes), strict=True):
            if answer_ids(self.tokenizer, self.recipe, answer)[0] not in known:
                raise ValueError(f"the tokenizer of {self.recipe.base_model} has no token for {answer!r} at this place")

    def outcome(self, examples: Sequence[Example]) -> Outcome:
        """See ``Detector``; the first answer token's logits decide the probability."""
        longest = max(each.n_answer for each in examples)
        inputs = self.inputs(examples)
        logits = self._last_logits(inputs, longest + 1)[:, :-1].float()  # (n, longest, vocabulary)
        targets = inputs["input_ids"][:, -longest:]
        sizes = torch.tensor([each.n_answer for each in examples], device=self.device)
        counts = torch.arange(longest, 0, -1, device=self.device) <= sizes[:, None]
        losses = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
        rows = torch.arange(len(examples), device=self.device)
        first = logits[rows, longest - sizes].log_softmax(1)
        no, yes = (first[:, ids].logsumexp(1) for ids in (self.no, self.yes))
        best = first.argmax(1)
        parsed = torch.isin(best, torch.tensor([*self.no, *self.yes], device=self.device))
        return Outcome((losses * counts).sum(1), torch.sigmoid(yes - no), parsed)

    def _last_logits(self, inputs: dict[str, torch.Tensor], count: int) -> torch.Tensor:
        known = inspect.signature(self.model.get_base_model().forward if self.recipe.lora else self.model.forward)
        more: dict[str, Any] = {"use_cache": False} if "use_cache" in known.parameters else {}
        if "position_ids" in known.parameters:
            more["position_ids"] = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
        if "logits_to_keep" in known.parameters:
            more["logits_to_keep"] = count
        with self.autocast():
            logits: torch.Tensor = self.model(**inputs, **more).logits
        return logits[:, -count:]


class CrossEncoderDetector(Detector):
    """An encoder that reads both texts, with a head of one logit (bce) or two (ce)."""

    task = "SEQ_CLS"

    @staticmethod
    def find_class(config: Any) -> Any:
        """Any sequence-classification model, or one with the head that the configuration names."""
        return find_classifier(config)

    def configure(self) -> None:
        """As many labels as the loss needs."""
        names = NAMES[self.recipe.loss]
        self.config.num_labels = len(names)
        self.config.id2label = dict(enumerate(names))
        self.config.label2id = {name: i for i, name in enumerate(names)}
        if self.config.pad_token_id is None:
            self.config.pad_token_id = self.tokenizer.pad_token_id
        if self.config.pad_token_id is None:
            raise ValueError(f"the tokenizer of {self.recipe.base_model} has no padding token: give it one and save it")
        self.left = self.config.model_type == "xlnet"  # as in lm.cross_encoder
        if self.recipe.head != "pooled":
            self.config.pair_head = self.recipe.head

    def inputs(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """See ``Detector``; some tokenizers make segment ids for models that have none."""
        found = super().inputs(examples)
        model = self.model.get_base_model() if self.recipe.lora else self.model
        known = "token_type_ids" in inspect.signature(model.forward).parameters
        if not known or getattr(self.config, "type_vocab_size", 2) < 2:
            found.pop("token_type_ids", None)
        return found

    def outcome(self, examples: Sequence[Example]) -> Outcome:
        """See ``Detector``; every answer can be read."""
        with self.autocast():
            logits = self.model(**self.inputs(examples)).logits.float()
        labels = torch.tensor([each.label for each in examples], device=self.device)
        if self.recipe.loss == "bce":
            losses = functional.binary_cross_entropy_with_logits(logits[:, 0], labels.float(), reduction="none")
            probabilities = torch.sigmoid(logits[:, 0])
        else:
            losses = functional.cross_entropy(logits, labels.long(), reduction="none")
            probabilities = logits.softmax(1)[:, 1]
        return Outcome(losses, probabilities, torch.ones_like(labels))

    def save(self, folder: Path) -> None:
        """See ``Detector``; an adapter's head has its labels' names beside it."""
        super().save(folder)
        if self.recipe.lora is not None:
            self.config.save_pretrained(folder)


DETECTORS: dict[str, type[Detector]] = {"causal": CausalDetector, "cross_encoder": CrossEncoderDetector}


def _adapted(base: Any, recipe: Recipe, task: str) -> Any:
    lora = recipe.lora
    if lora is None:
        return base
    modules = [name for name, _ in base.named_modules()]
    for key in ("target_modules", "train_also"):
        for name in getattr(lora, key):
            if not any(each == name or each.endswith(f".{name}") for each in modules):
                kinds = sorted({each.rpartition(".")[2] for each in modules if each} - set(map(str, range(1000))))
                raise ValueError(f"lora.{key}: {type(base).__name__} has no {name}: its modules: {', '.join(kinds)}")
    config = LoraConfig(
        task_type=task, r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, bias=lora.bias,
        target_modules=list(lora.target_modules), modules_to_save=list(lora.train_also) or None,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PEFT asks transformers by a name that will go
        return get_peft_model(base, config)


def _set_dropout(config: Any, dropout: float | None) -> None:
    """Under whatever names the architecture has for it."""
    names = [name for name in config.to_dict() if "dropout" in name and isinstance(getattr(config, name), int | float)]
    if dropout is not None and not names:
        raise ValueError(f"model_dropout: {dropout}: {type(config).__name__} has no dropout: leave it out")
    for name in names if dropout is not None else ():
        setattr(config, name, dropout)


def _check_untrained(folder: Path, missing: Iterable[str], trained: Iterable[str]) -> None:
    """Refuses tensors that are neither in the model's files nor trained: they would stay random."""
    names = {name.removeprefix(PREFIX).replace(".modules_to_save.default", "") for name in trained}
    if random := sorted(set(missing) - names):
        raise ValueError(
            f"the weights in {folder} lack {random[0]} ({len(random)} such tensors), and the recipe does not train it: "
            "name its module in lora.train_also, or choose another base model"
        )

"""Causal language models: the probabilities of answers at the next token, and greedy generation.

Any causal model of transformers, with an adapter or without. Prompts are token ids (``lm/rendering.py`` makes them);
answers come batch by batch, as they finish:

    model = CausalModel("owner/model", dtype="bf16")
    labels = [model.label_ids(["yes", "Yes"]), model.label_ids(["no", "No"])]
    for position, answer in model.score(prompts, labels):
        ...

One forward pass per batch, logits at the last token of each prompt only, and what prompts have in common is computed
once (``lm/prefixes.py``) where the model allows it, which is tried out with a few tokens when it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, AutoTokenizer

from corpora.fingerprint import digest
from lm.batching import Batcher, Forward, check_sizes, find_devices
from lm.prefixes import Group, Ids, alone, plan
from lm.replica import Replica, find_window
from lm.source import Source
from lm.transformer import DTYPES, Dtype, check_complete, find_max_length, quiet, read_config, spread

CPU_TOKENS = 2048
"""Tokens per batch on a CPU."""
GPU_TOKENS = 16384
"""Tokens per batch on a GPU: a 7-billion model is as fast with more, and answers would come late."""
GROUP_TOKENS = 4096
"""Tokens of prompts that are computed together because of what they share; less where a batch has less."""
WINDOW = 2048
"""Prompts that are planned at a time: enough for full batches and for all prompts of a passage to meet."""
AUTO = "auto"
"""The device name that lays one model out over all devices (accelerate), for models larger than a card."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What a model would answer with its next token.

    Attributes:
        log_probabilities: Of each label, all its spellings together; natural logarithms, over the whole vocabulary.
        label: The label of the most probable token; None where it is another word.
        text: The most probable token.
    """

    log_probabilities: tuple[float, ...]
    label: int | None
    text: str


class Scorer(Protocol):
    """What a judge needs of a causal language model, here or on a server."""

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer, in transformers' form."""
        ...

    def score(self, prompts: Sequence[Ids], labels: Sequence[Sequence[int]]) -> Iterator[tuple[int, Scored]]:
        """See ``CausalModel.score``."""
        ...

    def generate(self, prompts: Sequence[Ids], max_new_tokens: int) -> Iterator[tuple[int, str]]:
        """See ``CausalModel.generate``."""
        ...


class CausalModel:
    """A causal language model on this machine.

    Args:
        model: Model id of the hub, or a local folder.
        revision: Branch, tag or commit; None: ``main``, the commit being part of the fingerprint.
        adapter: Folder or model id of a LoRA adapter, merged into the model on loading.
        adapter_revision: The same as ``revision``.
        dtype: ``fp32``, ``bf16`` or ``fp16``: of weights and activations; the last layer is fp32.
        device: None: a replica on each GPU, else the CPU; ``cpu``, ``cuda`` (all), ``cuda:1``, ``cuda:0,cuda:2``; or
            ``auto``: one model over all GPUs.
        batch_tokens: At most this many tokens at a time, padding included; None: 2048 on a CPU, 16384 on a GPU. Halved
            for good where memory runs out.
        share: Whether what prompts have in common is computed once.
    """

    version: ClassVar[int] = 1
    runtime_args: ClassVar[tuple[str, ...]] = ("device", "batch_tokens", "share")

    def __init__(
        self,
        model: str | Path,
        revision: str | None = None,
        adapter: str | Path | None = None,
        adapter_revision: str | None = None,
        dtype: Dtype = "fp32",
        device: str | None = None,
        batch_tokens: int | None = None,
        share: bool = True,
    ) -> None:
        if dtype not in DTYPES:
            raise ValueError(f"dtype={dtype}: expected one of {', '.join(DTYPES)}")
        check_sizes(batch_tokens=batch_tokens)
        self.model, self.revision = model, revision
        self.adapter, self.adapter_revision = adapter, adapter_revision
        self.dtype, self.device, self.batch_tokens, self.share = dtype, device, batch_tokens, share
        self.source = Source(model, revision)
        self.adapter_source = None if adapter is None else Source(adapter, adapter_revision)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of model and adapter (id and commit, or content) and dtype."""
        adapter = self.adapter_source.identity if self.adapter_source else None
        return digest(["CausalModel", self.version, self.source.identity, adapter, self.dtype])

    def prefetch(self) -> None:
        """Downloads model and adapter, as far as they are not cached."""
        self.source.prefetch()
        if self.adapter_source:
            self.adapter_source.prefetch()

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer; no weights are read."""
        return AutoTokenizer.from_pretrained(self.source.tokenizer_folder, trust_remote_code=False)

    @cached_property
    def config(self) -> Any:
        """The model's configuration; no weights are read."""
        return read_config(self.source.tokenizer_folder)

    @cached_property
    def max_length(self) -> int:
        """How many tokens the model takes."""
        return find_max_length(self.tokenizer, self.config)

    @property
    def shares(self) -> bool:
        """Whether common tokens are computed once: it is wanted, and this model gives the same answers then."""
        return self.share and self._replicas[0].shares

    def score(self, prompts: Sequence[Ids], labels: Sequence[Sequence[int]]) -> Iterator[tuple[int, Scored]]:
        """(position, answer) of each prompt, in any order, as batches finish.

        An answer depends neither on the other prompts nor on their order, up to rounding.

        Args:
            prompts: Token ids, at least one each; ``max_length`` is the caller's business.
            labels: The token ids that count as each label (``label_ids``).

        Raises:
            ValueError: A prompt does not fit into memory, or the model gives NaN.
        """
        for start in range(0, len(prompts), WINDOW):
            for position, answer in self._window(prompts[start : start + WINDOW], labels):
                yield start + position, answer

    def _window(self, prompts: Sequence[Ids], labels: Sequence[Sequence[int]]) -> Iterator[tuple[int, Scored]]:
        window = find_window(self.config) if self.shares else 0
        begin, groups = plan(prompts, [i for i, ids in enumerate(prompts) if len(ids) < window], self._most)
        rest = alone(prompts, [i for i, ids in enumerate(prompts) if len(ids) >= window])
        together = [group for group in groups if len(group.shared)]
        for first, chosen in (
            (begin, together),
            (begin, [each for each in groups if not len(each.shared)]),
            ((), rest),
        ):
            forwards = [_forward(replica, first, chosen, labels) for replica in self._replicas]
            for part, found in self._batcher.stream([group.length for group in chosen], forwards):
                positions = [position for number in part for position in chosen[number].positions]
                yield from zip(positions, self._answers(found, labels), strict=True)

    @property
    def _most(self) -> int:
        return min(self._batcher.batch_tokens, GROUP_TOKENS)

    def _answers(self, found: NDArray[np.float32], labels: Sequence[Sequence[int]]) -> Iterator[Scored]:
        if not np.isfinite(found[:, -1]).all():
            hint = "try dtype=bf16" if self.dtype == "fp16" else "the model or its weights are broken"
            raise ValueError(f"model {self.model} returned NaN or infinity: {hint}")
        owner = {token: label for label, ids in enumerate(labels) for token in ids}
        for *logs, best in found.tolist():
            yield Scored(tuple(logs), owner.get(int(best)), str(self.tokenizer.decode([int(best)])))

    def generate(self, prompts: Sequence[Ids], max_new_tokens: int) -> Iterator[tuple[int, str]]:
        """(position, answer) of each prompt by greedy generation, as batches finish; special tokens are left out."""
        for start in range(0, len(prompts), WINDOW):
            chosen = prompts[start : start + WINDOW]
            forwards = [_generator(replica, chosen, max_new_tokens) for replica in self._replicas]
            for part, found in self._batcher.stream([len(ids) + max_new_tokens for ids in chosen], forwards):
                for position, ids in zip(part, found.astype(int).tolist(), strict=True):
                    text = self.tokenizer.decode([token for token in ids if token >= 0], skip_special_tokens=True)
                    yield start + position, str(text)

    def label_ids(self, words: Sequence[str]) -> tuple[int, ...]:
        """See ``find_label_ids``."""
        return find_label_ids(self.tokenizer, words)

    @cached_property
    def _batcher(self) -> Batcher:
        on_cpu = self._replicas[0].device.type == "cpu"
        return Batcher(1 << 30, self.batch_tokens or (CPU_TOKENS if on_cpu else GPU_TOKENS))

    @cached_property
    def _replicas(self) -> list[Replica]:
        auto = self.device == AUTO
        devices = [] if auto else find_devices(self.device)  # before the weights are read
        model = self._load(auto)
        models = [model] if auto else spread(model, devices)
        return [Replica(each, self.share) for each in models]

    def _load(self, auto: bool) -> Any:
        """The model, its adapter merged in fp32."""
        folder, dtype = self.source.folder, DTYPES[self.dtype]
        loader: Callable[..., Any] = AutoModelForCausalLM.from_pretrained
        with quiet():
            model, report = loader(
                folder, config=self.config, dtype=torch.float32 if self.adapter_source else dtype,
                device_map="auto" if auto else None, use_safetensors=True, trust_remote_code=False,
                output_loading_info=True,
            )  # fmt: skip
        check_complete(folder, report["missing_keys"])
        if self.adapter_source:
            from lm.adapter import merge_adapter  # PEFT is needed for adapters only

            model = merge_adapter(model, self.adapter_source.folder).to(dtype)
        return model.eval()


def find_label_ids(tokenizer: Any, words: Sequence[str]) -> tuple[int, ...]:
    """The tokens that are one of the words, with a blank before it or without; sorted.

    Raises:
        ValueError: No token is.
    """
    found = {
        token
        for text, token in tokenizer.get_vocab().items()
        if (text[1:] if text[:1] in ("\u2581", "\u0120", " ") else text) in words
    }
    if not found:
        raise ValueError(f"the tokenizer has no token for {' or '.join(map(repr, words))}: choose another model")
    return tuple(sorted(found))


def _forward(replica: Replica, begin: Ids, groups: Sequence[Group], labels: Sequence[Sequence[int]]) -> Forward:
    def forward(part: list[int]) -> NDArray[np.float32]:
        logits = replica.logits(begin, [groups[number] for number in part])
        logs = torch.log_softmax(logits, dim=-1)
        columns = [torch.logsumexp(logs[:, list(ids)], dim=-1) for ids in labels]
        best = logs.argmax(dim=-1).float()
        best[logs.isnan().any(dim=-1)] = torch.nan
        found: NDArray[np.float32] = torch.stack([*columns, best], dim=1).cpu().numpy()
        return found

    return forward


def _generator(replica: Replica, prompts: Sequence[Ids], max_new_tokens: int) -> Forward:
    def forward(part: list[int]) -> NDArray[np.float32]:
        return replica.generate([prompts[position] for position in part], max_new_tokens)

    return forward

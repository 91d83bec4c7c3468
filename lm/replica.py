"""One copy of a causal language model on its device: groups of prompts in, logits at the last tokens out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache, GenerationConfig

from lm.prefixes import Group, Ids
from lm.transformer import pad

TOLERANCE = {torch.float32: 0.01, torch.bfloat16: 0.2, torch.float16: 0.1}
"""How far logits with and without sharing may be apart, as a share of what another beginning of the prompt changes."""
_CANNOT = (TypeError, ValueError, RuntimeError, AttributeError, IndexError, KeyError)


@dataclass(frozen=True, slots=True)
class Computed:
    """Tokens that are computed, for others that follow them.

    Attributes:
        layers: Keys and values of each layer, (n, heads, length, size); padding may stand anywhere.
        real: bool (n, length): what is no padding.
    """

    layers: dict[int, tuple[torch.Tensor, torch.Tensor]]
    real: torch.Tensor


class Replica:
    """A model in one place.

    Its last layer is computed in fp32, for the tokens that are asked for only: in bf16, logits around 20 are 1/8 apart,
    and probabilities would depend on the batch.

    Args:
        model: A causal model of transformers, which is changed.
        share: Whether sharing is wanted at all.
    """

    def __init__(self, model: Any, share: bool = True) -> None:
        self.model = model
        self.share = share
        self.device: torch.device = model.get_input_embeddings().weight.device
        self._places: tuple[torch.Tensor, torch.Tensor] | None = None
        self._begin: tuple[tuple[int, ...], Computed | None] = ((), None)
        ends = model.generation_config.eos_token_id
        self._ends: list[int] = [] if ends is None else ends if isinstance(ends, list) else [ends]
        fill = self._ends[0] if self._ends else 0
        make: Callable[..., Any] = GenerationConfig  # a repository's sampling, penalties and lengths must not count
        model.generation_config = make(eos_token_id=self._ends or None, pad_token_id=fill)
        head = model.get_output_embeddings()
        if head is None:
            raise ValueError(f"{type(model).__name__} has no output layer: expected a causal language model")
        for name, values in list(head.named_parameters(recurse=False)):
            if values.dtype != torch.float32:  # of its own, where it is tied to the input layer
                setattr(head, name, torch.nn.Parameter(values.detach().float(), requires_grad=False))
        head.register_forward_pre_hook(self._pick)

    def _pick(self, head: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        hidden = inputs[0]
        if self._places is not None:
            rows, columns = (each.to(hidden.device) for each in self._places)
            hidden = hidden[rows, columns][None]
        return (hidden.float(),)

    @torch.inference_mode()
    def logits(self, begin: Ids, groups: Sequence[Group]) -> torch.Tensor:
        """fp32 (n, vocabulary): what follows each prompt, group by group.

        Args:
            begin: The tokens that all of them begin with; they are kept for the next call.
            groups: At least one; either all of them share tokens, or none does.
        """
        before = self._beginning(begin)
        index = torch.zeros(len(groups), dtype=torch.int64)
        if any(len(group.shared) for group in groups):
            _, before = self._run([group.shared for group in groups], before, index, keep=True)
            index = torch.tensor([row for row, group in enumerate(groups) for _ in group.rests])
        return self._run([rest for group in groups for rest in group.rests], before, index, keep=False)[0]

    def _beginning(self, begin: Ids) -> Computed | None:
        if not len(begin):
            return None
        if self._begin[0] != tuple(begin):
            self._begin = ((), None)
            self._begin = (tuple(begin), self._run([begin], None, torch.zeros(1, dtype=torch.int64), keep=True)[1])
        return self._begin[1]

    def _run(
        self, rows: Sequence[Ids], before: Computed | None, index: torch.Tensor, keep: bool
    ) -> tuple[torch.Tensor, Computed | None]:
        """Logits at each row's end (where they are to be kept: of the first row only), and what was computed.

        Args:
            rows: Token ids, padded on the right: a causal model sees nothing of what is behind.
            before: What stands before them; None: nothing, then plain causal attention is right.
            index: Which row of ``before`` each row follows.
            keep: Whether other tokens will follow these.
        """
        lengths = torch.tensor([len(ids) for ids in rows])
        asked = slice(0, 1) if keep else slice(None)
        self._places = (torch.arange(len(rows))[asked], lengths[asked] - 1)
        ids = torch.zeros((len(rows), int(lengths.max())), dtype=torch.int64)
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)] = torch.tensor(tokens)
        ids, lengths, index = ids.to(self.device), lengths.to(self.device), index.to(self.device)
        real = torch.arange(ids.shape[1], device=self.device) < lengths[:, None]
        inputs: dict[str, Any] = {"input_ids": ids, "use_cache": keep or before is not None}
        if before is not None:
            real = torch.cat([before.real[index], real], dim=1)
            start = before.real.sum(dim=1)[index]
            inputs["position_ids"] = start[:, None] + torch.arange(ids.shape[1], device=self.device)
            inputs["attention_mask"] = self._mask(before.real[index], ids.shape[1])
        cache = _Cache(before, index, keep)
        if inputs["use_cache"]:
            inputs["past_key_values"] = cache
        try:
            logits: torch.Tensor = self.model(**inputs).logits[0]
        finally:
            self._places = None
        return logits, Computed(cache.kept, real) if keep else None

    def _mask(self, before: torch.Tensor, length: int) -> torch.Tensor:
        """(n, 1, length, before + length), to be added: each token sees what is real before, and itself causally."""
        sees = torch.ones((length, length), dtype=torch.bool, device=before.device).tril().expand(len(before), -1, -1)
        sees = torch.cat([before[:, None, :].expand(-1, length, -1), sees], dim=2)[:, None]
        dtype = self.model.dtype
        return torch.zeros(sees.shape, dtype=dtype, device=sees.device).masked_fill_(~sees, torch.finfo(dtype).min)

    @cached_property
    def shares(self) -> bool:
        """Whether this model gives the same answers when tokens are shared; tried out once with a few tokens.

        Recurrent models and those with attention of their own kind do not, and are asked prompt by prompt.
        """
        if not self.share:
            return False
        ids = [(7 * i + 3) % min(64, self.model.config.get_text_config().vocab_size) for i in range(32)]
        begin, shared, rests = ids[:8], (ids[8:15], ids[8:12]), (ids[15:19], ids[19:24])
        right, other = (
            self.logits((), [Group((), ([*first, *each, *rest],), (0,)) for each in shared for rest in rests])
            for first in (begin, ids[24:])
        )
        try:
            together = self.logits(begin, [Group(each, rests, (0, 1)) for each in shared])
            problem = float((right - together).norm() / (right - other).norm().clamp_min(1e-9))
        except _CANNOT:
            problem = float("inf")
        finally:
            self._begin = ((), None)
        if problem <= TOLERANCE[self.model.dtype]:
            return True
        warnings.warn(
            f"{type(self.model).__name__} cannot share the beginnings of prompts: judging is slower, and as right",
            stacklevel=2,
        )
        return False

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Ids], max_new_tokens: int) -> NDArray[np.float32]:
        """float32 (n, max_new_tokens): greedy continuations, without what ends them; -1 behind their end."""
        ends, fill = self._ends, self._ends[0] if self._ends else 0
        inputs = pad([{"input_ids": list(ids)} for ids in prompts], fill, left=True)
        inputs = {name: values.to(self.device) for name, values in inputs.items()}
        made = self.model.generate(**inputs, do_sample=False, max_new_tokens=max_new_tokens)[
            :, inputs["input_ids"].shape[1] :
        ].cpu()
        found = np.full((len(prompts), max_new_tokens), -1, np.float32)
        for row, ids in enumerate(made.tolist()):
            end = next((place for place, token in enumerate(ids) if token in ends), len(ids))
            found[row, :end] = ids[:end]
        return found


class _Cache(DynamicCache):
    """Gives each layer the keys and values that stand before its own, copied when they are used."""

    def __init__(self, before: Computed | None, index: torch.Tensor, keep: bool) -> None:
        super().__init__()
        self.before, self.index, self.keep = before, index, keep
        self.kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.before is not None:
            keys, values = self.before.layers[layer_idx]
            rows = self.index.to(keys.device)
            key_states = torch.cat([keys[rows], key_states], dim=-2)
            value_states = torch.cat([values[rows], value_states], dim=-2)
        if self.keep:
            self.kept[layer_idx] = (key_states, value_states)
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0, *_: Any) -> int:
        return 0 if self.before is None else self.before.real.shape[1]


def find_window(config: Any) -> int:
    """The number of tokens below which every token of a prompt sees all before it."""
    text = config.get_text_config()
    if getattr(text, "use_sliding_window", True) is False:
        return 1 << 62
    sizes = (getattr(text, name, None) for name in ("sliding_window", "attention_chunk_size"))
    return min((int(size) for size in sizes if size), default=1 << 62)

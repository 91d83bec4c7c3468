"""One copy of a causal language model on its device: trees of prompts in, logits at the last tokens out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache, GenerationConfig

from lm.prefixes import Batch, Ids, Tree, make_batch
from lm.transformer import pad

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.15, torch.float16: 0.05}
"""How far logits with and without sharing may be apart, in standard deviations; far less than any error makes."""
_CANNOT = (TypeError, ValueError, RuntimeError, AttributeError, IndexError, KeyError)


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
        self._begin: tuple[tuple[int, ...], list[tuple[torch.Tensor, torch.Tensor]]] = ((), [])
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
    def logits(self, begin: Ids, trees: Sequence[Tree]) -> torch.Tensor:
        """fp32 (n, vocabulary): what follows each prompt, tree by tree.

        Args:
            begin: The tokens that all of them begin with; they are kept for the next call.
            trees: At least one.
        """
        batch = make_batch(trees, len(begin), self.device)
        if batch.mask is None:
            # Padding is on the right, where a causal model sees nothing of it: no mask, and the fastest attention.
            return self._run(batch, input_ids=batch.input_ids, use_cache=False)
        cache = self._cache(begin, len(trees)) if len(begin) else None
        return self._run(
            batch,
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            attention_mask=self._form(batch.mask),
            past_key_values=cache,
            use_cache=cache is not None,
        )

    def _run(self, batch: Batch, **inputs: Any) -> torch.Tensor:
        self._places = (batch.rows, batch.columns)
        try:
            logits: torch.Tensor = self.model(**inputs).logits[0]
            return logits
        finally:
            self._places = None

    def _form(self, mask: torch.Tensor) -> torch.Tensor:
        """The mask as the model's attention wants it: SDPA takes truth values, others add."""
        if getattr(self.model.config, "_attn_implementation", "") == "sdpa":
            return mask
        dtype = self.model.dtype
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)

    def _cache(self, begin: Ids, rows: int) -> Any:
        """Keys and values of the beginning, once per row."""
        if self._begin[0] != tuple(begin):
            cache: Any = DynamicCache()
            self._places = (torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
            try:
                self.model(
                    input_ids=torch.tensor([list(begin)], device=self.device), past_key_values=cache, use_cache=True
                )
            finally:
                self._places = None
            self._begin = (tuple(begin), [(layer.keys, layer.values) for layer in cache.layers])
        full: Any = DynamicCache()
        for index, (keys, values) in enumerate(self._begin[1]):
            full.update(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1), index)
        return full

    @cached_property
    def shares(self) -> bool:
        """Whether this model gives the same answers when tokens are shared; tried out once with a few tokens.

        Recurrent models and those with attention of their own kind do not, and are asked prompt by prompt.
        """
        if not self.share:
            return False
        ids = [(7 * i + 3) % min(64, self.model.config.get_text_config().vocab_size) for i in range(24)]
        begin, shared, rests = ids[:8], ids[8:15], [ids[15:19], ids[19:24]]
        apart = self.logits((), [Tree((), [[*begin, *shared, *rest]], [0]) for rest in rests])
        try:
            together = self.logits(begin, [Tree(shared, [*rests], [0, 1])])
            problem = float((apart - together).abs().max() / apart.std().clamp_min(1e-6))
        except _CANNOT:
            problem = float("inf")
        finally:
            self._begin = ((), [])
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
        ends = self.model.generation_config.eos_token_id
        ends = [] if ends is None else ends if isinstance(ends, list) else [ends]
        fill = ends[0] if ends else 0
        inputs = pad([{"input_ids": list(ids)} for ids in prompts], fill, left=True)
        settings: Any = GenerationConfig(  # type: ignore[no-untyped-call]  # of its own: a repository's sampling, penalties or lengths must not count
            do_sample=False, num_beams=1, max_new_tokens=max_new_tokens, eos_token_id=ends or None, pad_token_id=fill
        )
        inputs = {name: values.to(self.device) for name, values in inputs.items()}
        made = self.model.generate(**inputs, generation_config=settings)[:, inputs["input_ids"].shape[1] :].cpu()
        found = np.full((len(prompts), max_new_tokens), -1, np.float32)
        for row, ids in enumerate(made.tolist()):
            end = next((place for place, token in enumerate(ids) if token in ends), len(ids))
            found[row, :end] = ids[:end]
        return found


def find_window(config: Any) -> int:
    """The number of tokens below which every token of a prompt sees all before it."""
    text = config.get_text_config()
    if getattr(text, "use_sliding_window", True) is False:
        return 1 << 62
    sizes = (getattr(text, name, None) for name in ("sliding_window", "attention_chunk_size"))
    return min((int(size) for size in sizes if size), default=1 << 62)

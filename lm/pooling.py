"""From a model's output to one vector per text."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import torch

Pooling: TypeAlias = Literal["mean", "cls", "last", "pooler"]


def pool(output: Any, mask: torch.Tensor, pooling: Pooling) -> torch.Tensor:
    """float32 (n, d), computed in float32 whatever the model's dtype.

    Args:
        output: What a transformers model returns.
        mask: int64 (n, length), 1 for tokens and 0 for padding, which is on the right.
        pooling: ``mean`` over the tokens; ``cls``, the first token; ``last``, the last one; ``pooler``, the model's own
            ``pooler_output`` (DPR).

    Raises:
        ValueError: The model has no output of this kind.
    """
    name = "pooler_output" if pooling == "pooler" else "last_hidden_state"
    found = getattr(output, name, None)
    if found is None:
        raise ValueError(f"pooling={pooling}: the model returns no {name}: choose another pooling")
    states: torch.Tensor = found.float()
    if pooling == "pooler":
        return states
    if pooling == "cls":
        return states[:, 0]
    if pooling == "last":
        return states[torch.arange(len(states), device=states.device), mask.sum(1) - 1]
    states = states.masked_fill(~mask[..., None].bool(), 0.0)
    return states.sum(1) / mask.sum(1, keepdim=True)

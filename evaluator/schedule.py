"""When what is learned: orders, batches, learning rates and evaluations as pure functions of a recipe and a step.

Nothing here has a state, so a training that was killed goes on exactly where it was, and its result does not depend on
how many processes share the work: the micro-batches of a step are the same, dropout is drawn per micro-batch, and the
processes take turns in taking them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from corpora.fingerprint import digest
from evaluator.recipe import Recipe


def steps_per_epoch(n: int, recipe: Recipe) -> int:
    """Optimizer steps for n pairs; the last batch of an epoch may be smaller."""
    return math.ceil(n / recipe.effective_batch)


def count_steps(n: int, recipe: Recipe) -> int:
    """Optimizer steps of the whole training."""
    return recipe.epochs * steps_per_epoch(n, recipe)


def micro_batches(step: int, lengths: Sequence[int], recipe: Recipe) -> list[list[int]]:
    """Positions of the pairs of one optimizer step, in micro-batches of similar length.

    Args:
        step: From 0.
        lengths: Tokens of each pair.
        recipe: Its ``seed`` says in which order the pairs of an epoch come.
    """
    epoch, place = divmod(step, steps_per_epoch(len(lengths), recipe))
    order = np.random.default_rng([recipe.seed, epoch]).permutation(len(lengths))
    start = place * recipe.effective_batch
    return by_length(order[start : start + recipe.effective_batch].tolist(), lengths, recipe.micro_batch)


def by_length(positions: Sequence[int], lengths: Sequence[int], size: int) -> list[list[int]]:
    """The positions in batches of a size, longest first: little padding, and memory runs out at once or not at all."""
    order = sorted(positions, key=lambda position: (-lengths[position], position))
    return [order[start : start + size] for start in range(0, len(order), size)]


def dropout_seed(seed: int, step: int, micro_batch: int) -> int:
    """The seed of the dropout in one micro-batch of one step."""
    return int(digest(["dropout", seed, step, micro_batch])[:15], 16)


def learning_rate(step: int, n_steps: int, recipe: Recipe) -> float:
    """The rate of a step (from 0): it rises in a line from 0 in the warm-up, then follows the schedule.

    The same values as those of the schedules of transformers.
    """
    warmup = math.ceil(recipe.warmup * n_steps)
    if step < warmup:
        return recipe.learning_rate * step / warmup
    done = (step - warmup) / max(1, n_steps - warmup)
    shares = {"linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2, "constant": 1.0}
    return recipe.learning_rate * shares[recipe.schedule]


def evaluation_steps(n: int, recipe: Recipe) -> list[int]:
    """After how many steps the dev pairs are judged: evenly through each epoch, and at its end."""
    each = steps_per_epoch(n, recipe)
    within = {math.ceil(i * each / recipe.evaluations_per_epoch) for i in range(1, recipe.evaluations_per_epoch + 1)}
    return sorted(epoch * each + step for epoch in range(recipe.epochs) for step in within)

"""What is learnt when: by hand, and against transformers' own schedules."""

from __future__ import annotations

import pytest
import yaml

# ruff: noqa: E402
torch = pytest.importorskip("torch", reason="needs the extra 'judge'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'judge'")

from evaluator.recipe import Recipe
from evaluator.recipe_file import load_recipe, parse_recipe
from evaluator.schedule import (
    by_length,
    count_steps,
    dropout_seed,
    evaluation_steps,
    learning_rate,
    micro_batches,
    steps_per_epoch,
)


def recipe(**changes: object) -> Recipe:
    values = {"kind": "cross_encoder", "base_model": "m", "epochs": 2, "learning_rate": 1e-3, "effective_batch": 4}
    return parse_recipe(values | {"max_length": 64, "micro_batch": 2, "dev_pairs": 1} | changes, "r")


def test_steps_of_the_published_training():
    """2 epochs of 3,000 pairs, 128 at a time: 23 whole batches and one of 56, twice."""
    published = load_recipe("berds-mistral")
    assert steps_per_epoch(3000, published) == 24
    assert count_steps(3000, published) == 48


def test_an_epoch_takes_every_pair_once_and_each_epoch_has_its_own_order():
    lengths = [3, 9, 4, 1, 5, 9, 2, 6, 5, 3]
    batches = [micro_batches(step, lengths, recipe()) for step in range(6)]
    sizes = [[len(part) for part in batch] for batch in batches]
    assert sizes == [[2, 2], [2, 2], [2]] * 2  # 10 pairs: 4 + 4 + 2, in micro-batches of 2
    epochs = [[position for batch in batches[i : i + 3] for part in batch for position in part] for i in (0, 3)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    other = [micro_batches(step, lengths, recipe(seed=1)) for step in range(3)]
    assert other != batches[:3]
    assert micro_batches(4, lengths, recipe()) == batches[4]  # a step needs no step before it


def test_effective_batch_is_whole_whatever_the_micro_batch():
    lengths = [7] * 64
    for micro_batch in (1, 3, 5, 16, 100):
        chosen = recipe(effective_batch=16, micro_batch=micro_batch)
        parts = micro_batches(1, lengths, chosen)
        positions = [position for part in parts for position in part]
        assert len(set(positions)) == len(positions) == 16
        assert set(positions) == {
            each for part in micro_batches(1, lengths, recipe(effective_batch=16)) for each in part
        }
        assert max(map(len, parts)) == min(16, micro_batch)


def test_longest_first():
    assert by_length([4, 0, 2, 3], [5, 99, 1, 7, 5], 3) == [[3, 0, 4], [2]]


@pytest.mark.parametrize(
    "name, schedule", [("linear", "linear"), ("cosine", "cosine"), ("constant_with_warmup", "constant")]
)
@pytest.mark.parametrize("warmup, n_steps", [(0.1, 47), (0.0, 5), (0.5, 3), (1.0, 4), (0.1, 1)])
def test_learning_rates_are_those_of_transformers(name: str, schedule: str, warmup: float, n_steps: int):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    warmup_steps = -int(-warmup * n_steps // 1)
    theirs = transformers.get_scheduler(name, optimizer, warmup_steps, n_steps)
    ours = recipe(schedule=schedule, warmup=warmup)
    for step in range(n_steps):
        assert learning_rate(step, n_steps, ours) == pytest.approx(theirs.get_last_lr()[0], rel=1e-12, abs=1e-15)
        optimizer.step()
        theirs.step()


def test_published_rates():
    """48 steps, a tenth of them (5) of warm-up: 0, 0.2, 0.4, 0.6, 0.8 of 1e-4, then 1e-4 down to 1/43 of it."""
    published = load_recipe("berds-mistral")
    rates = [learning_rate(step, 48, published) / 1e-4 for step in range(48)]
    assert rates[:6] == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[47] == pytest.approx(1 / 43)


@pytest.mark.parametrize(
    "n, per_epoch, expected",
    [
        (16, 4, [1, 2, 3, 4, 5, 6, 7, 8]),  # 4 steps an epoch
        (16, 1, [4, 8]),
        (16, 2, [2, 4, 6, 8]),
        (40, 4, [3, 5, 8, 10, 13, 15, 18, 20]),  # 10 steps: after 2.5, 5, 7.5 and 10
        (3, 4, [1, 2]),  # fewer steps than evaluations: each once
    ],
)
def test_evaluations(n: int, per_epoch: int, expected: list[int]):
    assert evaluation_steps(n, recipe(evaluations_per_epoch=per_epoch)) == expected


def test_dropout_seeds_differ():
    seeds = {dropout_seed(seed, step, i) for seed in range(3) for step in range(20) for i in range(5)}
    assert len(seeds) == 300
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_recipe_of_the_card_is_the_recipe():
    published = load_recipe("berds-mistral")
    assert parse_recipe(yaml.safe_load(yaml.safe_dump(published.described())), "card") == published

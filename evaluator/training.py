"""The training loop: gradients summed over micro-batches and processes, dev pairs judged in between, the best kept.

Any number of processes (``accelerate launch`` or ``torchrun``, one per GPU) give the same result up to rounding:
each takes every n-th micro-batch of a step, gradients are summed, and dropout depends on the micro-batch, not on the
process. A killed training goes on from its last checkpoint and ends with the same weights as one that was not.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object, reduce
from tqdm import tqdm

from evaluator.checkpoints import Checkpoints, Evaluation, Progress
from evaluator.detectors import Detector
from evaluator.examples import Example
from evaluator.recipe import Recipe
from evaluator.schedule import (
    by_length,
    count_steps,
    dropout_seed,
    evaluation_steps,
    learning_rate,
    micro_batches,
    steps_per_epoch,
)

THRESHOLD = 0.5
Answer = tuple[int, float, float, bool]
"""Position of a dev pair, its loss, the probability of Yes, and whether the answer could be read."""


class Trainer:
    """One training in this process.

    Args:
        detector: On its device.
        train: The pairs to learn.
        dev: The pairs to choose by.
        state: Accelerate's: which process of how many this is.
        checkpoints: Where progress is kept.
        checkpoint_every: Optimizer steps between checkpoints; None: at evaluations only.
    """

    def __init__(
        self,
        detector: Detector,
        train: Sequence[Example],
        dev: Sequence[Example],
        state: PartialState,
        checkpoints: Checkpoints,
        checkpoint_every: int | None = None,
    ) -> None:
        self.detector, self.recipe = detector, detector.recipe
        self.train, self.dev = train, dev
        self.state: Any = state
        self.checkpoints = checkpoints
        self.checkpoint_every = checkpoint_every
        self.lengths = [each.length for each in train]
        self.n_steps = count_steps(len(train), self.recipe)
        self.optimizer = make_optimizer(detector.parameters, self.recipe)

    def run(self) -> Progress:
        """Trains to the end, from the last checkpoint on; afterwards the detector has the best weights.

        Raises:
            ValueError: The loss is no number any more; or a batch does not fit into memory.
        """
        progress = self.checkpoints.load(self.detector.parameters, self.optimizer, self.detector.device)
        evaluated = set(evaluation_steps(len(self.train), self.recipe))
        hidden = None if self.state.is_main_process else True  # None: hidden where nobody watches
        with tqdm(total=self.n_steps, initial=progress.step, desc="training", unit="step", disable=hidden) as bar:
            while progress.step < self.n_steps:
                loss = self.step(progress.step)
                progress.step += 1
                progress.losses.append(loss)
                if progress.step in evaluated:
                    self._evaluate(progress)
                if progress.step in evaluated or self._is_due(progress.step):
                    self._save(progress)
                best = progress.best
                bar.set_postfix(loss=f"{loss:.4f}", **({"best_f1": f"{best.f1:.3f}"} if best else {}), refresh=False)
                bar.update()
        self.state.wait_for_everyone()
        if progress.best is None:
            raise RuntimeError("a training ended without an evaluation")
        self.detector.load_state(self.checkpoints.load_best(progress.best.step))
        return progress

    def step(self, step: int) -> float:
        """One optimizer step; the loss of its batch, per unit of weight."""
        self.detector.model.train()
        try:
            loss = self._backward(step)
        except torch.OutOfMemoryError as error:
            raise ValueError(f"{self.recipe.micro_batch} pairs do not fit into memory: lower micro_batch") from error
        if not math.isfinite(loss):
            raise ValueError(f"the loss is {loss} at step {step + 1}: lower learning_rate, or set dtype=fp32")
        if self.recipe.max_grad_norm:
            torch.nn.utils.clip_grad_norm_(self.detector.parameters.values(), self.recipe.max_grad_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step, self.n_steps, self.recipe)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def judge(self) -> list[Answer]:
        """What the detector says about the dev pairs, in their order; each process asks about its share."""
        self.detector.model.eval()
        batches = by_length(range(len(self.dev)), [each.length for each in self.dev], self.recipe.micro_batch)
        found: list[Answer] = []
        with torch.no_grad():
            for batch in batches[self.state.process_index :: self.state.num_processes]:
                outcome = self.detector.outcome([self.dev[position] for position in batch])
                columns = (outcome.losses.tolist(), outcome.probabilities.tolist(), outcome.parsed.tolist())
                found += zip(batch, *columns, strict=True)
        return sorted(gather_object(found))

    def _backward(self, step: int) -> float:
        batches = micro_batches(step, self.lengths, self.recipe)
        units = sum(self.train[position].units for batch in batches for position in batch)
        total = torch.zeros((), device=self.detector.device)
        for i in range(self.state.process_index, len(batches), self.state.num_processes):
            torch.manual_seed(dropout_seed(self.recipe.seed, step, i))
            examples = [self.train[position] for position in batches[i]]
            weights = torch.tensor([each.weight for each in examples], device=self.detector.device)
            loss = (self.detector.outcome(examples).losses * weights).sum() / units
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        for parameter in self.detector.parameters.values():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = reduce(gradient, "sum")
        return float(reduce(total, "sum"))

    def _evaluate(self, progress: Progress) -> None:
        answers = self.judge()
        found = evaluation(answers, self.dev, progress, steps_per_epoch(len(self.train), self.recipe))
        progress.losses.clear()
        progress.evaluations.append(found)
        if self.state.is_main_process:
            tqdm.write(
                f"step {found.step}/{self.n_steps}: loss {found.train_loss:.4f}, dev loss {found.dev_loss:.4f}, "
                f"dev F1 {100 * found.f1:.1f}" + (" (best so far)" if progress.best is found else ""),
                file=sys.stderr,
            )
            if progress.best is found:
                self.checkpoints.save_best(found.step, self.detector.state())

    def _is_due(self, step: int) -> bool:
        return self.checkpoint_every is not None and step % self.checkpoint_every == 0

    def _save(self, progress: Progress) -> None:
        if self.state.is_main_process:
            self.checkpoints.save(progress, self.detector.parameters, self.optimizer)


def make_optimizer(parameters: dict[str, torch.nn.Parameter], recipe: Recipe) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter, 2017, https://arxiv.org/abs/1711.05101); vectors, such as biases, do not decay."""
    groups = [
        {"params": [each for each in parameters.values() if each.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [each for each in parameters.values() if each.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=0.0)


def evaluation(answers: Sequence[Answer], dev: Sequence[Example], progress: Progress, per_epoch: int) -> Evaluation:
    """What the answers to the dev pairs amount to."""
    predicted = [probability >= THRESHOLD for _, _, probability, _ in answers]
    gold = [each.label for each in dev]
    hits = sum(p and g for p, g in zip(predicted, gold, strict=True))
    named = sum(predicted) + sum(gold)
    weighted = sum(loss * each.weight for (_, loss, _, _), each in zip(answers, dev, strict=True))
    return Evaluation(
        step=progress.step,
        epoch=progress.step / per_epoch,
        train_loss=sum(progress.losses) / len(progress.losses),
        dev_loss=weighted / sum(each.units for each in dev),
        f1=2 * hits / named if named else 0.0,
        accuracy=sum(p == g for p, g in zip(predicted, gold, strict=True)) / len(gold),
        predicted_positive=sum(predicted) / len(gold),
        unparsed=sum(not parsed for _, _, _, parsed in answers),
    )

"""What is kept of a training while it runs, so that a killed one goes on as if nothing had happened.

``OUTPUT/.training`` holds ``run.json`` (which run this is), the newest checkpoint and the best weights so far. All of
it appears by renaming, so a kill at any moment leaves a state to go on from. The folder's name keeps it out of the
identity of the adapter beside it (``lm.source.Source``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from corpora.artefacts import atomic_file, remove_stale, write_atomic

FOLDER = ".training"
MOMENTS = ("exp_avg", "exp_avg_sq")
"""AdamW's two running means."""

_NUMBERED = re.compile(r"(step|best)-(\d+)\.safetensors")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the dev pairs said after some steps.

    Attributes:
        step: Optimizer steps done.
        epoch: The same in passes over the pairs.
        train_loss: Mean over the steps since the evaluation before.
        dev_loss: Per unit of weight, as in training.
        f1: At threshold 0.5; 0 where nothing is found.
        accuracy: At threshold 0.5.
        predicted_positive: Share of the pairs.
        unparsed: Pairs whose most likely answer is neither Yes nor No; the others' rule decides them here.
    """

    step: int
    epoch: float
    train_loss: float
    dev_loss: float
    f1: float
    accuracy: float
    predicted_positive: float
    unparsed: int


@dataclass(slots=True)
class Progress:
    """How far a training is.

    Attributes:
        step: Optimizer steps done; it says where in the data, which learning rate and which dropout come next.
        losses: Of the steps since the last evaluation.
        evaluations: So far, in order.
    """

    step: int = 0
    losses: list[float] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)

    @property
    def best(self) -> Evaluation | None:
        """The evaluation to keep; None before the first one."""
        return best_of(self.evaluations)


def best_of(evaluations: list[Evaluation]) -> Evaluation | None:
    """The highest F1; among equals the lower dev loss, then the earlier one; None of none."""
    return min(evaluations, key=lambda each: (-each.f1, each.dev_loss, each.step), default=None)


class Checkpoints:
    """The state of one training in its output folder.

    Args:
        output: The folder of the result.
    """

    def __init__(self, output: Path) -> None:
        self.folder = output / FOLDER

    @property
    def run(self) -> dict[str, Any] | None:
        """What ``start`` wrote; None: nothing was started here."""
        try:
            found = json.loads((self.folder / "run.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.folder / 'run.json'} is damaged: remove {self.folder.parent}") from error
        if not isinstance(found, dict) or "identity" not in found:
            raise ValueError(f"{self.folder / 'run.json'} is damaged: remove {self.folder.parent}")
        return found

    def start(self, run: Mapping[str, Any]) -> None:
        """Says which run this is: ``identity``, and whether it is ``finished``."""
        write_atomic(self.folder / "run.json", json.dumps(run, indent=1, ensure_ascii=False, sort_keys=True) + "\n")

    def save(
        self, progress: Progress, parameters: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer
    ) -> None:
        """Publishes a checkpoint, then removes older ones."""
        tensors = {f"weight/{name}": each.detach().cpu().contiguous() for name, each in parameters.items()}
        for name, each in parameters.items():
            state = optimizer.state.get(each, {})
            tensors |= {f"{moment}/{name}": state[moment].cpu().contiguous() for moment in MOMENTS if moment in state}
        path = self.folder / f"step-{progress.step:08}.safetensors"
        with atomic_file(path) as temporary:
            save_file(tensors, temporary, {"progress": json.dumps(asdict(progress))})
        self._prune(progress)

    def load(
        self, parameters: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer, device: torch.device
    ) -> Progress:
        """Takes the newest checkpoint, if there is one.

        Raises:
            ValueError: It is damaged.
        """
        while (newest := self._newest()) is not None:
            try:
                return _read(newest, parameters, optimizer, device)
            except FileNotFoundError:
                continue  # another process with the same command has a newer one
            except Exception as error:  # what safetensors raises is derived from Exception itself
                problem = " ".join(f"{type(error).__name__}: {error}".split())
                message = f"{newest} cannot be read ({problem}): remove it, or start anew with --overwrite"
                raise ValueError(message) from error
        return Progress()

    def save_best(self, step: int, state: Mapping[str, torch.Tensor]) -> None:
        """Keeps the weights of an evaluation that is the best so far."""
        with atomic_file(self._best(step)) as temporary:
            save_file(dict(state), temporary)

    def load_best(self, step: int) -> dict[str, torch.Tensor]:
        """The weights that ``save_best`` kept."""
        return load_file(self._best(step))

    def clear(self) -> None:
        """Removes checkpoints and best weights."""
        for path in self.folder.glob("*.safetensors"):
            path.unlink(missing_ok=True)

    def _newest(self) -> Path | None:
        return max(self.folder.glob("step-*.safetensors"), default=None, key=lambda path: path.name)

    def _prune(self, progress: Progress) -> None:
        """Removes older checkpoints, and best weights that are no longer the best; what is ahead is somebody else's."""
        remove_stale(self.folder)
        best = progress.best.step if progress.best else None
        for path in self.folder.glob("*.safetensors"):
            found = _NUMBERED.fullmatch(path.name)
            kept = best if found and found[1] == "best" else progress.step
            if found and int(found[2]) <= progress.step and int(found[2]) != kept:
                path.unlink(missing_ok=True)

    def _best(self, step: int) -> Path:
        return self.folder / f"best-{step:08}.safetensors"


def _read(
    path: Path, parameters: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer, device: torch.device
) -> Progress:
    with safe_open(path, framework="pt", device="cpu") as file:
        values = json.loads(file.metadata()["progress"])
        names = set(file.keys())
        progress = Progress(values["step"], values["losses"], [Evaluation(**each) for each in values["evaluations"]])
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(file.get_tensor(f"weight/{name}"))
                if f"{MOMENTS[0]}/{name}" in names:
                    state = {moment: file.get_tensor(f"{moment}/{name}").to(device) for moment in MOMENTS}
                    optimizer.state[parameter] = {"step": torch.tensor(float(progress.step)), **state}
    return progress

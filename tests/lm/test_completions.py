"""A model behind ``/v1/completions``: the same answers as on this machine, whatever the server leaves out or adds."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from corpora.mistakes import is_mistake
from evaluator.judges.checks import PAIRS, check_judge
from evaluator.judges.mistral import WORDS, Mistral
from lm.causal import CausalModel, Scored
from lm.completions import CompletionsServer, compare
from lm.server import Server
from lm.top_tokens import TopTokenReader
from tests.lm.chat_server import ChatServer, Reply
from tests.lm.tiny_causal import save_model

PASSAGES = ["A carbon tax makes polluters pay.", "The museum opens at nine.", "\u901f\u5ea6 \U0001f697", "x" * 300]
TEXTS = [f"<s>[INST] {text}\nStatement: {i}. Yes or No? [/INST]" for text in PASSAGES for i in range(10)]


class Vllm:
    """What vLLM answers, from a model of transformers; the tests change its habits.

    Attributes:
        ids: Tokens as ``token_id:5``, where that is asked for.
        most: Log-probabilities told at most.
        bos: Whether a BOS is put before prompts of token ids, as no server should.
    """

    def __init__(self, folder: Path, ids: bool = True, most: int = 10_000, bos: bool = False) -> None:
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.ids, self.most, self.bos = ids, most, bos
        self.lock = threading.Lock()

    def __call__(self, body: dict[str, Any]) -> Reply:
        prompt = [*([1] if self.bos else []), *body["prompt"]]
        new, logprobs = [], None
        with self.lock, torch.no_grad():
            for _ in range(body["max_tokens"]):
                logs = torch.log_softmax(self.model(torch.tensor([prompt + new])).logits[0, -1].double(), dim=-1)
                new.append(int(logs.argmax()))
                if body.get("logprobs") and logprobs is None:
                    logprobs = self.told(logs, body)
                if new[-1] == self.tokenizer.eos_token_id:
                    break
        choice = {"text": self.tokenizer.decode(new, skip_special_tokens=True), "logprobs": logprobs, "index": 0}
        return Reply({"choices": [choice], "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(new)}})

    def told(self, logs: torch.Tensor, body: dict[str, Any]) -> dict[str, Any]:
        values, tokens = logs.topk(min(body["logprobs"], self.most, len(logs)))
        by_id = self.ids and body.get("return_tokens_as_token_ids")
        names = [f"token_id:{t}" if by_id else self.tokenizer.decode([t]) for t in tokens.tolist()]
        top = dict(zip(names, values.tolist(), strict=True))
        return {"tokens": names[:1], "token_logprobs": values.tolist()[:1], "top_logprobs": [top]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that says Yes or No more often than chance would have it."""
    folder = save_model(tmp_path_factory.mktemp("tiny"))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        for token in (token for ids in labels_of(CausalModel(folder)) for token in ids):
            model.lm_head.weight[token] *= 3
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def local(folder: Path) -> CausalModel:
    return CausalModel(folder)


@pytest.fixture(scope="module")
def prompts(local: CausalModel) -> list[list[int]]:
    found: list[list[int]] = local.tokenizer(TEXTS, add_special_tokens=False)["input_ids"]
    assert all(ids[0] == 1 and 1 not in ids[1:] for ids in found)  # one BOS, written in the text
    return found


def remote(folder: Path, server: ChatServer, **more: Any) -> CompletionsServer:
    return CompletionsServer(folder, Server(server.url, concurrency=4, retries=1, backoff_s=0.001), **more)


def labels_of(model: CausalModel) -> list[tuple[int, ...]]:
    return [model.label_ids(words) for words in WORDS]


def test_the_same_answers_as_on_this_machine(folder, local, prompts):
    labels = labels_of(local)
    with ChatServer(Vllm(folder)) as server:
        model = remote(folder, server, top=600)  # the whole vocabulary, so that nothing is missing
        found = compare(local, model, prompts, labels)
        assert (found.n, found.n_differ, found.share) == (40, 0, 1.0)
        assert found.n_unparsed < 20
        assert found.largest_difference < 1e-4
        here, there = dict(local.score(prompts, labels)), dict(model.score(prompts, labels))
        for i in range(len(prompts)):
            assert there[i].log_probabilities == pytest.approx(here[i].log_probabilities, abs=1e-4)
            assert (there[i].label, there[i].text) == (here[i].label, here[i].text)
        assert {each.label for each in there.values()} >= {0, 1}
        # The very ids, and one token of the likeliest answer
        assert sorted(body["prompt"] for body in server.bodies[:40]) == sorted(prompts)
        assert server.paths[0] == "/v1/completions"
        body = server.bodies[0]
        assert (body["model"], body["max_tokens"], body["temperature"], body["logprobs"]) == (str(folder), 1, 0.0, 600)
        assert (model.report.n, model.report.n_by_text, model.report.n_partial) == (80, 0, 0)
        assert model.report.largest_missing == 0.0


def test_the_same_judgements_as_on_this_machine(folder, monkeypatch):
    options = {"model": folder, "rendering": "mistral", "dtype": "fp32"}
    monkeypatch.setattr("lm.completions.TOP", 600)
    monkeypatch.setenv("MY_KEY", "sk-0123456789")
    with ChatServer(Vllm(folder)) as server:
        here = Mistral(**options)
        there = Mistral(**options, server=server.url, served_as="mine", api_key_env="MY_KEY")
        for parse in ("probability", "authors"):
            found = [dict(each.parsed_as(parse).judge(PAIRS)) for each in (here, there)]
            for i in range(len(PAIRS)):
                assert found[0][i].status == found[1][i].status
                assert found[0][i].answer == found[1][i].answer
                assert found[0][i].probability == pytest.approx(found[1][i].probability, abs=1e-4)
        assert {(body["model"], len(body["prompt"]) > 20) for body in server.bodies} == {("mine", True)}
        assert {each["authorization"] for each in server.headers} == {"Bearer sk-0123456789"}
        assert here.fingerprint != there.fingerprint
        moved = Mistral(**options, server="http://elsewhere:1/v1", served_as="mine")
        assert moved.fingerprint == there.fingerprint
        short = {**options, "server": server.url, "max_length": 250}
        check_judge(Mistral(**short), other=lambda: Mistral(**{**short, "rendering": "plain"}))


def test_generation(folder, local, prompts):
    with ChatServer(Vllm(folder)) as server:
        model = remote(folder, server, served_as="mine")
        chosen = prompts[::9]
        assert dict(model.generate(chosen, 8)) == dict(local.generate(chosen, 8))
        assert {body["model"] for body in server.bodies} == {"mine"}


# What the server leaves out


def test_what_is_not_told_counts_as_impossible_and_is_bounded(folder, local, prompts):
    labels = labels_of(local)
    exact = dict(local.score(prompts, labels))
    with ChatServer(Vllm(folder, most=5)) as server:
        model = remote(folder, server, top=20)
        told = dict(model.score(prompts, labels))
    assert model.report.n_partial > 0
    assert model.report.largest_missing > 0
    assert any(scored.label is not None for scored in told.values())
    for i, scored in told.items():
        masses = [[math.exp(p) for p in each.log_probabilities] for each in (scored, exact[i])]
        assert scored.label == exact[i].label
        assert all(a <= b + 1e-6 for a, b in zip(*masses, strict=True))
        assert sum(masses[1]) - sum(masses[0]) <= model.report.largest_missing + 1e-6


def test_tokens_told_as_texts(folder, local, prompts):
    labels = labels_of(local)
    with ChatServer(Vllm(folder, ids=False)) as server:
        model = remote(folder, server, top=600)
        with pytest.warns(UserWarning, match="as texts, not as ids") as seen:
            found = compare(local, model, prompts, labels)
    assert (found.n_differ, len(seen)) == (0, 1)
    assert found.largest_difference < 1e-4  # this tokenizer's texts tell blanks apart, so nothing is lost
    assert model.report.n_by_text == 40


def test_labels_from_texts_by_hand(local):
    reader = TopTokenReader(local.tokenizer, labels_of(local))
    # 0.5 + 0.1 for yes, however the blank is written; 0.2 for no; ten spellings were not told: at most 10 x 0.05,
    # but no more than what is left, 0.15
    told = [("Yes", 0.5), ("\u2581No", 0.2), ("\u0120yes", 0.1), ("x", 0.05)]
    found = reader.read([(token, math.log(p)) for token, p in told])
    assert [math.exp(p) for p in found.scored.log_probabilities] == pytest.approx([0.6, 0.2])
    assert (found.scored.label, found.scored.text, found.by_text) == (0, "Yes", True)
    assert found.missing == pytest.approx(0.15)
    other = reader.read([("Maybe", math.log(0.7)), ("Nope", math.log(0.1))])
    assert other.scored == Scored((-math.inf, -math.inf), None, "Maybe")
    mixed = reader.read([("token_id:3", math.log(0.7)), ("Yes", math.log(0.1))])  # then none of them is an id
    assert (mixed.by_text, mixed.scored.label) == (True, None)
    with pytest.raises(ValueError, match="two labels"):
        TopTokenReader(local.tokenizer, [labels_of(local)[0], labels_of(local)[0]])


def test_no_log_probabilities(folder, prompts, local):
    def answer(body: dict) -> Reply:
        return Reply({"choices": [{"text": "Yes", "logprobs": None}], "usage": {"prompt_tokens": len(body["prompt"])}})

    with ChatServer(answer) as server:
        line = _ending(remote(folder, server), prompts, labels_of(local))
        assert "gives no log-probabilities" in line
        assert len(server.bodies) <= 4


def test_a_second_bos_is_noticed(folder, prompts, local):
    with ChatServer(Vllm(folder, bos=True)) as server:
        line = _ending(remote(folder, server), prompts, labels_of(local))
        lengths = {len(body["prompt"]) for body in server.bodies}
        assert any(f"it reads {n + 1} tokens where {n} were sent" in line for n in lengths)
        assert len(server.bodies) <= 4


@pytest.mark.parametrize(
    "logprobs",
    [{"top_logprobs": [{"token_id:5": 0.5}]}, {"top_logprobs": [{"token_id:5": "high"}]},
     {"top_logprobs": [{"token_id:99999999999999999999": -0.1}]}, {"top_logprobs": [{"a": -0.01, "b": -0.01}]}],
    ids=["positive", "text", "unknown", "more than 1"],
)  # fmt: skip
def test_nonsense_is_asked_again_and_then_a_failure(folder, prompts, local, logprobs):
    with ChatServer(lambda body: Reply({"choices": [{"text": "", "logprobs": logprobs}]})) as server:
        line = _ending(remote(folder, server), prompts[:3], labels_of(local))
        assert "3 of 3 requests have no answer" in line
        assert len(server.bodies) == 6


def test_a_prompt_that_the_server_refuses_has_no_label(folder, prompts, local):
    vllm = Vllm(folder)

    def answer(body: dict) -> Reply:
        if body["prompt"] == prompts[0]:
            return Reply({"message": "This model's maximum context length is 64 tokens", "code": 400}, 400)
        return vllm(body)

    with ChatServer(answer) as server:
        found = dict(remote(folder, server).score(prompts[:4], labels_of(local)))
        assert found[0].label is None
        assert "maximum context length" in found[0].text
        assert found[0].log_probabilities == (-math.inf, -math.inf)
        assert sorted(found) == [0, 1, 2, 3]
        assert dict(remote(folder, server).generate(prompts[:1], 4)) == {0: ""}


def test_a_model_folder_without_weights_is_enough(folder, tmp_path, prompts, local):
    light = tmp_path / "light"
    light.mkdir()
    for file in folder.iterdir():
        if file.suffix != ".safetensors":
            (light / file.name).write_bytes(file.read_bytes())
    with ChatServer(Vllm(folder)) as server:
        model = remote(light, server, top=600)
        model.prefetch()
        assert model.max_length == local.max_length
        assert compare(local, model, prompts[:4], labels_of(local)).n_differ == 0


def test_the_fingerprint_is_of_the_model_not_of_the_address(folder, tmp_path):
    other = save_model(tmp_path / "other", seed=1)
    made = [
        CompletionsServer(folder, "http://a:1/v1"),
        CompletionsServer(other, "http://a:1/v1"),
        CompletionsServer(folder, "http://a:1/v1", adapter=other),
        CompletionsServer(folder, "http://a:1/v1", served_as="quantised"),
        CompletionsServer(folder, "http://a:1/v1", top=5),
    ]
    assert len({each.fingerprint for each in made}) == len(made)
    assert CompletionsServer(folder, Server("http://b:2/v1", concurrency=2)).fingerprint == made[0].fingerprint
    assert made[0].fingerprint != CausalModel(folder).fingerprint
    with pytest.raises(ValueError, match="top=0"):
        CompletionsServer(folder, "http://a:1/v1", top=0)


def _ending(model: CompletionsServer, prompts: list[list[int]], labels: list[tuple[int, ...]]) -> str:
    with pytest.raises(ValueError, match="http://127") as caught:
        list(model.score(prompts, labels))
    assert is_mistake(caught.value)
    return str(caught.value)

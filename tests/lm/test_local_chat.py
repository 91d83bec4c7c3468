"""Chats with a model on this machine: the same interface as for servers, with a tiny random model."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpora.mistakes import is_mistake
from lm.causal import CausalModel
from lm.chat import Chat, ChatClient, ChatRequest, Server, make_chat
from lm.local_chat import LocalChat
from lm.prompts import Message
from tests.lm.tiny_causal import save_model

OBJECT = {"type": "object"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("tiny"), max_position_embeddings=256)


def make(folder: Path, **more: object) -> LocalChat:
    return LocalChat(folder, **{"rendering": "mistral", "dtype": "fp32"} | more)


def asks(*texts: str, **more: object) -> list[ChatRequest]:
    return [ChatRequest((Message("user", text),), **{"max_tokens": 6} | more) for text in texts]


def test_it_answers_as_the_model_generates_and_keeps_answers(folder):
    texts = ["A tax?", "No tax.", "A tax?", "\U0001f697 caf\u00e9"]
    chat = make(folder)
    assert isinstance(chat, Chat)
    found = dict(chat.complete(asks(*texts)))
    model = CausalModel(folder)
    ids = model.tokenizer([f"<s>[INST] {text} [/INST]" for text in texts], add_special_tokens=False)["input_ids"]
    expected = dict(model.generate(ids, 6))
    assert {i: answer.text for i, answer in found.items()} == expected
    assert [found[i].input_tokens for i in range(4)] == [len(each) for each in ids]
    assert all(answer.status == "ok" and answer.cost_usd == 0.0 for answer in found.values())
    assert [found[i].cached for i in range(4)] == [False, False, True, False]
    assert (chat.ledger.answered, chat.ledger.cost_usd) == (3, 0.0)
    again = make(folder)
    again.model.generate = None  # nothing is generated again
    assert {i: answer.text for i, answer in again.complete(asks(*texts))} == expected
    assert again.ledger.cached == 4
    assert [each and each.text for each in again.kept(asks("new", *texts[:1]))] == [None, expected[0]]
    found = again.estimate(asks("A tax?", "new", "new"))
    assert (found.cached, found.duplicates, found.calls, found.cost_usd) == (1, 1, 1, 0.0)


def test_lengths_schemas_and_what_is_too_long(folder):
    chat = make(folder)
    requests = [*asks("a", max_tokens=2), *asks("a", max_tokens=5), *asks("a", schema=OBJECT), *asks("a " * 400)]
    found = dict(chat.complete(requests))
    assert [found[i].status for i in range(4)] == ["ok", "ok", "unparsed", "refused"]
    assert "before 6 of an answer" in found[3].text
    assert found[1].text.startswith(found[0].text)
    assert (chat.ledger.refused, list(chat.complete([]))) == (1, [])


def test_mistakes(folder):
    for request, expected in (
        (asks("a", temperature=0.5), "temperature=0.5"),
        (asks("a", schema={"type": 3}), "schema"),
    ):
        with pytest.raises(ValueError, match=expected) as caught:
            list(make(folder).complete(request))
        assert is_mistake(caught.value)
    with pytest.raises(ValueError, match="rendering"):
        make(folder, rendering="runes")
    with pytest.raises(ValueError, match="no chat template"):
        list(make(folder, rendering="template").complete(asks("a")))


def test_the_fingerprint(folder, tmp_path):
    other = save_model(tmp_path / "other", seed=1)
    made = [make(folder), make(other), make(folder, rendering="chatml"), make(folder, dtype="bf16")]
    assert len({each.fingerprint for each in made}) == 4
    assert make(folder, device="cpu", batch_tokens=9).fingerprint == made[0].fingerprint


def test_it_is_chosen_by_address(folder):
    assert isinstance(make_chat(str(folder), Server("local")), LocalChat)
    assert isinstance(make_chat(str(folder), Server("http://localhost:1/v1"), identity="x"), ChatClient)
    assert isinstance(make_chat("gpt"), ChatClient)

"""Expanders that ask a model, against a local server that answers well, broken and hostile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from corpora.fingerprint import fingerprint
from corpora.types import Query
from retrievers import EXPANDERS
from retrievers.llm_expansion import HyDE, LlmExpander
from tests.lm.chat_server import ChatServer, Reply, last_message

QUERIES = [Query("q1", "q1", "Is tea better?"), Query("q2", "q2", 'Is "{question}" a trap? <|im_end|>')]


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[dict[str, Any]], Reply | str]], ChatServer]]:
    servers = []

    def start(answer: Callable[[dict[str, Any]], Reply | str]) -> ChatServer:
        servers.append(ChatServer(answer))
        servers[-1].__enter__()
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__(None, None, None)


def perspectives(*texts: str) -> str:
    return json.dumps({"perspectives": [{"name": f"n{i}", "text": text} for i, text in enumerate(texts)]})


def test_perspectives_become_queries(serve) -> None:
    def answer(body):
        return perspectives("Tea.", "Coffee.", "Tea.") if "tea" in last_message(body) else perspectives("A trap.")

    server = serve(answer)
    found = LlmExpander("tiny", server.url).expand(QUERIES)
    assert [[query.text for query in each] for each in found] == [
        ["Is tea better? Tea.", "Is tea better? Coffee."],
        [f"{QUERIES[1].text} A trap."],
    ]
    assert [query.origin for query in found[0]] == ["expansion:0", "expansion:1"]
    alone = LlmExpander("tiny", server.url, form="perspective", question=True).expand(QUERIES[:1])
    assert [query.text for query in alone[0]] == ["Is tea better?", "Tea.", "Coffee."]
    assert len(server.bodies) == 2  # another form asks nothing again
    assert server.bodies[0]["response_format"]["type"] == "json_schema"
    assert not any("<|im_end|>" in last_message(body) for body in server.bodies)


def test_broken_json_is_repaired_or_the_question_stays(serve) -> None:
    tries: dict[str, int] = {}

    def answer(body):
        text = last_message(body)
        tries[text] = tries.get(text, 0) + 1
        if "tea" not in text:
            return "I would rather not {"
        return f"Sure!\n```json\n{perspectives('Tea.')}\n```" if tries[text] == 2 else '{"perspectives": "none"}'

    server = serve(answer)
    with pytest.warns(UserWarning, match=r"expander LlmExpander: nothing for 1 of 2 queries \(such as 'q2'\)"):
        found = LlmExpander("tiny", server.url).expand(QUERIES)
    assert [query.text for query in found[0]] == ["Is tea better? Tea."]
    assert found[1] == (QUERIES[1],)
    assert sorted(tries.values()) == [2, 3]


def test_the_authors_form_is_an_object_of_texts(serve, tmp_path) -> None:
    server = serve(lambda body: '{"For_it": "Tea it is.", "Against it": "Coffee."}')
    prompt = tmp_path / "mine.txt"
    prompt.write_text("Name views on: [Question]")
    (tmp_path / "mine.yaml").write_text("messages: [{role: user, content: 'Name views on {question}'}]")
    made = LlmExpander("tiny", server.url, prompt=tmp_path / "mine.yaml", form="perspective").expand(QUERIES[:1])
    assert [query.text for query in made[0]] == ["Tea it is.", "Coffee."]
    assert last_message(server.bodies[0]) == "Name views on Is tea better?"
    assert "response_format" not in server.bodies[0]


def test_hyde_searches_with_passages(serve) -> None:
    server = serve(lambda body: f"<think>hm</think> Passage {body['seed']}.")
    found = HyDE("tiny", server.url, samples=3, temperature=0.7).expand(QUERIES)
    assert [[query.text for query in each] for each in found] == [["Passage 0.", "Passage 1.", "Passage 2."]] * 2
    assert len(server.bodies) == 6


def test_an_estimate_asks_nothing(serve) -> None:
    server = serve(lambda body: perspectives("Tea."))
    expander = LlmExpander("tiny", server.url, usd_per_million_input=1.0, usd_per_million_output=2.0)
    estimate = expander.estimate(QUERIES)
    assert (estimate.calls, estimate.cached, server.bodies) == (2, 0, [])
    assert estimate.cost_usd > 0
    expander.expand(QUERIES[:1])
    assert (expander.estimate(QUERIES).calls, expander.estimate(QUERIES).cached) == (1, 1)


def test_fingerprints() -> None:
    same = [LlmExpander("tiny"), LlmExpander("tiny", "http://localhost:1/v1", concurrency=3, retries=1)]
    others = [
        LlmExpander("large"),
        LlmExpander("tiny", identity="quantised"),
        LlmExpander("tiny", form="perspective"),
        LlmExpander("tiny", question=True),
        LlmExpander("tiny", temperature=0.5),
        LlmExpander("tiny", seed=1),
        LlmExpander("tiny", samples=2),
        LlmExpander("tiny", prompt="hypothetical_passage"),
        HyDE("tiny"),
    ]
    assert fingerprint(same[0]) == fingerprint(same[1])
    assert len({fingerprint(each) for each in (same[0], *others)}) == 1 + len(others)


def test_the_command_line_makes_them() -> None:
    made = EXPANDERS.create("llm", ["model=tiny", "base_url=http://localhost:1/v1", "samples=2"])
    assert (made.model, made.samples) == ("tiny", 2)
    with pytest.raises(ValueError, match="expander 'llm': model is required"):
        EXPANDERS.create("llm", [])
    with pytest.raises(ValueError, match="samples=0, seed=0"):
        EXPANDERS.create("hyde", ["model=x", "samples=0"])

"""The chat client against a local server that answers well, late, broken, hostile, or not at all."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from corpora.mistakes import is_mistake
from lm.chat import ChatAnswer, ChatClient, ChatRequest, Prices, Server
from lm.http_errors import asked_wait_s
from lm.ledger import estimated_tokens
from lm.prompts import Message
from lm.rate_limits import RateLimits
from lm.responses import BLOCK
from lm.structured import parse_structured
from tests.lm.chat_server import ChatServer, Reply, chat, last_message, wait_until

KEY = "sk-secret-0123456789abcdef"
OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def asks(*texts: str, **more: object) -> list[ChatRequest]:
    return [ChatRequest((Message("user", text),), **more) for text in texts]


def client(server: ChatServer | str, model: str = "tiny", **more: object) -> ChatClient:
    url = server if isinstance(server, str) else server.url
    settings = {"backoff_s": 0.001, "retries": 3, "concurrency": 4, "timeout_s": 30.0}
    settings |= {name: more.pop(name) for name in list(more) if name in Server.__dataclass_fields__}
    return ChatClient(model, Server(url, **settings), **more)


def texts(answers: Sequence[tuple[int, ChatAnswer]]) -> list[str]:
    found = dict(answers)
    assert len(found) == len(answers)
    return [found[i].text for i in range(len(found))]


def echo(body: dict) -> str:
    return f"re: {last_message(body)}"


def ending(chat_client: ChatClient, requests: Sequence[ChatRequest]) -> tuple[list[tuple[int, ChatAnswer]], str]:
    """The answers before the error, and the error's line, after checking that it is a user's mistake."""
    answers: list[tuple[int, ChatAnswer]] = []
    with pytest.raises(ValueError, match=" ") as caught:
        answers += chat_client.complete(requests)  # extends the list as they come
    assert is_mistake(caught.value)
    line = str(caught.value)
    assert "\n" not in line
    return answers, line


# Answers, keeping, duplicates


def test_every_request_is_answered_once_and_kept():
    with ChatServer(echo) as server:
        first = client(server)
        requests = asks("a", "b", "a", "c")
        assert texts(list(first.complete(requests))) == ["re: a", "re: b", "re: a", "re: c"]
        assert server.asked == {"a": 1, "b": 1, "c": 1}
        again = dict(client(server).complete(requests))
        assert [again[i].text for i in range(4)] == ["re: a", "re: b", "re: a", "re: c"]
        assert all(answer.cached and answer.cost_usd == 0.0 for answer in again.values())
        assert len(server.bodies) == 3
        assert list(first.complete([])) == []


def test_what_is_sent():
    with ChatServer(lambda body: Reply(chat('{"n": 1}'))) as server:
        request = ChatRequest(
            (Message("system", "S"), Message("user", "U")), 9, temperature=0.5, seed=7, top_logprobs=3, schema=OBJECT
        )
        plain = ChatRequest((Message("user", "U"),), 5, temperature=None, seed=None)
        asked = client(server, extra={"reasoning_effort": "low"}, concurrency=1)
        (_, answer), _ = asked.complete([request, plain])
        first, second = server.bodies
        assert first == {
            "model": "tiny",
            "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}],
            "max_tokens": 9,
            "temperature": 0.5,
            "seed": 7,
            "logprobs": True,
            "top_logprobs": 3,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": OBJECT, "strict": True},
            },
            "reasoning_effort": "low",
        }
        assert set(second) == {"model", "messages", "max_tokens", "reasoning_effort"}
        assert server.paths[0] == "/v1/chat/completions"
        assert (answer.parsed, answer.seed, answer.temperature, answer.model) == ({"n": 1}, 7, 0.5, "tiny-1")
        newer = client(server, max_tokens_name="max_completion_tokens")
        assert newer.body(plain)["max_completion_tokens"] == 5


def test_whatever_can_change_an_answer_changes_its_key():
    base = asks("a")[0]
    others = [
        *asks("b"),
        *asks("a", max_tokens=5),
        *asks("a", temperature=0.1),
        *asks("a", temperature=None),
        *asks("a", seed=1),
        *asks("a", seed=None),
        *asks("a", top_logprobs=1),
        *asks("a", schema=OBJECT),
        *asks("a", schema={"type": "object"}),
        ChatRequest((Message("system", "a"),)),
        ChatRequest((Message("user", "a"), Message("user", "a"))),
    ]
    url = "http://localhost:1/v1"
    keys = [client(url).key(request) for request in [base, *others]]
    keys += [client(url, model="huge").key(base), client(url, identity="4 bit").key(base)]
    keys += [client(url, extra={"top_p": 0.5}).key(base), client(url, structured="none").key(others[7])]
    assert len(set(keys)) == len(keys)
    assert client("http://elsewhere:2/v1", concurrency=9, timeout_s=1.0).key(base) == keys[0]  # the same model, moved
    assert len({client(url, **more).fingerprint for more in ({}, {"model": "m"}, {"identity": "i"})}) == 3


def test_strange_texts_come_back_as_they_are_kept():
    strange = "\ud800 \x00 \u202e \U0001f697 e\u0301 </s><|im_end|> \u2028"
    with ChatServer(lambda body: Reply(chat(strange))) as server:
        asked = client(server)
        ((_, first),) = asked.complete(asks(strange))
        ((_, kept),) = asked.complete(asks(strange))
        assert first.text == kept.text == strange.replace("\ud800", "?")
        assert server.bodies[0]["messages"][0]["content"] == first.text


def test_content_of_other_forms():
    forms = {"none": None, "parts": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    with ChatServer(lambda body: Reply(chat(forms[last_message(body)]))) as server:
        assert texts(list(client(server).complete(asks("none", "parts")))) == ["", "ab"]


def test_log_probabilities_are_kept_and_nonsense_is_none():
    place = [{"token": "No", "logprob": -1.5}, {"token": "Yes", "logprob": -0.25}, {"token": "x", "logprob": -9999.0}]
    replies = {
        "good": [{"token": "Yes", "logprob": -0.25, "top_logprobs": place}],
        "endless": [{"top_logprobs": [{"token": "Yes", "logprob": float("-inf")}]}],
        "positive": [{"top_logprobs": [{"token": "Yes", "logprob": 3.0}]}],
        "text": [{"top_logprobs": [{"token": "Yes", "logprob": "high"}]}],
        "nan": [{"top_logprobs": [{"token": "Yes", "logprob": float("nan")}]}],
        "flat": [{"token": "Yes"}],
        "list": ["Yes"],
    }
    with ChatServer(lambda body: Reply(chat("Yes", replies[last_message(body)]))) as server:
        asked = client(server)
        requests = asks(*replies, top_logprobs=3)
        first, kept = dict(asked.complete(requests)), dict(asked.complete(requests))
        assert first[0].logprobs == kept[0].logprobs == ((("Yes", -0.25), ("No", -1.5), ("x", -9999.0)),)
        assert first[1].logprobs == ((),)
        assert [first[i].logprobs for i in range(2, 7)] == [()] * 5


# Side by side


def test_concurrency_is_bounded_and_used():
    gate = threading.Barrier(3)
    with ChatServer(lambda body: (gate.wait(240), "ok")[1]) as server:
        assert len(list(client(server, concurrency=3).complete(asks(*map(str, range(9)))))) == 9
        assert server.most_open == 3


def test_answers_come_while_others_are_open():
    release = threading.Event()
    with ChatServer(lambda body: (last_message(body) == "slow" and release.wait(240), "ok")[1]) as server:
        answers = client(server).complete(asks("slow", "fast"))
        assert next(answers)[0] == 1
        release.set()
        assert next(answers)[0] == 0


def test_who_stops_taking_answers_stops_paying():
    with ChatServer(echo) as server:
        answers = client(server, concurrency=2).complete(asks(*map(str, range(300))))
        next(answers)
        time.sleep(0.3)
        # One taken, two in the queue, two that wait for room; one more may have been begun for the place that came free
        assert len(server.bodies) <= 6
        answers.close()
        n = len(server.bodies)
        kept = client(server).estimate(asks(*map(str, range(300)))).cached
        assert 0 < kept <= n
        time.sleep(0.1)
        assert len(server.bodies) == n


def test_threads_share_a_client():
    with ChatServer(echo) as server:
        asked = client(server)
        found: dict[int, list[str]] = {}

        def run(n: int) -> None:
            found[n] = texts(list(asked.complete(asks(*(f"{n} {i}" for i in range(40))))))

        threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {n: [f"re: {n} {i}" for i in range(40)] for n in range(4)}
        assert asked.ledger.answered == len(server.bodies) == 160


def test_an_iterator_left_open_does_not_hinder_the_end_of_python(tmp_path: Path):
    with ChatServer(echo) as server:
        done = subprocess.run([sys.executable, "-c", _script(server.url, "next(answers); print('end')")],
                              capture_output=True, text=True, timeout=300, cwd=_ROOT, env=_env(tmp_path))  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
        assert any((tmp_path / "responses").glob("*.arrow"))  # what was answered is kept even so


# Failures that a retry cures

DEEP = b"[" * 200_000
BROKEN = {
    "429": Reply({"error": {"message": "slow down"}}, 429),
    "408": Reply({}, 408),
    "500": Reply({"error": "oops"}, 500),
    "503": Reply(b"<html>down</html>", 503),
    "cut": Reply(chat("cut"), cut=40),
    "cut head": Reply(drop=True),
    "no JSON": Reply(b"I am fine."),
    "no text": Reply(b"\xff\xfe\x00"),
    "empty": Reply(b""),
    "null": Reply(b"null"),
    "list": Reply([1, 2]),
    "deep": Reply(DEEP),
    "no choices": Reply({"choices": []}),
    "strange choices": Reply({"choices": "none"}),
    "choice": Reply({"choices": [7]}),
    "message": Reply({"choices": [{"message": "hello"}]}),
    "content": Reply({"choices": [{"message": {"content": 7}}]}),
    "error": Reply({"error": {"message": "upstream failed", "code": 502}}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_a_retry_cures(name: str):
    first = itertools.count()
    with ChatServer(lambda body: BROKEN[name] if next(first) < 2 else "well") as server:
        asked = client(server)
        ((_, answer),) = asked.complete(asks("a"))
        assert answer.text == "well"
        assert (asked.ledger.sent, asked.ledger.retried, asked.ledger.answered) == (3, 2, 1)


@pytest.mark.parametrize("stall", [Reply(wait_s=20), Reply(trickle=True)], ids=["silent", "drop by drop"])
def test_stalls_are_asked_again(stall: Reply):
    first = itertools.count()
    with ChatServer(lambda body: stall if next(first) == 0 else "well") as server:
        asked = client(server, timeout_s=0.5, retries=50)
        ((_, answer),) = asked.complete(asks("a"))
        assert answer.text == "well"
        assert asked.ledger.retried >= 1
        assert len(server.bodies) >= 2


def test_the_server_says_how_long_to_wait():
    at: list[float] = []

    def answer(body: dict) -> Reply | str:
        at.append(time.monotonic())
        return Reply({}, 429, {"Retry-After": "0.4"}) if len(at) == 1 else "well"

    with ChatServer(answer) as server:
        assert len(list(client(server).complete(asks("a")))) == 1
        assert at[1] - at[0] >= 0.39  # a lower bound: nothing sleeps less than it is told


def test_how_long_to_wait_is_read_with_care():
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 100))
    found = {each: asked_wait_s({"retry-after": each}) for each in ("3", "0.5", "-4", "nan", "soon", "", "inf", date)}
    assert 95 < found.pop(date) <= 100
    assert found == {"3": 3, "0.5": 0.5, "-4": 0, "nan": None, "soon": None, "": None, "inf": float("inf")}
    assert asked_wait_s({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert asked_wait_s({}) is None


# Failures that no retry cures


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (401, {"error": {"message": "Incorrect API key"}}, "HTTP 401 Incorrect API key; check the key"),
        (403, {"error": "no"}, "HTTP 403"),
        (404, {"error": {"message": "no model 'tiny'"}}, "HTTP 404 no model 'tiny'; check base_url"),
        (400, {"error": {"message": "unknown\nfield\x00 seed"}}, "HTTP 400 unknown field seed"),
        (429, {"error": {"message": "You exceeded", "code": "insufficient_quota"}}, "the account has nothing left"),
        (405, b"\xff" * 5000, "HTTP 405"),
    ],
)
def test_what_no_retry_cures_ends_at_once(status: int, body: object, expected: str):
    with ChatServer(lambda _: Reply(body, status)) as server:
        answers, line = ending(client(server, concurrency=2), asks(*map(str, range(50))))
        assert answers == []
        assert expected in line
        assert server.url in line
        assert len(line) < 500
        assert len(server.bodies) <= 2


def test_a_wait_of_hours_ends_at_once():
    with ChatServer(lambda _: Reply({}, 429, {"Retry-After": "86400"})) as server:
        _, line = ending(client(server, concurrency=1), asks("a", "b"))
        assert "asks to wait 86400 s" in line
        assert len(server.bodies) == 1


def test_no_server():
    with ChatServer(echo) as server:
        url = server.url
    _, line = ending(client(url, retries=1), asks(*"abcdefgh"))
    assert "no connection" in line
    assert url in line
    assert "8 of 8" in line


def test_one_failure_loses_no_other_answer_and_the_same_call_goes_on():
    ill = True

    def answer(body: dict) -> Reply | str:
        return Reply({"error": "oops"}, 500) if ill and last_message(body) in {"3", "5"} else echo(body)

    with ChatServer(answer) as server:
        requests = asks(*map(str, range(20)))
        answers, line = ending(client(server, retries=1), requests)
        assert sorted(i for i, _ in answers) == [i for i in range(20) if i not in (3, 5)]
        assert "2 of 20 requests have no answer" in line
        assert "the same command goes on" in line
        ill, before = False, len(server.bodies)
        assert len(list(client(server).complete(requests))) == 20
        assert sorted(map(last_message, server.bodies[before:])) == ["3", "5"]


def test_a_wrong_request_among_good_ones_is_the_only_one_without_an_answer():
    def answer(body: dict) -> Reply | str:
        return Reply({"error": {"message": "bad role"}}, 400) if last_message(body) == "7" else echo(body)

    with ChatServer(answer) as server:
        answers, line = ending(client(server, concurrency=1), asks(*map(str, range(12))))
        assert len(answers) == 11
        assert "1 of 12" in line
        assert "bad role" in line
        assert server.asked["7"] == 1


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"),
        (400, "The response was filtered due to the prompt triggering Azure OpenAI's content management policy"),
        (413, "Payload"),
        (422, "Input is too long for the requested model"),
    ],
)
def test_a_request_refused_for_its_text_is_no_failure(status: int, message: str):
    def answer(body: dict) -> Reply | str:
        return Reply({"error": {"message": message}}, status) if last_message(body) == "0" else echo(body)

    with ChatServer(answer) as server:
        asked = client(server)
        found = dict(asked.complete(asks(*map(str, range(8)))))
        assert (found[0].status, asked.ledger.refused) == ("refused", 1)
        assert message in found[0].text
        assert all(found[i].status == "ok" for i in range(1, 8))
        assert dict(asked.complete(asks("0")))[0].status == "refused"  # alone, and asked again: the server may change


@pytest.mark.parametrize("status", [400, 500])
def test_a_server_that_answers_nothing_is_not_asked_thousands_of_times(status: int):
    with ChatServer(lambda _: Reply({"error": {"message": "context length exceeded"}}, status)) as server:
        answers, line = ending(client(server, retries=0), asks(*map(str, range(500))))
        assert answers == []
        assert "in a row without an answer" in line
        assert len(server.bodies) <= 16 + 4


# Keys


def test_the_key_is_sent_and_is_nowhere_else(tmp_path: Path):
    """Everything printed, logged, raised and written by a whole run, while the server sends the key back."""

    def answer(body: dict) -> Reply | str:
        which = last_message(body)
        if which == "answer":
            return Reply(chat(f"The key is {KEY}!", [{"top_logprobs": [{"token": KEY, "logprob": -1.0}]}]))
        if which == "broken":
            return Reply(f"{'x' * 60} Bearer {KEY} and more".encode())
        if which == "again":
            return Reply({"error": {"message": f"try later, {KEY}"}}, 500)
        return Reply({"error": {"message": f"{'y' * 225}{KEY} is not valid for {KEY}", "code": KEY}}, 400)

    script = """
    import logging, pickle, traceback
    logging.basicConfig(level=logging.DEBUG)
    print(repr(client), repr(client.server), client.fingerprint, client.estimate(requests))
    for i, answer in client.complete(requests[:1]): print(i, answer)
    for request in requests:
        try:
            print(list(client.complete([request])))
        except ValueError as error:
            traceback.print_exc()
            print(repr(error), error.__dict__)
    print(client.ledger, vars(client), vars(client.endpoint))
    """
    with ChatServer(answer) as server:
        whole = _script(server.url, script, ["answer", "broken", "again", "wrong"], api_key_env="MY_KEY")
        env = _env(tmp_path) | {"MY_KEY": KEY, "OPENAI_LOG": "debug"}
        done = subprocess.run(
            [sys.executable, "-c", whole], capture_output=True, text=True, timeout=300, cwd=_ROOT, env=env
        )
        assert done.returncode == 0, done.stderr
        assert {headers["authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
    printed = done.stdout + done.stderr
    assert "The key is [key]!" in printed
    assert "try later, [key]" in printed
    assert "HTTP 400" in printed
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for text in (printed.encode(), *(path.read_bytes() for path in files)):
        assert KEY.encode() not in text
        assert KEY[:12].encode() not in text


def test_the_key_of_openai_is_sent_to_openai_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ADMIN_KEY", KEY + "-admin")
    with ChatServer(echo) as server:
        list(client(server).complete(asks("a")))
        assert KEY not in json.dumps(server.headers)
        list(client(server, api_key_env="OPENAI_API_KEY").complete(asks("b")))
        assert server.headers[1]["authorization"] == f"Bearer {KEY}"
    assert Server().key() == Server("https://eu.api.openai.com/v1").key() == KEY
    assert Server("http://notopenai.com/v1").key() is None
    assert Server("https://openai.com.evil.org/v1").key() is None


def test_wrong_settings_are_one_line_and_show_no_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    wrong = [
        {"base_url": KEY},
        {"base_url": "localhost:8000"},
        {"base_url": "ftp://localhost/v1"},
        {"base_url": "http://localhost:many/v1"},
        {"base_url": f"http://me:{KEY}@localhost/v1"},
        {"base_url": f"http://localhost/v1?key={KEY}"},
        {"api_key_env": KEY},
        {"api_key_env": ""},
        {"concurrency": 0},
        {"retries": -1},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"backoff_s": -1},
        {"requests_per_minute": 0.0},
        {"tokens_per_minute": -5.0},
    ]
    for settings in wrong:
        with pytest.raises(ValueError, match=r"expected|must not") as caught:
            Server(**settings)
        assert is_mistake(caught.value)
        assert KEY not in str(caught.value)
        assert "\n" not in str(caught.value)
    _, line = ending(ChatClient("gpt"), asks("a"))
    assert "OPENAI_API_KEY is not set" in line
    monkeypatch.setenv("OPENAI_API_KEY", KEY + "\u2026 and a remark")
    _, line = ending(ChatClient("gpt"), asks("a"))
    assert "characters that no key has" in line
    assert KEY not in line
    with pytest.raises(ValueError, match="model"):
        ChatClient("")
    for request in ({"max_tokens": 0}, {"top_logprobs": -1}):
        with pytest.raises(ValueError, match="expected"):
            asks("a", **request)
    with pytest.raises(ValueError, match="at least one message"):
        ChatRequest(())


# Structured answers


@pytest.mark.parametrize(
    "text",
    [
        '{"n": 3}',
        ' \n{"n": 3}\n',
        '```json\n{"n": 3}\n```',
        '```\n{"n": 3}\n```',
        'Here it is:\n\n```json\n{"n": 3}\n```\nIs that all?',
        'The answer is {"n": 3}, I think {so}.',
        '{"n": "three"} or rather {"n": 3}',
        '<think>{"n": 1}? No.</think>\n{"n": 3}',
        "{{{ " + '{"n": 3}',
    ],
)
def test_json_is_found(text: str):
    assert parse_structured(text, OBJECT) == (True, {"n": 3})


@pytest.mark.parametrize(
    "text",
    ["", "three", '{"n": "3"}', '{"n": 3', "{'n': 3}", '{"n": 3, "m": 1}', '{"n": NaN}', "[" * 100_000, "{" * 100_000,
     '{"a":' * 50_000, '<think>{"n": 3}', "[3]", "3"],
)  # fmt: skip
def test_what_does_not_follow_the_schema_is_not_parsed(text: str):
    assert parse_structured(text, OBJECT) == (False, None)


def test_a_broken_answer_is_asked_for_again_in_another_way():
    with ChatServer(lambda body: '{"n": 3}' if body["seed"] == 7 else "well, n") as server:
        asked = client(server, prices=Prices(1.0, 2.0))
        ((_, answer),) = asked.complete(asks("a", schema=OBJECT, seed=6))
        assert (answer.status, answer.parsed, answer.seed, answer.temperature) == ("ok", {"n": 3}, 7, 0.5)
        assert [(body["seed"], body["temperature"]) for body in server.bodies] == [(6, 0.0), (7, 0.5)]
        # Two answers of 7 and 3 tokens: 14 x $1 + 6 x $2 per million.
        assert (answer.input_tokens, answer.output_tokens) == (14, 6)
        assert answer.cost_usd == asked.ledger.cost_usd == pytest.approx(26e-6)
        assert (asked.ledger.repaired, asked.ledger.unparsed) == (1, 0)


def test_an_answer_that_stays_broken_is_unparsed_counted_and_kept():
    with ChatServer(lambda body: "well, n") as server:
        asked = client(server, repairs=2)
        ((_, answer),) = asked.complete(asks("a", schema=OBJECT))
        ((_, kept),) = asked.complete(asks("a", schema=OBJECT))
        assert (answer.status, answer.parsed, answer.text) == ("unparsed", None, "well, n")
        assert (kept.status, kept.cached, len(server.bodies)) == ("unparsed", True, 3)
        assert (asked.ledger.repaired, asked.ledger.unparsed) == (2, 1)


def test_no_schema():
    _, line = ending(client("http://localhost:1/v1"), asks("a", schema={"type": "objekt"}))
    assert line.startswith("schema: not a JSON schema")


# Tokens, cost, limits


def test_ledger_and_cost():
    replies = {"a": chat("x"), "b": chat("y", prompt_tokens=100, completion_tokens=50)}
    with ChatServer(lambda body: Reply(replies[last_message(body)])) as server:
        asked = client(server, prices=Prices(0.15, 0.60))
        found = dict(asked.complete(asks("a", "b", "b")))
        # 7 x 0.15 + 3 x 0.60 = 2.85; 100 x 0.15 + 50 x 0.60 = 45, each per million
        assert [found[i].cost_usd for i in range(3)] == [pytest.approx(2.85e-6), pytest.approx(45e-6), 0.0]
        expected = {"sent": 2, "answered": 2, "cached": 1, "input_tokens": 107, "output_tokens": 53, "failed": 0}
        assert expected.items() <= asked.ledger.as_dict().items()
        assert asked.ledger.as_dict()["cost_usd"] == pytest.approx(47.85e-6)


def test_unknown_costs_are_none_and_never_0():
    strange = [None, {}, {"prompt_tokens": "7"}, {"prompt_tokens": -7, "completion_tokens": True}]
    with ChatServer(lambda body: Reply({**chat("x"), "usage": strange[int(last_message(body))]})) as server:
        asked = client(server, prices=Prices(1.0, 1.0))
        assert [answer.cost_usd for _, answer in asked.complete(asks("0", "1", "2", "3"))] == [None] * 4
        assert (asked.ledger.cost_usd, asked.ledger.uncounted) == (None, 4)
        free = client(server, model="own", prices=Prices(0, 0))
        assert next(free.complete(asks("0")))[1].cost_usd == 0.0
    with ChatServer(echo) as server:
        unknown = client(server)
        assert unknown.ledger.cost_usd == 0.0  # nothing was asked, so nothing was paid
        assert next(unknown.complete(asks("a")))[1].cost_usd is None
        assert unknown.ledger.cost_usd is None
    for price in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="usd_per_million_output"):
            Prices(1.0, price)


def test_estimate():
    with ChatServer(echo) as server:
        asked = client(server, prices=Prices(10.0, 20.0))
        list(asked.complete(asks("known", max_tokens=10)))
        found = asked.estimate(asks("known", "x" * 400, "x" * 400, "new", max_tokens=10))
        assert len(server.bodies) == 1
        # Bytes / 4 and 4 for the message: 400 / 4 + 4 = 104; "new": 1 + 4 = 5. At most 10 tokens back, twice.
        assert (found.requests, found.cached, found.duplicates, found.calls) == (4, 1, 1, 2)
        assert (found.input_tokens, found.output_tokens) == (109, 20)
        assert found.cost_usd == pytest.approx((109 * 10 + 20 * 20) / 1e6)
        assert client(server).estimate(asks("other")).cost_usd is None
        told = client(server).kept(asks("new", "known", max_tokens=10))
        assert (told[0], told[1].text, told[1].cached, len(server.bodies)) == (None, echo(server.bodies[0]), True, 1)
    assert estimated_tokens(["", "\u901f\u5ea6"]) == 4 + 4 + 2


def test_limits_hold_in_every_minute():
    now = 0.0
    limits = RateLimits(30, 1000, clock=lambda: now)
    sent = []
    for tokens in [10, 90, 5, 300, 20, 20, 20, 1, 1, 1] * 20:
        sent.append((now + limits.book(tokens), tokens))
        now += 0.1
    for start, _ in sent:
        inside = [tokens for at, tokens in sent if start <= at < start + 60]
        assert len(inside) <= 30
        assert sum(inside) <= 1000 + 300  # the last one of a minute may reach into the next
    # A request takes the longer of 60 / 30 s and 0.06 s per token: 2 + 5.4 + 2 + 18 + 6 x 2 = 39.4, twenty times,
    # and nothing comes after the last one, which would have taken 2.
    assert sent[-1][0] == pytest.approx(20 * 39.4 - 2)


def test_limits_are_corrected_and_paused():
    limits = RateLimits(tokens_per_minute=60, clock=lambda: 0.0)
    assert [limits.book(30), limits.book(30)] == [0.0, 30.0]
    limits.settle(30, 10)
    assert limits.book(1) == 40.0
    limits.pause(100)
    assert limits.book(1) == 100.0
    assert RateLimits(clock=lambda: 0.0).book(10**9) == 0.0
    for wrong in ((0, None), (None, -1), (float("nan"), None)):
        with pytest.raises(ValueError, match="per_minute"):
            RateLimits(*wrong)


def test_requests_wait_as_the_limit_says():
    at: list[float] = []
    with ChatServer(lambda body: (at.append(time.monotonic()), "ok")[1]) as server:
        asked = client(server, requests_per_minute=600)
        asked.endpoint.limits = RateLimits(600, clock=lambda: 0.0)  # the n-th request is to wait for n x 0.1 s
        begun = time.monotonic()
        assert len(list(asked.complete(asks(*"abcde")))) == 5
    assert client(server, requests_per_minute=600).endpoint.limits.requests_per_minute == 600
    assert all(came - begun >= 0.1 * n - 1e-3 for n, came in enumerate(sorted(at)))  # lower bounds


# Killed in the middle

_ROOT = Path(__file__).resolve().parents[2]


def _env(cache: Path) -> dict[str, str]:
    return {**os.environ, "RETRIEVAL_DIVERSITY_CACHE": str(cache), "PYTHONPATH": str(_ROOT)}


def _script(url: str, then: str, requests: Sequence[str] | int = 50, **server: object) -> str:
    texts_ = list(requests) if not isinstance(requests, int) else [str(i) for i in range(requests)]
    body = "\n".join(line.removeprefix("    ") for line in then.splitlines())
    return f"""
from lm.chat import *
from lm.prompts import Message
server = Server({url!r}, backoff_s=0.001, retries=1, **{server!r})
client = ChatClient("tiny", server)
requests = [ChatRequest((Message("user", text),)) for text in {texts_!r}]
answers = client.complete(requests)
{body}
"""


def test_killed_and_resumed_nothing_is_paid_twice_but_one_block(tmp_path: Path):
    n, concurrency, stop = 600, 8, 450
    hold = threading.Event()

    def answer(body: dict) -> str:
        if len(server.bodies) > stop:
            hold.wait(240)
        return echo(body)

    with ChatServer(answer) as server:
        whole = _script(server.url, "print(len(dict(answers)), client.ledger.sent)", n, concurrency=concurrency)
        command = [sys.executable, "-c", whole]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=_ROOT, env=_env(tmp_path))
        wait_until(lambda: server.open >= concurrency)
        first.kill()
        assert first.communicate()[0] == b""
        hold.set()
        wait_until(lambda: server.open == 0)
        before = len(server.bodies)
        second = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, env=_env(tmp_path), timeout=300)
        assert second.stdout == f"{n} {len(server.bodies) - before}\n", second.stderr
        repeated = len(server.bodies) - n
        assert 0 < repeated <= BLOCK + concurrency  # a block, and what was open
        assert set(server.asked) == {str(i) for i in range(n)}
        third = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, env=_env(tmp_path), timeout=300)
        assert third.stdout == f"{n} 0\n"

"""Replies of chat servers: JSON of others, read with care, to the record that is kept, and from there to an answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lm.chat_types import Alternatives, ChatAnswer, ChatRequest
from lm.responses import Record
from lm.structured import parse_structured

ROUNDING = 1e-6
"""A log-probability may be above 0 by this much."""


def read_reply(reply: Mapping[str, Any]) -> Record:
    """The record of a reply of ``/chat/completions``, without counts and cost.

    Raises:
        ValueError: It is not such a reply.
    """
    choices = reply.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise ValueError("no choices with a message")
    finish = choice.get("finish_reason")
    return {
        "text": _text(message),
        "input_tokens": None,
        "output_tokens": None,
        "cost_usd": None,
        "details": {
            "model": _string(reply.get("model")),
            "finish": _string(finish),
            "logprobs": _logprobs(choice.get("logprobs")),
        },
    }


def answer_of(record: Record, request: ChatRequest, cached: bool = False) -> ChatAnswer:
    """The answer that a record is, to this request."""
    details = record["details"]
    fits, parsed = (True, None) if request.schema is None else parse_structured(record["text"], request.schema)
    return ChatAnswer(
        status="ok" if fits else "unparsed",
        text=record["text"],
        parsed=parsed,
        logprobs=tuple(tuple((token, value) for token, value in place) for place in details["logprobs"]),
        finish=details["finish"],
        model=details["model"],
        seed=details.get("seed"),
        temperature=details.get("temperature"),
        input_tokens=record["input_tokens"],
        output_tokens=record["output_tokens"],
        cost_usd=0.0 if cached else record["cost_usd"],
        cached=cached,
    )


def alternatives(found: Any) -> Alternatives | None:
    """Tokens and log-probabilities of one place, the likeliest first; None where they are none.

    Args:
        found: A list of objects with ``token`` and ``logprob``.
    """
    if not isinstance(found, list):
        return None
    pairs = []
    for each in found:
        token, value = (each.get("token"), each.get("logprob")) if isinstance(each, dict) else (None, None)
        if not isinstance(token, str) or isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if math.isnan(value) or value > ROUNDING:
            return None
        if value != -math.inf:
            pairs.append((token, min(float(value), 0.0)))
    return tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


def _text(message: Mapping[str, Any]) -> str:
    """The text; empty where the model only thought, called a tool or declined."""
    content = message.get("content")
    if isinstance(content, list):  # parts, as some servers send
        content = "".join(_string(part.get("text")) for part in content if isinstance(part, dict))
    if content is None:
        return _string(message.get("refusal"))
    if not isinstance(content, str):
        raise ValueError(f"the content is a {type(content).__name__}, expected text")
    return content


def _logprobs(found: Any) -> list[list[list[Any]]]:
    """Alternatives at each place; none at all where one place is nonsense."""
    places = found.get("content") if isinstance(found, dict) else None
    result = []
    for place in places if isinstance(places, list) else []:
        pairs = alternatives(place.get("top_logprobs")) if isinstance(place, dict) else None
        if pairs is None:
            return []
        result.append([list(pair) for pair in pairs])
    return result


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""

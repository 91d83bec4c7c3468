"""JSON in the answer of a language model: found, whatever stands around it, and checked against a JSON schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import jsonschema
from referencing import Registry

MOST_STARTS = 64
"""Brackets at which JSON is looked for: a text of brackets only must not take for ever."""

_THOUGHT = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_FENCED = re.compile(r"```[a-zA-Z]*[ \t]*\n(.*?)```", re.DOTALL)
_START = re.compile(r"[{\[]")


def check_schema(schema: Mapping[str, Any]) -> None:
    """Refuses what is no JSON schema.

    Raises:
        ValueError: One line that says where it is wrong.
    """
    try:
        jsonschema.Draft202012Validator.check_schema(dict(schema))
    except jsonschema.SchemaError as error:
        raise ValueError(f"schema: not a JSON schema: {error.json_path}: {error.message}") from None


def without_thought(text: str) -> str:
    """The text without what a reasoning model writes before its answer; nothing where it never comes to an end."""
    rest = _THOUGHT.sub("", text, count=1)
    return "" if re.match(r"\s*<think(ing)?>", rest, re.IGNORECASE) else rest.strip()


def parse_structured(text: str, schema: Mapping[str, Any]) -> tuple[bool, Any]:
    """Whether a JSON value that follows the schema stands in the text, and the first one that does.

    The whole text is tried first, then what stands between code fences, then whatever begins with a bracket.

    Args:
        text: A model's answer.
        schema: JSON schema, draft 2020-12; references to other places are not followed.
    """
    validator = jsonschema.Draft202012Validator(dict(schema), registry=Registry())
    for value in _values(without_thought(text)):
        try:
            if validator.is_valid(value):
                return True, value
        except RecursionError:
            continue
    return False, None


def _values(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder(parse_constant=_refuse)
    for part in (text, *_FENCED.findall(text)):
        try:
            yield decoder.decode(part.strip())
        except (ValueError, RecursionError):
            continue
    position = 0
    for _ in range(MOST_STARTS):
        found = _START.search(text, position)
        if found is None:
            return
        try:
            value, position = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            position = found.end()
            continue
        yield value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")

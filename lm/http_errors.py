"""What an error of a server means: send it again, leave this request out, or end; in one line, without the key."""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import openai

from lm.server import hide
from lm.text import clean

AGAIN = (408, 409, 425, 429)
ASKED_WAIT_S = 600.0
"""A server that asks for a longer wait than this has no answers today."""
SHOWN = 240
"""Characters shown of what a server says."""

_CONTENT = re.compile(
    r"context.{0,12}(length|window|size|limit)|maximum (context|prompt|input|sequence)|max_model_len|"
    r"(prompt|input|messages?|request|content|tokens?).{0,30} too (long|large|many)|too many (input )?tokens|"
    r"reduce the (length|size)|string.above.max.length|longer than the (model|maximum)|"
    r"content.?(filter|policy|management|moderation)|flagged",
    re.IGNORECASE,
)
_NO_MONEY = re.compile(r"insufficient_quota|billing|payment|credit", re.IGNORECASE)
_HINTS = {
    401: "check the key in the environment (api_key_env names its variable)",
    403: "check what the key is allowed to do",
    404: "check base_url (it usually ends in /v1) and the model's name",
}


class AgainError(Exception):
    """A retry may help; ``wait_s`` is how long the server asks to wait, None where it does not say."""

    def __init__(self, text: str, wait_s: float | None = None) -> None:
        super().__init__(text)
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True)
class Problem:
    """What an HTTP status means.

    Attributes:
        kind: ``again``; ``refused``: for the request's text; ``request``: this request is wrong, or all of them are;
            ``end``: no request will be answered.
        text: What the server says.
        wait_s: How long it asks to wait.
        hint: What to do, to be put behind the text.
    """

    kind: Literal["again", "refused", "request", "end"]
    text: str
    wait_s: float | None = None
    hint: str = ""


def problem(error: openai.APIStatusError, key: str | None) -> Problem:
    """What this error means."""
    status, said = error.status_code, _said(error, key)
    text = f"HTTP {status}" + (f" {said}" if said else "")
    if status in (400, 413, 422):
        return Problem("refused" if status == 413 or _CONTENT.search(said) else "request", text)
    if status == 429 and _NO_MONEY.search(said):
        return Problem("end", text, hint="; the account has nothing left")
    if status in AGAIN or status >= 500:
        wait_s = asked_wait_s(error.response.headers)
        if wait_s is not None and wait_s > ASKED_WAIT_S:
            return Problem("end", text, hint=f"; it asks to wait {wait_s:.0f} s: the same command goes on then")
        return Problem("again", text, wait_s)
    return Problem("end", text, hint=f"; {_HINTS[status]}" if status in _HINTS else "")


def asked_wait_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait (RFC 9110, section 10.2.3: a number, or a date); None where it does not."""
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name) or "nan") * unit_s
        except ValueError:
            continue
        if not math.isnan(seconds):
            return max(0.0, seconds)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(headers.get("retry-after") or "").timestamp() - time.time())
    except (ValueError, TypeError, OverflowError, OSError):
        return None


def described(error: openai.APIConnectionError, key: str | None) -> str:
    """Why there was no answer: the innermost cause, in one line."""
    if isinstance(error, openai.APITimeoutError):
        return "no answer in time"
    cause: BaseException = error
    for _ in range(8):
        cause = cause.__cause__ or cause
    return _line(f"no connection: {type(cause).__name__} {cause}".rstrip(), key)


def _said(error: openai.APIStatusError, key: str | None) -> str:
    """What the server says: its message and code where it sends them, else the beginning of its text."""
    body: Any = error.body
    if isinstance(body, dict):
        inner = body.get("error", body)
        fields = [inner.get(name) for name in ("message", "code", "type")] if isinstance(inner, dict) else [inner]
        body = " ".join(str(field) for field in fields if field) or str(body)
    return _line("" if body is None else str(body), key)


def _line(text: str, key: str | None) -> str:
    # The key first: cut in two, it would not be found.
    text = " ".join("".join(c if c.isprintable() else " " for c in hide(clean(text), key)).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."

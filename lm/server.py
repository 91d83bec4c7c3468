"""Where a language model is served: address, key, and how much may be asked of it at once."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

OPENAI = "https://api.openai.com/v1"
LOCAL = "local"
"""In place of an address: no server, but a model of transformers on this machine (``lm.chat.make_chat``)."""
OPENAI_KEY = "OPENAI_API_KEY"
SHORTEST_KEY = 8
"""What is shorter ("none", "EMPTY") is no secret, and may stand in any text."""
HIDDEN = "[key]"

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class Server:
    """One OpenAI-compatible server; none of this changes what a model answers.

    The key is read from the environment when a call begins, and is kept nowhere. ``OPENAI_API_KEY`` goes to OpenAI
    only; for any other server, ``api_key_env`` names the variable, and without it no key is sent.

    Attributes:
        base_url: For example ``http://localhost:8000/v1``; or ``local``.
        api_key_env: Name of the environment variable that holds the key.
        concurrency: Requests open at a time.
        requests_per_minute: None: no limit.
        tokens_per_minute: Input and output together; None: no limit.
        timeout_s: For one request from its beginning to the last byte of its answer.
        retries: How often a request is sent again.
        backoff_s: Wait before the first retry; doubled each time, and shortened at random by up to a half.
    """

    base_url: str = OPENAI
    api_key_env: str | None = None
    concurrency: int = 16
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    timeout_s: float = 120.0
    retries: int = 6
    backoff_s: float = 0.5

    def __post_init__(self) -> None:
        parts = _parts(self.base_url)
        if self.base_url != LOCAL and (parts is None or parts.scheme not in ("http", "https") or not parts.hostname):
            # The address itself is not shown: it may be a key, given in the wrong place.
            raise ValueError("base_url: expected an address such as http://localhost:8000/v1")
        if parts is not None and ("@" in parts.netloc or parts.query or parts.fragment):
            raise ValueError(
                "base_url: it must not hold a user, a password, '?' or '#': the key comes from the environment"
            )
        if self.api_key_env is not None and not _VARIABLE.fullmatch(self.api_key_env):
            raise ValueError(
                "api_key_env: expected the name of an environment variable in capitals, such as MY_API_KEY (not a key)"
            )
        if self.concurrency < 1 or self.retries < 0:
            raise ValueError(
                f"concurrency={self.concurrency}, retries={self.retries}: expected at least one request at a time, "
                "and retries from 0"
            )
        for name in ("timeout_s", "backoff_s", "requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name}={value}: expected a number above 0")

    @property
    def place(self) -> str:
        """The address, for messages."""
        return self.base_url.rstrip("/")

    def key(self) -> str | None:
        """The key from the environment; None where this server gets none.

        Raises:
            ValueError: The variable is not set, or what it holds cannot be a key.
        """
        name = self.api_key_env
        if name is None:
            host = (_parts(self.base_url) or urlsplit("")).hostname or ""
            if host != "openai.com" and not host.endswith(".openai.com"):
                return None
            name = OPENAI_KEY
        value = os.environ.get(name, "").strip()
        if not value:
            raise ValueError(
                f"{self.place}: the environment variable {name} is not set: export {name}=... with the key"
            )
        if not (value.isascii() and value.isprintable()) or " " in value:
            raise ValueError(f"{self.place}: the environment variable {name} holds characters that no key has")
        return value


def hide(text: str, key: str | None) -> str:
    """The text without the key."""
    return text.replace(key, HIDDEN) if key and len(key) >= SHORTEST_KEY else text


def _parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        return parts if parts.port != 0 else None  # a port that is no number raises
    except ValueError:
        return None

"""Requests and tokens per minute: how long a request has to wait before it may be sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

MINUTE_S = 60.0


class RateLimits:
    """Spaces requests evenly, so that no minute, wherever it begins, has more requests or tokens than allowed.

    A request books its time when it asks, in the order of asking; nothing is sent in bursts, which servers with
    limits per second would refuse. Safe to use from several threads. This is the generic cell rate algorithm
    without burst allowance (ITU-T I.371, 1993).

    Args:
        requests_per_minute: None: no limit.
        tokens_per_minute: Input and output tokens together; None: no limit.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, limit in (("requests_per_minute", requests_per_minute), ("tokens_per_minute", tokens_per_minute)):
            if limit is not None and not limit > 0:
                raise ValueError(f"{name}={limit}: expected a number above 0, or none for no limit")
        self.requests_per_minute = requests_per_minute
        self.tokens_per_minute = tokens_per_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._next_request = self._next_token = self._resume = clock()

    def book(self, tokens: int) -> float:
        """Books one request of about this many tokens; returns the seconds to wait before it is sent."""
        with self._lock:
            now = self._clock()
            start = max(now, self._next_request, self._next_token, self._resume)
            if self.requests_per_minute is not None:
                self._next_request = start + MINUTE_S / self.requests_per_minute
            if self.tokens_per_minute is not None:
                self._next_token = start + tokens * MINUTE_S / self.tokens_per_minute
            return start - now

    def settle(self, booked: int, used: int) -> None:
        """Corrects a booking by what the answer really took: what was booked too much is free again."""
        if self.tokens_per_minute is not None:
            with self._lock:
                self._next_token += (used - booked) * MINUTE_S / self.tokens_per_minute

    def pause(self, seconds: float) -> None:
        """Nothing that is booked from now on is sent within this time: the server has asked for a break."""
        with self._lock:
            self._resume = max(self._resume, self._clock() + seconds)

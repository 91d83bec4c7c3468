"""A local HTTP server with the OpenAI interface, for tests: answers well, late, never, broken, or with an echo."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass
class Reply:
    """What is sent back: ``body`` as JSON, or as it is where it is bytes."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    cut: int | None = None
    """Bytes sent before the connection is closed, fewer than Content-Length says."""
    trickle: bool = False
    """One byte now and then, without end."""
    drop: bool = False
    """The connection is closed without a word."""


def chat(text: str | None, logprobs: Any = None, **usage: int) -> dict[str, Any]:
    """A well-formed body of /chat/completions."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    if logprobs is not None:
        choice["logprobs"] = {"content": logprobs}
    counts = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10} | usage
    return {"id": "x", "object": "chat.completion", "model": "tiny-1", "choices": [choice], "usage": counts}


def last_message(body: dict[str, Any]) -> str:
    return body["messages"][-1]["content"]


class ChatServer:
    """Runs ``answer`` (body of a request -> Reply, or a text for a well-formed one) for every request.

    Attributes:
        bodies: Of all requests, in the order of their coming.
        headers: Of the same.
        open, most_open: Requests being answered now, and at most at a time.
    """

    def __init__(self, answer: Callable[[dict[str, Any]], Reply | str]) -> None:
        self.answer = answer
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.open = self.most_open = 0
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def asked(self) -> Counter[str]:
        """How often each last message came."""
        with self.lock:
            return Counter(map(last_message, self.bodies))

    def __enter__(self) -> ChatServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, address: Any) -> None:
        """Clients that go away are part of the tests."""


def _handler(server: ChatServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # headers and body in one packet: else the kernel waits for 40 ms between them
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with server.lock:
                server.bodies.append(body)
                server.paths.append(self.path)
                server.headers.append(dict(self.headers))
                server.open += 1
                server.most_open = max(server.most_open, server.open)
            try:
                reply = server.answer(body)
                self._send(Reply(chat(reply)) if isinstance(reply, str) else reply)
            finally:
                with server.lock:
                    server.open -= 1

        def _send(self, reply: Reply) -> None:
            if reply.wait_s:
                server.ended.wait(reply.wait_s)
            if reply.drop:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data) if not reply.trickle else 1 << 20))
            self.end_headers()
            if reply.trickle:
                while not server.ended.wait(0.02):
                    self.wfile.write(b" ")
                    self.wfile.flush()
                return
            self.wfile.write(data[: reply.cut])
            if reply.cut is not None:
                self.wfile.flush()
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def wait_until(happened: Callable[[], bool], seconds: float = 240.0) -> None:
    """Waits for something that another thread or process does."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            raise TimeoutError("it did not happen")
        time.sleep(0.005)

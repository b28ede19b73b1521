"""A local model server that sends scripted replies and can pause within them.

It speaks OpenAI's chat API, so what the server under test does is what it does with the real one. A reply is a row of
pieces as they go over the wire; a `Gate` among them holds the rest back until it is opened.
"""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple, TypeAlias, cast

from contextc._json import JSONObject

SPEC, OTHER = "openai-chat:gpt-4o", "openai-chat:gpt-4o-mini"
NAMED = re.compile(rf"^{OTHER.replace(':', ': ?')}( |$)")
"""The name of its option, which may have its window and prices after it."""
KEY = "BROWSER_TEST_KEY"
PATIENCE = 120.0


class Gate:
    """A pause in a reply: the pieces after it are sent when it is opened."""

    def __init__(self) -> None:
        self._reached, self._opened = Event(), Event()

    def open(self) -> None:
        self._opened.set()

    def reached(self) -> None:
        """Wait until everything before it was said."""
        assert self._reached.wait(PATIENCE), "the model was not asked so far"

    def hold(self) -> None:
        self._reached.set()
        self._opened.wait(PATIENCE)


Piece: TypeAlias = "JSONObject | Gate"


class Reply(NamedTuple):
    """One answer of the model."""

    pieces: tuple[Piece, ...]
    finish: str = "stop"
    usage: tuple[int, int, int] = (1_200, 40, 0)
    """Tokens in, tokens out, and how many of those in came from the cache."""


def text_reply(*text: str | Gate, thinks: str = "", usage: tuple[int, int, int] = (1_200, 40, 0)) -> Reply:
    """Return a text reply, one piece for each text."""
    thoughts: list[Piece] = [{"reasoning_content": item} for item in re.findall(r"\S+\s*", thinks)]
    texts: list[Piece] = [each if isinstance(each, Gate) else {"content": each} for each in text]
    return Reply((*thoughts, *texts), usage=usage)


def calls(*asked: tuple[str, JSONObject], first: str = "", id: str = "call") -> Reply:
    """A reply that asks for tools: their names and arguments. Their ids are numbered from `id` on."""
    pieces: list[Piece] = [{"content": first}] if first else []
    for index, (name, arguments) in enumerate(asked):
        written = json.dumps(arguments)
        head = {"index": index, "id": f"{id}-{index + 1}", "type": "function"}
        pieces.append({"tool_calls": [{**head, "function": {"name": name, "arguments": written[:6]}}]})
        pieces.append({"tool_calls": [{"index": index, "function": {"arguments": written[6:]}}]})
    return Reply(tuple(pieces), finish="tool_calls")


class Model:
    """What it is to say, one reply a request; and what it was asked."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.requests: list[JSONObject] = []
        self.url = ""

    def will(self, *replies: Reply) -> None:
        self.replies += replies

    def open_all(self) -> None:
        """Open all gates."""
        for reply in self._begun + self.replies:
            for piece in reply.pieces:
                if isinstance(piece, Gate):
                    piece.open()

    def take(self, request: JSONObject) -> Reply | None:
        self.requests.append(request)
        if not self.replies:
            return None
        self._begun = [*self._begun, self.replies.pop(0)]
        return self._begun[-1]

    _begun: list[Reply] = []  # noqa: RUF012 - never changed in place


class _Handler(BaseHTTPRequestHandler):
    model: Model

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        reply = self.model.take(cast(JSONObject, json.loads(body)))
        if reply is None:
            self._send(400, "application/json", b'{"error": {"message": "The script is at its end.", "code": "end"}}')
            return
        self._send(200, "text/event-stream")
        try:
            for piece in reply.pieces:
                if isinstance(piece, Gate):
                    piece.hold()
                else:
                    self._event({"index": 0, "delta": piece, "finish_reason": None})
            self._event({"index": 0, "delta": {}, "finish_reason": reply.finish})
            self._event(None, reply.usage)
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            pass  # who asked has left

    def _event(self, choice: JSONObject | None, usage: tuple[int, int, int] | None = None) -> None:
        content: JSONObject = {"id": "r", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
        content["choices"] = [choice] if choice else []
        if usage is not None:
            read, text, cached = usage
            content["usage"] = {
                "prompt_tokens": read,
                "completion_tokens": text,
                "total_tokens": read + text,
                "prompt_tokens_details": {"cached_tokens": cached},
            }
        self.wfile.write(b"data: " + json.dumps(content).encode() + b"\n\n")

    def _send(self, status: int, kind: str, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


@contextmanager
def speaking(home: Path) -> Generator[Model]:
    """Run a model server during the block, configured in this home directory."""
    model = Model()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"model": model}))
    server.daemon_threads = True
    model.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    folder = home / ".config" / "contextc"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "contextc.toml").write_text(f'[providers.openai-chat]\nurl = "{model.url}"\nkey = "{KEY}"\n')
    thread = Thread(target=server.serve_forever, args=(0.05,), name="model")
    thread.start()
    try:
        yield model
    finally:
        model.open_all()
        server.shutdown()
        thread.join()
        server.server_close()

"""The real Codex with a fake API: it accepts our imports, and we can read its output.

Left out where the program is not installed. It gets a throw-away home and a key that is none.
"""

import json
import os
import subprocess
from base64 import b64decode
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import cast

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.base import Request
from contextc.formats.codex.codec import split_history_and_prompt, to_response_items
from contextc.messages import SYSTEM_CONTEXT
from tests.formats.codex_samples import FORM

codex_cli_bin = pytest.importorskip("codex_cli_bin")
BINARY = Path(cast(str, codex_cli_bin.__file__)).parent / "bin" / "codex"
CONFIG = """
model = "gpt-5.4"
model_provider = "local"
[features]
plugins = false
[model_providers.local]
name = "local"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
env_key = "LOCAL_KEY"
request_max_retries = 0
stream_max_retries = 0
"""
SAID: JSONObject = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Still raining.", "annotations": []}],
}
PIXEL = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
"""A picture that is one: Codex looks into it, and says of any other that it could not be processed."""
HISTORY = [
    cc.system("It is late."),
    cc.user(["Weather?", cc.Media(mime_type="image/png", data=PIXEL)]),
    cc.assistant("Let me see.", tool_calls=[cc.tool_call("a", "weather", {"city": "Oslo"})]),
    cc.tool_result("a", "weather", [cc.Text("rain"), cc.Text("wind")]),
    cc.assistant("It rains."),
    cc.user("And now?"),
]


class _Answers(BaseHTTPRequestHandler):
    """A server that streams one answer to every request."""

    asked: list[JSONObject]

    def do_POST(self) -> None:
        self.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        response: JSONObject = {"id": "resp_1", "object": "response", "status": "completed", "output": [SAID]}
        usage = {"input_tokens": 40, "output_tokens": 2, "total_tokens": 42}
        events: tuple[JSONObject, ...] = (
            {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": {**SAID, "content": []}},
            {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Still raining."},
            {"type": "response.output_item.done", "output_index": 0, "item": SAID},
            {"type": "response.completed", "response": {**response, "usage": usage}},
        )
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in events:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Codex:
    """The app-server of a Codex: calls and their answers, and the notifications between them."""

    def __init__(self, home: Path, port: int) -> None:
        (home / "config.toml").write_text(CONFIG.format(port=port))
        env = {"HOME": str(home), "CODEX_HOME": str(home), "LOCAL_KEY": "none", "PATH": os.environ["PATH"]}
        self.program = subprocess.Popen(
            [BINARY, "app-server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            cwd=home,
        )
        self.events: list[JSONObject] = []
        client = {"name": "contextc", "version": "0"}
        self.call("initialize", clientInfo=client, capabilities={"experimentalApi": True})

    def call(self, method: str, **params: object) -> JSONObject:
        assert self.program.stdin is not None
        self.program.stdin.write(json.dumps({"id": 1, "method": method, "params": params}).encode() + b"\n")
        self.program.stdin.flush()
        answer = next(line for line in self.lines() if "id" in line)
        assert "error" not in answer, answer
        return answer["result"]

    def lines(self) -> Iterator[JSONObject]:
        assert self.program.stdout is not None
        for line in self.program.stdout:
            told = cast(JSONObject, json.loads(line))
            if "id" not in told:
                self.events.append(told)
            yield told


@contextmanager
def codex(home: Path) -> Generator[tuple[_Codex, list[JSONObject]]]:
    _Answers.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    Thread(target=server.serve_forever, daemon=True).start()
    line = _Codex(home, server.server_address[1])
    try:
        yield line, _Answers.asked
    finally:
        line.program.kill()
        line.program.wait()
        for pipe in (line.program.stdin, line.program.stdout):
            if pipe is not None:
                pipe.close()
        server.shutdown()
        server.server_close()


def test_the_model_of_a_real_codex_receives_the_history_that_was_imported(tmp_path: Path) -> None:
    """Guarantee 9.10: after Codex's own text, in our order, once; and the turn is read with its thread and tokens."""
    body = FORM.encode_request(Request(messages=tuple(HISTORY), tools=(cc.Tool(name="mcp__weather"),)))
    history, prompt = split_history_and_prompt(body["items"])
    with codex(tmp_path) as (line, asked):
        thread = line.call("thread/start", cwd=str(tmp_path), dynamicTools=body["dynamicTools"])["thread"]["id"]
        line.call("thread/inject_items", threadId=thread, items=to_response_items(history))
        line.call("turn/start", threadId=thread, input=prompt)
        next(told for told in line.lines() if told.get("method") == "turn/completed")
    (request,) = asked
    assert "mcp_x5F__weather" in json.dumps(request["tools"])
    told = FORM.decode_request(
        [{"type": "response_item", "payload": item} for item in request["input"] if item.get("role") != "developer"]
    ).messages
    assert [(message.role, message.text) for message in told] == [
        ("user", "Weather?"),
        ("assistant", "Let me see."),
        ("tool", ""),
        ("assistant", "It rains."),
        ("user", "And now?"),
    ]
    assert told[0].parts[1] == HISTORY[1].parts[1]
    assert told[2].tool_results[0].text == "rainwind"
    assert [item["content"][0]["text"] for item in request["input"] if item.get("role") == "developer"][
        -1
    ] == "It is late."
    reader = FORM.create_reader()
    for event in line.events:
        reader.read(event)
    assert (reader.session, reader.message().text, reader.finished) == (thread, "Still raining.", True)
    assert reader.message().usage == cc.Usage(input=40, output=2)
    assert cc.lint(line.events, format="codex") == []


def test_context_in_the_prompt_reaches_the_model_marked(tmp_path: Path) -> None:
    """Guarantee 9.4: a turn has no other place for it."""
    _, prompt = split_history_and_prompt(FORM.format([cc.user("hi"), cc.system("It is late.")]))
    with codex(tmp_path) as (line, asked):
        thread = line.call("thread/start", cwd=str(tmp_path))["thread"]["id"]
        line.call("turn/start", threadId=thread, input=prompt)
        next(told for told in line.lines() if told.get("method") == "turn/completed")
    assert [block["text"] for block in asked[0]["input"][-1]["content"]] == ["hi", f"{SYSTEM_CONTEXT}It is late."]

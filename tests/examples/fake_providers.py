"""Strict fakes of four providers on loopback, which the examples call in tests.

It knows one thing: where a question names cities, it asks `get_weather` about each of them, all at once; and where it
is given results, it answers with them. Like the providers it wants a key, and refuses a request that breaks their
rules (`refusals.py`). Whatever it is sent, it keeps.
"""

import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import ClassVar, cast

from contextc._json import JSONObject
from tests.examples.request_checks import Blocks, blocks_of, error_body, refusal

KEY = "a-key-that-is-none"
CITIES = ("Paris", "Cairo", "Atlantis")
DIRECT = {"type": "direct"}  # who made a call, as Anthropic says it and wants it back
PATHS = {
    "anthropic": re.compile(r"/v1/messages"),
    "openai_chat": re.compile(r"/v1/chat/completions"),
    "openai_responses": re.compile(r"/v1/responses"),
    "gemini": re.compile(r"/v1(beta)?/models/[\w.-]+:generateContent"),
}


@dataclass
class StandIn:
    """`with StandIn() as provider:` — its address is `provider.url`, and what arrived is in `provider.requests`."""

    requests: list[tuple[str, JSONObject]] = field(default_factory=list[tuple[str, JSONObject]])

    def __enter__(self) -> "StandIn":
        handler = type("Handler", (_Handler,), {"stand_in": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def environment(self) -> dict[str, str]:
        """Return the environment variables that direct each vendor's SDK to this server."""
        return {
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": self.url,
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "GEMINI_API_KEY": KEY,
            "GOOGLE_GEMINI_BASE_URL": self.url,
        }

    def answer(self, format: str, body: JSONObject) -> tuple[int, JSONObject]:
        self.requests.append((format, body))
        if refused := refusal(format, body):
            return refused
        question, results = parse_request(format, body)
        cities = [] if results else [city for city in CITIES if city in question]
        text = "Let me look." if cities else "The tools say: " + " ".join(results)
        return 200, reply(format, len(self.requests), text, cities)


class _Handler(BaseHTTPRequestHandler):
    stand_in: ClassVar[StandIn]

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        format = next((name for name, path in PATHS.items() if path.fullmatch(self.path.partition("?")[0])), "")
        keys = [self.headers.get(name) or "" for name in ("authorization", "x-api-key", "x-goog-api-key")]
        if not format:
            status, answer = 404, error_body(format, f"Nothing is at {self.path}.", 404)
        elif not any(key.removeprefix("Bearer ") == KEY for key in keys):
            status, answer = 401, error_body(format, "That is no key of ours.", 401)
        else:
            status, answer = self.stand_in.answer(format, cast(JSONObject, json.loads(raw)))
        written = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a test prints what it wants to be seen."""


def parse_request(format: str, body: JSONObject) -> tuple[str, list[str]]:
    """What was asked last, and the results that came since the last reply."""
    match format:
        case "anthropic":
            blocks = blocks_of(body["messages"][-1])
            results = [block["content"] for block in blocks if block["type"] == "tool_result"]
            return " ".join(block["text"] for block in blocks if block["type"] == "text"), results
        case "openai_chat":
            last = cast(JSONObject, body["messages"][-1])
            messages = cast(Blocks, body["messages"]) if last["role"] == "tool" else []
            replies = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
            return last["content"], [message["content"] for message in messages[replies[-1] + 1 :]] if replies else []
        case "openai_responses":
            items = cast(Blocks, body["input"])
            results: list[str] = []
            while items and items[-1].get("type") == "function_call_output":
                results, items = [items[-1]["output"], *results], items[:-1]
            return str(items[-1].get("content")), results
        case _:
            parts = cast(Blocks, body["contents"][-1]["parts"])
            answers = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
            results = [text for answer in answers for text in cast(dict[str, str], answer).values()]
            return " ".join(part.get("text", "") for part in parts), results


def reply(format: str, number: int, text: str, cities: list[str]) -> JSONObject:
    """A reply as this provider writes it: a thought, a text, and a call for each city."""
    calls: list[tuple[str, JSONObject]] = [(f"call_{number}{city[0]}", {"city": city}) for city in cities]
    match format:
        case "anthropic":
            return {
                "id": f"msg_{number}",
                "type": "message",
                "role": "assistant",
                "model": "claude-opus-5-5",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": f"signed-{number}"},
                    {"type": "text", "text": text, "citations": None},
                    *[
                        {"type": "tool_use", "id": name, "name": "get_weather", "input": given, "caller": DIRECT}
                        for name, given in calls
                    ],
                ],
                "stop_reason": "tool_use" if calls else "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 0},
            }
        case "openai_chat":
            functions = [
                {"id": name, "type": "function", "function": {"name": "get_weather", "arguments": json.dumps(given)}}
                for name, given in calls
            ]
            message: JSONObject = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
            return {
                "id": f"chatcmpl-{number}",
                "object": "chat.completion",
                "created": 1794700800,
                "model": "gpt-6-sol",
                "choices": [
                    {
                        "index": 0,
                        "message": {**message, "tool_calls": functions} if functions else message,
                        "logprobs": None,
                        "finish_reason": "tool_calls" if calls else "stop",
                    }
                ],
                "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
            }
        case "openai_responses":
            return {
                "id": f"resp_{number}",
                "object": "response",
                "created_at": 1794700800,
                "status": "completed",
                "model": "gpt-6-sol",
                "error": None,
                "incomplete_details": None,
                "instructions": None,
                "metadata": {},
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": [],
                "output": [
                    {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"sealed-{number}"},
                    {
                        "type": "message",
                        "id": f"msg_{number}",
                        "role": "assistant",
                        "status": "completed",
                        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
                        "phase": "commentary" if calls else "final_answer",
                    },
                    *[
                        {
                            "type": "function_call",
                            "id": f"fc_{name}",
                            "call_id": name,
                            "name": "get_weather",
                            "arguments": json.dumps(given),
                            "status": "completed",
                        }
                        for name, given in calls
                    ],
                ],
                "usage": {
                    "input_tokens": 10,
                    "input_tokens_details": {"cached_tokens": 0},
                    "output_tokens": 5,
                    "output_tokens_details": {"reasoning_tokens": 2},
                    "total_tokens": 15,
                },
            }
        case _:
            asked: Blocks = [{"functionCall": {"id": n, "name": "get_weather", "args": given}} for n, given in calls]
            asked[:1] = [{**asked[0], "thoughtSignature": "c2lnbmVkPz8+"}] if asked else []
            return {
                "candidates": [
                    {
                        "content": {"role": "model", "parts": [{"text": text}, *asked]},
                        "finishReason": "STOP",
                        "index": 0,
                    }
                ],
                "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
                "modelVersion": "gemini-3.8-flash",
                "responseId": f"r{number}",
            }

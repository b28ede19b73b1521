"""Ollama's chat API. A stream is newline-delimited JSON. A local server needs no key."""

from contextc._json import JSONObject, encode
from tests.providers.vendors import TEXT, Vendor

MODEL = "qwen3:8b"


def line(event: JSONObject) -> bytes:
    return encode(event) + b"\n"


VENDOR = Vendor(
    spec=f"ollama:{MODEL}",
    path="/api/chat",
    body={"model": MODEL, "stream": True, "messages": [TEXT]},
    events=[
        {"model": MODEL, "message": {"role": "assistant", "content": "Hel"}, "done": False},
        {"model": MODEL, "message": {"role": "assistant", "content": "lo"}, "done": False},
        {"model": MODEL, "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"},
    ],
    reply={"model": MODEL, "message": {"role": "assistant", "content": "Hello"}, "done": True, "done_reason": "stop"},
    package="ollama",
    variables=("OLLAMA_API_KEY", "OLLAMA_HOST"),
    needs_key=False,
    framed=line,
    kind="application/x-ndjson",
    overloaded={"error": "Overloaded"},
    code="",
    garbled=b"{oh\n",
)

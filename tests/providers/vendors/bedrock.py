"""Bedrock's Converse API, with a token in place of a signature. A stream consists of frames with checksums."""

from contextc._json import JSONObject, encode
from tests.fake_vendors.vendors.bedrock import framed
from tests.providers.vendors import TEXT, Vendor

KIND = "application/vnd.amazon.eventstream"
MODEL = "us.anthropic.claude-opus-4-5-20251101-v1:0"


def frame(event: JSONObject) -> bytes:
    ((name, text),) = event.items()
    if name == "error":
        kind = str(text["type"])
        content = {":exception-type": kind[:1].lower() + kind[1:], ":message-type": "exception"}
        return framed(content, encode({"message": text["message"]}))
    content = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return framed(content, encode({**text, "p": "abcdef"}))


VENDOR = Vendor(
    spec=f"bedrock:{MODEL}",
    path=f"/model/{MODEL.replace(':', '%3A')}/converse-stream",
    whole_path=f"/model/{MODEL.replace(':', '%3A')}/converse",
    body={"messages": [{"role": "user", "content": [{"text": TEXT["content"]}]}]},
    events=[
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Hel"}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "lo"}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"messageStop": {"stopReason": "end_turn"}},
        {"metadata": {"usage": {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7}, "metrics": {"latencyMs": 9}}},
    ],
    reply={
        "output": {"message": {"role": "assistant", "content": [{"text": "Hello"}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7},
    },
    package="botocore",
    variables=("AWS_BEARER_TOKEN_BEDROCK",),
    framed=frame,
    kind=KIND,
    overloaded={"error": {"message": "Overloaded", "type": "ServiceUnavailableException"}},
    code="ServiceUnavailableException",
    garbled=frame({"messageStart": {"role": "assistant"}})[:-9] + b"123456789",
)

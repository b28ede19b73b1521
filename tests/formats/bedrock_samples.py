"""A request and a reply of Converse, the reply whole and as a stream: what the tests of the format share."""

from contextc._json import JSONObject

POINT: JSONObject = {"cachePoint": {"type": "default"}}
REQUEST: JSONObject = {
    "system": [{"text": "Be brief."}, POINT, {"guardContent": {"text": {"text": "Be kind."}}}],
    "toolConfig": {
        "tools": [
            {"toolSpec": {"name": "look", "description": "Looks.", "inputSchema": {"json": {}}}},
            POINT,
        ],
        "toolChoice": {"tool": {"name": "look"}},
    },
    "guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"},
    "messages": [
        {
            "role": "user",
            "content": [
                {"guardContent": {"text": {"text": "Is it so?", "qualifiers": ["query"]}}},
                {"document": {"name": "Doc 1", "source": {"text": "It is."}, "citations": {"enabled": True}}},
                {"text": "\n"},
                POINT,
                {"text": "Well?"},
                {"cachePoint": {"type": "default", "ttl": "1h"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "of a model that signs nothing"}}},
                {"citationsContent": {"content": [{"text": "It is."}], "citations": [{"title": "Doc 1"}]}},
                {"toolUse": {"toolUseId": "s", "name": "web", "input": {}, "type": "server_tool_use"}},
                {"toolResult": {"toolUseId": "s", "content": [{"text": "x"}], "type": "web_result"}},
                {"toolUse": {"toolUseId": "a:1", "name": "look", "input": {"b": 1}}},
                {"toolUse": {"toolUseId": "b", "name": "look", "input": {}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "a:1", "content": [{"json": {"n": 1}}], "status": "success"}},
                {"toolResult": {"toolUseId": "b", "content": []}},
                {
                    "video": {
                        "format": "three_gp",
                        "source": {"s3Location": {"uri": "s3://films/a", "bucketOwner": "1" * 12}},
                    }
                },
            ],
        },
    ],
}
REPLY: JSONObject = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
                {"text": "Let me look."},
                {"toolUse": {"toolUseId": "tooluse_1", "name": "look", "input": {"b": 1}, "type": "tool_use"}},
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": {
        "inputTokens": 5,
        "outputTokens": 7,
        "totalTokens": 162,
        "cacheReadInputTokens": 100,
        "cacheWriteInputTokens": 50,
    },
    "metrics": {"latencyMs": 9},
}
EVENTS: list[JSONObject] = [
    {"messageStart": {"role": "assistant"}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "H"}}}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "m."}}}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": "c2ln"}}}},
    {"contentBlockStop": {"contentBlockIndex": 0}},
    {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "Let me "}}},
    {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "look."}}},
    {"contentBlockStart": {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "tooluse_1", "name": "look"}}}},
    {"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"toolUse": {"input": '{"b"'}}}},
    {"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"toolUse": {"input": ": 1}"}}}},
    {"contentBlockStop": {"contentBlockIndex": 2}},
    {"messageStop": {"stopReason": "tool_use"}},
    {"metadata": {"usage": REPLY["usage"], "metrics": {"latencyMs": 9}}},
]

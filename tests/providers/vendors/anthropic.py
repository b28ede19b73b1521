"""Anthropic's Messages API."""

from tests.providers.vendors import TEXT, Vendor

VENDOR = Vendor(
    spec="anthropic:claude-opus-5-5",
    path="/v1/messages",
    body={"model": "claude-opus-5-5", "max_tokens": 9, "stream": True, "messages": [TEXT]},
    events=[
        {"type": "message_start", "message": {"id": "m", "model": "claude-opus-5-5", "content": [], "usage": {}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ],
    reply={"type": "message", "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn", "usage": {}},
    package="anthropic",
    variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
)

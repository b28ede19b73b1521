"""OpenAI's Responses API."""

from tests.providers.vendors import TEXT, Vendor

VENDOR = Vendor(
    spec="openai:gpt-6.1-terra",
    base="/v1",
    path="/v1/responses",
    body={"model": "gpt-6.1-terra", "store": False, "stream": True, "input": [TEXT]},
    events=[
        {"type": "response.created", "response": {"id": "r", "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hel"},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "lo"},
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}},
    ],
    reply={
        "object": "response",
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hello"}]}],
    },
    package="openai",
    variables=("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"),
)

"""OpenAI's Chat Completions API."""

from tests.providers.vendors import TEXT, Vendor

VENDOR = Vendor(
    spec="openai-chat:gpt-4.1",
    base="/v1",
    path="/v1/chat/completions",
    body={"model": "gpt-4.1", "stream": True, "messages": [TEXT]},
    events=[
        {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}}]},
        {"id": "c", "choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": "stop"}]},
        {"id": "c", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
    ],
    reply={"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]},
    last=b"data: [DONE]\n\n",
    package="openai",
    variables=("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"),
)

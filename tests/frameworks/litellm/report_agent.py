"""An agent as litellm's documentation writes one, on the strict fake vendors."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.fake_vendors.vendor import KEY
from tests.frameworks.paged_report import QUESTION, read_page

# Any: litellm's functions take and return untyped values.

PARAMETERS = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
FUNCTION = {"name": "read_page", "description": "Read a page of the report.", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]
SYSTEM = {"role": "system", "content": "Answer from the report."}
MODELS = {"openai_chat": "openai/gpt-4.1", "anthropic": "anthropic/claude-opus-5-5"}
SENT_BACK = {"role", "content", "tool_calls", "thinking_blocks"}
"""The fields of a reply that belong into the next request. OpenAI refuses others that litellm adds."""


def options(fake: Any, name: str = "openai_chat") -> dict[str, Any]:
    limit = {"max_tokens": 2_000} if name == "anthropic" else {}
    return {"model": MODELS[name], "api_base": fake.url(name), "api_key": KEY, "max_retries": 0, **limit}


def question() -> list[Any]:
    return [SYSTEM, {"role": "user", "content": QUESTION}]


def run(
    call: Callable[..., Any],
    messages: list[Any],
    *,
    tools: Sequence[Any] = TOOLS,
    functions: Iterable[Callable[..., str]] = (read_page,),
    **more: Any,
) -> list[Any]:
    """Run the agent until it answers. The list of messages grows."""
    named = {each.__name__: each for each in functions}
    while True:
        reply = call(messages=messages, tools=tools, **more).choices[0].message
        messages.append(reply.model_dump(exclude_none=True, include=SENT_BACK))
        if not reply.tool_calls:
            return messages
        for each in reply.tool_calls:
            result = named[each.function.name](**json.loads(each.function.arguments))
            messages.append({"role": "tool", "tool_call_id": each.id, "content": result})

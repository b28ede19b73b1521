"""litellm in the scenario: an agent loop as in its documentation, alone and with the adapter.

`trim_messages` is litellm's own function for long histories, with its default of 75 % of the window. On Anthropic, all
variants have the cache breakpoints that litellm sets: one at the system prompt, one at the last message. `low=0.4`
trims to 40 % of the window, in place of 50 %.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import litellm
from litellm.utils import trim_messages
from scenario_steps import ANTHROPIC_MODEL, OPENAI_MODEL, Assignment, Variant, play, run_variants

# Any: litellm's functions take and return untyped values.

Complete = Callable[..., Awaitable[Any]]
Make = Callable[[Assignment], Complete]
TRIM_RATIO = 0.75


def openai(assignment: Assignment) -> dict[str, Any]:
    return {"model": f"openai/{OPENAI_MODEL}", "api_base": assignment.openai_url}


def anthropic(assignment: Assignment) -> dict[str, Any]:
    return {"model": f"anthropic/{ANTHROPIC_MODEL}", "api_base": assignment.url, "max_tokens": 4_000}


def nothing(assignment: Assignment) -> Complete:
    return litellm.acompletion


def trimming(assignment: Assignment) -> Complete:
    async def complete(*, model: str, messages: list[Any], **options: Any) -> Any:
        kept = trim_messages(messages, model, max_tokens=int(assignment.window * TRIM_RATIO))
        return await litellm.acompletion(model=model, messages=kept, **options)

    return complete


def adapter(assignment: Assignment, **options: Any) -> Complete:
    import contextc as cc
    from contextc.adapters.litellm import Completions

    store = cc.open_store(f"sqlite:///{assignment.folder}/agent.db")
    completions = Completions(store, window=assignment.window, **options)

    async def complete(**arguments: Any) -> Any:
        return await completions.acompletion(conversation="scenario", **arguments)

    return complete


def adapter_low(assignment: Assignment) -> Complete:
    return adapter(assignment, low=0.4)


def variant(model_of: Callable[[Assignment], dict[str, Any]], make: Make) -> Variant:
    async def run(assignment: Assignment) -> None:
        litellm.enable_anthropic_prompt_caching = True
        complete, model = make(assignment), model_of(assignment)
        tools = [{"type": "function", "function": describe(each)} for each in assignment.tools]
        called = {each.__name__: each for each in assignment.tools}
        messages: list[Any] = [{"role": "system", "content": assignment.instructions}]

        async def ask(prompt: str) -> str:
            messages.append({"role": "user", "content": prompt})
            for _ in range(assignment.max_steps):
                response = await complete(
                    messages=messages, tools=tools, api_key=assignment.key, num_retries=0, max_retries=0, **model
                )
                reply = response.choices[0].message
                messages.append(sendable(reply))
                if not reply.tool_calls:
                    return reply.content
                for call in reply.tool_calls:
                    result = called[call.function.name](**json.loads(call.function.arguments))
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            raise RuntimeError(f"no answer after {assignment.max_steps} requests")

        await play(assignment, ask)

    return run


def sendable(reply: Any) -> dict[str, Any]:
    """Return a reply as a message, with the fields that OpenAI accepts in a request."""
    return reply.model_dump(exclude_none=True, include={"role", "content", "tool_calls"})


def describe(tool: Callable[[str], str]) -> dict[str, Any]:
    """Return the definition of a tool. All of them take one text."""
    (name,) = [each for each in tool.__annotations__ if each != "return"]
    parameters = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    return {"name": tool.__name__, "description": tool.__doc__, "parameters": parameters}


if __name__ == "__main__":
    ways: dict[str, Make] = {
        "nothing": nothing,
        "trim_messages": trimming,
        "adapter": adapter,
        "adapter, low=0.4": adapter_low,
    }
    variants: dict[str, Variant] = {}
    for name, model_of in (("openai", openai), ("anthropic", anthropic)):
        variants |= {f"{name}: {way}": variant(model_of, make) for way, make in ways.items()}
        variants[f"unlimited, {name}: nothing"] = variant(model_of, nothing)
    run_variants(variants)

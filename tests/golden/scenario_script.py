"""Parts of the scenario: a scripted endpoint, providers, tools, triggers, and a prompt context."""

from collections.abc import Callable
from contextlib import suppress

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import ContextcError
from contextc.events import AnyEvent
from contextc.prompts import AgentCard, Delegation, PromptContext
from contextc.providers import Provider
from contextc.triggers import TriggerContext, trigger
from tests.executor.scripted_provider import Say

PICTURE = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489") + b"golden"
DIRECTORY = "/golden/shed"
SONNET = "anthropic:claude-sonnet-4-5"
PROVIDERS = (
    SONNET,
    "openai-chat:gpt-4o",
    "openai:gpt-5",
    "openai-session:gpt-5",
    "gemini:gemini-2.5-pro",
    "bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0",
    "mistral:mistral-large-latest",
    "ollama:qwen3",
    "openrouter:anthropic/claude-sonnet-4.5",
    "claude-code:default",
    "codex:default",
)
"""One of each format that requests are compiled for, and of each kind of session."""
LOOK = cc.Tool(
    name="look",
    description="Looks at a thing.",
    parameters={"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
)


def thoughtful(reply: Say) -> list[JSONObject]:
    """The same reply after signed reasoning, unsigned reasoning and reasoning that only the provider can read."""
    blocks: list[tuple[JSONObject, list[JSONObject]]] = [
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                {"type": "thinking_delta", "thinking": "Let me see."},
                {"type": "signature_delta", "signature": "c2lnbmVk"},
            ],
        ),
        ({"type": "redacted_thinking", "data": "b3BhcXVl"}, []),
    ]
    found: list[JSONObject] = []
    for index, (block, deltas) in enumerate(blocks, 20):
        found.append({"type": "content_block_start", "index": index, "content_block": block})
        found += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        found.append({"type": "content_block_stop", "index": index})
    first, *rest = reply.events()
    return [first, *found, *rest]


def sonnet(window: int = 100_000) -> Provider:
    return cc.provider(SONNET, window=window, output=4_000)


def fail(why: str) -> str:
    """Fail, and say why."""
    raise ValueError(why)


def draw(thing: str) -> list[cc.Text | cc.Media]:
    """Draw a thing."""
    return [cc.Text(f"A {thing}:"), cc.Media(mime_type="image/png", data=PICTURE, name=f"{thing}.png")]


def sign(name: str) -> str:
    """Sign a paper."""
    return f"Signed by {name}."


def approve(call: cc.ToolCall, _: cc.tools.FunctionTool) -> bool | str:
    return True if call.arguments.get("name") == "ann" else "not in this name"


@trigger("visits")
def visits(moment: TriggerContext, state: JSONObject) -> tuple[str | None, JSONObject]:
    """Count steps, and speak at the second of each turn."""
    count = state.get("count", 0) + 1
    return (f"This is visit {count}." if moment.step == 2 else None), {"count": count}


@trigger("beside", kind="hint", at="mid_step", once=True)
def beside(moment: TriggerContext) -> str:
    return "A tool has answered."


@trigger("broken", once=True)
def broken(moment: TriggerContext) -> str:
    raise RuntimeError("this trigger is broken")


TRIGGERS = (visits, beside, broken)
SURROUNDINGS = PromptContext(
    project="A garden with a pond.",
    responding_to="ann",
    delegations=(Delegation(to="helper", task="Count the reeds."),),
    agents=(
        AgentCard(name="assistant", description="Keeps the garden."),
        AgentCard(name="helper", description="Counts."),
    ),
)


def tools(*functions: Callable[..., object]) -> list[cc.tools.FunctionTool]:
    """Tools that run one after the other, so that their results are in the order of their calls."""
    return [cc.tool(each, parallel=False, approval=each is sign) for each in functions]


async def run(executor: cc.AgentExecutor, conversation: str, given: str | None = None) -> list[AnyEvent]:
    """A whole turn, however it ends."""
    events: list[AnyEvent] = []
    with suppress(ContextcError):
        async for event in executor.run(conversation, given):
            events.append(event)
    return events

"""One conversation, as we would send it and as the AI SDK does.

The SDK is told what `formatter("vercel")` makes of the conversation: the same messages, tools and settings that our
own format of the provider gets.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats import formatter
from contextc.formats.base import Formatter, Request
from contextc.formats.request_settings import RequestSettings, ToolChoice
from tests.sdk_comparison.ai_sdk_process import Sdk

LOOK = cc.Tool(
    name="look",
    description="Look at something.",
    parameters={"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
)


class Conversation(Struct, frozen=True, kw_only=True):
    """The conversation that both get."""

    messages: tuple[cc.Message, ...]
    prompt: str | None = "Be brief."
    tools: tuple[cc.Tool, ...] = (LOOK,)
    settings: RequestSettings = RequestSettings(max_output_tokens=1000)


class Target(Struct, frozen=True):
    """A provider: the model that is asked, our format, and what has to be said to make both ask for the same thing."""

    model: str
    form: Formatter
    ours: JSONObject = {}
    theirs: JSONObject = {}


class Bodies(NamedTuple):
    ours: JSONObject
    theirs: JSONObject


TARGETS: Mapping[str, Target] = {
    "anthropic": Target("claude-opus-4-8", cc.AnthropicFormatter(system_between=True)),
    "openai_chat": Target("gpt-4.1", formatter("openai_chat")),
    "openai_responses": Target(
        "gpt-5.2",
        formatter("openai_responses"),
        ours={"store": False, "include": ["reasoning.encrypted_content"]},
        theirs={"providerOptions": {"openai": {"store": False}}},
    ),
    "gemini": Target("gemini-3-pro-preview", formatter("gemini")),
    "bedrock": Target("anthropic.claude-opus-4-8", formatter("bedrock")),
    "mistral": Target("mistral-large-latest", formatter("mistral")),
}
VERCEL = formatter("vercel")


def bodies(sdk: Sdk, name: str, conversation: Conversation, *, stream: bool = False) -> Bodies:
    """The body that we make of it, and the SDK's."""
    target = TARGETS[name]
    answer = sdk.ask(name, target.model, {**written(VERCEL, conversation), **target.theirs}, stream=stream)
    if not stream:
        assert answer["text"] == "Fine.", "the SDK did not understand the oracle's answer"
    return Bodies(written(target.form, conversation, model=target.model, more=target.ours), answer["body"])


def written(
    form: Formatter, conversation: Conversation, *, model: str | None = None, more: Mapping[str, JSON] = {}
) -> JSONObject:
    choice = conversation.settings.tool_choice or (
        ToolChoice("auto") if conversation.tools else None
    )  # the SDK always says which
    asked = replace(conversation.settings, model=model, tool_choice=choice)
    request = Request(
        messages=conversation.messages,
        system=cc.system(conversation.prompt) if conversation.prompt is not None else None,
        tools=conversation.tools,
        settings={**form.settings.write(asked).body, **more},
    )
    return form.encode_request(request)

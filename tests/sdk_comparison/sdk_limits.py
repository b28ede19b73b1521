"""Limits of the comparison: a conversation is reduced to what both sides can express.

Each limit has its reason and a case that shows it: `seen` says in which formats, and with which words the SDK refuses
the case there; where there are none, it sends something that says another thing. So a limit that is not needed any
more fails a test.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from contextc.formats.request_settings import ToolChoice
from contextc.messages import AnyPart, Media, Message, ProviderBlock, Reasoning, Text, ToolCall, ToolResult
from tests.sdk_comparison.request_pairs import Conversation

PICTURES = ("image/jpeg", "image/png", "image/gif", "image/webp")
DOCUMENT, PLAIN = "application/pdf", "text/plain"

Cut: TypeAlias = Callable[[Conversation, str], Conversation]


class Limit(NamedTuple):
    """`cut` makes of a conversation what both can say of it, in formats that `formats` names."""

    name: str
    formats: tuple[str, ...]
    reason: str
    cut: Cut
    example: str
    seen: Mapping[str, str]


def within(conversation: Conversation, format: str, limits: Sequence[Limit]) -> Conversation:
    """The conversation, cut down to what this format and the SDK can both say."""
    for limit in limits:
        conversation = limit.cut(conversation, format) if format in limit.formats else conversation
    return conversation


def each(cut: Callable[[Message, str], Message]) -> Cut:
    """A cut that is made in every message by itself."""
    return lambda told, format: replace(told, messages=tuple(cut(message, format) for message in told.messages))


def filtered(message: Message, keeps: Callable[[AnyPart], bool], inside: Callable[[AnyPart], bool]) -> Message:
    """The message with those of its parts, and of the parts of its results, that are kept."""

    def cut(part: AnyPart) -> AnyPart:
        if not isinstance(part, ToolResult) or isinstance(part.content, str):
            return part
        return replace(part, content=tuple(filter(inside, part.content)))

    return replace(message, parts=tuple(cut(part) for part in message.parts if keeps(part)))


def changed(message: Message, change: Callable[[AnyPart], AnyPart]) -> Message:
    return replace(message, parts=tuple(map(change, message.parts)))


def natives_left_out(message: Message, format: str) -> Message:
    return filtered(message, lambda part: not isinstance(part, ProviderBlock), lambda part: True)


def extra_left_out(conversation: Conversation, format: str) -> Conversation:
    tools = tuple(replace(tool, extra=None) for tool in conversation.tools)
    return replace(conversation, tools=tools, messages=tuple(map(_without_extra, conversation.messages)))


def _without_extra(message: Message) -> Message:
    def bare(part: AnyPart) -> AnyPart:
        if isinstance(part, ToolResult) and not isinstance(part.content, str):
            part = replace(part, content=tuple(replace(each, extra=None) for each in part.content))
        signature = (part.extra or {}).get("google", {}).get("thoughtSignature")
        signed = isinstance(part, ToolCall) and signature is not None
        return replace(part, extra={"google": {"thoughtSignature": signature}} if signed else None)

    return replace(changed(message, bare), extra=None)


def media_left_out(message: Message, format: str) -> Message:
    def is_taken(part: AnyPart) -> bool:
        return not isinstance(part, Media) or (bool(part.data or part.url) and TAKEN[format](part))

    def is_returned(part: AnyPart) -> bool:
        return not isinstance(part, Media) or (bool(part.data or part.url) and RETURNED[format](part))

    return filtered(message, is_taken, is_returned)


def misnamed_left_out(message: Message, format: str) -> Message:
    def is_honest(part: AnyPart) -> bool:
        if not isinstance(part, Media) or not part.data:
            return True
        return all(kind == part.mime_type for start, kind in BEGINNINGS.items() if part.data.startswith(start))

    return filtered(message, is_honest, is_honest)


def drawn_media_left_out(message: Message, format: str) -> Message:
    if message.role != "assistant":
        return message
    return filtered(message, lambda part: not isinstance(part, Media), lambda part: True)


def unproved_left_out(message: Message, format: str) -> Message:
    def is_proved(part: AnyPart) -> bool:
        return not isinstance(part, Reasoning) or any(
            getattr(part, field) is not None for field in PROOFS.get(part.provider or "", ())
        )

    return filtered(message, is_proved, lambda part: True)


def rules_in_one_text(message: Message, format: str) -> Message:
    if message.role != "system":
        return message
    texts = [part.text for part in message.parts if isinstance(part, Text) and part.text.strip()]
    return replace(message, parts=(Text("\n\n".join(texts)),) if texts else ())


def rules_left_out(conversation: Conversation, format: str) -> Conversation:
    return replace(
        conversation, messages=tuple(message for message in conversation.messages if message.role != "system")
    )


def with_prompt(conversation: Conversation, format: str) -> Conversation:
    return conversation if conversation.prompt is not None else replace(conversation, prompt="Be brief.")


def calls_last(message: Message, format: str) -> Message:
    others = [part for part in message.parts if not isinstance(part, ToolCall)]
    return replace(message, parts=(*others, *message.tool_calls))


def tools_allowed(conversation: Conversation, format: str) -> Conversation:
    forbidden = conversation.settings.tool_choice == ToolChoice("none")
    return (
        replace(conversation, settings=replace(conversation.settings, tool_choice=None)) if forbidden else conversation
    )


def errors_in_one_text(message: Message, format: str) -> Message:
    def plain(part: AnyPart) -> AnyPart:
        if not isinstance(part, ToolResult) or isinstance(part.content, str) or not part.is_error:
            return part
        shows = any(isinstance(each, Media) for each in part.content)
        return replace(part, is_error=False) if shows else replace(part, content=part.text)

    return changed(message, plain)


def ids_given(message: Message, format: str) -> Message:
    def named(part: AnyPart) -> AnyPart:
        if isinstance(part, ToolCall):
            return replace(part, id=part.id or "nameless0")
        return replace(part, call_id=part.call_id or "nameless0") if isinstance(part, ToolResult) else part

    return changed(message, named)


BEGINNINGS = {b"\xff\xd8": "image/jpeg", b"\x89PNG": "image/png", b"GIF8": "image/gif"}
PROOFS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("signature", "data"),
    "openai": ("data", "id"),
    "google": ("signature",),
    "bedrock": ("signature", "data"),
}
"""What proves reasoning, by provider: without it our ModelMessages do not have it."""
TAKEN: Mapping[str, Callable[[Media], bool]] = {
    "anthropic": lambda media: media.mime_type in (*PICTURES, DOCUMENT, PLAIN),
    "openai_chat": lambda media: (
        media.kind == "image" or (media.data is not None and media.mime_type in (DOCUMENT, "audio/wav"))
    ),
    "openai_responses": lambda media: media.kind == "image" or media.mime_type == DOCUMENT,
    "gemini": lambda media: True,
    "bedrock": lambda media: media.data is not None and media.mime_type in (*PICTURES, DOCUMENT),
    "mistral": lambda media: media.mime_type in (*PICTURES, DOCUMENT),
}
"""What a user may show to each provider, through the SDK and through us."""
RETURNED: Mapping[str, Callable[[Media], bool]] = {
    "anthropic": lambda media: media.mime_type in (*PICTURES, DOCUMENT),
    "openai_chat": lambda media: False,
    "openai_responses": lambda media: media.mime_type in PICTURES,
    "gemini": lambda media: media.data is not None and media.mime_type in ("image/jpeg", "image/png", DOCUMENT),
    "bedrock": lambda media: media.data is not None and media.mime_type in (*PICTURES, DOCUMENT),
    "mistral": lambda media: False,
}
"""What a tool may return to each provider, through the SDK and through us."""
ALL = tuple(TAKEN)

LIMITS: Sequence[Limit] = (
    Limit(
        "blocks of one provider",
        ALL,
        "they go back to it alone; our ModelMessages, which may go to anybody, describe them",
        each(natives_left_out),
        "a block of one provider",
        {"anthropic": ""},
    ),
    Limit(
        "what a provider said beyond our types",
        ALL,
        "it goes back in that provider's own format; the SDK has names of its own for it",
        extra_left_out,
        "what was said beyond our types",
        {"anthropic": ""},
    ),
    Limit(
        "media that only one of both sends",
        ALL,
        "the SDK refuses some kinds, and sends others that the provider refuses; we describe what cannot be shown",
        each(media_left_out),
        "a sound",
        {"anthropic": "'media type: audio/wav' functionality not supported."},
    ),
    Limit(
        "media that are not what they are called",
        ALL,
        "the SDK looks at the first bytes, and corrects the type of a picture; we send what we were told",
        each(misnamed_left_out),
        "a picture called a film",
        {"gemini": ""},
    ),
    Limit(
        "media of the assistant",
        ALL,
        "no provider takes back what its model has drawn in a form that both know",
        each(drawn_media_left_out),
        "a picture that was drawn",
        {"anthropic": "", "openai_chat": "", "openai_responses": ""},
    ),
    Limit(
        "reasoning that nothing proves",
        ALL,
        "our ModelMessages do not have it: a provider that cannot check it would receive it",
        each(unproved_left_out),
        "reasoning that nobody signed",
        {"gemini": ""},
    ),
    Limit(
        "system messages of several parts",
        ALL,
        "the SDK has one text for them",
        each(rules_in_one_text),
        "a rule of two texts",
        {"anthropic": "", "openai_chat": "", "openai_responses": ""},
    ),
    Limit(
        "system messages between others",
        ("gemini", "bedrock"),
        "the SDK refuses them; we write them as text of the user in `<system-reminder>`",
        rules_left_out,
        "a rule after the user",
        {"gemini": "'system messages are only supported at the beginning of the conversation' functionality not"},
    ),
    Limit(
        "no prompt, but system messages",
        ("anthropic",),
        "the SDK makes the first of them the prompt, wherever it stands",
        with_prompt,
        "a rule without a prompt",
        {"anthropic": ""},
    ),
    Limit(
        "words after a call",
        ("anthropic",),
        "the SDK moves calls behind them; we leave every word in its place",
        each(calls_last),
        "words between calls",
        {"anthropic": ""},
    ),
    Limit(
        "errors of several parts",
        ALL,
        "the SDK has one text for an error",
        each(errors_in_one_text),
        "an error of several texts",
        {"anthropic": "", "openai_chat": "", "openai_responses": ""},
    ),
    Limit(
        "a choice of no tool",
        ("bedrock",),
        "Bedrock has none: the SDK leaves the tools out, and we leave them, because earlier calls need them",
        tools_allowed,
        "no tool may be called",
        {"bedrock": ""},
    ),
    Limit(
        "calls without an id",
        ALL,
        "the SDK sends an empty one, and we none, or one of our own where the provider demands it",
        each(ids_given),
        "a call without an id",
        {"gemini": ""},
    ),
)

"""Claude Code, an agent used as a provider: its stream of JSON lines, and its transcripts.

A request has options of its SDK and a list of lines; a line contains a message of Anthropic's API.
`split_history_and_prompt` separates the messages that a session must already contain from the new prompt.
`transcript_entries` writes the former as Claude Code stores them.
"""

from collections.abc import Iterable, Mapping, Sequence

from contextc._json import JSONObject, id_text
from contextc.formats.anthropic import AnthropicFormatter
from contextc.formats.anthropic.codec import BETWEEN_KEY
from contextc.formats.anthropic.streams import collect_events
from contextc.formats.base import EncodedSegment, Formatter, Request, as_json
from contextc.formats.claude_code import codec
from contextc.formats.claude_code.codec import (
    NAME_KEY,
    PROMPT_FIELD,
    TOOL_PREFIX,
    encode_prompt,
    encode_segment,
    encode_tool,
    make_line,
    seal_session_results,
    split_history_and_prompt,
    transcript_entries,
)
from contextc.formats.claude_code.request_settings import SETTINGS
from contextc.formats.claude_code.rules import RULES
from contextc.formats.claude_code.streams import ClaudeCodeStreamReader
from contextc.formats.lint_engine import RuleFinding, unknown_field_findings
from contextc.formats.message_preparation import APART_KEY, IdentifierCodec, NameCodec, ReasoningPolicy
from contextc.messages import Message
from contextc.tools.definitions import Tool

EMPTY_USER_MESSAGE: JSONObject = {"role": "user", "content": []}

__all__ = ["ClaudeCodeFormatter", "split_history_and_prompt", "transcript_entries"]


class _ToolNames(IdentifierCodec):
    """Names of tools. Claude Code returns ours with the name of the MCP server as prefix."""

    def decode(self, text: str) -> str:
        return super().decode(text.removeprefix(TOOL_PREFIX))


class ClaudeCodeFormatter(Formatter):
    """Claude Code. `messages` are lines, `system_prompt` is the system prompt, and `resume` names the session to
    continue.
    """

    name = "claude_code"
    stream_reader = ClaudeCodeStreamReader
    rules = RULES
    settings = SETTINGS
    name_codec = NameCodec(
        "claude_code",
        ids=IdentifierCodec("a-zA-Z0-9_-", 64, accepted="[a-zA-Z0-9_-]+"),
        names=_ToolNames("a-zA-Z0-9_-", 128 - len(TOOL_PREFIX)),
    )
    unique_ids = True
    merges_neighbours = True
    session_line_fields = ("type",)
    strict_tools = False
    media_types, text_documents = AnthropicFormatter.media_types, AnthropicFormatter.text_documents
    layout_extra = (APART_KEY, BETWEEN_KEY, NAME_KEY, "id", "model", "stop_reason")

    def check_surroundings(self, message: JSONObject) -> Iterable[RuleFinding]:
        return unknown_field_findings(message, ("type", "message"), (0,))

    def __init__(self, *, provider: str = "claude-code", reasoning: ReasoningPolicy = "native") -> None:
        self.provider, self.reasoning = provider, reasoning
        self._inner = AnthropicFormatter(provider=provider)

    def _encode(self, segment: Sequence[Message], blobs: Mapping[str, bytes]) -> EncodedSegment:
        return encode_segment(segment, provider=self.provider, blobs=blobs)

    def join(self, segments: Iterable[EncodedSegment], before: Sequence[JSONObject] = ()) -> list[JSONObject]:
        """Join as for Anthropic, but allow a reply as the first message: the session may contain what it answers."""
        # A message in `before` may have only a role, if its content is not loaded.
        start: list[JSONObject] = [each.get("message", each) for each in before]
        known = {id(message): each for message, each in zip(start, before, strict=True)}
        bare = [
            EncodedSegment(tuple([each["message"] for each in segment.messages]), (), segment.apart)
            for segment in segments
        ]
        joined = self._inner.join(bare, start or [EMPTY_USER_MESSAGE])
        if joined[0] is EMPTY_USER_MESSAGE:
            joined = joined[1:]
        return [known[id(message)] if id(message) in known else make_line(message) for message in joined]

    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        body: JSONObject = {**request.settings, "messages": messages}
        if request.system is not None and (
            said := encode_prompt(request.system, body.get(PROMPT_FIELD), self.provider)
        ):
            body[PROMPT_FIELD] = said
        if tools := self.encode_tools(request.tools):
            body["tools"] = tools
        return body

    def with_session_results(self, request: Request, *, blobs: Mapping[str, bytes] = {}) -> Sequence[Message]:
        """Also send results of calls that the session contains, although the calls are not in the request."""
        if request.settings.get("resume") is None:
            return request.messages
        return seal_session_results(request.messages, provider=self.provider, blobs=blobs)

    def encode_tool(self, tool: Tool) -> JSONObject:
        """Return a tool definition in Anthropic's format."""
        return encode_tool(tool)

    def _decode_request(self, body: JSONObject) -> Request:
        return codec.decode_request(body, self.provider)

    def _is_reply(self, reply: JSONObject) -> bool:
        return codec.find_reply(reply) is not None

    def _decode_reply(self, reply: JSONObject) -> Message:
        return codec.decode_reply(codec.find_reply(reply) or {}, self.provider)

    def session_id_of(self, reply: JSONObject, field: str) -> str:
        return id_text(reply.get("session_id"))

    def decode_stream(self, events: Iterable[object]) -> Message:
        reader = self.create_reader()
        for event in events:
            reader.read(as_json(event))
        return reader.message()

    def _collect(self, events: Iterable[JSONObject]) -> JSONObject:
        return collect_events(event["event"] for event in events if event.get("type") == "stream_event")

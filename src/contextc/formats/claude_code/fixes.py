"""Fixes that decoding and encoding a request do not make."""

from contextc._json import JSONObject
from contextc.formats.anthropic import rules as anthropic
from contextc.formats.claude_code.message_lines import make_line, message_of

with_unique_tools = anthropic.with_unique_tools


def with_valid_thinking(body: JSONObject) -> JSONObject:
    bare = anthropic.with_valid_thinking({"messages": [message_of(each) for each in body["messages"]]})
    return {**body, "messages": [make_line(message) for message in bare["messages"]]}

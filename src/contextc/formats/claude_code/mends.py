"""Fixes that decoding and encoding a request do not make."""

from contextc._json import JSONObject
from contextc.formats.anthropic import mends as anthropic
from contextc.formats.claude_code.lines import line, said

with_tools_once = anthropic.with_tools_once


def with_a_message(body: JSONObject) -> JSONObject:
    return {**body, "messages": [line({"role": "user", "content": anthropic.NOTHING_SAID})]}


def with_sound_thinking(body: JSONObject) -> JSONObject:
    bare = anthropic.with_sound_thinking({"messages": [said(each) for each in body["messages"]]})
    return {**body, "messages": [line(message) for message in bare["messages"]]}


def without_session(body: JSONObject) -> JSONObject:
    return {name: value for name, value in body.items() if name != "resume"}

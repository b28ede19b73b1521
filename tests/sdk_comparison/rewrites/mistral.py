"""Rewrite the SDK's bodies for Mistral to our form."""

from contextc._json import JSONObject
from contextc.formats.base import OPENING_TEXT
from contextc.formats.message_preparation import to_data_url
from contextc.messages import Media
from tests.sdk_comparison.rewrites.bodies import RewriteContext, tagged
from tests.sdk_comparison.rewrites.openai import is_silent, listed


def opened(body: JSONObject, context: RewriteContext) -> None:
    first = 0 if context.conversation.prompt is None else 1
    if len(body["messages"]) > first and body["messages"][first]["role"] == "assistant":
        body["messages"].insert(first, {"role": "user", "content": OPENING_TEXT})


def tag_displaced(body: JSONObject, context: RewriteContext) -> None:
    before = ""
    for message in body["messages"]:
        if message["role"] == "system" and before in ("assistant", "tool"):
            message |= {"role": "user", "content": tagged(message["content"])}
        before = message["role"]


def lists_as_lists(body: JSONObject, context: RewriteContext) -> None:
    for holder, texts in listed(body, context):
        messages = [each for each in texts if each["text"]]
        holder["content"] = messages if len(messages) > 1 else messages[0]["text"] if messages else ""


def without_thoughts(body: JSONObject, context: RewriteContext) -> None:
    for message in body["messages"]:
        if message["role"] == "assistant" and isinstance(message["content"], list):
            texts = [block for block in message["content"] if block["type"] != "thinking" and block["text"]]
            message["content"] = texts if len(texts) > 1 else texts[0]["text"] if texts else ""


def without_silent_replies(body: JSONObject, context: RewriteContext) -> None:
    body["messages"] = [each for each in body["messages"] if not is_silent(each)]
    if body["messages"] and body["messages"][-1]["role"] == "assistant":
        body["messages"][-1]["prefix"] = True


def with_names(body: JSONObject, context: RewriteContext) -> None:
    shown = [part for part in context.parts() if isinstance(part, Media)]
    named = {part.url or to_data_url(part, {}): part.name for part in shown if part.name}
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block.get("document_url") in named:
                block["document_name"] = named[block["document_url"]]


def required_by_its_new_name(body: JSONObject, context: RewriteContext) -> None:
    if body.get("tool_choice") == "any":
        body["tool_choice"] = "required"

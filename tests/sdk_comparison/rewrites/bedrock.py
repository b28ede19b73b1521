"""Rewrite the SDK's bodies for Bedrock to our form."""

import base64
import re
from collections.abc import Iterator
from typing import cast

from contextc._json import JSONObject
from contextc.formats.base import OPENING_TEXT
from contextc.formats.bedrock.codec import (
    DOCUMENT_TEXT,
    EMPTY_ERROR_TEXT,
    document_name,
    find_documents,
    with_unique_document_names,
)
from contextc.messages import Media, Message, Text, ToolResult
from tests.sdk_comparison.rewrites.bodies import RewriteContext, merged


def without_the_stop_sequence(body: JSONObject, context: RewriteContext) -> None:
    if body.get("additionalModelResponseFieldPaths") == ["/delta/stop_sequence"]:
        del body["additionalModelResponseFieldPaths"]


def without_an_empty_prompt(body: JSONObject, context: RewriteContext) -> None:
    if body["system"] == []:
        del body["system"]


def _results(body: JSONObject) -> Iterator[JSONObject]:
    for message in body["messages"]:
        yield from (block["toolResult"] for block in message["content"] if "toolResult" in block)


def with_errors(body: JSONObject, context: RewriteContext) -> None:
    results = context.results()
    for answer in _results(body):
        if answer["toolUseId"] in results and results[answer["toolUseId"]].is_error:
            answer["status"] = "error"


def with_words_for_errors(body: JSONObject, context: RewriteContext) -> None:
    for answer in _results(body):
        if answer.get("status") == "error" and answer["content"] == [{"text": ""}]:
            answer["content"] = [{"text": EMPTY_ERROR_TEXT}]


def without_blanks(body: JSONObject, context: RewriteContext) -> None:
    for message in body["messages"]:
        message["content"] = [block for block in message["content"] if not _is_blank(block)]
    for answer in _results(body):
        text = "".join(block.get("text", "") for block in answer["content"])
        answer["content"] = [block for block in answer["content"] if not _is_blank(block)] or [{"text": text}]
    body["messages"] = merged([each for each in body["messages"] if each["content"]], "content")


def _is_blank(block: JSONObject) -> bool:
    return block.keys() == {"text"} and not cast(str, block["text"]).strip()


def opened(body: JSONObject, context: RewriteContext) -> None:
    if body["messages"] and body["messages"][0]["role"] != "user":
        body["messages"].insert(0, {"role": "user", "content": [{"text": OPENING_TEXT}]})


def space_before_the_last_words(body: JSONObject, context: RewriteContext) -> None:
    if not body["messages"] or body["messages"][-1]["role"] != "assistant":
        return
    last = next((part.text for part in context.parts()[::-1] if isinstance(part, Text) and part.text.strip()), "")
    block: JSONObject = body["messages"][-1]["content"][-1]
    if block.get("text") in (last.strip(), last):
        block["text"] = last.rstrip()


def with_a_line_beside(body: JSONObject, context: RewriteContext) -> None:
    for message in body["messages"]:
        alone = not any("text" in block for block in message["content"])
        if alone and any("document" in block for block in message["content"]):
            message["content"].append({"text": DOCUMENT_TEXT})


def with_names_of_their_own(body: JSONObject, context: RewriteContext) -> None:
    names = [name for message in context.messages for name in _names(message)]
    shown = [block for message in body["messages"] for block in find_documents(message["content"])]
    for block, name in zip(shown, names, strict=False):
        block["document"]["name"] = name
    body["messages"] = with_unique_document_names(body["messages"])


def _names(message: Message) -> Iterator[str]:
    for part in message.parts:
        inside = [part] if isinstance(part, Media) else []
        if isinstance(part, ToolResult) and not isinstance(part.content, str):
            inside = [each for each in part.content if isinstance(each, Media)]
        for media in inside:
            if media.kind == "document":
                yield document_name(media, message.uid, {"bytes": _packed(media)})


def _packed(media: Media) -> str:
    return base64.b64encode(media.data or b"").decode()


def names_in_full(body: JSONObject, context: RewriteContext) -> None:
    """The names of called tools, from which the SDK has taken letters."""
    calls = context.calls()
    for message in body["messages"]:
        for call in (block["toolUse"] for block in message["content"] if "toolUse" in block):
            name = calls[call["toolUseId"]].name if call["toolUseId"] in calls else ""
            if call["name"] == (re.sub("[^a-zA-Z0-9_-]", "", name) or "_"):
                call["name"] = name


def with_strict_tools(body: JSONObject, context: RewriteContext) -> None:
    strict = {tool.name: tool.strict for tool in context.conversation.tools if tool.strict is not None}
    for tool in body.get("toolConfig", {}).get("tools", []):
        if tool["toolSpec"]["name"] in strict:
            tool["toolSpec"]["strict"] = strict[tool["toolSpec"]["name"]]

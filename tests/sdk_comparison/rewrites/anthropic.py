"""Rewrite the SDK's bodies for Anthropic to our form."""

from itertools import takewhile

from contextc._json import JSONObject
from contextc.formats.base import OPENING_TEXT
from contextc.messages import Media, Text
from tests.sdk_comparison.rewrites.bodies import RewriteContext, is_blank, merged, objects, tagged


def opened(body: JSONObject, context: RewriteContext) -> None:
    if body["messages"] and body["messages"][0]["role"] != "user":
        body["messages"].insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING_TEXT}]})


def space_before_the_last_words(body: JSONObject, context: RewriteContext) -> None:
    if not body["messages"] or body["messages"][-1]["role"] != "assistant":
        return
    blocks: list[JSONObject] = body["messages"][-1]["content"]
    last = next((part.text for part in context.parts()[::-1] if isinstance(part, Text) and part.text.strip()), "")
    if blocks[-1].get("text") in (last.strip(), last):
        blocks[-1]["text"] = last.rstrip()


def with_result_titles(body: JSONObject, context: RewriteContext) -> None:
    results = context.results()
    for block in objects(body["messages"]):
        result = results.get(block.get("tool_use_id", "")) if block.get("type") == "tool_result" else None
        if result is None or isinstance(result.content, str) or isinstance(block["content"], str):
            continue
        named = [part.name for part in result.content if isinstance(part, Media) and part.kind == "document"]
        documents = [each for each in block["content"] if each["type"] == "document"]
        for document, name in zip(documents, named, strict=False):
            if name:
                document["title"] = name


def without_blanks(body: JSONObject, context: RewriteContext) -> None:
    if not any(is_blank(thing) for thing in objects(body["messages"])):
        return
    for holder in [*body["messages"], *objects(body["messages"])]:
        if isinstance(holder.get("content"), list):
            holder["content"] = [block for block in holder["content"] if not is_blank(block)]
    body["messages"] = merged([each for each in body["messages"] if each["content"]], "content")
    tag_displaced(body, context)  # what a system message stood beside may be gone


def rules_as_one(body: JSONObject, context: RewriteContext) -> None:
    body["messages"] = merged(body["messages"], "content", ("system",))


def first_rules_in_their_place(body: JSONObject, context: RewriteContext) -> None:
    """System messages before all others, which the SDK adds to the prompt."""
    leading = list(takewhile(lambda message: message.role == "system", context.messages))
    blocks: list[JSONObject] = body.get("system", [])
    moved = blocks[len(blocks) - len(leading) :]
    if leading and [block["text"] for block in moved] == [message.text for message in leading]:
        body["system"] = blocks[: len(blocks) - len(leading)]
        body["messages"][:0] = [{"role": "system", "content": [block]} for block in moved]


def tag_displaced(body: JSONObject, context: RewriteContext) -> None:
    messages: list[JSONObject] = body["messages"]
    for index, message in enumerate(messages):
        if message["role"] != "system":
            continue
        before = next((each["role"] for each in messages[:index][::-1] if each["role"] != "system"), None)
        after = next((each["role"] for each in messages[index + 1 :] if each["role"] != "system"), "assistant")
        if (before, after) != ("user", "assistant"):
            message["role"] = "user"
            for block in message["content"]:
                block["text"] = tagged(block["text"])
    body["messages"] = merged(messages, "content")

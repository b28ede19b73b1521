"""Rewrite the SDK's bodies for OpenAI, Chat and Responses, to our form. Mistral shares parts of it."""

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import cast

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.messages import Reasoning, Text, ToolCall
from tests.sdk_comparison.rewrites.bodies import RewriteContext, as_javascript, is_blank, objects

ENCRYPTED = "gAAAA"


def length_by_its_new_name(body: JSONObject, context: RewriteContext) -> None:
    if "max_tokens" in body:
        body["max_completion_tokens"] = body.pop("max_tokens")


def errors_as_plain_text(body: JSONObject, context: RewriteContext) -> None:
    """`{"error": text}` as the text, where a result is an error."""
    results = context.results()
    for holder, place in answers(body):
        result = results.get(holder.get("tool_call_id") or holder.get("call_id") or "")
        if result is not None and result.is_error and holder[place] == as_javascript({"error": result.text}):
            holder[place] = result.text


def answers(body: JSONObject) -> Iterator[tuple[JSONObject, str]]:
    """Yield each result of an OpenAI body, and the key of its text."""
    for each in cast(list[JSONObject], body.get("messages") or body.get("input")):
        if each.get("role") == "tool":
            yield each, "content"
        elif each.get("type") == "function_call_output":
            yield each, "output"


def lists_as_lists(body: JSONObject, context: RewriteContext) -> None:
    """The texts of a result, which the SDK writes as one text of JSON."""
    for holder, texts in listed(body, context):
        holder["content"] = texts or ""


def listed(body: JSONObject, context: RewriteContext) -> Iterator[tuple[JSONObject, list[JSONObject]]]:
    """Each result that the SDK wrote as a list in JSON, and the texts in it."""
    results = context.results()
    for holder, place in answers(body):
        result = results.get(holder["tool_call_id"])
        if result is not None and not isinstance(result.content, str):
            texts = [each.text for each in result.content if isinstance(each, Text)]
            blocks: list[JSONObject] = [{"type": "text", "text": text} for text in texts]
            if holder[place] == as_javascript(blocks):
                yield holder, blocks


def texts_apart(body: JSONObject, context: RewriteContext) -> None:
    replies = [message for message in context.messages if message.text or message.tool_calls]
    wire = [each for each in body["messages"] if each["role"] == "assistant" and not is_silent(each)]
    for reply, message in zip(wire, [each for each in replies if each.role == "assistant"], strict=False):
        texts = [part.text for part in message.parts if isinstance(part, Text) and part.text]
        if len(texts) > 1 and reply["content"] == "".join(texts):
            reply["content"] = [{"type": "text", "text": text} for text in texts]


def is_silent(message: JSONObject) -> bool:
    return message["role"] == "assistant" and not message["content"] and "tool_calls" not in message


def without_silent_replies(body: JSONObject, context: RewriteContext) -> None:
    body["messages"] = [each for each in body["messages"] if not is_silent(each)]


def arguments_as_written(body: JSONObject, context: RewriteContext) -> None:
    calls = context.calls()
    for thing in objects(body):
        function = cast(JSONObject, thing.get("function") or thing)
        call = calls.get(thing.get("call_id") or thing.get("id") or "")
        if call is None or call.raw is None or not isinstance(function.get("arguments"), str):
            continue
        given = {"malformed_arguments": call.raw} if call.malformed else call.arguments
        if function["arguments"] == as_javascript(given):
            function["arguments"] = call.raw


def files_without_made_up_names(body: JSONObject, context: RewriteContext) -> None:
    for thing in objects(body):
        if re.fullmatch(r"part-\d+\.pdf", str(thing.get("filename"))):
            if thing.get("type") == "input_file":
                thing["filename"] = "document.pdf"
            else:
                del thing["filename"]


def prompt_as_instructions(body: JSONObject, context: RewriteContext) -> None:
    items: list[JSONObject] = body["input"]
    if items and items[0] == {"role": "developer", "content": context.conversation.prompt}:
        body["instructions"] = items.pop(0)["content"]


def one_text_as_a_string(body: JSONObject, context: RewriteContext) -> None:
    for item in cast(list[JSONObject], body.get("input") or body.get("messages")):
        place = "output" if item.get("type") == "function_call_output" else "content"
        blocks: JSON = item.get(place)
        if isinstance(blocks, list) and len(cast(list[JSON], blocks)) == 1:
            ((kind, text),) = [(block.get("type"), block.get("text")) for block in cast(list[JSONObject], blocks)]
            item[place] = text if kind in ("text", "input_text") else blocks


def with_detail(body: JSONObject, context: RewriteContext) -> None:
    for thing in objects(body["input"]):
        if thing.get("type") == "input_image":
            thing.setdefault("detail", "auto")


def without_blanks(body: JSONObject, context: RewriteContext) -> None:
    items: list[JSONObject] = []
    for item in body["input"]:
        place = "output" if item.get("type") == "function_call_output" else "content"
        if isinstance(item.get(place), list):
            item[place] = [block for block in item[place] if not is_blank(block)]
            if not item[place] and place == "output":
                item[place] = ""
        elif place == "content" and isinstance(item.get(place), str) and not item[place].strip():
            item[place] = []
        if item.get(place) != []:
            items.append(item)
    body["input"] = items


def name_reasoning(body: JSONObject, context: RewriteContext) -> None:
    for item in body["input"]:
        if item.get("type") == "reasoning" and "id" not in item:
            text = "".join(each["text"] for each in item["summary"])
            item["id"] = f"rs_{sha256((item['encrypted_content'] + text).encode()).hexdigest()[:48]}"


def without_idle_reasoning(body: JSONObject, context: RewriteContext) -> None:
    led = iter([leads for message in context.messages for leads in _leads(message)])
    body["input"] = [item for item in body["input"] if item.get("type") != "reasoning" or next(led, True)]


def _leads(message: cc.Message) -> Iterator[bool]:
    """Whether each reasoning that the SDK sends may stay: it leads to a call, or OpenAI did not encrypt it."""
    for index, part in enumerate(message.parts):
        if isinstance(part, Reasoning) and part.provider == "openai" and part.data is not None:
            rest = [each for each in message.parts[index + 1 :] if isinstance(each, ToolCall | Text)]
            after = next((each for each in rest if isinstance(each, ToolCall) or each.text.strip()), None)
            yield isinstance(after, ToolCall) or not part.data.startswith(ENCRYPTED)

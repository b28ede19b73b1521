"""Rewrite the SDK's bodies for Google to our form."""

from base64 import b64encode
from typing import cast

from contextc._json import JSONObject
from contextc.formats.base import OPENING_TEXT
from contextc.formats.message_preparation import describe_text_file
from contextc.messages import Media, Reasoning, Text, escape_markers, read_text_file
from tests.sdk_comparison.rewrites.bodies import RewriteContext


def text_files_as_text(body: JSONObject, context: RewriteContext) -> None:
    files = {
        (part.mime_type, b64encode(part.data).decode()): part
        for part in context.parts()
        if isinstance(part, Media) and part.data is not None and read_text_file(part, part.data) is not None
    }
    for content in body["contents"]:
        for index, part in enumerate(content["parts"]):
            sent: JSONObject = part.get("inlineData", {})
            file = files.get((sent.get("mimeType", ""), sent.get("data", "")))
            if file is not None:
                text = read_text_file(file, file.data)
                content["parts"][index] = {"text": describe_text_file(file, escape_markers(text or ""))}


def opened(body: JSONObject, context: RewriteContext) -> None:
    if body["contents"] and body["contents"][0]["role"] != "user":
        body["contents"].insert(0, {"role": "user", "parts": [{"text": OPENING_TEXT}]})


def answers_as_output(body: JSONObject, context: RewriteContext) -> None:
    for answer in (part["functionResponse"] for part in _parts(body) if "functionResponse" in part):
        names = {"content": "output", "error": "error"}
        text: JSONObject = dict(answer["response"])
        if text.pop("name", None) == answer["name"] and len(text) == 1 and text.keys() <= names.keys():
            answer["response"] = {names[name]: value for name, value in text.items()}


def strict_as_any_other(body: JSONObject, context: RewriteContext) -> None:
    calling: JSONObject = body.get("toolConfig", {}).get("functionCallingConfig", {})
    if calling.get("mode") == "VALIDATED" and any(tool.strict for tool in context.conversation.tools):
        calling["mode"] = "AUTO"


def without_empty_descriptions(body: JSONObject, context: RewriteContext) -> None:
    for tool in body.get("tools", []):
        for function in tool["functionDeclarations"]:
            if function["description"] == "":
                del function["description"]


def _parts(body: JSONObject) -> list[JSONObject]:
    return [part for content in body["contents"] for part in content["parts"]]


def texts_without_breaks(body: JSONObject, context: RewriteContext) -> None:
    results = context.results()
    for part in _parts(body):
        answer: JSONObject = part.get("functionResponse", {})
        result = results.get(answer.get("id", ""))
        if result is None or isinstance(result.content, str):
            continue
        texts = [each.text for each in result.content if isinstance(each, Text)]
        if answer["response"] == {"output": "\n".join(texts) if texts else "Tool executed successfully."}:
            answer["response"] = {"output": "".join(texts)}


def one_stand_in(body: JSONObject, context: RewriteContext) -> None:
    for content in body["contents"]:
        calls = [part for part in content["parts"] if "functionCall" in part]
        for part in calls[1:]:
            if part.get("thoughtSignature") == "skip_thought_signature_validator":
                del part["thoughtSignature"]


def without_foreign_thoughts(body: JSONObject, context: RewriteContext) -> None:
    foreign = {part.text for part in context.parts() if isinstance(part, Reasoning) and part.provider != "google"}
    for content in body["contents"]:
        content["parts"] = [
            part
            for part in content["parts"]
            if not (part.get("thought") and "thoughtSignature" not in part and part["text"] in foreign)
        ]
    body["contents"] = [content for content in body["contents"] if content["parts"]]


def without_blanks(body: JSONObject, context: RewriteContext) -> None:
    for content in body["contents"]:
        content["parts"] = [
            part for part in content["parts"] if part.keys() != {"text"} or cast(str, part["text"]).strip()
        ]
    body["contents"] = [content for content in body["contents"] if content["parts"]]


def neighbours_as_one(body: JSONObject, context: RewriteContext) -> None:
    found: list[JSONObject] = []
    for content in body["contents"]:
        if found and found[-1]["role"] == content["role"] and _answers(found[-1]) == _answers(content):
            found[-1]["parts"] += content["parts"]
        else:
            found.append(content)
    body["contents"] = found


def _answers(content: JSONObject) -> bool:
    return "functionResponse" in content["parts"][0]

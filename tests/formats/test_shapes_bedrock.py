"""Bedrock's requests compared with AWS's API description: our rules report and fix what it refuses."""

import json
from collections.abc import Iterator
from typing import cast

import pytest

from contextc._json import JSON, JSONObject
from contextc.formats.bedrock.codec import PLACEHOLDER_TOOL, encode_tool
from contextc.formats.lint_engine import JSONPath
from contextc.linting import fix, lint
from tests.conftest import often, some
from tests.formats.known.bedrock import problems

POINT: JSONObject = {"cachePoint": {"type": "default", "ttl": "5m"}}
PNG: JSONObject = {"image": {"format": "png", "source": {"bytes": "iVBORw=="}}}
WORDS: JSONObject = {"text": "hi"}
FOUND: JSONObject = {"source": "s", "title": "t", "content": [{"text": "x"}], "citations": {"enabled": True}}
PLACE: JSONObject = {"documentIndex": 0, "start": 1, "end": 2}
CITED: JSONObject = {
    "title": "Doc 1",
    "source": "s",
    "sourceContent": [{"text": "It is."}],
    "location": {"documentChar": PLACE},
}
SPEC: JSONObject = {
    "name": "look",
    "description": "Looks.",
    "inputSchema": {"json": {"type": "object"}},
    "strict": True,
}
WHOLE: JSONObject = {
    "system": [{"text": "Be brief."}, {"guardContent": {"text": {"text": "Be kind.", "qualifiers": ["query"]}}}, POINT],
    "toolConfig": {
        "tools": [{"toolSpec": SPEC}, {"systemTool": {"name": "nova_grounding"}}, POINT],
        "toolChoice": {"tool": {"name": "look"}},
    },
    "inferenceConfig": {"maxTokens": 9, "temperature": 0.5, "topP": 0.5, "stopSequences": ["END"]},
    "guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1", "trace": "enabled"},
    "additionalModelRequestFields": {"top_k": 3},
    "additionalModelResponseFieldPaths": ["/stop_sequence"],
    "promptVariables": {"name": {"text": "x"}},
    "requestMetadata": {"team": "a"},
    "performanceConfig": {"latency": "standard"},
    "serviceTier": {"type": "default"},
    "outputConfig": {
        "textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{}", "name": "x"}}},
        "effort": "low",
    },
    "messages": [
        {
            "role": "user",
            "content": [
                WORDS,
                PNG,
                {"document": {"name": "A", "format": "pdf", "source": {"bytes": "JVBERg=="}, "context": "c"}},
                {"document": {"name": "B", "source": {"content": [{"text": "x"}]}, "citations": {"enabled": True}}},
                {
                    "video": {
                        "format": "mp4",
                        "source": {"s3Location": {"uri": "s3://films/a", "bucketOwner": "1" * 12}},
                    }
                },
                {"audio": {"format": "wav", "source": {"bytes": "UklGRg=="}}},
                {"guardContent": {"image": {"format": "png", "source": {"bytes": "iVBORw=="}}}},
                {"searchResult": FOUND},
                POINT,
            ],
        },
        {
            "role": "system",
            "content": [{"toolAddition": {"tool": {"type": "t", "name": "n", "serverName": "s"}}}],
        },
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
                {"reasoningContent": {"redactedContent": "cmVk"}},
                {"citationsContent": {"content": [{"text": "It is."}], "citations": [CITED]}},
                {"toolUse": {"toolUseId": "s", "name": "web", "input": {}, "type": "server_tool_use"}},
                {"toolResult": {"toolUseId": "s", "content": [{"text": "x"}], "type": "web_result"}},
                {"toolUse": {"toolUseId": "a", "name": "look", "input": {"b": 1}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "toolResult": {
                        "toolUseId": "a",
                        "content": [{"json": {"n": 1}}, {"text": "1"}, PNG, {"searchResult": FOUND}],
                        "status": "success",
                    }
                },
            ],
        },
    ],
}
ODD: tuple[JSON, ...] = (None, True, 3, -1, 0.5, "", "odd", "a b/c", [], {}, ["odd"], [None], {"odd": 1}, "x" * 3000)
FREE = ("input", "json", "additionalModelRequestFields")
"""What a model or a tool is given: anybody's JSON."""


def codes(body: JSON) -> list[str]:
    return [violation.code for violation in lint(body, format="bedrock")]


def refused(body: JSONObject) -> bool:
    """Whether AWS's SDK refuses it, or cannot even be handed it."""
    try:
        return bool(problems(body))
    except (AttributeError, KeyError, TypeError):
        return True


def places(value: JSON, path: JSONPath = ()) -> Iterator[JSONPath]:
    if path:
        yield path
    if path and path[-1] in FREE:
        return
    if isinstance(value, dict):
        for name, each in cast(JSONObject, value).items():
            yield from places(each, (*path, name))
    elif isinstance(value, list):
        for index, each in enumerate(cast(list[JSON], value)):
            yield from places(each, (*path, index))


def changed(path: JSONPath) -> Iterator[JSONObject]:
    """The whole request, each time with another thing at a place: without it, with something odd, with more in it."""
    *before, last = path
    for odd in (..., "more", *ODD):
        body = json.loads(json.dumps(WHOLE))
        holder = body
        for step in before:
            holder = holder[step]
        if odd is ...:
            del holder[last]
        elif odd != "more":
            holder[last] = odd
        elif isinstance(holder[last], dict):
            holder[last]["of_tomorrow"] = 1
        else:
            continue
        yield body


def test_the_whole_request_is_sound() -> None:
    assert codes(WHOLE) == []
    assert problems(WHOLE) == []


def test_every_small_change_that_aws_refuses_is_reported_and_fixed() -> None:
    """Guarantees 10.5, 10.6: each place of a request that has everything, changed in each of a dozen ways."""
    all_places = list(places(WHOLE))
    found = [(path, body) for path in some(all_places, 10) for body in changed(path) if refused(body)]
    assert len(found) > often(50, 1000)
    for path, body in found:
        assert codes(body), (path, body)
    for path, body in found[::9]:
        if "messages" in body:
            fixed, _ = fix(body, format="bedrock")
            assert codes(fixed) == [], (path, body)
            assert problems(fixed) == [], (path, body)


ASK: JSONObject = {"role": "user", "content": [WORDS]}
CALL: JSONObject = {"toolUseId": "a", "name": "look", "input": {}}


def asked(*content: JSONObject) -> JSONObject:
    return {"messages": [{"role": "user", "content": [WORDS, *content]}]}


def called(use: JSONObject = CALL, **beside: JSON) -> JSONObject:
    result: JSONObject = {"toolUseId": "a", "content": [{"text": "1"}], **beside}
    return {
        "toolConfig": {"tools": [{"toolSpec": SPEC}]},
        "messages": [
            ASK,
            {"role": "assistant", "content": [{"toolUse": use}]},
            {"role": "user", "content": [{"toolResult": result}]},
        ],
    }


@pytest.mark.parametrize(
    ("body", "code", "expected"),
    [
        ({"toolConfig": {"tools": []}, "messages": [ASK]}, "BED028", {"messages": [ASK]}),
        (
            {"toolConfig": {"tools": [{"toolSpec": SPEC}], "toolChoice": {"none": {}}}, "messages": [ASK]},
            "BED001",
            {"toolConfig": {"tools": [{"toolSpec": SPEC}]}, "messages": [ASK]},
        ),
        (
            {"toolConfig": {"tools": [{"toolSpec": SPEC}], "toolChoice": {"any": {}, "auto": {}}}, "messages": [ASK]},
            "BED001",
            {"toolConfig": {"tools": [{"toolSpec": SPEC}]}, "messages": [ASK]},
        ),
        (called(status="failed"), "BED028", called(status="error")),
        (called(status="ok"), "BED028", called()),
        (called({**CALL, "type": "tool_use"}), "BED028", called()),
        (called({**CALL, "colour": "red"}), "BED029", called()),
        (
            asked({"image": {"format": "bmp", "source": {"bytes": "iVBORw=="}}}),
            "BED028",
            asked({"text": "[image: bmp; not shown]"}),
        ),
        (
            asked({"image": {"format": "png", "source": {"bytes": "!!"}}}),
            "BED028",
            asked({"text": "[image: png; not shown]"}),
        ),
        (
            asked({"image": {"format": "png", "source": {"s3Location": {"uri": "https://x"}}}}),
            "BED028",
            asked({"text": "[image: png; not shown]"}),
        ),
        (
            asked({"cachePoint": {"type": "ephemeral", "ttl": "30m"}}),
            "BED028",
            asked({"cachePoint": {"type": "default"}}),
        ),
        ({**asked(), "serviceTier": {"type": "auto"}}, "BED028", asked()),
        (
            {**asked(), "inferenceConfig": {"stopSequences": "END"}},
            "BED001",
            {**asked(), "inferenceConfig": {"stopSequences": ["END"]}},
        ),
        ({**asked(), "max_tokens": 9}, "BED029", asked()),
        (
            {**asked(), "inferenceConfig": {"maxTokens": 9.5}},
            "BED026",
            {**asked(), "inferenceConfig": {"maxTokens": 9}},
        ),
        ({"messages": [{**ASK, "name": "x"}]}, "BED029", {"messages": [ASK]}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_taken_is_flagged_and_becomes_what_was_meant(
    body: JSONObject, code: str, expected: JSONObject
) -> None:
    """Guarantee 10.6."""
    assert refused(body)
    assert set(codes(body)) == {code}
    fixed, _ = fix(body, format="bedrock")
    assert fixed == expected


def test_empty_tools_become_one_tool_if_there_are_calls() -> None:
    fixed, _ = fix({**called(), "toolConfig": {"tools": []}}, format="bedrock")
    assert fixed["toolConfig"] == {"tools": [encode_tool(PLACEHOLDER_TOOL)]}


def document(name: str, data: str = "JVBERg==") -> JSONObject:
    return {"document": {"name": name, "format": "pdf", "source": {"bytes": data}}}

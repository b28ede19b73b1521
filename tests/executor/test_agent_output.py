"""`output_type`: schemas that providers enforce or that are part of the instructions, validation, and one retry."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pydantic
import pytest
from msgspec import Meta, Struct, defstruct

import contextc as cc
from contextc._json import JSONObject, encode
from contextc.errors import InvalidOutput, InvalidSetting
from contextc.executor.agent import OutputType
from contextc.providers.structured_output import accepts_schema, has_structured_output, structured_output_facts
from contextc.tools.parameters import NoPlainForm, plain_schema
from tests.executor.scripted_provider import SONNET, Say, Scripted, add, call, says
from tests.fake_vendors import KEY, FakeVendors, Reply
from tests.fake_vendors import Scripted as VendorScript


class City(Struct):
    """A city."""

    name: str
    people: Annotated[int, Meta(ge=0)]
    kind: Literal["city", "town"] = "city"


@dataclass
class Trip:
    cities: list[City]
    note: str | None = None


class Place(TypedDict):
    name: str


class Stop(pydantic.BaseModel):
    name: str = pydantic.Field(description="The name of the stop.")
    minutes: int = pydantic.Field(default=5, ge=1)


class Line(pydantic.BaseModel):
    stops: list[Stop]
    kind: Literal["bus", "tram"] | None = None


class Open(Struct):
    values: dict[str, int]


PARIS: JSONObject = {"name": "Paris", "people": 2_100_000, "kind": "city"}
VALUES: list[tuple[Any, JSONObject, object]] = [
    (City, PARIS, City("Paris", 2_100_000)),
    (Trip, {"cities": [PARIS], "note": None}, Trip([City("Paris", 2_100_000)])),
    (Place, {"name": "here"}, {"name": "here"}),
    (
        Line,
        {"stops": [{"name": "A", "minutes": 3}], "kind": "bus"},
        Line(stops=[Stop(name="A", minutes=3)], kind="bus"),
    ),
    (list[City], {"value": [PARIS]}, [City("Paris", 2_100_000)]),
    (int, {"value": 5}, 5),
    (City | None, {"value": None}, None),
    (Open, {"values": {"a": 1}}, Open({"a": 1})),
]


def answer(value: object) -> Say:
    return says(encode(value).decode())


@pytest.mark.parametrize(
    ("kind", "value", "expected"), VALUES, ids=lambda value: getattr(value, "__name__", "") or None
)
def test_an_answer_becomes_a_value_of_its_type(kind: type[object], value: JSONObject, expected: object) -> None:
    """Guarantee 20.2: msgspec, dataclasses, TypedDicts, pydantic, and types that are not objects."""
    agent = cc.Agent(SONNET, output_type=kind, endpoint=Scripted(answer(value)))
    assert agent.run_sync("Where?").output == expected


def test_the_provider_enforces_the_schema() -> None:
    """Guarantee 20.2: in the strict form, and beside the caller's own settings."""
    provider = Scripted(answer(PARIS))
    agent = cc.Agent(
        SONNET,
        output_type=City,
        instructions="Be brief.",
        settings={"output_config": {"effort": "low"}},
        endpoint=provider,
    )
    agent.run_sync("Where?")

    config = provider.requests[0]["output_config"]
    assert config["effort"] == "low"
    assert config["format"]["type"] == "json_schema"
    schema = config["format"]["schema"]
    assert (schema["required"], schema["additionalProperties"]) == (["name", "people", "kind"], False)
    assert [each["text"] for each in provider.requests[0]["system"]] == ["Be brief."]


OPENAI = "openai:gpt-5.1"


@pytest.mark.parametrize(
    ("model", "path"),
    [
        (OPENAI, ("text", "format", "schema")),
        ("openai-chat:gpt-5.1", ("response_format", "json_schema", "schema")),
        ("gemini:gemini-3-pro-preview", ("generationConfig", "responseJsonSchema")),
        ("ollama:qwen3", ("format",)),
        ("mistral:mistral-large-2512", ("response_format", "json_schema", "schema")),
        ("local", ("response_format", "json_schema", "schema")),
        ("deepseek:deepseek-chat", ()),
        ("anthropic:claude-3-5-haiku", ()),
        ("claude-code", ()),
    ],
)
def test_the_schema_is_a_setting_or_part_of_the_instructions(model: str, path: tuple[str, ...]) -> None:
    """Guarantee 20.2: a provider that is not known to have structured output is asked in words."""
    agent = cc.Agent(cc.provider(model, window=32_000), output_type=City)
    agent.store.append("demo", cc.user("Where?"))
    arguments = agent.executor.compile_arguments
    settings: Any = arguments.get("settings")
    compiled = agent.executor.compiler.compile("demo", **arguments)
    if path:
        for name in path:
            settings = settings[name]
        assert settings["required"] == ["name", "people", "kind"]
        assert b"follows this JSON schema" not in compiled.body
    else:
        assert b"follows this JSON schema" in encode(compiled.session_head) + compiled.body


@pytest.mark.parametrize(
    ("model", "with_tools", "without"),
    [
        (SONNET, True, True),
        ("anthropic:claude-sonnet-4", False, False),
        ("anthropic:claude-opus-4-1-20250805", False, False),
        ("anthropic:claude-fable-5", True, True),
        ("anthropic:claude-mythos-preview", True, True),
        ("anthropic:claude-haiku-5-5", True, True),
        ("anthropic:claude-2.1", False, False),
        ("openai:gpt-4o-2024-05-13", False, False),
        ("openai:gpt-5.4-pro", False, False),
        ("openai:gpt-5.2-pro-2025-12-11", False, False),
        ("openai:gpt-5.5-pro", True, True),
        ("openai:gpt-5.1-codex-mini", True, True),
        ("openai:gpt-5.2-chat-latest", True, True),
        ("openai:gpt-5-chat-latest", False, False),
        ("openai:o1", True, True),
        ("openai:o1-preview", False, False),
        ("openai:o3-deep-research", False, False),
        ("openai-chat:gpt-6.1-sol", True, True),
        ("openai-chat:gpt-4-turbo", False, False),
        ("openai:gpt-5.3-codex", True, True),
        ("gemini:gemini-2.5-flash", False, True),
        ("gemini:gemini-2.0-flash", False, False),
        ("gemini:gemini-3.8-flash", True, True),
        ("gemini:gemini-3.1-flash-live-preview", False, False),
        ("gemini:gemini-flash-latest", True, True),
        ("gemini:gemini-3-pro-image-preview", False, False),
        ("ollama:qwen3", False, True),
        ("ollama:gpt-oss:120b-cloud", False, False),
        ("mistral:codestral-mamba", False, False),
        ("xai:grok-code-fast-1", False, True),
        ("xai:grok-4", True, True),
        ("xai:grok-4.7", True, True),
        ("xai:grok-latest", False, True),
        ("xai:grok-2-1212", False, False),
        ("xai:grok-imagine-image", False, False),
        ("openrouter:openai/gpt-5.1", False, False),
    ],
)
def test_facts_about_structured_output(model: str, with_tools: bool, without: bool) -> None:
    """Guarantee 20.2: some models take a schema only in requests without tools."""
    found = cc.provider(model, window=32_000)
    assert has_structured_output(found, with_tools=True) is with_tools
    assert has_structured_output(found, with_tools=False) is without


def nested(levels: int) -> JSONObject:
    inner: JSONObject = {"type": "string"} if levels == 1 else nested(levels - 1)
    items: JSONObject = {"type": "array", "items": inner}
    return {"type": "object", "properties": {"next": items}}


def object_of(count: int, field: JSONObject) -> JSONObject:
    return {"type": "object", "properties": {f"field_{number}": field for number in range(count)}}


NULLABLE: JSONObject = {"anyOf": [{"type": "string"}, {"type": "null"}]}
NULLABLE_TYPE: JSONObject = {"type": ["string", "null"]}


@pytest.mark.parametrize(
    ("model", "largest", "too_large"),
    [
        (SONNET, object_of(16, NULLABLE), object_of(17, NULLABLE)),
        (SONNET, object_of(16, NULLABLE_TYPE), object_of(17, NULLABLE_TYPE)),
        (OPENAI, nested(10), nested(11)),
        (OPENAI, object_of(5000, NULLABLE), object_of(5001, NULLABLE)),
        ("openai-chat:gpt-5.1", object_of(2, {"enum": [*range(500)]}), object_of(2, {"enum": [*range(501)]})),
        ("gemini:gemini-3.8-flash", object_of(17, NULLABLE), None),
    ],
)
def test_limits_of_schemas(model: str, largest: JSONObject, too_large: JSONObject | None) -> None:
    """Guarantee 20.2: a provider is not sent a schema that it refuses because of its size."""
    found = cc.provider(model, window=32_000)
    assert accepts_schema(found, largest)
    assert too_large is None or not accepts_schema(found, too_large)


def test_a_schema_that_is_too_large_is_part_of_the_instructions() -> None:
    """Guarantee 20.2: Anthropic enforces no schema with more than 16 unions."""
    fields = [f"field_{number}" for number in range(17)]
    kind = defstruct("Form", [(name, str | None) for name in fields])
    provider = Scripted(answer(dict.fromkeys(fields)))
    assert cc.Agent(SONNET, output_type=kind, endpoint=provider).run_sync("Fill in.").output == kind(*[None] * 17)
    assert "output_config" not in provider.requests[0]
    assert "follows this JSON schema" in provider.requests[0]["system"][0]["text"]


def test_the_facts_name_providers_of_the_registry() -> None:
    """A misspelled table would be ignored."""
    for name, facts in structured_output_facts().items():
        known = cc.provider(f"{name}:any-model", window=8_000)
        assert (known.name, known.url) == (name, facts.url)
        elsewhere = cc.provider(f"{name}:any-model", window=8_000, url="http://127.0.0.1:9/v1")
        assert not has_structured_output(elsewhere, with_tools=False)


@pytest.mark.parametrize(
    ("model", "vendor", "variables"),
    [
        ("anthropic:claude-opus-5-5", "anthropic", ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")),
        (OPENAI, "openai_responses", ("OPENAI_API_KEY", "OPENAI_BASE_URL")),
        ("openai-chat:gpt-5.1", "openai_chat", ("OPENAI_API_KEY", "OPENAI_BASE_URL")),
        ("gemini:gemini-3-pro-preview", "gemini", ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL")),
    ],
)
def test_vendors_accept_the_request_and_the_retry(
    model: str, vendor: str, variables: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 20.2: through the vendor's SDK, against its strict fake."""
    script = VendorScript([Reply('{"name": "Paris"}'), Reply(encode(PARIS).decode())])
    with FakeVendors(script) as vendors:
        monkeypatch.setenv(variables[0], KEY)
        monkeypatch.setenv(variables[1], vendors.url(vendor))
        result = cc.Agent(model, output_type=City, tools=[add]).run_sync("Where?")
        assert (vendors.refused, vendors.defects, len(vendors.records)) == ([], [], 2)
    assert result.output == City("Paris", 2_100_000)


@pytest.mark.parametrize(
    ("kind", "wrong", "problem"),
    [
        (City, {"name": "Paris"}, "missing required field `people`"),
        (City, {**PARIS, "people": -1}, "`int` >= 0"),
        (
            Line,
            {"stops": [{"name": "A", "minutes": 0}]},
            "`stops.0.minutes`: Input should be greater than or equal to 1",
        ),
        (list[City], {"value": 5}, "Expected `array`, got `int`"),
        (City, {**PARIS, "note": "big"}, "There is no field `note`."),
    ],
)
def test_an_invalid_answer_is_retried_once_with_the_error(kind: type[object], wrong: object, problem: str) -> None:
    """Guarantee 20.2: the model reads the error, and usage and messages are those of both turns."""
    right = next(value for each, value, _ in VALUES if each == kind)
    provider = Scripted(answer(wrong), answer(right))
    agent = cc.Agent(SONNET, output_type=kind, endpoint=provider)

    result = agent.run_sync("Where?")

    assert result.output == next(expected for each, _, expected in VALUES if each == kind)
    assert [message.role for message in result.messages] == ["user", "assistant", "system", "assistant"]
    assert problem in result.messages[2].text
    assert problem in encode(provider.requests[1]).decode().replace('\\"', '"')
    assert (result.usage.input, result.steps) == (200, 2)
    assert [turn.finish for turn in agent.store.turns(result.conversation)] == ["stop", "stop"]


def test_a_second_invalid_answer_is_an_error() -> None:
    """Guarantee 20.2: there is no third request, and the text is not lost."""
    provider = Scripted(says("Paris."), says("Paris!"), says("never sent"))
    agent = cc.Agent(SONNET, output_type=City, endpoint=provider)

    result = agent.run_sync("Where?")

    assert (result.text, len(provider.bodies)) == ("Paris!", 2)
    with pytest.raises(InvalidOutput, match="the answer is not valid: it is not JSON") as raised:
        result.output  # noqa: B018
    assert (raised.value.text, raised.value.finish, raised.value.conversation) == (
        "Paris!",
        "stop",
        result.conversation,
    )


def test_a_run_without_an_answer_is_not_retried() -> None:
    """Guarantee 20.2: a limit would end a second turn, too."""
    provider = Scripted(says(call(1)))
    agent = cc.Agent(SONNET, output_type=City, tools=[add], limits=cc.Limits(steps=1), endpoint=provider)
    result = agent.run_sync("Where?")
    with pytest.raises(InvalidOutput, match="finish is 'max_steps'"):
        result.output  # noqa: B018


def test_a_retry_is_part_of_the_stream() -> None:
    """Guarantee 20.2: a reader sees both answers and both turns."""
    agent = cc.Agent(SONNET, output_type=int, endpoint=Scripted(says("five"), answer({"value": 5})))

    async def main() -> tuple[list[int], int]:
        run = agent.stream("How many?")
        turns = [event.turn async for event in run.events()]
        return turns, (await run.result()).output

    turns, output = asyncio.run(main())
    assert (sorted(set(turns)), output) == ([1, 2], 5)


@pytest.mark.parametrize("text", ['```json\n{"value": 5}\n```', 'It is:\n```\n{"value": 5}\n```\n', " 5 "])
def test_json_in_a_code_block_is_an_answer(text: str) -> None:
    """Guarantee 20.2: models without structured output often write it so."""
    assert OutputType(int).parse(text) == 5


def test_str_is_plain_text() -> None:
    """Guarantee 20.2."""
    assert cc.Agent(SONNET, output_type=str, endpoint=Scripted(says("hi"))).run_sync("hello").output == "hi"


class Node(pydantic.BaseModel):
    children: list["Node"]


class Anything(pydantic.BaseModel):
    value: Any


@pytest.mark.parametrize(("model", "text"), [(Node, '{"children": []}'), (Anything, '{"value": 1}')])
def test_a_schema_without_a_strict_form_is_part_of_the_instructions(model: type[pydantic.BaseModel], text: str) -> None:
    """Guarantee 20.2: providers would refuse it."""
    with pytest.raises(NoPlainForm):
        plain_schema(model.model_json_schema(), strict=True)
    assert OutputType(model).strict_schema is None
    provider = Scripted(says(text))
    assert isinstance(cc.Agent(SONNET, output_type=model, endpoint=provider).run_sync("hi").output, model)
    assert "output_config" not in provider.requests[0]
    assert "follows this JSON schema" in provider.requests[0]["system"][0]["text"]


def test_strict_schemas_of_pydantic_have_no_references() -> None:
    """Guarantee 20.2: constraints are in the description, and are checked in the answer."""
    schema = OutputType(Line).strict_schema
    assert schema is not None
    stop = schema["properties"]["stops"]["items"]
    assert stop["required"] == ["name", "minutes"]
    assert stop["properties"]["minutes"] == {"type": "integer", "description": "minimum: 1. default: 5."}
    assert stop["properties"]["name"]["description"] == "The name of the stop."
    assert schema["additionalProperties"] is stop["additionalProperties"] is False
    assert b"$ref" not in encode(schema)


def test_a_type_that_no_schema_describes_is_refused() -> None:
    """Guarantee 15.1."""
    with pytest.raises(InvalidSetting, match="output_type: type Lock cannot be described"):
        cc.Agent(SONNET, output_type=asyncio.Lock)

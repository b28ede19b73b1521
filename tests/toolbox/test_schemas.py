"""Tool schemas and descriptions made from functions, which every provider accepts."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Required, TypedDict, cast

import msgspec
import pytest
from jsonschema import Draft202012Validator

import contextc as cc
from contextc._json import JSONObject

WORDS = {"type", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "description", "default"}


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(Enum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    """A place on the page.

    Attributes:
        x: to the right
    """

    x: int
    y: Annotated[int, "downwards"] = 0
    tags: list[str] = field(default_factory=list[str])


class Reader(TypedDict, total=False):
    name: Required[str]
    age: int


class Pair(NamedTuple):
    left: str
    right: int


class Window(msgspec.Struct, rename="camel"):
    first_line: int
    last_line: int | None = None


class Node(msgspec.Struct):
    children: "list[Node]"


def everything(
    text: str,
    count: Annotated[int, msgspec.Meta(ge=1, le=9), "How often."],
    share: float,
    sure: bool,
    maybe: str | None,
    kind: Literal["a", "b"],
    colour: Colour,
    level: Level,
    names: list[str],
    table: dict[str, int],
    fixed: tuple[int, str],
    many: tuple[int, ...],
    point: Point,
    reader: Reader,
    pair: Pair,
    window: Window,
    either: int | str,
    when: datetime,
    path: Path,
    anything: object,
    later: str | None = None,
    limit: int = 10,
    chosen: Colour = Colour.RED,
    some: Literal["x", "y"] | None = None,
) -> str:
    """Take one of each."""
    return text


def closed(text: str, point: Point, limit: int = 10, names: list[str] | None = None) -> str:
    """Take what strict allows."""
    return text


def properties_of(tool: cc.tools.FunctionTool) -> JSONObject:
    return cast(JSONObject, tool.tool.parameters["properties"])


def inner_schemas(schema: object) -> Iterator[JSONObject]:
    """A schema and all schemas inside it."""
    if not isinstance(schema, dict):
        return
    known = cast(JSONObject, schema)
    yield known
    for inside in [*known.get("properties", {}).values(), *known.get("anyOf", ()), known.get("items")]:
        yield from inner_schemas(inside)
    yield from inner_schemas(known.get("additionalProperties"))


def test_hints_and_docstring_are_what_a_model_receives() -> None:
    """Guarantee 8.1: tool definitions; the schema comes from type hints and docstring."""

    def look(path: str, lines: int = 20, *, exact: bool = False) -> str:
        """Look at a file
        from its beginning.

        This is for people who read the code.

        Args:
            path (str): where it is,
                from the top
            lines: how many
        """
        return path

    assert cc.tool(look).tool == cc.Tool(
        name="look",
        description="Look at a file from its beginning.",
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "where it is, from the top"},
                "lines": {"type": "integer", "description": "how many", "default": 20},
                "exact": {"type": "boolean", "default": False},
            },
            "required": ["path"],
            "additionalProperties": False,
        },
    )


def test_each_type_has_its_schema() -> None:
    found = properties_of(cc.tool(everything))
    assert {name: found[name] for name in found if name not in ("point", "reader", "window", "pair")} == {
        "text": {"type": "string"},
        "count": {"type": "integer", "description": "How often. At least 1. At most 9."},
        "share": {"type": "number"},
        "sure": {"type": "boolean"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "level": {"type": "integer", "enum": [1, 2]},
        "names": {"type": "array", "items": {"type": "string"}},
        "table": {"type": "object", "additionalProperties": {"type": "integer"}},
        "fixed": {
            "type": "array",
            "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "description": "Exactly 2 items.",
        },
        "many": {"type": "array", "items": {"type": "integer"}},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "when": {"type": "string", "description": "A moment, such as 2026-01-31T08:30:00Z."},
        "path": {"type": "string"},
        "anything": {},
        "later": {"type": "string"},
        "limit": {"type": "integer", "default": 10},
        "chosen": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "some": {"type": "string", "enum": ["x", "y"]},
    }


def test_classes_are_written_out_where_they_stand() -> None:
    """Some providers refuse `$ref`."""
    found = properties_of(cc.tool(everything))
    assert found["point"] == {
        "type": "object",
        "properties": {
            "x": {"type": "integer", "description": "to the right"},
            "y": {"type": "integer", "description": "downwards", "default": 0},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["x"],
        "additionalProperties": False,
        "description": "A place on the page.",
    }
    assert found["reader"] == {
        "type": "object",
        "properties": {"age": {"type": "integer"}, "name": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    assert found["window"]["properties"] == {"firstLine": {"type": "integer"}, "lastLine": {"type": "integer"}}
    assert found["pair"]["description"] == "In order: left, right. Exactly 2 items."


def test_a_tagged_union_reports_which_is_which() -> None:
    class Cat(msgspec.Struct, tag="cat"):
        lives: int

    class Dog(msgspec.Struct, tag="dog"):
        name: str

    def pet(animal: Cat | Dog) -> str:
        return type(animal).__name__

    arms = cc.tool(pet).tool.parameters["properties"]["animal"]["anyOf"]
    assert [arm["properties"]["type"] for arm in arms] == [
        {"type": "string", "enum": ["cat"]},
        {"type": "string", "enum": ["dog"]},
    ]
    assert [arm["required"] for arm in arms] == [["type", "lives"], ["type", "name"]]


@pytest.mark.parametrize(
    "written",
    [
        "Find.\n\nArgs:\n    what: the words\n    most (int): how many",
        "Find.\n\n:param what: the words\n:param int most: how many\n:returns: what was found",
        "Find.\n\nParameters\n----------\nwhat : str\n    the words\nmost : int, optional\n    how many",
        "Find.\nwhat: the words\nmost: how many",
        "Find.\n\n- `what`: the words\n- `most`: how many",
    ],
    ids=["google", "sphinx", "numpy", "plain", "list"],
)
def test_parameters_are_described_in_every_usual_way(written: str) -> None:
    def find(what: str, most: int) -> str:
        return what

    find.__doc__ = written
    tool = cc.tool(find)
    assert tool.tool.description == "Find."
    assert [each["description"] for each in properties_of(tool).values()] == ["the words", "how many"]


@pytest.mark.parametrize("strict", [None, True])
@pytest.mark.parametrize(
    "model", ["anthropic:claude-opus-5-5", "openai:gpt-5.2", "openai-chat:gpt-5.2", "gemini:gemini-3-pro-preview"]
)
def test_every_provider_takes_the_schemas(model: str, strict: bool | None) -> None:
    """Guarantee 10.5: no rule of any format reports anything, and only common keywords are used."""
    functions: list[Callable[..., object]] = [closed] if strict else [everything, closed]
    tools = [cc.tool(each, strict=strict).tool for each in functions]
    store = cc.open_store("memory:")
    store.append("demo", cc.user("hi"))
    provider = cc.provider(model, window=100_000, output=1_000)
    compiled = cc.MessageCompiler(store, provider).compile("demo", tools=tools)
    assert cc.lint(json.loads(compiled.body), format=provider.format) == []
    assert b"Take " in compiled.body
    for tool in tools:
        Draft202012Validator.check_schema(tool.parameters)
        assert all(set(schema) <= WORDS for schema in inner_schemas(tool.parameters))


def test_strict_requires_every_property_and_closes_every_object() -> None:
    """OpenAI: `additionalProperties` is false and all fields are required; no defaults."""
    tool = cc.tool(closed, strict=True).tool
    assert tool.strict is True
    objects = [each for each in inner_schemas(tool.parameters) if each.get("type") == "object"]
    assert len(objects) == 2
    for each in objects:
        assert each["required"] == list(each["properties"])
        assert each["additionalProperties"] is False
    assert all("default" not in each for each in inner_schemas(tool.parameters))
    assert tool.parameters["properties"]["limit"] == {"type": "integer", "description": "Default: 10."}
    assert {"type": "null"} in tool.parameters["properties"]["names"]["anyOf"]
    assert cc.tool(test_no_parameters, strict=True).tool.parameters["required"] == []


def test_strict_refuses_what_is_open() -> None:
    with pytest.raises(
        cc.errors.InvalidInput, match=r"everything\.table: strict does not allow open types.* Define the fields"
    ):
        cc.tool(everything, strict=True)


def test_no_parameters() -> None:
    assert cc.tool(test_no_parameters).tool.parameters == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


def refused() -> Iterator[tuple[Callable[..., object], str]]:
    def stars(*names: str) -> None: ...

    def more(**names: str) -> None: ...

    def bare(name) -> None: ...  # noqa: ANN001 # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]

    def unnamed(ctx) -> None: ...  # noqa: ANN001 # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]

    def foreign(value: Iterator[str]) -> None: ...

    def recursive(node: Node) -> None: ...

    def keys(table: dict[int, str]) -> None: ...

    def lost(value: "Nowhere") -> None: ...  # noqa: F821 # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]

    def ünicode(name: str) -> None: ...

    yield stars, r"Tool stars: \*names cannot be described in a JSON schema. Name each parameter"
    yield more, r"Tool more: \*\*names.*pass the schema"
    yield bare, "Tool bare: parameter 'name' has no type hint. Add one, such as `name: str`"  # pyright: ignore[reportUnknownVariableType]
    yield unnamed, "parameter 'ctx' has no type hint. Add one, such as `ctx: cc.ToolContext`"  # pyright: ignore[reportUnknownVariableType]
    yield foreign, r"foreign\.value: type Iterator cannot be described in a JSON schema. Use str, int"
    yield recursive, r"recursive\.node\.children\[\]: Node is recursive.* Use a flat list"
    yield keys, r"keys\.table: keys of a JSON object must be strings. Use dict\[str"
    yield lost, r"Tool lost: type hints cannot be resolved \(name 'Nowhere' is not defined\). Import"  # pyright: ignore[reportUnknownVariableType]
    yield ünicode, "name must have up to 64 letters.*got 'ünicode'.*name="
    yield lambda: None, "a lambda has no name"


@pytest.mark.parametrize(("function", "expected"), list(refused()))
def test_what_cannot_be_reported_is_refused_at_definition_with_the_way_out(
    function: Callable[..., object], expected: str
) -> None:
    """Guarantee 15.1: what is wrong, where, and what to do."""
    with pytest.raises(cc.errors.InvalidInput, match=expected):
        cc.tool(function)


def test_what_a_partial_has_fixed_is_not_the_models_to_give() -> None:
    def search(root: str, what: str, most: int = 5) -> str:
        """Search."""
        return f"{root} {what} {most}"

    assert list(properties_of(cc.tool(partial(search, "/home")))) == ["what", "most"]
    tool = cc.tool(partial(search, root="/home"))
    assert (tool.name, tool.tool.description) == ("search", "Search.")
    assert list(properties_of(tool)) == ["what", "most"]


def test_a_context_is_nothing_a_model_receives() -> None:
    def look(path: str, context: cc.ToolContext, other: cc.ToolContext | None = None) -> str:
        return path

    assert list(properties_of(cc.tool(look))) == ["path"]

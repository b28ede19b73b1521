"""Types of pydantic as parameters, results and answers: their schema, their constraints, and what is refused."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

import msgspec
import pydantic
import pytest
from annotated_types import Ge
from pydantic import BaseModel, Field, HttpUrl
from typing_extensions import TypedDict

import contextc as cc
from contextc.errors import InvalidInput, InvalidSetting
from contextc.testing import FakeModel
from contextc.tools.parameters import type_schema


class Item(BaseModel):
    """A thing in the shop."""

    sku: str = Field(description="Its number.", min_length=3)
    count: int = Field(default=1, ge=1)
    kind: Literal["book", "toy"] = "book"


class Node(BaseModel):
    children: "list[Node]" = []


@dataclass
class Order:
    items: list[Item]
    note: str = ""


class Row(TypedDict):
    price: Annotated[float, Field(gt=0)]


def order(item: Item, others: list[Item] | None = None, at: HttpUrl | None = None) -> str:
    """Order a thing."""
    return f"{type(item).__name__} {item.sku} {item.count} {len(others or [])} {at}"


def run(function: Callable[..., object], **arguments: Any) -> str:
    return asyncio.run(cc.tool(function).run(cc.ToolCall(id="1", name="any", arguments=arguments))).text


def test_a_model_is_a_parameter_with_a_schema_that_every_provider_accepts() -> None:
    """Guarantee 20.6: no references, and constraints in the description."""
    schema = cc.tool(order).tool.parameters["properties"]
    assert schema["item"] == {
        "type": "object",
        "description": "A thing in the shop.",
        "properties": {
            "sku": {"type": "string", "description": "Its number. minLength: 3."},
            "count": {"type": "integer", "default": 1, "description": "minimum: 1."},
            "kind": {"type": "string", "enum": ["book", "toy"], "default": "book"},
        },
        "required": ["sku"],
        "additionalProperties": False,
    }
    assert schema["others"]["type"] == "array"
    assert "$ref" not in str(cc.tool(order).tool.parameters)
    strict = cc.tool(order, strict=True).tool.parameters["properties"]["item"]
    assert strict["required"] == ["sku", "count", "kind"]


def test_a_model_without_fields_is_an_object_without_fields() -> None:
    """An open object would cost the whole union its strict form, and with it the guarantee of the provider."""

    class NotFound(BaseModel):
        """When there is no such thing."""

    assert type_schema(NotFound, strict=True, place="answer") == {
        "type": "object",
        "description": "When there is no such thing.",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }
    model = FakeModel('{"value": {}}', provider="openai:gpt-5.2")
    assert cc.Agent(model, output_type=Item | NotFound).run_sync("hi").output == NotFound()
    assert model.requests[0].settings["text"]["format"]["strict"]


def test_a_constraint_begins_a_sentence_of_its_own() -> None:
    """A model reads the description: "Level minimum: 0." names no minimum."""

    class Risk(BaseModel):
        level: int = Field(description="Level", ge=0)

    schema = type_schema(Risk, strict=False, place="answer")
    assert schema["properties"]["level"]["description"] == "Level. minimum: 0."


def test_arguments_become_models_and_wrong_ones_are_described_to_the_model() -> None:
    sent = {"sku": "abc", "count": "2"}
    assert run(order, item=sent, others=[{"sku": "xyz"}], at="http://a.b/c") == "Item abc 2 1 http://a.b/c"
    assert run(order, item=sent) == "Item abc 2 0 None"
    assert "`item.sku`: String should have at least 3 characters" in run(order, item={"sku": "a"})
    assert "There is no field `item.color`" in run(order, item={"sku": "abc", "color": "red"})
    assert "`item` is missing" in run(order)


@pytest.mark.parametrize("hint", [Annotated[int, Field(ge=0, le=10)], Annotated[int, Ge(0)]])
def test_constraints_of_fields_are_checked(hint: Any) -> None:
    def rate(risk: int) -> str:
        """Rate."""
        return f"rated {risk}"

    rate.__annotations__["risk"] = hint
    assert run(rate, risk=7) == "rated 7"
    assert "greater than or equal to 0" in run(rate, risk=-1)
    assert "minimum: 0." in cc.tool(rate).tool.parameters["properties"]["risk"]["description"]


def test_a_description_of_msgspec_is_there_once() -> None:
    def rate(risk: Annotated[int, msgspec.Meta(ge=0, description="Risk")]) -> str:
        """Rate."""
        return str(risk)

    assert cc.tool(rate).tool.parameters["properties"]["risk"]["description"] == "Risk. At least 0."


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Item(sku="abc"), '{"sku":"abc","count":1,"kind":"book"}'),
        ([Item(sku="abc", count=2)], '[{"sku":"abc","count":2,"kind":"book"}]'),
        ({"found": Item(sku="abc", kind="toy")}, '{"found":{"sku":"abc","count":1,"kind":"toy"}}'),
    ],
)
def test_a_model_is_a_result(value: object, text: str) -> None:
    def find() -> Any:
        """Find it."""
        return value

    assert run(find) == text


ITEM = '{"sku": "abc", "count": 2}'


@pytest.mark.parametrize(
    ("kind", "answer", "output"),
    [
        (Item, ITEM, Item(sku="abc", count=2)),
        (list[Item], f'{{"value": [{ITEM}]}}', [Item(sku="abc", count=2)]),
        (Item | None, '{"value": null}', None),
        (Order, f'{{"items": [{ITEM}]}}', Order([Item(sku="abc", count=2)])),
        (dict[str, Item], f'{{"a": {ITEM}}}', {"a": Item(sku="abc", count=2)}),
        (Row, '{"price": 2.5}', {"price": 2.5}),
        (Node, '{"children": [{"children": []}]}', Node(children=[Node()])),
    ],
    ids=["model", "list", "optional", "dataclass", "dict", "typed dict", "recursive"],
)
def test_types_with_models_are_answers(kind: Any, answer: str, output: object) -> None:
    """Guarantee 20.2."""
    assert cc.Agent(FakeModel(answer), output_type=kind).run_sync("x").output == output


class NoItem(BaseModel):
    reason: str = ""


@pytest.mark.parametrize(
    ("kind", "answer", "problem"),
    [
        (Item | NoItem, '{"number": "abc"}', "There is no field `number`."),
        (Item | NoItem, '{"value": {"count": 2}}', "The field `sku` is missing."),
        (Item | NoItem, '{"raeson": "sold out"}', "There is no field `raeson`. Did you mean `reason`?"),
        (list[Item | NoItem], f'[{ITEM}, {{"sku": "abc", "size": 2}}]', "There is no field `[1].size`."),
        (Order, f'{{"items": [{ITEM[:-1]}, "size": 2}}]}}', "There is no field `items[0].size`."),
    ],
)
def test_an_answer_with_wrong_fields_is_not_read_as_another_type(kind: Any, answer: str, problem: str) -> None:
    """Guarantee 20.2: a type whose fields are all optional would accept any object, and the answer would be lost."""
    model = FakeModel(answer, '{"value": {"reason": "sold out"}}')
    cc.Agent(model, output_type=kind).run_sync("x")
    assert problem in str(model.requests[1].messages)


@pytest.mark.parametrize(("answer", "output"), [(ITEM, Item(sku="abc", count=2)), ("{}", NoItem())])
def test_the_arm_of_a_union_that_has_the_fields_is_the_answer(answer: str, output: object) -> None:
    """Guarantee 20.2."""
    model = FakeModel(answer)
    agent: cc.Agent[Any] = cc.Agent(model, output_type=cast("type[Any]", Item | NoItem))
    assert agent.run_sync("x").output == output


class Nothing(BaseModel):
    """Nothing was found."""


class Note(BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    text: str = ""


WRONG_ITEM = '{"sku": "abc", "count": 0}'


@pytest.mark.parametrize(
    ("kind", "answer", "place"),
    [
        (Item | Nothing, WRONG_ITEM, "Item.count"),
        (Item | Nothing, f'{{"value": {WRONG_ITEM}}}', "Item.count"),
        (list[Item | Nothing], f"[{WRONG_ITEM}]", "0.Item.count"),
        (dict[str, Item | Nothing], f'{{"a": {WRONG_ITEM}}}', "a.Item.count"),
    ],
)
def test_an_answer_that_breaks_a_constraint_is_not_read_as_another_type(kind: Any, answer: str, place: str) -> None:
    """Guarantee 20.2: pydantic would return `Nothing()`, and a program would report that nothing was found."""
    model = FakeModel(answer, answer)
    result = cc.Agent(model, output_type=kind).run_sync("x")
    assert not result.is_valid
    assert f"`{place}`: Input should be greater than or equal to 1" in str(model.requests[1].messages)


def test_an_argument_that_breaks_a_constraint_is_not_read_as_another_type() -> None:
    """Guarantee 20.6."""

    def keep(item: Item | Nothing) -> str:
        """Keep it."""
        return repr(item)

    text = run(keep, item={"sku": "abc", "count": 0})
    assert "The tool was not run. `item.Item.count`: Input should be greater than or equal to 1; " in text
    assert run(keep, item={}) == "Nothing()"


def test_a_constraint_of_a_parameter_is_named_once() -> None:
    def rate(risk: Annotated[int, Field(le=10)]) -> str:
        """Rate."""
        return str(risk)

    assert "The tool was not run. `risk`: Input should be less than or equal to 10." in run(rate, risk=99)


@pytest.mark.parametrize("kind", [Note, list[Note]], ids=["model", "list"])
def test_a_model_that_allows_any_field_gets_them(kind: Any) -> None:
    """Guarantee 20.2: the fields are not unknown."""
    answer = '{"text": "a", "mood": "good"}'
    output: Any = cc.Agent(FakeModel(answer if kind is Note else f"[{answer}]"), output_type=kind).run_sync("x").output
    note = output if kind is Note else output[0]
    assert note == Note.model_validate({"text": "a", "mood": "good"})


def test_an_answer_that_breaks_a_constraint_is_asked_for_again() -> None:
    model = FakeModel('{"price": -1}', '{"price": 1}')
    assert cc.Agent(model, output_type=Row).run_sync("x").output == {"price": 1.0}
    assert "`price`: Input should be greater than 0" in str(model.requests[1].messages)


def test_what_cannot_work_is_refused_when_the_tool_is_made() -> None:
    class Strange:
        pass

    def recursive(node: Node) -> str:
        """Walk."""
        return ""

    with pytest.raises(InvalidInput, match="Node is recursive"):
        cc.tool(recursive)
    with pytest.raises(InvalidSetting, match="cannot be described"):
        cc.Agent(FakeModel("x"), output_type=Strange)
    strange = pydantic.ConfigDict(arbitrary_types_allowed=True)
    holder = pydantic.create_model("Holder", thing=(Strange, ...), __config__=strange)
    with pytest.raises(InvalidInput, match="pydantic cannot describe"):
        cc.Agent(FakeModel("x"), output_type=holder)

"""The random script: its replies fit the offered tools, and it ends."""

from random import Random

from jsonschema import Draft202012Validator

from contextc._json import JSONObject, encode
from contextc.messages import Message, assistant, tool_call, tool_result, user
from contextc.tools.definitions import Tool
from tests.fake_vendors import AcceptedRequest, RandomScript, Reply, ScriptedCall
from tests.fake_vendors.random_script import fitting
from tests.fake_vendors.responses import RequestHead
from tests.fake_vendors.sdks import LOOK, SDKClient, client_of
from tests.fake_vendors.vendor import vendor

SCHEMA: JSONObject = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 3, "maxLength": 9},
        "mode": {"enum": ["r", "w"]},
        "range": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/range"}]},
        "tags": {"type": "array", "items": {"type": ["string", "boolean"]}, "minItems": 1},
        "share": {"type": "number", "minimum": 0, "maximum": 1},
        "always": {"const": 7},
    },
    "required": ["path", "tags"],
    "additionalProperties": False,
    "$defs": {
        "range": {
            "type": "object",
            "properties": {"first": {"type": "integer", "minimum": 1}},
            "required": ["first"],
        }
    },
}


def asked(client: SDKClient, *messages: Message, tools: tuple[Tool, ...] = (LOOK,)) -> AcceptedRequest:
    body = client.body(messages, tools=tools)
    return AcceptedRequest(vendor(client.name), RequestHead("POST", "/", {}, {}), encode(body), body)


def test_arguments_fit_their_schema() -> None:
    """A tool is called as it asked to be called."""
    judge = Draft202012Validator(SCHEMA)
    for seed in range(200):
        judge.validate(fitting(SCHEMA, Random(seed)))  # pyright: ignore[reportUnknownMemberType] - untyped stubs


def test_a_reply_depends_on_the_seed_and_on_the_request() -> None:
    """No state: a request that comes again has the same reply, another one another."""
    content = {
        (seed, text): RandomScript(seed)(asked(client_of("anthropic"), user(text)))
        for seed in (1, 2)
        for text in ("a", "b")
    }
    assert content == {
        (seed, text): RandomScript(seed)(asked(client_of("anthropic"), user(text))) for seed, text in content
    }
    assert len({repr(reply) for reply in content.values()}) == 4


def test_a_turn_ends() -> None:
    """However long it would like to go on."""
    history = [user("Go.")]
    for number in range(6):
        reply = RandomScript(0, steps=10**9, most=5)(asked(client_of("anthropic"), *history))
        assert bool(reply.calls) == (number < 5)
        call = tool_call(f"c{number}", "look", {"thing": "x"})
        history += [assistant(tool_calls=[call]), tool_result(call.id, "look", "seen")]


def test_without_tools_it_only_talks() -> None:
    for seed in range(20):
        assert not RandomScript(seed, steps=10**9)(asked(client_of("anthropic"), user("Go."), tools=())).calls


def test_it_writes_nonsense_only_where_the_format_can_carry_it(client: SDKClient) -> None:
    """Guarantee 2.3: arguments are text in some formats, and then a model may write anything."""
    replies = [RandomScript(seed, steps=10**9, odd=0.5)(asked(client, user("Go."))) for seed in range(40)]
    calls = [call for reply in replies for call in reply.calls]
    assert any(isinstance(call.arguments, str) for call in calls) == vendor(client.name).free_arguments
    assert any(reply.text == "" for reply in replies)
    assert any(len(reply.calls) > 1 for reply in replies)


def test_a_reply_ends_as_its_calls_require() -> None:
    assert Reply("a").ended == "stop"
    assert Reply(calls=[ScriptedCall("look")]).ended == "tool_calls"
    assert Reply("a", finish="length").ended == "length"

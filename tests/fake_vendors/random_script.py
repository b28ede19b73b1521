"""Script that calls the offered tools at random, for a limited number of steps.

Its replies depend only on its seed and the content of the request, so a repeated request gets an equal reply in any
process. Arguments match the tools' schemas. Sometimes it returns an empty text, or, if the vendor can transmit them,
arguments that are invalid JSON.
"""

from random import Random

from contextc._json import JSON, JSONObject, encode
from contextc.tools.definitions import Tool
from tests.fake_vendors.json_access import as_object
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.vendor import AcceptedRequest

PLAIN = "the file says nothing about it yet so look once more at what was there before and after"
ODD = ('naïve "quotes"', "日本語", "🦊", "line\nbreak", "<tag>", "back\\slash", "{brace}", "\ttab", "end.")
WORDS = (*PLAIN.split(), *ODD)


class RandomScript:
    """Takes about `steps` steps for a turn, and never more than `most`. `odd`: how often it is strange."""

    def __init__(self, seed: int = 0, *, steps: float = 5, most: int = 40, calls: int = 3, odd: float = 0.05) -> None:
        self.seed, self.steps, self.most, self.calls, self.odd = seed, steps, most, calls, odd

    def __call__(self, ask: AcceptedRequest) -> Reply:
        chance = Random(f"{self.seed} {ask.identity}")
        tools = [tool for tool in ask.request.tools if isinstance(tool, Tool)]
        thinks = ask.vendor.must_reason(ask) or (ask.vendor.reasons and chance.random() < 0.4)
        reasoning = random_text(chance, 12) if thinks else ""
        if not tools or steps_taken(ask) >= self.most or chance.random() < 1 / self.steps:
            return Reply(random_text(chance, 25), reasoning=reasoning)
        text = "" if chance.random() < self.odd else random_text(chance, 15) if chance.random() < 0.5 else None
        number = chance.choice((1, 1, *range(1, self.calls + 1)))
        calls = [self.call(chance, chance.choice(tools), ask) for _ in range(number)]
        return Reply(text, calls=calls, reasoning=reasoning)

    def call(self, chance: Random, tool: Tool, ask: AcceptedRequest) -> ScriptedCall:
        given = as_object(fitting(tool.parameters, chance))
        if ask.vendor.free_arguments and chance.random() < self.odd:
            return ScriptedCall(tool.name, encode({"cut": random_text(chance, 5), **given}).decode()[:-4])
        return ScriptedCall(tool.name, given)


def steps_taken(ask: AcceptedRequest) -> int:
    """How many replies there are since a person last spoke."""
    taken = 0
    for message in reversed(ask.request.messages):
        if message.role == "user":
            break
        taken += message.role == "assistant"
    return taken


def random_text(chance: Random, most: int) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(1, most)))


def fitting(schema: JSONObject, chance: Random, root: JSONObject | None = None) -> JSON:
    """A value that a JSON Schema takes, of the kinds that tools have."""
    root = root or schema
    if "$ref" in schema:
        return fitting(_referred(root, schema["$ref"]), chance, root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return chance.choice(schema["enum"])
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return fitting(chance.choice(schema[union]), chance, root)
    kind: str | list[str] = schema.get("type", "object" if "properties" in schema else "string")
    return _of_kind(kind if isinstance(kind, str) else chance.choice(kind), schema, chance, root)


def _of_kind(kind: str, schema: JSONObject, chance: Random, root: JSONObject) -> JSON:
    least, most = schema.get("minimum", 0), schema.get("maximum", 1000)
    match kind.lower():
        case "object":
            wanted = schema.get("required", ())
            given: JSONObject = schema.get("properties", {})
            return {
                name: fitting(each, chance, root)
                for name, each in given.items()
                if name in wanted or chance.random() < 0.5
            }
        case "array":
            size = chance.randint(schema.get("minItems", 0), schema.get("maxItems", schema.get("minItems", 0) + 3))
            return [fitting(schema.get("items", {}), chance, root) for _ in range(size)]
        case "integer":
            return chance.randint(int(least), int(most))
        case "number":
            return round(chance.uniform(least, most), 3)
        case "boolean":
            return chance.random() < 0.5
        case "null":
            return None
        case _:
            text = random_text(chance, 4)
            return text.ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]


def _referred(root: JSONObject, name: str) -> JSONObject:
    found: JSONObject = root
    for step in name.removeprefix("#/").split("/"):
        found = found[step]
    return found

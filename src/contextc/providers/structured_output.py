"""Facts about structured output: which models can be required to answer with JSON that follows a schema.

The facts are in `structured_output.toml`. A model that is not there may accept a schema, but it may also refuse the
request or ignore the schema.
"""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import cast

from msgspec import Struct, convert

from contextc._json import JSON, JSONObject
from contextc._plugins import data_files
from contextc.formats.request_settings import OutputFormat, RequestSettings
from contextc.providers.registry import Provider


class StructuredOutputFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of `structured_output.toml`, which describes the fields."""

    models: str = ""
    without_tools: str = ""
    excluded_ids: str = ""
    url: str = ""
    same_as: str = ""
    max_unions: int = 0
    max_properties: int = 0
    max_enum_values: int = 0
    max_depth: int = 0


def has_structured_output(provider: Provider, *, with_tools: bool) -> bool:
    """Return True if replies of this provider's model are known to follow a schema that the request requires."""
    known = structured_output_facts().get(provider.name)
    if known is None or provider.url != known.url or re.fullmatch(known.excluded_ids, provider.model_id):
        return False
    patterns = (known.models,) if with_tools else (known.models, known.without_tools)
    return any(re.fullmatch(pattern, provider.model.name) for pattern in patterns)


def accepts_schema(provider: Provider, schema: JSONObject) -> bool:
    """Return True if a strict schema is not larger than the provider's known limits."""
    known = structured_output_facts()[provider.name]
    parts = [*_parts(schema, 0)]
    sizes = (
        (sum("anyOf" in part or isinstance(part.get("type"), list) for part, _ in parts), known.max_unions),
        (sum(len(cast(JSONObject, part.get("properties", {}))) for part, _ in parts), known.max_properties),
        (sum(len(cast(list[JSON], part.get("enum", []))) for part, _ in parts), known.max_enum_values),
        (max(depth for _, depth in parts), known.max_depth),
    )
    return all(size <= limit for size, limit in sizes if limit)


def _parts(schema: JSONObject, depth: int) -> Iterator[tuple[JSONObject, int]]:
    """Yield a strict schema and those inside it, with the number of objects around each, itself included."""
    depth += "properties" in schema
    yield schema, depth
    inside = [*cast(JSONObject, schema.get("properties", {})).values(), *cast(list[JSON], schema.get("anyOf", []))]
    for part in [*inside, *([schema["items"]] if "items" in schema else [])]:
        yield from _parts(cast(JSONObject, part), depth)


def structured_output_settings(provider: Provider, schema: JSONObject, name: str) -> JSONObject:
    """Return the request settings that require an answer of this schema, as the provider's format names them."""
    output = OutputFormat(schema=schema, name=name, strict=True)
    return provider.formatter.settings.write(RequestSettings(output=output)).body


@cache
def structured_output_facts() -> dict[str, StructuredOutputFacts]:
    """Return the facts by the name of the provider."""
    content = tomllib.loads(data_files("contextc.providers", ".toml")["structured_output.toml"])
    facts = convert(content, dict[str, StructuredOutputFacts])
    return {name: facts[each.same_as] if each.same_as else each for name, each in facts.items()}

"""Facts about structured output: which models can be required to answer with JSON that follows a schema.

The facts are in `structured_output.toml`. A model that is not there may accept a schema, but it may also refuse the
request or ignore the schema.
"""

import re
import tomllib
from functools import cache

from msgspec import Struct, convert

from contextc._json import JSONObject
from contextc._plugins import data_files
from contextc.formats.request_settings import OutputFormat, RequestSettings
from contextc.providers.registry import Provider


class StructuredOutputFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of `structured_output.toml`, which describes the fields."""

    models: str = ""
    without_tools: str = ""
    excluded_ids: str = ""
    url: str = ""


def has_structured_output(provider: Provider, *, with_tools: bool) -> bool:
    """Return True if replies of this provider's model are known to follow a schema that the request requires."""
    known = structured_output_facts().get(provider.name)
    if known is None or provider.url != known.url or re.fullmatch(known.excluded_ids, provider.model_id):
        return False
    patterns = (known.models,) if with_tools else (known.models, known.without_tools)
    return any(re.fullmatch(pattern, provider.model.name) for pattern in patterns)


def structured_output_settings(provider: Provider, schema: JSONObject, name: str) -> JSONObject:
    """Return the request settings that require an answer of this schema, as the provider's format names them."""
    output = OutputFormat(schema=schema, name=name, strict=True)
    return provider.formatter.settings.write(RequestSettings(output=output)).body


@cache
def structured_output_facts() -> dict[str, StructuredOutputFacts]:
    """Return the facts by the name of the provider."""
    content = tomllib.loads(data_files("contextc.providers", ".toml")["structured_output.toml"])
    return convert(content, dict[str, StructuredOutputFacts])

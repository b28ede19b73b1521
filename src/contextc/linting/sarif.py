"""SARIF 2.1.0, which code scanning and editors read: what `lint`, `findings` and the pytest plugin found."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import quote

from contextc._json import JSONObject

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
Level: TypeAlias = Literal["error", "warning", "note"]


class SarifRule(NamedTuple):
    """A rule, or a cause of findings."""

    id: str
    title: str
    description: str = ""
    help: str = ""


class SarifResult(NamedTuple):
    """One finding. `uri` is the file, or the address of the conversation. `path` is a place in the request, `line` and
    `column` in the file.
    """

    rule: str
    level: Level
    message: str
    uri: str
    path: str = ""
    properties: Mapping[str, object] = {}
    line: int = 1
    column: int = 1


def make_sarif(rules: Sequence[SarifRule], results: Sequence[SarifResult]) -> JSONObject:
    """Return a SARIF log with one run. Only rules that have a result are listed."""
    used = {each.rule for each in results}
    listed = [each for each in rules if each.id in used]
    indexes = {each.id: index for index, each in enumerate(listed)}
    driver: JSONObject = {
        "name": "contextc",
        "version": version("contextc"),
        "rules": [_rule(each) for each in listed],
    }
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": [_result(each, indexes) for each in results]}],
    }


def _rule(rule: SarifRule) -> JSONObject:
    found: JSONObject = {"id": rule.id, "shortDescription": {"text": rule.title}}
    if rule.description:
        found["fullDescription"] = {"text": rule.description}
    if rule.help:
        found["help"] = {"text": rule.help}
    return found


def _result(result: SarifResult, indexes: Mapping[str, int]) -> JSONObject:
    region: JSONObject = {"startLine": result.line, "startColumn": result.column}
    location: JSONObject = {"physicalLocation": {"artifactLocation": {"uri": result.uri}, "region": region}}
    if result.path:
        location["logicalLocations"] = [{"fullyQualifiedName": result.path, "kind": "member"}]
    found: JSONObject = {
        "ruleId": result.rule,
        "level": result.level,
        "message": {"text": result.message},
        "locations": [location],
    }
    if result.rule in indexes:
        found["ruleIndex"] = indexes[result.rule]
    if result.properties:
        found["properties"] = dict(result.properties)
    return found


def conversation_uri(name: str) -> str:
    """Return the address of a conversation in a SARIF log."""
    return f"contextc:conversation/{quote(name, safe='')}"


def file_uri(path: str) -> str:
    """Return a relative or absolute path as a URI reference."""
    return quote(path.replace("\\", "/"), safe="/:") if path != "-" else "stdin"

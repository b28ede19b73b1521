"""Answers of the server and the commands about a stored conversation have the recorded names."""

from pathlib import Path
from typing import Any, cast

import contextc as cc
from contextc._json import JSONObject
from tests.golden import server_answers
from tests.golden.json_compare import assert_same, mapped, without_frame
from tests.golden.store_content import lasting, read

TESTED_ELSEWHERE = ("/events", "/changes", "/findings", "/composition")
"""Streams (streams.json, tests/web/test_changes.py), and texts and estimates that get better with every version."""


def test_http_answers_are_the_same(store: cc.Store, file: Path, tmp_path: Path) -> None:
    """Every GET route that needs no running turn, with the document about the API. Clients ignore unknown fields."""
    found = server_answers.http(store, file, tmp_path)
    expected = read("http.json")
    document = found["/api/openapi.json"]
    document["body"] = _without_additions(expected["/api/openapi.json"]["body"], document["body"])
    for path, answer in expected.items():
        request = expected.get(path.partition("/lines")[0]) if "/lines" in path else None
        expected_now = mapped(_corrected(answer, request), lasting)
        if "/next" in path or path == "/api/open":
            expected_now = mapped(expected_now, without_frame)
        assert_same(expected_now, found.get(path), path, grows=True)
    assert [*found] == [*expected]


def _corrected(answer: JSONObject, request: JSONObject | None) -> JSONObject:
    """An answer as it was recorded, but for a request without usage: its total was wrongly called measured, and its
    lines had costs, which it has not. `request` is the answer about the request of lines.
    """
    body: Any = answer.get("body")
    given = cast(JSONObject, body) if isinstance(body, dict) else {}
    if request is not None and request["body"]["usage"] is None:
        return {**answer, "body": {**given, "lines": [{**each, "cost": None} for each in given["lines"]]}}
    if "budget" in given and given.get("usage", "") is None:
        how = given["budget"]["how"].replace("measured", "estimated")
        return {**answer, "body": {**given, "budget": {**given["budget"], "how": how}}}
    return answer


def _without_additions(expected: JSONObject, found: JSONObject) -> JSONObject:
    """The document about the API without endpoints and optional fields that are not recorded: clients ignore them."""
    paths = {
        path: {
            method: _without_parameters(expected["paths"][path][method], operation)
            for method, operation in methods.items()
            if method in expected["paths"][path]
        }
        for path, methods in found["paths"].items()
        if path in expected["paths"]
    }
    schemas = [*found["schemas"][: len(expected["schemas"])]]
    for index, (before, after) in enumerate(zip(expected["schemas"], schemas, strict=False)):
        kept = {*before.get("properties", ()), *after.get("required", ())}
        if "properties" in after:
            properties = {name: each for name, each in after["properties"].items() if name in kept}
            schemas[index] = {**after, "properties": properties}
    return {**found, "paths": paths, "schemas": schemas}


def _without_parameters(expected: JSONObject, found: JSONObject) -> JSONObject:
    """An operation without optional parameters that are not recorded."""
    known = {each["name"] for each in expected["parameters"]}
    kept = [each for each in found["parameters"] if each["name"] in known or each.get("required")]
    return {**found, "parameters": kept}


def test_every_get_route_is_recorded() -> None:
    recorded = read("http.json")
    asked = {path.partition("?")[0] for path in recorded}
    for route, methods in recorded["/api/openapi.json"]["body"]["paths"].items():
        if "get" in methods and not route.endswith(TESTED_ELSEWHERE):
            pieces = ["" if piece.startswith("{") else piece for piece in f"/api{route}".split("/")]
            assert any(_fits(path.split("/"), pieces) for path in asked), route


def _fits(path: list[str], pieces: list[str]) -> bool:
    return len(path) == len(pieces) and all(
        piece in ("", expected) for expected, piece in zip(path, pieces, strict=True)
    )


def test_stored_events_are_streamed_to_the_byte(store: cc.Store) -> None:
    """As server-sent events, in our own words, in AG-UI's and in the Vercel AI SDK's."""
    assert_same(_frames(read("streams.json")), _frames(server_answers.streams(store)), "a stream")


def test_turns_are_streamed_to_clients_to_the_byte(tmp_path: Path) -> None:
    """A turn that runs, as `useChat` and an AG-UI client are sent it, up to an approval; ids and times apart."""
    assert_same(_frames(read("turns.json")), _frames(server_answers.turns(tmp_path)), "a turn's stream")


def _frames(streams: dict[str, str]) -> dict[str, list[str]]:
    return {name: expected.split("\n") for name, expected in streams.items()}


def test_commands_print_the_same_json(store: cc.Store, file: Path, tmp_path: Path) -> None:
    recorded, found = read("commands.json"), server_answers.commands(file, tmp_path)
    known, report = recorded["doctor"]["printed"]["settings"], found["doctor"]["printed"]
    report["settings"] = [each for each in report["settings"] if each in known]  # settings may be added
    recorded["compile work"]["printed"]["budget"]["measured"] = False  # it was not sent, so no total was reported
    recorded |= {name: mapped(each, without_frame) for name, each in recorded.items() if name.startswith("compile")}
    assert_same(recorded, found, "what a command prints")

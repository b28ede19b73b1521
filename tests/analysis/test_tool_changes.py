"""The tools that changed, as evidence of a cache miss."""

from collections.abc import Callable

import pytest

from contextc.analysis.conversation_loader import load_conversation_view
from contextc.analysis.request_comparison import compare_two_requests
from tests.analysis.cached_client import Client, tool


def add_last(client: Client) -> None:
    client.tools.append(tool("fetch"))


def add_first(client: Client) -> None:
    client.tools.insert(0, tool("fetch"))


def remove(client: Client) -> None:
    del client.tools[1]


def remove_all(client: Client) -> None:
    client.tools = []


def describe(client: Client) -> None:
    client.tools[1] = tool("write", client.tools[1]["description"] + "Never twice.")


def exchange(client: Client) -> None:
    client.tools = [tool("read"), tool("fetch"), tool("write", "Write it.")]


@pytest.mark.parametrize(
    ("change", "title", "evidence"),
    [
        (add_last, "The tools changed (1 added: fetch)", [("tools[3]", "fetch", False, True)]),
        (add_first, "The tools changed (1 added: fetch)", [("tools[0]", "fetch", False, True)]),
        (remove, "The tools changed (1 removed: write)", [("tools", "write", True, False)]),
        (
            remove_all,
            "The tools changed (3 removed: read, search, write)",
            [("tools", name, True, False) for name in ("read", "write", "search")],
        ),
        (describe, "The definition of the tool write changed", [("tools[1].description", "write", True, True)]),
        (
            exchange,
            "The tools changed (1 added: fetch; 1 removed: search; 1 changed: write)",
            [
                *(("tools[1]", "fetch", False, True), ("tools", "search", True, False)),
                ("tools[2].description", "write", True, True),
            ],
        ),
    ],
)  # fmt: skip
def test_evidence_has_each_tool_and_nothing_else(
    change: Callable[[Client], None], title: str, evidence: list[tuple[str, str, bool, bool]]
) -> None:
    """Guarantee 17.2: a tool is compared with the tool of its name, not with the system prompt at its place."""
    client = Client().work(4)
    change(client)
    client.send(0)
    found = client.last()
    assert (found.cause, found.title) == ("tools_changed", title)
    assert [(each.path, each.name, bool(each.before), bool(each.after)) for each in found.evidence] == evidence
    for each in found.evidence:
        assert "You help with this project" not in each.before + each.after
        if not (each.before and each.after):
            assert (each.before or each.after).startswith(f'{{"name":"{each.name}","description":"Run {each.name}.')
    *_, before, now = load_conversation_view(client.store, "c").requests
    compared = compare_two_requests(client.store, before, now)
    assert {each.name for each in compared.differences if each.section == "tools"} == {name for _, name, *_ in evidence}


def test_the_words_that_changed_in_a_definition_are_evidence() -> None:
    client = Client().work(4)
    describe(client)
    client.send(0)
    (evidence,) = client.last().evidence
    assert "Never twice." in evidence.after
    assert "Never twice." not in evidence.before


def test_four_tools_are_evidence_and_all_are_counted() -> None:
    client = Client().work(4)
    client.tools += [tool(f"extra{number}") for number in range(6)]
    client.send(0)
    found = client.last()
    assert [each.name for each in found.evidence] == [f"extra{number}" for number in range(4)]
    assert found.title.startswith("The tools changed (6 added: extra0, ")


@pytest.mark.parametrize("index", [None, 0, 1])
def test_tools_that_have_only_a_type_are_told_apart_by_their_content(index: int | None) -> None:
    """Two MCP servers have one type and no names. One of them is removed, or none is and another tool is added."""
    client = Client()
    client.tools += [{"type": "mcp_toolset", "mcp_server_name": name} for name in ("notes", "mail")]
    client.work(4)
    if index is None:
        client.tools.append(tool("fetch"))
    else:
        del client.tools[index - 2]
    client.send(0)
    changed = "1 added: fetch" if index is None else "1 removed: mcp_toolset"
    assert client.last().title == f"The tools changed ({changed})"
    assert len(client.last().evidence) == 1

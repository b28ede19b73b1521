"""Many tools are searched instead of defined in every request (guarantee 24.7)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.mcp.search import rank_tools
from contextc.testing import FakeModel
from contextc.tools import FunctionTool
from tests.mcp.servers import calling, plain, results

VERBS, THINGS = ("create", "list", "delete", "update"), ("issue", "invoice", "calendar event", "customer", "file")
OURS: Any = {"defer_tools_above": 0, "tool_search": "contextc"}
APPENDS, DOES_NOT = "openai:gpt-5.4", "mistral:mistral-large-latest"


@pytest.fixture
def many(tmp_path: Path) -> str:
    """The mode of a server with twenty tools."""
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    definitions: list[dict[str, Any]] = [
        {
            "name": f"{verb}_{thing.replace(' ', '_')}",
            "description": f"{verb.title()} one {thing}.",
            "inputSchema": schema,
        }
        for verb in VERBS
        for thing in THINGS
    ]
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(definitions))
    return f"tools={path}"


def run(
    model: FakeModel,
    *modes: str,
    store: cc.Store | None = None,
    needs_approval: Any = False,
    conversation: str = "demo",
    **options: Any,
) -> Any:
    async def work() -> cc.AgentResult[str]:
        server = plain(*modes, needs_approval=needs_approval)
        async with cc.Agent(model, mcp_servers=[server], store=store, **{**OURS, **options}) as agent:
            return await agent.run("Go.", conversation=conversation)

    return asyncio.run(work())


def names(model: FakeModel) -> list[list[str]]:
    """Return the names of the tools of each request, without those that read the history."""
    tools = [[each.name for each in request.tools if isinstance(each, cc.Tool)] for request in model.requests]
    return [[each for each in names if each not in ("search_history", "fetch_result")] for names in tools]


@pytest.mark.parametrize(
    ("name", "betas", "place"),
    [(APPENDS, (), "input"), ("anthropic:claude-opus-5-5", ("inline-tools-2026-09-15",), "messages")],
)
def test_what_a_search_finds_is_appended_as_a_tool_and_the_prefix_stays(
    many: str, name: str, betas: tuple[str, ...], place: str
) -> None:
    search = cc.tool_call("c1", "search_tools", {"query": "delete an invoice"})
    delete = cc.tool_call("c2", "plain__delete_invoice", {"title": "A"})
    provider = cc.provider(name, betas=betas)
    with cc.open_store("memory:") as store:
        result = run(FakeModel(search, delete, "Done.", provider=provider), many, store=store)
        found, deleted = results(result)
        assert found.text.startswith("Found 5 of 20 tools. They are yours from your next step on.\n")
        assert found.text.splitlines()[1].startswith("- plain__delete_invoice ")
        assert deleted.text == 'delete_invoice: {"title": "A"}'
        bodies = [cc.MessageCompiler(store, provider).rebuild("demo", number) for number in (1, 2)]
        first, second = (json.loads(body) for body in bodies)
        assert first["tools"][0]["name"] == "search_tools"
        assert "plain__" not in json.dumps(first["tools"])
        assert [each["name"] for each in second["tools"]] == [each["name"] for each in first["tools"]]
        assert "plain__delete_invoice" in json.dumps(second[place])
        assert result.manifest.epoch == 1


def test_found_tools_stay_in_later_turns_and_other_processes(many: str) -> None:
    """The ledger of the channel has them: nothing in memory is needed."""
    with cc.open_store("memory:") as store:
        run(calling(("search_tools", {"query": "invoice"}), provider=APPENDS), many, store=store)
        model = calling(("plain__list_invoice", {"title": "A"}), provider=APPENDS)
        (listed,) = results(run(model, many, store=store))
        assert listed.text == 'list_invoice: {"title": "A"}'
        assert "plain__list_invoice" in str(model.requests[0])


def test_elsewhere_the_result_has_the_schema_and_a_generic_tool_runs_it(many: str) -> None:
    model = calling(
        ("search_tools", {"query": "calendar"}),
        ("call_tool", {"name": "plain__list_calendar_event", "arguments": {"title": "A"}}),
        ("call_tool", {"name": "plain__list_calendar_event", "arguments": {}}),
        ("call_tool", {"name": "plain__nothing", "arguments": {}}),
        provider=DOES_NOT,
    )
    found, listed, wrong, unknown = results(run(model, many))
    assert "Run them with call_tool.\n- plain__create_calendar_event Create one calendar event.\n  schema" in found.text
    assert '"required":["title"]' in found.text
    assert (listed.name, listed.text) == ("call_tool", 'list_calendar_event: {"title": "A"}')
    assert wrong.is_error
    assert "The parameter `title` is missing. Expected: plain__list_calendar_event" in wrong.text
    assert unknown.is_error
    assert "There is no tool plain__nothing" in unknown.text
    assert {tuple(each) for each in names(model)} == {("search_tools", "call_tool")}


@pytest.mark.parametrize("provider", [APPENDS, DOES_NOT])
def test_a_tool_keeps_its_approval_however_it_is_called(many: str, provider: str) -> None:
    """A generic tool that needs no approval must not run one that does."""
    asked: list[tuple[str, str]] = []

    def approve(call: cc.ToolCall, tool: Any) -> bool:
        asked.append((call.name, tool.name))
        return False

    model = calling(
        ("call_tool", {"name": "plain__delete_file", "arguments": {"title": "A"}}),
        ("plain__delete_file", {"title": "A"}),
        ("call_tool", {"name": "plain__list_file", "arguments": {"title": "A"}}),
        provider=provider,
    )
    generic, direct, _ = results(run(model, many, needs_approval=["delete_file"], approve=approve))
    assert generic.is_error
    assert "the user declined" in direct.text
    generic_calls = [("call_tool", "plain__delete_file")] if provider == DOES_NOT else []
    assert asked == [*generic_calls, ("plain__delete_file", "plain__delete_file")]


def test_an_approval_of_a_generic_call_survives_the_process(many: str) -> None:
    """The call waits in the store. Another agent, with servers of its own, runs it once it is allowed."""
    with cc.open_store("memory:") as store:
        model = calling(("call_tool", {"name": "plain__delete_file", "arguments": {"title": "A"}}), provider=DOES_NOT)
        waiting = run(model, many, store=store, needs_approval=True, approve=cc.Suspend())
        assert waiting.finish == "waiting"
        (approval,) = store.approvals("demo")
        store.answer_approval(approval.id, True)

        async def work() -> cc.AgentResult[str]:
            server = plain(many, needs_approval=True)
            done = FakeModel("Done.", provider=DOES_NOT)
            async with cc.Agent(done, mcp_servers=[server], store=store, approve=cc.Suspend(), **OURS) as agent:
                return await agent.resume("demo")

        (result,) = results(asyncio.run(work()))
        assert result.text == 'delete_file: {"title": "A"}'


def test_a_turn_that_waits_goes_on_elsewhere_with_the_tools_that_it_has_found(many: str) -> None:
    """The search was in the first process, the approval is given in none, and the call runs in a second one."""
    search, delete = ("search_tools", {"query": "delete a file"}), ("plain__delete_file", {"title": "A"})
    with cc.open_store("memory:") as store:
        first = calling(search, delete, provider=APPENDS)
        assert run(first, many, store=store, needs_approval=True, approve=cc.Suspend()).finish == "waiting"
        (approval,) = store.approvals("demo")
        store.answer_approval(approval.id, True)

        async def work() -> cc.AgentResult[str]:
            server, second = plain(many, needs_approval=True), FakeModel("Done.", provider=APPENDS)
            agent = cc.Agent(second, mcp_servers=[server], store=store, approve=cc.Suspend(), **OURS)
            async with agent:
                return await agent.resume("demo")

        result = asyncio.run(work())
        assert results(result)[-1].text == 'delete_file: {"title": "A"}'
        assert (result.finish, result.manifest.epoch) == ("stop", 1)
        fork = store.fork("demo", "copy")
        model = calling(delete, provider=APPENDS)
        copied = run(model, many, store=store, conversation=fork.name)
        assert results(copied)[-1].text == 'delete_file: {"title": "A"}'
        assert "plain__delete_file" in str(model.requests[0])
        assert "plain__create_invoice" not in str(model.requests[0])


def test_few_tools_are_defined_and_a_share_decides(many: str) -> None:
    async def work(share: float | None) -> int:
        model = FakeModel("Hi.", provider=APPENDS)
        given: Any = {**OURS, "defer_tools_above": share}
        async with cc.Agent(model, mcp_servers=[plain(many)], **given) as agent:
            await agent.run("Hello.")
        return len([each for each in names(model)[0] if each.startswith("plain__")])

    assert [asyncio.run(work(share)) for share in (0.05, None, 0.0001)] == [20, 20, 0]
    with pytest.raises(cc.errors.InvalidSetting, match="defer_tools_above must be a share"):
        cc.Agent(FakeModel("Hi."), mcp_servers=[plain()], defer_tools_above=5)
    with pytest.raises(cc.errors.InvalidSetting, match="Two tools are named search_tools"):
        cc.Agent(FakeModel("Hi."), mcp_servers=[plain()], tools=[cc.tool(print_it, name="search_tools")])


def print_it(text: str) -> str:
    return text


TOOLS = [
    cc.Tool(name="github__create_issue", description="Open a new issue in a repository."),
    cc.Tool(name="github__listPullRequests", description="List pull requests."),
    cc.Tool(name="shop__refund", description="Pay a customer back."),
    cc.Tool(name="wetter__vorhersage", description="Wettervorhersage für eine Stadt"),
    cc.Tool(
        name="cal__add",
        description="カレンダーに予定を追加",
        parameters={"type": "object", "properties": {"attendees": {}}},
    ),
]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("open issues", "github__create_issue"),
        ("pull request", "github__listPullRequests"),
        ("give a customer the money back", "shop__refund"),
        ("Wetter", "wetter__vorhersage"),
        ("attendees", "cal__add"),
        ("cal__add", "cal__add"),
    ],
)
def test_a_search_finds_words_of_names_descriptions_and_parameters(query: str, first: str) -> None:
    assert rank_tools(query, TOOLS)[0].name == first


def test_a_search_without_a_match_names_what_there_is(many: str) -> None:
    assert rank_tools("xyzzy", TOOLS) == []
    (result,) = results(run(calling(("search_tools", {"query": "xyzzy"}), provider=APPENDS), many))
    assert result.text.startswith("No tool matches. There are: plain__create_calendar_event, ")


def test_a_search_of_many_words_takes_no_longer() -> None:
    """Comparing each word with each other one would take minutes."""
    texts = [" ".join([f"{number:06d}" for number in range(start, start + 500)]) for start in range(0, 20_000, 500)]
    tools = [cc.Tool(name=f"s__t{number:02d}", description=text) for number, text in enumerate(texts)]
    query = " ".join([f"{number:06d}" for number in range(19_000, 60_000)])
    assert [each.name for each in rank_tools(query, tools)] == ["s__t38", "s__t39"]


def test_a_rule_is_about_the_tool_that_is_run_and_not_about_the_one_that_runs_it(many: str) -> None:
    """Guarantee 18.7: "always allow" for one tool behind `call_tool` allows no other."""
    calls = [
        cc.tool_call("c1", "search_tools", {"query": "invoice"}),
        cc.tool_call("c2", "call_tool", {"name": "plain__delete_invoice", "arguments": {"title": "A"}}),
        cc.tool_call("c3", "call_tool", {"name": "plain__delete_invoice", "arguments": {"title": "B"}}),
        cc.tool_call("c4", "call_tool", {"name": "plain__create_invoice", "arguments": {"title": "B"}}),
    ]
    asked = list[JSONObject]()

    def approve(call: cc.ToolCall, tool: FunctionTool) -> bool | cc.store.Always:
        asked.append(call.arguments)
        return cc.store.Always(arguments="any") if tool.name == "plain__delete_invoice" else False

    with cc.open_store("memory:") as store:
        model = FakeModel(*calls, "Done.", provider=DOES_NOT)
        run(model, many, store=store, needs_approval=True, approve=approve)
        assert [each.tool for each in store.approval_rules()] == ["plain__delete_invoice"]
    assert asked == [calls[1].arguments, calls[3].arguments]

"""Invalid arguments raise an error of contextc at once, with a fix. Guarantee 15.1."""

import re
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject

CLAUDE = "anthropic:claude-sonnet-4-5"
READ = cc.Tool(name="read", description="Reads.")


@pytest.fixture
def compiler() -> cc.MessageCompiler:
    store = cc.open_store("memory:")
    store.append("demo", cc.user("hi"))
    return cc.MessageCompiler(store, CLAUDE)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"max_input_tokens": "8000"}, "max_input_tokens must be a positive number of tokens, got '8000'"),
        ({"max_input_tokens": -1}, "max_input_tokens .*, got -1"),
        ({"max_input_tokens": True}, "max_input_tokens .*, got True"),
        ({"max_output_tokens": 0}, "max_output_tokens .*, got 0"),
        ({"max_output_tokens": "5"}, "max_output_tokens .*, got '5'"),
        ({"instructions": 5}, "instructions must be a text, a prompt fragment, a function, or a list of them, got int"),
        ({"settings": [1]}, "settings must be a dict, got list"),
        ({"settings": {"messages": []}}, "messages is written by the compiler"),
        ({"settings": {"api_key": "x"}}, "api_key belongs to the call"),
        ({"name": None}, "agent name must be"),
        (
            {"instructions": [b"x"]},
            "instructions must be a text, a prompt fragment, a function, or a list of them, got bytes",
        ),
        ({"tools": READ}, "tools must be a list of tools, got Tool"),
        ({"tools": "read"}, "tools must be a list of tools, got str"),
        ({"tools": [7]}, "expected a tool or a function, got int"),
        ({"tools": [print]}, "Tool print: "),
        ({"tools": [READ, READ]}, "two tools have the name 'read'"),
        ({"tools": [cc.Tool(name="")]}, "name must be a non-empty string, got ''"),
        ({"tools": [{"foo": 1}]}, "expected a tool definition of anthropic"),
        ({"edit": (1, "x"), "dry_run": True}, "edit must be a pair"),
        ({"edit": (1, cc.user("x"))}, "require dry_run=True"),
        ({"edit": (1, cc.user("x")), "rewind": 1, "dry_run": True}, "cannot be combined"),
    ],
)
def test_compile_reports_what_is_wrong(compiler: cc.MessageCompiler, asked: dict[str, Any], expected: str) -> None:
    with pytest.raises(cc.errors.InvalidInput, match=expected):
        compiler.compile("demo", **asked)


def read(path: str) -> str:
    """Read a file."""
    return path


@pytest.mark.parametrize("given", [read, cc.tool(read), (cc.tool(read).tool, read)])
def test_compile_takes_a_function_where_it_takes_a_tool(compiler: cc.MessageCompiler, given: Any) -> None:
    """Guarantee 10.1: the model is told of it as `cc.tool` describes it."""
    body = compiler.compile("demo", tools=[cc.tool(read).tool]).body
    assert compiler.compile("demo", tools=[given]).body == body
    assert b"Read a file." in body


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"strategy": "newest"}, "strategy: expected one of 'chunked', 'oldest', got 'newest'"),
        ({"placement": "top"}, "placement: expected one of 'tail', 'head', got 'top'"),
        ({"policy": "x"}, "policy: expected one of 'default', 'sliding_window', got 'x'"),
        ({"high": 0.3}, "low < high"),
        ({"low": -1}, "low < high"),
        ({"high": 1.5}, "low < high"),
        ({"high": "1"}, "high: expected a number, got '1'"),
        ({"recent": 2}, "recent <= 1"),
        ({"oversized": "x"}, "oversized: expected a number, got 'x'"),
        ({"keep_media": -1}, "keep_media >= 0"),
        ({"decay": 1, "low": 0.5}, "decay: expected True or False, got 1"),
        ({"betas": ["x"]}, "betas is not an option of a compiler. Pass the model as cc.provider(…, betas=…)."),
        ({"colour": "red"}, "Unknown compiler option 'colour'. Valid options are strategy, high"),
    ],
)
def test_options_are_checked_where_they_are_given(options: dict[str, Any], expected: str) -> None:
    """The error names the option, and what it may be."""
    with pytest.raises(cc.errors.InvalidSetting, match=re.escape(expected)):
        cc.MessageCompiler(cc.open_store("memory:"), CLAUDE, **options)


def test_a_compiler_needs_a_store_and_a_provider() -> None:
    store: Any = cc.open_store("memory:")
    for wrong in (None, cc.model("claude-sonnet-4-5"), 3):
        with pytest.raises(cc.errors.InvalidInput, match="model must be a name or a Provider"):
            cc.MessageCompiler(store, wrong)  # pyright: ignore[reportArgumentType]
    address: Any = "sqlite:///chat.db"
    with pytest.raises(cc.errors.InvalidInput, match="store must be a Store"):
        cc.MessageCompiler(address, CLAUDE)
    with pytest.raises(cc.errors.InvalidSetting, match='Did you mean "anthropic:claude-sonnet-4-5"'):
        cc.MessageCompiler(store, "anthropc:claude-sonnet-4-5")


def test_tools_may_be_dicts_and_generators(compiler: cc.MessageCompiler) -> None:
    """As OpenAI's chat writes them, or as the provider itself does."""
    chat: JSONObject = {"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": {}}}
    own: JSONObject = {"name": "list", "description": "Lists.", "input_schema": {"type": "object"}}
    compiled = compiler.compile("demo", tools=(tool for tool in (chat, own)))
    assert [tool["name"] for tool in compiled.params["tools"]] == ["read", "list", "fetch_result", "search_history"]


def test_commit_reports_what_is_wrong(compiler: cc.MessageCompiler) -> None:
    """Guarantee 15.1: and nothing is half-written."""
    compiled = compiler.compile("demo")
    compiler.begin(compiled)
    wrong: Any = {"input": 1}
    mistakes: list[tuple[str, dict[str, Any]]] = [
        ("No reply to commit", {}),
        ("reply must be an assistant message, got a user message", {"reply": cc.user("x")}),
        ("usage must be a Usage, got dict", {"reply": cc.assistant("x"), "usage": wrong}),
        ("session_id must be a string, got 5", {"reply": cc.assistant("x"), "session_id": 5}),
        ("produced must be a list of messages", {"produced": [wrong]}),
        ("not a reply of anthropic.*its models are named 'openai-chat:…'", {"reply": {"choices": []}}),
        ("not a reply of anthropic.*of its format.$", {"reply": {"stop_reason": "end_turn"}}),
    ]
    for expected, given in mistakes:
        with pytest.raises(cc.errors.InvalidInput, match=expected):
            compiler.commit(compiled, **given)
    other = cc.MessageCompiler(compiler.store, "openai-chat:gpt-4.1")
    with pytest.raises(cc.errors.InvalidInput, match="by another compiler"):
        other.commit(compiled, cc.assistant("x"))
    assert len(compiler.store.load("demo")) == 1
    compiler.commit(compiled, cc.assistant("x"))
    with pytest.raises(cc.errors.NothingNew, match="rewind to the message before"):
        compiler.begin(compiler.compile("demo"))
    with pytest.raises(cc.errors.UnknownConversation):
        compiler.explain("nothing")


def test_a_request_is_the_same_with_the_former_names_of_its_arguments() -> None:
    """Programs that were written for them send the same bytes, and so keep their cached prefix."""
    store = cc.open_store("memory:")
    store.append("demo", cc.user("hi"))
    compiler = cc.MessageCompiler(store, "anthropic:claude-sonnet-4-5")
    state = cc.PromptFragment("state", "It rains.", "dynamic")
    now = compiler.compile("demo", name="bob", instructions=["Be brief.", state], max_input_tokens=5_000)
    for former in (
        {"system_prompt": "Be brief.", "fragments": [state]},
        {"fragments": [cc.PromptFragment("identity", "Be brief."), state]},
    ):
        before = compiler.compile("demo", agent="bob", budget=5_000, **former)  # pyright: ignore[reportArgumentType]
        assert (before.body, before.channel, before.budget) == (now.body, now.channel, now.budget)
    with pytest.raises(
        cc.errors.InvalidInput, match=r"compile has no argument 'instruction'. Its arguments are .*instructions"
    ):
        compiler.compile("demo", instruction="Be brief.")  # pyright: ignore[reportCallIssue]


def test_instructions_are_texts_fragments_and_functions() -> None:
    """Guarantee 8.2: one parameter for all of them, and the same text is rendered once."""
    store = cc.open_store("memory:")
    store.append("demo", cc.user("hi"))
    compiler = cc.MessageCompiler(store, "openai-chat:gpt-4o")

    def weather(context: cc.PromptContext) -> str:
        return f"{context.agent} sees rain."

    given = ["Be brief.", cc.PromptFragment("identity", "You are a coder.", priority=200), weather]
    sent = compiler.compile("demo", instructions=given).params["messages"]
    assert [each["content"] for each in sent] == [
        "Be brief.\n\nYou are a coder.",
        "hi",
        "## Weather\nassistant sees rain.",
    ]
    assert compiler.compile("demo", instructions=[]).params["messages"] == [{"role": "user", "content": "hi"}]

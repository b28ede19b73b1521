"""`compile` and `explain` as processes, on a store that a program has written."""

import json
from pathlib import Path
from typing import Any  # the arguments of `compile` are of many kinds

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler.ledger import SessionManager
from contextc.compiler.prompt_cache import CacheLifetime, nearest_lifetime
from contextc.formats import format_names
from contextc.inspection.preview import preview_request
from contextc.store.ledger_schema import channel_id
from tests.cli.conftest import Run
from tests.conftest import some

MODEL = "anthropic:claude-opus-5-5"
TOOL = cc.Tool(
    name="read_file",
    description="Reads a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}},
)
CALL = cc.ToolCall(id="c1", name="read_file", arguments={"path": "a.py"})
POET = cc.PromptFragment("system_prompt", "You are a poet.")
SETTINGS: JSONObject = {"thinking": {"type": "adaptive"}}


def next_request(store: cc.Store, model: str = MODEL, **other: Any) -> tuple[cc.MessageCompiler, cc.Compiled]:
    """What the program itself would send, or with `other` arguments of `compile`."""
    compiler = cc.MessageCompiler(store, model)
    fragments = [cc.PromptFragment("identity", "You are a coder."), cc.PromptFragment("rules", "Write tests first.")]
    settings = SETTINGS if compiler.provider.format == "anthropic" else {}
    usual: dict[str, Any] = {
        "instructions": fragments,
        "tools": [TOOL],
        "settings": settings,
        "max_output_tokens": 2_000,
    }
    return compiler, compiler.compile("demo", **{**usual, **other})


def answered(store: cc.Store, reply: cc.Message, usage: cc.Usage | None = None, model: str = MODEL) -> bytes:
    compiler, compiled = next_request(store, model)
    with compiler.attempt(compiled) as attempt:
        attempt.commit(reply, usage=usage)
    return compiled.body


@pytest.fixture
def address(tmp_path: Path) -> str:
    """A conversation of two committed requests, and a question that no model has seen yet."""
    address = f"sqlite:///{tmp_path}/chat.db"
    with cc.open_store(address) as store:
        store.append("demo", cc.user("Help me build a feature"))
        answered(store, cc.assistant("Let me look.", tool_calls=[CALL]), cc.Usage(input=800, output=40))
        store.append("demo", cc.tool_result("c1", "read_file", "print(1)"))
        answered(store, cc.assistant("It prints 1."), cc.Usage(input=850, output=12, cache_read=800))
        store.append("demo", cc.user("And [red]tests[/]?\x1b[2J"))
    return address


def lines(shown: str) -> list[str]:
    return [" ".join(line.split()) for line in shown.splitlines()]


def test_compile_shows_what_goes_in_and_where_the_tokens_go(run: Run, tmp_path: Path) -> None:
    """Guarantee 13.1."""
    address = f"sqlite:///{tmp_path}/chat.db"
    with cc.open_store(address) as store:
        store.extend("demo", [cc.user("Help me"), cc.assistant("half", status="cancelled"), cc.user("Are you there?")])
    options = ["-m", MODEL, "--system", "Be brief.", "--window", "8000", "--output", "1000", "--store", address]
    shown = run("compile", "demo", *options)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert lines(shown.stdout) == [
        "demo: request 1 for assistant on anthropic:claude-opus-5-5",
        "mode full, epoch 1 (a new epoch: first request)",
        "input 24 tokens (estimated); messages take 0% of 6,737 available",
        "█▒░░░░░░░░░--··························································· 8,000",
        "█ system 7 ▒ messages 17 ░ reserve 1,000 - margin 256 · free 6,720",
        "shared with the previous request: 0 tokens, 0 bytes",
        "",
        "seq role tokens what why",
        "+ system 4 static fragment system_prompt",
        "+ 1 user 7 Help me",
        "+ 3 user 10 Are you there?",
        "- 2 assistant half it ended as cancelled",
    ]


def test_compile_foretells_the_programs_own_next_request_to_the_byte(run: Run, address: str) -> None:
    """Guarantees 13.1, 9.2: what is not given is as in the last request, so no epoch is announced that will not be."""
    with cc.open_store(address) as store:
        _, wanted = next_request(store)
    body = run("compile", "demo", "--body", "--store", address, CONTEXTC_MODEL=MODEL)
    assert body.stdout.encode() == wanted.body
    shown = json.loads(run("compile", "demo", "--json", "-m", MODEL, "--store", address).stdout)
    assert (shown["request"], shown["epoch"], shown.get("why")) == (3, 1, None)
    assert shown["shared"] == wanted.manifest.record.shared
    assert shown["is_new"] is True
    assert [line["seq"] for line in shown["lines"]] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("model", some(["openai:gpt-6.1-terra", "openai-chat:gpt-6.1-terra", "gemini-3.6-flash"], 1))
def test_compile_foretells_for_every_format(run: Run, address: str, model: str) -> None:
    """Guarantee 13.1."""
    with cc.open_store(address) as store:
        answered(store, cc.assistant("Yes."), model=model)
        store.append("demo", cc.user("Go on"))
        _, wanted = next_request(store, model)
    shown = run("compile", "demo", "--body", "-m", model, "--store", address)
    assert shown.stdout.encode() == wanted.body
    assert "why" not in json.loads(run("compile", "demo", "--json", "-m", model, "--store", address).stdout)


def test_compile_changes_nothing(run: Run, address: str, tmp_path: Path) -> None:
    """Guarantee 9.7."""

    def content() -> list[str]:
        return run("export", "demo", "--store", address).stdout.splitlines()

    before, requests = content(), run("explain", "demo", "--requests", "--json", "--store", address).stdout
    for more in ([], ["--edit", "1", "Hello"], ["--rewind", "2"], ["--json"], ["--system", "Other."]):
        assert run("compile", "demo", "-m", MODEL, "--store", address, *more).returncode == 0
    assert content() == before
    assert run("explain", "demo", "--requests", "--json", "--store", address).stdout == requests


def test_message_content_cannot_style_or_steer_the_terminal(run: Run, address: str) -> None:
    shown = run("compile", "demo", "-m", MODEL, "--store", address).stdout
    assert "And [red]tests[/]?" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("option", "changed", "epoch"),
    [
        (
            ["--edit", "1", "Help me mend a bug"],
            {"edit": (1, cc.user("Help me mend a bug"))},
            "edited or branched away",
        ),
        (["--rewind", "4"], {"rewind": 4}, ""),
        (["--system", "You are a poet."], {"instructions": [POET]}, "system prompt changed"),
    ],
)
def test_a_dry_run_reports_what_a_change_would_cost(
    run: Run, address: str, option: list[str], changed: dict[str, Any], epoch: str
) -> None:
    """Guarantee 13.2."""
    with cc.open_store(address) as store:
        _, wanted = next_request(store, dry_run=True, **changed)
    shown = run("compile", "demo", "-m", MODEL, *option, "--store", address)
    assert shown.returncode == 0
    assert f"(a new epoch: {epoch})" in shown.stdout or not epoch
    lost = wanted.cost.cached_tokens_lost
    assert bool(lost) == bool(epoch)
    assert f"cost: {lost:,} tokens of the cached prefix are lost" in shown.stdout
    found = json.loads(run("compile", "demo", "-m", MODEL, *option, "--json", "--store", address).stdout)
    assert found["cost"] == wanted.cost._asdict()


def test_what_does_not_fit_exits_with_1_and_all_figures(run: Run, address: str) -> None:
    """Guarantee 7.3."""
    shown = run("compile", "demo", "-m", MODEL, "--budget", "600", "--store", address)
    assert shown.returncode == 1
    assert "available 0" in lines(shown.stdout)
    assert "window 600" in lines(shown.stdout)
    found = json.loads(run("compile", "demo", "-m", MODEL, "--budget", "600", "--json", "--store", address).stdout)
    body = run("compile", "demo", "-m", MODEL, "--budget", "600", "--body", "--store", address)
    assert (body.returncode, body.stdout, "available" in body.stderr) == (1, "", True)
    assert set(found) >= {"error", "needed", "available", "window", "system", "tools", "reserve", "margin", "pinned"}


def test_nothing_new_is_reported(run: Run, address: str) -> None:
    """Guarantee 9.9."""
    with cc.open_store(address) as store:
        answered(store, cc.assistant("Yes."))
    shown = run("compile", "demo", "-m", MODEL, "--store", address)
    assert (shown.returncode, "nothing new: the model has seen all of this" in shown.stdout) == (0, True)


def test_a_request_of_any_format_is_compiled_without_a_store(run: Run, tmp_path: Path) -> None:
    """Guarantee 3.8: a person can try it on a file."""
    chat: JSONObject = {
        "model": "gpt-6.1-terra",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
    }
    arguments = ["compile", "--from", "-", "--format", "openai_chat", "-m", MODEL]
    made = run(*arguments, "--body", text=json.dumps(chat))
    assert made.stderr == "left out: the setting `model`\n"
    body = json.loads(made.stdout)
    assert cc.lint(body, format="anthropic") == []
    assert body["system"][0]["text"] == "Be brief."
    assert [tool["name"] for tool in body["tools"]] == ["look", "fetch_result", "search_history"]
    assert body["messages"][0]["content"][0]["text"] == "hi"
    assert not list(tmp_path.rglob("*.db"))
    (tmp_path / "ours.jsonl").write_text('{"role": "user", "parts": [{"type": "text", "text": "hi"}]}\n')
    (tmp_path / "prompt.txt").write_text("Be kind.")
    ours = run("compile", "--from", "ours.jsonl", "-m", MODEL, "--system", "@prompt.txt", "--json")
    assert [fragment["id"] for fragment in json.loads(ours.stdout)["fragments"]] == ["system_prompt"]


@pytest.mark.parametrize(
    "definition",
    [
        {"name": "look", "description": "Looks.", "parameters": {"type": "object"}},
        {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}},
        {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}},
    ],
)
def test_tools_are_read_in_any_format(run: Run, tmp_path: Path, definition: JSONObject) -> None:
    for given in (definition, [definition], {"tools": [definition]}):
        (tmp_path / "tools.json").write_text(json.dumps(given))
        arguments = ["--from", "-", "-m", MODEL, "--tools", "tools.json", "--body"]
        made = run("compile", *arguments, text='{"role": "user", "parts": [{"type": "text", "text": "hi"}]}')
        assert made.returncode == 0, made.stderr
        assert json.loads(made.stdout)["tools"][0] == {
            "name": "look",
            "description": "Looks.",
            "input_schema": {"type": "object"},
        }


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["compile", "new"], "No model is named. Pass --model anthropic:claude-opus-5-5, set CONTEXTC_MODEL"),
        (["compile", "-m", MODEL], "Name a conversation of the store, or a file with --from."),
        (
            ["compile", "demo", "--from", "x.json", "-m", MODEL],
            "Both 'demo' and --from x.json are given. Pass one of the two.",
        ),
        (["compile", "--from", "-", "-m", MODEL], f"pass --format: {', '.join(format_names()[:3])}, "),
        (["compile", "--from", "-", "-m", MODEL], "Nothing was compiled."),
        (["compile", "nope", "-m", MODEL], "Conversation 'nope' not found"),
        (["compile", "nope", "-m", MODEL, "--window", "-5"], "--window must be greater than 0, got -5"),
        (
            ["compile", "demo", "-m", "openai:unheard-of"],
            "The context window of model 'unheard-of' is not known. Pass --window 128000, or set window = 128_000",
        ),
        (["compile", "demo", "-m", MODEL, "--edit", "99", "x"], "has no message 99"),
        (["compile", "demo", "-m", MODEL, "--edit", "3", "x"], "Message 3 is a tool result"),
        (["compile", "demo", "-m", MODEL, "--budget", "0"], "--budget must be greater than 0, got 0"),
        (["compile", "demo", "-m", MODEL, "--system", "@none.txt"], "none.txt cannot be read"),
        (["compile", "demo", "-m", MODEL, "--strategy", "newest"], "is not one of"),
        (["compile", "--from", "-", "-f", "anthropic", "-m", MODEL], "'standard input' has no message"),
        (["explain", "nope"], "Conversation 'nope' not found"),
        (["explain", "demo", "9"], "has requests 1 to 2"),
        (["explain", "demo", "-m", "openai:gpt-6.1-terra"], "Select one of: assistant on anthropic:claude-opus-5-5."),
        (["explain", "new"], "'new' has no committed request."),
    ],
)
def test_a_wrong_call_exits_with_2_and_gives_the_reason(
    run: Run, address: str, arguments: list[str], problem: str
) -> None:
    """Guarantee 15.1."""
    with cc.open_store(address) as store:
        store.append("new", cc.user("hi"))
    failed = run(*arguments, CONTEXTC_STORE=address, text="[]")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert problem in " ".join(failed.stderr.replace("│", " ").split())
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize(
    "content",
    [
        [{"role": "user", "content": "hi"}],
        {"messages": [{"role": "user", "content": "hi"}]},
        {"role": "user", "parts": [{"type": "text", "text": "hi"}]},
        [{"description": "It has no name."}],
        ["read_file"],
        {},
    ],
)
def test_a_value_without_a_tool_definition_is_not_a_tool(run: Run, tmp_path: Path, content: object) -> None:
    """Guarantee 15.1."""
    (tmp_path / "chat.json").write_text(json.dumps(content))
    arguments = ["--from", "-", "-m", MODEL, "--tools", "chat.json", "--body"]
    failed = run("compile", *arguments, text='{"role": "user", "parts": [{"type": "text", "text": "hi"}]}')
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("error: --tools chat.json: ")
    assert "expected a tool definition, got " in failed.stderr
    assert "Write objects with a name, a description and parameters." in failed.stderr


def test_without_a_model_the_previous_one_is_used(run: Run, tmp_path: Path) -> None:
    """Guarantee 13.1: with the agent, the window and the budget of its program, also if only the program knows the
    window.
    """
    address = f"sqlite:///{tmp_path}/chat.db"
    with cc.open_store(address) as store:
        compiler = cc.MessageCompiler(store, cc.provider("server:our-model", window=5_000))
        store.append("demo", cc.user("hi"))
        with compiler.attempt(compiler.compile("demo", name="coder", max_input_tokens=3_000)) as attempt:
            attempt.commit(cc.assistant("hello"))
        store.append("demo", cc.user("Go on"))
        wanted = compiler.compile("demo", name="coder", max_input_tokens=3_000)
    for more in ([], ["-m", "server:our-model", "--agent", "coder"]):
        shown = run("compile", "demo", "--store", address, *more, CONTEXTC_MODEL=MODEL)
        assert shown.stdout.startswith("demo: request 2 for coder on server:our-model\n"), shown.stderr
        assert shown.stdout.splitlines()[-1] == (
            "dynamic fragments are rendered by your program, and not included here; "
            "the window of 5,000 and the budget of 3,000 of the last request"
        )
    assert run("compile", "demo", "--body", "--store", address).stdout.encode() == wanted.body
    other = run("compile", "demo", "--window", "9000", "--json", "--store", address)
    assert json.loads(other.stdout)["budget"]["window"] == 9_000


def test_where_several_models_were_asked_they_are_named(run: Run, address: str) -> None:
    """Guarantee 9.1: unless one of them is configured."""
    with cc.open_store(address) as store:
        answered(store, cc.assistant("Yes."), model="openai:gpt-6.1-terra")
    failed = run("compile", "demo", "--store", address)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr == (
        "error: 'demo' has several channels: assistant on anthropic:claude-opus-5-5; assistant on openai:gpt-6.1-terra."
        " Select one with --model, --agent or --directory.\n"
    )
    shown = run("compile", "demo", "--store", address, CONTEXTC_MODEL="openai:gpt-6.1-terra")
    assert shown.stdout.startswith("demo: request 2 for assistant on openai:gpt-6.1-terra")


def test_explain_shows_a_request_that_was_committed(run: Run, address: str) -> None:
    """Guarantee 13.1."""
    shown = run("explain", "demo", "1", "--store", address)
    assert shown.returncode == 0
    assert lines(shown.stdout)[:2] == [
        "demo: request 1 for assistant on anthropic:claude-opus-5-5",
        "mode full, epoch 1 (a new epoch: first request)",
    ]
    assert lines(shown.stdout)[-1] == "+ 1 user 17 Help me build a feature"
    last = json.loads(run("explain", "demo", "--json", "--store", address).stdout)
    assert (last["request"], [line["seq"] for line in last["lines"]]) == (2, [1, 2, 3])
    assert last["usage"] == {"input": 850, "output": 12, "cache_read": 800}


def test_all_commands_name_a_request_in_one_way(run: Run, address: str) -> None:
    """Guarantee 15.1: `--request` of explain, lint and export takes a number, or a channel and a number."""
    with cc.open_store(address) as store:
        (channel,) = [channel_id(each.channel) for each in SessionManager(store).sessions("demo")]
        answered(store, cc.assistant("Yes."), model="openai:gpt-6.1-terra")
    first = run("explain", "demo", "-m", "anthropic:claude-opus-5-5", "1", "--store", address).stdout
    for name in ("1", f"{channel}/1"):
        only = [] if "/" in name else ["-m", "anthropic:claude-opus-5-5"]
        assert run("explain", "demo", "--request", name, *only, "--store", address).stdout == first
        checked = run("lint", "--conversation", "demo", "--request", name, *only, "--store", address)
        assert (checked.stdout, checked.returncode) == ("no violations\n", 0), checked.stderr
    shared = run("export", "demo", "-f", "html", "--request", f"{channel}/1", "--store", address)
    assert shared.returncode == 0
    twice = run("explain", "demo", "1", "--request", "2", "--store", address)
    assert (twice.returncode, twice.stdout) == (2, "")
    assert "two requests are given" in twice.stderr
    wrong = run("explain", "demo", "--request", "last", "--store", address)
    assert "--request must be a number or CHANNEL/NUMBER, got 'last'." in " ".join(wrong.stderr.split())


def test_explain_lists_requests_with_what_they_cost(run: Run, address: str) -> None:
    shown = run("explain", "demo", "--requests", "--store", address)
    shared = json.loads(run("explain", "demo", "--json", "--store", address).stdout)["shared"]
    assert lines(shown.stdout) == [
        "demo: assistant on anthropic:claude-opus-5-5",
        "request mode epoch input shared output cost reason for new epoch",
        "1 full 1 800 0 40 $0.0040 first request",
        f"2 full 1 850 {shared} 12 $0.0006",
    ]
    result = lines(run("explain", "demo", "--store", address).stdout)
    assert any(line.startswith("input 850 tokens (measured)") for line in result)
    assert any(line.startswith("estimated before sending: ") for line in result)
    assert any(line.startswith(f"shared with the previous request: {shared} tokens, ") for line in result)


def test_explain_builds_the_bytes_again(run: Run, tmp_path: Path) -> None:
    """Guarantee 13.2: also where settings changed in between, which begin no epoch."""
    address = f"sqlite:///{tmp_path}/chat.db"
    sent: list[bytes] = []
    with cc.open_store(address) as store:
        for output, reply in ((2_000, "hello"), (3_000, "yes"), (2_000, "see you")):
            store.append("demo", cc.user("hi"))
            compiler, compiled = next_request(store, max_output_tokens=output)
            with compiler.attempt(compiled) as attempt:
                attempt.commit(cc.assistant(reply))
            sent.append(compiled.body)
        assert compiled.manifest.epoch == 1
    for number, body in enumerate(sent, 1):
        assert run("explain", "demo", str(number), "--body", "--store", address).stdout.encode() == body


def test_a_resumed_session_is_foretold_and_built_again(run: Run, tmp_path: Path) -> None:
    """Guarantees 9.4, 13.2: what goes into a session is what it does not have."""
    address, model = f"sqlite:///{tmp_path}/chat.db", "openai-session:gpt-6.1-terra"
    with cc.open_store(address) as store:
        for session in ("resp_1", "resp_2"):
            store.append("demo", cc.user("hi"))
            compiler, compiled = next_request(store, model)
            with compiler.attempt(compiled) as attempt:
                attempt.commit(cc.assistant("hello"), session_id=session)
        store.append("demo", cc.user("bye"))
        _, wanted = next_request(store, model)
    assert run("explain", "demo", "--body", "--store", address).stdout.encode() == compiled.body
    assert run("compile", "demo", "-m", model, "--body", "--store", address).stdout.encode() == wanted.body
    shown = run("compile", "demo", "-m", model, "--store", address)
    assert "mode resume, epoch 1, session resp_2" in shown.stdout


def test_explain_lists_the_channels_where_there_are_several(run: Run, address: str) -> None:
    """Guarantee 9.1."""
    with cc.open_store(address) as store:
        answered(store, cc.assistant("Yes."), model="openai:gpt-6.1-terra")
    shown = run("explain", "demo", "--store", address)
    assert shown.returncode == 0
    assert lines(shown.stdout)[2:] == [
        "assistant anthropic:claude-opus-5-5 2 1",
        "assistant openai:gpt-6.1-terra 1 1",
    ]
    assert len(json.loads(run("explain", "demo", "--json", "--store", address).stdout)) == 2
    one = run("explain", "demo", "-m", "openai:gpt-6.1-terra", "--store", address)
    assert one.stdout.startswith("demo: request 1 for assistant on openai:gpt-6.1-terra")


@pytest.mark.parametrize("cache", ["off", "1h", "auto"])
def test_a_preview_asks_the_cache_for_the_same(store: cc.Store, cache: CacheLifetime) -> None:
    """Guarantee 13.1: lifetimes, keys and comparisons are those of the last request."""
    for model in ("anthropic:claude-opus-5-5", "mistral:mistral-large-latest", "openai:gpt-6-sol"):
        name = model.partition(":")[0]
        lifetime = nearest_lifetime(cache, cc.provider(model))
        compiler = cc.MessageCompiler(store, model, cache=lifetime, cache_diagnostics=cache == "1h", fetch=False)
        for _ in range(2):
            store.append(name, cc.user("Look. " * 2_000))
            compiled = compiler.compile(name, instructions="Be brief.")
            compiler.begin(compiled)
            compiler.commit(compiled, cc.assistant("Yes."), events=[{"message": {"id": "reply"}}])
        store.append(name, cc.user("Go on"))
        wanted = compiler.compile(name, instructions="Be brief.").body
        assert preview_request(store, compiler.provider, name).body == wanted

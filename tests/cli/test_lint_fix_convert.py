"""`lint`, `fix`, `convert` and `rule` as processes, and conversations from and to provider requests."""

import json
import os
import pty
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats import format_names, formatter
from tests.cli.conftest import Run
from tests.conftest import some
from tests.forked_commands import CommandProcess

BROKEN: JSONObject = {
    "model": "claude-opus-5-5",
    "max_tokens": 100,
    "messages": [
        {"role": "user", "content": "What is in a.py?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.py"}}],
        },
        {"role": "user", "content": "and hurry"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "print(1)"}]},
    ],
}
CHAT: JSONObject = {
    "model": "gpt-5.2",
    "seed": 7,
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
}


def test_lint_names_each_violation_and_exits_with_1(run: Run, tmp_path: Path) -> None:
    """Guarantee 10.6: a code, the place, and the provider's own error."""
    (tmp_path / "body.json").write_text(json.dumps(BROKEN))
    found = run("lint", "body.json", "--format", "anthropic")
    assert found.returncode == 1
    assert "ANT006" in found.stdout
    assert "messages[1].content[0]" in found.stdout
    assert "`tool_use` ids were found without `tool_result` blocks immediately after: c1." in found.stdout
    assert found.stdout.endswith("2 violations\n")
    machine = run("lint", "-", "-f", "anthropic", "--json", text=json.dumps(BROKEN["messages"]))
    assert [each["path"] for each in json.loads(machine.stdout)] == ["[1].content[0]", "[3].content[0]"]


def test_lint_of_a_sound_request_exits_with_0(run: Run) -> None:
    sound = run("lint", "-", "-f", "openai_chat", text=json.dumps(CHAT))
    assert (sound.returncode, sound.stdout) == (0, "no violations\n")


def test_lint_reads_the_requests_of_a_recording(run: Run) -> None:
    """Guarantee 10.6: a HAR holds what was sent, each in its own format; no clean bill for an envelope."""
    calls = [("https://api.openai.com/v1/chat/completions", CHAT), ("https://api.anthropic.com/v1/messages", BROKEN)]
    entries = [{"request": {"url": url, "postData": {"text": json.dumps(body)}}, "response": {}} for url, body in calls]
    found = run("lint", "-", "--json", text=json.dumps({"log": {"entries": entries}}))
    assert found.returncode == 1
    first, second = json.loads(found.stdout)
    assert (first["where"], first["violations"]) == ("request 1 of 2, openai_chat", [])
    assert second["where"] == "request 2 of 2, anthropic"
    alone = run("lint", "-", "-f", "anthropic", "--json", text=json.dumps(BROKEN))
    assert second["violations"] == json.loads(alone.stdout)


def test_lint_reports_nothing_about_an_answered_request_of_a_log(run: Run) -> None:
    """Guarantee 17.7: the provider accepted it, whatever our rules say."""
    body: JSONObject = {"model": "gpt-5.6", "input": [{"role": "user", "content": "hi", "new_field": 1}]}
    reply: JSONObject = {"object": "response", "status": "completed", "model": "gpt-5.6", "output": []}
    error: JSONObject = {
        "error": {"message": "Unknown parameter: 'input[0].new_field'.", "type": "invalid_request_error"}
    }
    lines = [{"request": body, "response": each} for each in (reply, error)]
    found = run("lint", "-", "--json", text="\n".join(map(json.dumps, lines)))
    assert [[each["code"] for each in entry["violations"]] for entry in json.loads(found.stdout)] == [[], ["OAR019"]]


def test_lint_reads_the_requests_of_a_log(run: Run) -> None:
    """Guarantee 10.6: what `contextc import` reads, one exchange per line, is checked request by request."""
    lines: list[JSONObject] = [{"request": CHAT, "response": {"choices": []}}, {"level": "info"}, {"request": BROKEN}]
    log = "\n".join(map(json.dumps, lines))
    found = run("lint", "-", "--json", text=log)
    assert found.returncode == 1
    assert found.stderr == "request log: 2 model requests\nleft out: 1 item without a request: line 2\n"
    first, second = json.loads(found.stdout)
    assert (first["where"], first["violations"]) == ("line 1, openai_chat", [])
    assert (second["where"], {each["code"] for each in second["violations"]}) == (
        "line 3, anthropic",
        {"ANT006", "ANT008"},
    )
    broken = run("lint", "-", text=f"{json.dumps(lines[0])}\nnonsense\n{json.dumps(lines[2])}")
    assert broken.stderr == "error: line 2: this is not JSON. Remove or correct the line.\n"
    for command in (["fix", "-"], ["convert", "-", "--to", "gemini"]):
        refused = run(*command, text=log)
        assert (refused.returncode, "is a log of requests" in refused.stderr) == (2, True)


def test_lint_reads_a_request_a_line_and_a_message_a_line(run: Run) -> None:
    lines = "\n".join(json.dumps(each) for each in (CHAT, BROKEN))
    found = json.loads(run("lint", "-", "-f", "anthropic", "--json", text=lines).stdout)
    assert [each["where"] for each in found] == ["line 1", "line 2"]
    assert [violation["code"] for violation in found[0]["violations"]] == ["ANT013"]
    messages = "\n".join(json.dumps(each) for each in cast(list[JSONObject], BROKEN["messages"]))
    assert len(json.loads(run("lint", "-", "-f", "anthropic", "--json", text=messages).stdout)) == 2


def test_fix_writes_the_repaired_request_and_reports_what_it_did(run: Run, tmp_path: Path) -> None:
    """Guarantee 10.6."""
    (tmp_path / "body.json").write_text(json.dumps(BROKEN))
    fixed = run("fix", "body.json", "-f", "anthropic", "-o", "fixed.json")
    assert fixed.returncode == 0
    assert fixed.stderr.startswith("ANT006 messages[1].content[0]: call c1 has no result in the next message. Repair:")
    body = json.loads((tmp_path / "fixed.json").read_text())
    assert cc.lint(body, format="anthropic") == []
    assert body["messages"][2]["content"][0]["tool_use_id"] == "c1"
    assert run("lint", "fixed.json", "-f", "anthropic").returncode == 0


def test_fix_gives_back_messages_as_lines_where_they_came_so(run: Run) -> None:
    lines = "\n".join(json.dumps(each) for each in cast(list[JSONObject], BROKEN["messages"]))
    fixed = run("fix", "-", "-f", "anthropic", text=lines)
    assert [json.loads(line)["role"] for line in fixed.stdout.splitlines()] == ["user", "assistant", "user"]


def test_convert_writes_the_target_and_names_what_is_lost(run: Run) -> None:
    made = run("convert", "-", "--from", "openai_chat", "--to", "anthropic", text=json.dumps(CHAT))
    assert made.returncode == 0
    assert json.loads(made.stdout)["system"] == [{"type": "text", "text": "Be brief."}]
    assert "left out: the setting `seed`, which anthropic does not take\n" in made.stderr
    machine = run("convert", "-", "--from", "openai_chat", "--to", "gemini", "--json", text=json.dumps(CHAT))
    assert json.loads(machine.stdout)[0]["warnings"][0].startswith("left out: the setting `model`")


SESSION = Path(__file__).parent.parent / "data"


def test_a_session_of_a_program_needs_no_format(run: Run, tmp_path: Path) -> None:
    """Guarantee 10.6: its lines are one conversation, and come out as one request."""
    transcript = str(SESSION / "claude_code" / "transcript-parallel.jsonl")
    assert run("lint", transcript).stdout == "no violations\n"
    made = run("convert", transcript, "--to", "anthropic", "-o", "body.json")
    assert (made.returncode, made.stderr) == (0, "left out: reasoning of claude-code\n")
    body = json.loads((tmp_path / "body.json").read_text())
    assert [each["role"] for each in body] == ["user", "assistant", "user", "assistant"]
    assert run("lint", "body.json", "-f", "anthropic").returncode == 0
    thread = run("convert", str(SESSION / "codex" / "rollout.jsonl"), "--to", "claude_code")
    assert {json.loads(line)["type"] for line in thread.stdout.splitlines()} == {"user", "assistant"}
    assert run("fix", "-", text=thread.stdout).stdout == thread.stdout


def test_a_session_is_reported_of_what_it_could_not_read(run: Run) -> None:
    """Guarantee 10.6: the program was killed while it wrote its last line."""
    torn = (SESSION / "codex" / "exec.jsonl").read_text() + '{"type":"item.comp'
    found = run("lint", "-", text=torn)
    assert (found.returncode, found.stderr) == (
        0,
        f"left out: 1 line that cannot be read: line {len(torn.splitlines())}\n",
    )
    failed = run("lint", str(SESSION / "claude_code" / "stdout-unauthorized.jsonl"), "-f", "claude_code")
    assert (failed.returncode, failed.stdout) == (0, "no violations\n")


def test_a_format_that_is_not_given_is_recognised(run: Run) -> None:
    """The HTTP API recognises it; the commands do so in the same way, and print what they took it for."""
    for *asked, option in (["lint", "--format"], ["fix", "--format"], ["convert", "--to", "gemini", "--from"]):
        text = json.dumps(CHAT)
        found, named = (run(asked[0], "-", *asked[1:], *more, text=text) for more in ([], [option, "openai_chat"]))
        assert (found.returncode, found.stdout) == (named.returncode, named.stdout)
        assert found.stderr == f"format: openai_chat (recognised; override it with {option})\n{named.stderr}"
    lines = "".join(json.dumps(message) + "\n" for message in CHAT["messages"])
    assert run("lint", "-", text=lines).stderr.startswith("format: openai_chat ")


def test_a_format_that_cannot_be_recognised_must_be_given(run: Run) -> None:
    for *asked, option in (["lint", "--format"], ["fix", "--format"], ["convert", "--to", "gemini", "--from"]):
        for text in ("{}", '{"hello": 1}', "[]"):
            refused = run(asked[0], "-", *asked[1:], text=text)
            assert refused.returncode == 2
            assert refused.stderr == (
                "error: standard input: the format cannot be recognised. "
                f"Pass {option}, one of {', '.join(format_names())}.\n"
            )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("openai", "Did you mean openai_chat or openai_responses?"),
        ("aws", "It is the name of a provider. Did you mean bedrock?"),
        ("vercel-gateway", "It is the name of a provider. Did you mean openai_chat?"),
        ("antropic", "Did you mean anthropic?"),
    ],
)
def test_a_providers_name_in_the_place_of_a_formats_is_understood(run: Run, name: str, meant: str) -> None:
    """Guarantee 15.1: most people know the provider they ask, and not what its format is called here."""
    for asked in (["lint", "-", "--format", name], ["convert", "-", "--from", "openai_chat", "--to", name]):
        refused = run(*asked, text=json.dumps(CHAT))
        assert (refused.returncode, refused.stderr.split("Known formats: ")[0]) == (
            2,
            f"error: Format {name!r} not found. {meant} ",
        )


def test_a_sentence_of_a_provider_is_not_cut_off(run: Run) -> None:
    """Guarantee 10.6: it is there to be searched for."""
    name = "a-tool-whose-name-is-longer-than-what-a-narrow-table-has-room-for-in-its-last-column"
    broken: JSONObject = {"model": "m", "max_tokens": 9, "messages": [{"role": name, "content": "hi"}]}
    shown = run("lint", "-", "-f", "anthropic", text=json.dumps(broken), COLUMNS="80").stdout
    assert "…" not in shown
    assert name in "".join(shown.split())


def test_what_is_not_json_exits_with_2_and_reports_where(run: Run) -> None:
    """Guarantee 15.1."""
    broken = run("lint", "-", "-f", "anthropic", text='{"role": "user"}\n{"role"')
    assert broken.returncode == 2
    assert broken.stderr == "error: standard input, line 2, column 8: this is not JSON: it is truncated.\n"
    assert run("lint", "-", "-f", "nobody", text="{}").returncode == 2
    assert run("fix", "missing.json", "-f", "anthropic").stderr == (
        "error: missing.json cannot be read: No such file or directory.\n"
    )


@pytest.mark.parametrize(
    ("data", "where", "problem"),
    [
        (b"", "", "the file is empty."),
        (b" \n\n", "", "the file is empty."),
        (b"hello\nworld\n", ", line 1, column 1", "this is not JSON: invalid character."),
        (b"\x89PNG\r\n\x1a\n\0", ", line 1, column 1", "this is not JSON: invalid character."),
        (b'{\n  "messages": [\n    {"role": "us', ", line 3, column 17", "this is not JSON: it is truncated."),
        (b'{"messages": [],\n}', ", line 2, column 1", "this is not JSON: trailing comma in object."),
        (b'{"messages":\n "\xff"}', ", line 2, column 3", "this is not JSON: not UTF-8 text."),
        (b"[" * 100_000, "", "the JSON is nested too deeply."),
        (b"null", "", "a request must be an object or a list of messages, got null."),
        (b"5", "", "a request must be an object or a list of messages, got a number."),
        (b'"hi"', "", "a request must be an object or a list of messages, got a string."),
    ],
)
def test_an_invalid_request_file_is_reported_with_problem_and_position(
    run: Run, tmp_path: Path, data: bytes, where: str, problem: str
) -> None:
    """The advice to name a format would send the user in the wrong direction."""
    (tmp_path / "chat.json").write_bytes(data)
    for asked in (["lint"], ["lint", "-f", "anthropic"]):
        refused = run(*asked, "chat.json")
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"error: chat.json{where}: {problem}")
        assert ".." not in refused.stderr


def test_rule_explains_a_code(run: Run) -> None:
    page = run("rule", "ant006").stdout
    assert "Every tool call has a result in the next message." in page
    assert "Repair: a result found elsewhere is moved to its call" in page
    assert run("rule", "ANT999").returncode == 2
    assert "Did you mean ANT014? " in run("rule", "ant14").stderr
    unknown = run("rule", "XXX").stderr
    assert unknown.startswith(
        "error: rule: code not found, got 'XXX'. A code is a prefix and a number, such as ANT014."
    )
    assert unknown.endswith("`contextc rule` lists all rules, `contextc rule ANT` those of a prefix.\n")


def test_rule_explains_the_code_of_a_finding(run: Run) -> None:
    """Whoever sees CAC006 in findings asks for it in the same way as for ANT014."""
    shown = run("rule", "cac006")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("CAC006 (system_changed): ")
    assert "Fix: " in shown.stdout
    assert run("rule", "CAC999").returncode == 2


def test_rule_lists_those_of_one_format(run: Run) -> None:
    """Guarantee 10.6: by how their codes begin, or by the format's name."""
    by_code, by_name = run("rule", "bed"), run("rule", "--format", "bedrock")
    assert (by_code.returncode, by_code.stdout) == (0, by_name.stdout)
    codes = [line.split()[1] for line in by_code.stdout.splitlines()[1:] if line.startswith(" bedrock")]
    assert codes == [rule.code for rule in formatter("bedrock").rules.rules]
    assert "ANT001" not in by_code.stdout
    assert run("rule", "--format", "nobody").returncode == 2


@pytest.mark.parametrize("format", some(format_names(), 2))
def test_conversations_go_out_and_come_in_as_requests(run: Run, tmp_path: Path, format: str) -> None:
    """Guarantee 3.8: every format in both directions."""
    address = f"sqlite:///{tmp_path}/chat.db"
    texts = [
        cc.system("Be brief."),
        cc.user(["Look:", cc.Media(mime_type="image/png", data=b"\x89PNG")]),
        cc.assistant("Let me see.", tool_calls=[cc.tool_call("c1", "look", '{"at":1}')]),
        cc.tool_result("c1", "look", "a ship"),
        cc.assistant("A ship."),
    ]
    with cc.open_store(address) as store:
        store.extend("demo", texts)
        store.append("demo", cc.assistant("half", status="cancelled"))
    out = run("export", "demo", "-f", format, "-o", "demo.json", "--store", address)
    assert (out.returncode, out.stderr.splitlines()[-1]) == (0, "wrote demo.json")
    assert "left out: 1 message that failed or were cancelled" in out.stderr
    assert cc.lint(json.loads((tmp_path / "demo.json").read_text()), format=format) == []
    taken = run("import", "demo.json", "-f", format, "--as", "copy", "--store", address)
    assert taken.stdout.startswith("imported copy: 5 messages")
    with cc.open_store(address) as store:
        copy = store.load("copy")
        assert [(each.role, each.text) for each in copy] == [(each.role, each.text) for each in texts]
        assert copy[2].tool_calls[0].arguments == {"at": 1}
        assert copy[3].tool_results[0].text == "a ship"
    again = run("import", "demo.json", "-f", format, "--as", "copy", "--store", address)
    assert again.returncode == 2
    assert "Conversation 'copy' already exists" in again.stderr


def test_of_several_requests_all_are_taken_or_none(run: Run, tmp_path: Path) -> None:
    """Nothing half-written."""
    empty: JSONObject = {"messages": []}
    lines = "\n".join(json.dumps(each) for each in (CHAT, empty))
    address = f"sqlite:///{tmp_path}/chat.db"
    refused = run("import", "-", "-f", "openai_chat", "--as", "log", "--store", address, text=lines)
    assert (refused.returncode, refused.stderr) == (2, "error: 'log-2' has no message.\n")
    assert run("list", "--store", address).stdout.count("log") == 0
    lines = "\n".join(json.dumps(each) for each in (CHAT, CHAT))
    assert (
        run("import", "-", "-f", "openai_chat", "--as", "log", "--store", address, text=lines).stdout.count("log-") == 2
    )


def test_what_fix_and_convert_write_is_readable_by_its_owner_alone(run: Run, tmp_path: Path) -> None:
    """It is a conversation, as an export is."""
    for command, *more in (["fix", "-f", "openai_chat"], ["convert", "--from", "openai_chat", "--to", "gemini"]):
        run(command, "-", *more, "-o", f"{command}.json", text=json.dumps(CHAT))
        assert (tmp_path / f"{command}.json").stat().st_mode & 0o777 == 0o600


def test_json_at_a_terminal_cannot_control_it(tmp_path: Path) -> None:
    """Control characters and those that change the direction of text become escapes, which mean the same."""
    hostile = "\x9b31m\u202eEVIL\u200f\U000e0001 é"
    file = tmp_path / "request.json"
    body = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": hostile}]}
    file.write_text(json.dumps(body, ensure_ascii=False))
    for arguments in (["fix", str(file), "-f", "anthropic"], ["convert", str(file), "--to", "openai_chat"]):
        printed = at_terminal(tmp_path, *arguments)
        assert hostile[:-1] not in printed
        assert "\\u009b31m\\u202eEVIL\\u200f\\udb40\\udc01 é" in printed
        assert hostile in json.dumps(json.loads(printed), ensure_ascii=False)


def at_terminal(folder: Path, *arguments: str) -> str:
    """Return what a command prints at a terminal."""
    master, terminal = pty.openpty()
    with CommandProcess(*arguments, cwd=folder, env=os.environ, stdout=terminal, stderr=subprocess.PIPE) as process:
        os.close(terminal)
        printed = b""
        with suppress(OSError):  # the end of the program's side
            while piece := os.read(master, 1 << 16):
                printed += piece
        os.close(master)
        assert process.wait() == 0, process.stderr and process.stderr.read()
    return printed.decode()

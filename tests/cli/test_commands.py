"""The commands as processes: output and exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

import contextc as cc
from contextc.cli.compact import describe_compaction
from contextc.compiler.compaction import CompactionResult
from contextc.compiler.facts_in_texts import Receipt
from contextc.store.sqlite import remove_empty_store
from tests.cli.chat_terminal import recorded
from tests.cli.conftest import Run
from tests.executor.scripted_provider import says


@pytest.fixture
def filled(tmp_path: Path) -> str:
    address = f"sqlite:///{tmp_path}/chat.db"
    with cc.open_store(address) as store:
        store.extend("demo", [cc.user("hi"), cc.assistant("hello"), cc.user("bye")])
    return address


def test_export_and_import_move_a_conversation(run: Run, filled: str, tmp_path: Path) -> None:
    """Guarantee 3.8, on the command line."""
    written = run("export", "demo", "-o", "demo.jsonl", "--store", filled)
    assert (written.returncode, written.stderr) == (0, "wrote demo.jsonl\n")
    taken = run("import", "demo.jsonl", "--store", "sqlite:///other.db")
    assert taken.stdout.startswith("imported demo: 3 messages, tip 00000003")
    with cc.open_store(filled) as one, cc.open_store(tmp_path / "other.db") as two:
        assert two.load("demo") == one.load("demo")


def test_export_and_import_work_as_a_pipe(run: Run, filled: str) -> None:
    lines = run("export", "demo", "--store", filled).stdout
    taken = run("import", "-", "--as", "copy", "--json", "--store", filled, text=lines)
    assert json.loads(taken.stdout)["name"] == "copy"


def test_a_failed_export_leaves_the_old_file_alone(run: Run, filled: str, tmp_path: Path) -> None:
    target = tmp_path / "demo.jsonl"
    target.write_text("precious")
    assert run("export", "nope", "-o", "demo.jsonl", "--store", filled).returncode == 2
    assert target.read_text() == "precious"
    assert not target.with_suffix(".jsonl.part").exists()


def test_fork_by_number_and_by_id(run: Run, filled: str) -> None:
    assert run("fork", "demo", "one", "--at", "2", "--store", filled).stdout == "one shares 2 messages with demo\n"
    with cc.open_store(filled) as store:
        tip = store.load("demo")[0].id
    forked = run("fork", "demo", "two", "--at", tip, "--json", "--store", filled)
    assert json.loads(forked.stdout)["length"] == 1


def test_doctor_shows_what_is_in_force_and_that_all_is_well(run: Run, filled: str) -> None:
    shown = run("doctor", CONTEXTC_STORE=filled)
    assert shown.returncode == 0
    assert "CONTEXTC_STORE" in shown.stdout
    assert "1 conversation, 3 messages: no faults" in shown.stdout


def test_doctor_finds_a_fault_and_exits_with_1(run: Run, filled: str) -> None:
    with cc.open_store(filled) as store:
        store.write(lambda tx: tx.run("DELETE FROM main.message WHERE place % 4294967296 = 2"))
    shown = run("doctor", "--store", filled)
    assert (shown.returncode, "gap" in shown.stdout) == (1, True)
    report = json.loads(run("doctor", "--json", "--store", filled).stdout)
    assert [finding["code"] for finding in report["findings"]] == ["gap"]


def test_what_is_in_a_store_cannot_style_or_steer_the_terminal(run: Run, filled: str) -> None:
    """Model output is data: a call's name may hold markup and escape sequences."""
    nasty = "[red]x[/] \x1b[2J\x07"
    with cc.open_store(filled) as store:
        store.append("[bold]", cc.assistant(tool_calls=[cc.ToolCall(id=nasty, name=nasty, arguments={})]))
    shown = run("doctor", "--store", filled, COLUMNS="400").stdout
    assert "[red]x[/]" in shown
    assert "[bold]" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_only_an_import_makes_a_store(run: Run, tmp_path: Path) -> None:
    """A typing error in an address must not look like an empty store."""
    assert "0 conversations" in run("doctor").stdout
    addressed = ["doctor", "--store", "sqlite:///typo.db"]
    for arguments in (["list"], ["list", "--costs"], ["export", "x"], ["fork", "x", "y"], addressed):
        failed = run(*arguments, COLUMNS="400")
        assert (failed.returncode, "store not found" in failed.stderr) == (2, True)
        assert "Name one that exists with `--store`, or create one" in failed.stderr
    assert not list(tmp_path.rglob("*.db"))
    line = '{"role": "user", "parts": [{"type": "text", "text": "hi"}]}'
    assert run("import", "-", "--as", "demo", text=f"\ufeff{line}\n").stdout.startswith("imported demo: 1 message, tip")
    assert list(tmp_path.rglob("contextc.db"))


def test_list_shows_what_is_there(run: Run, filled: str) -> None:
    with cc.open_store(filled) as store:
        store.edit("demo", 2, cc.assistant("other"))
    assert [text for line in run("list", "--store", filled).stdout.splitlines()[1:] for text in line.split()][:3] == [
        "demo",
        "2",
        "2",
    ]
    assert json.loads(run("list", "--json", "--store", filled).stdout)[0]["name"] == "demo"
    assert run("--version").stdout == f"contextc {cc.__version__}\n"


def test_an_unknown_command_is_an_error_with_similar_names(run: Run) -> None:
    done = run("wach")
    assert done.returncode == 2
    assert "No such command 'wach'. Did you mean watch?" in done.stderr
    assert "Did you mean" not in run("quux").stderr


def test_a_name_that_is_only_a_little_alike_is_not_suggested(run: Run) -> None:
    """ "nope" and "openai" share three letters in their order."""
    asked = run("chat", "-m", "nope:x", "hi", "--store", "memory:")
    assert "'nope' not found" in asked.stderr
    assert "Did you mean" not in asked.stderr


def test_looking_at_a_store_redacts_nothing(run: Run, filled: str) -> None:
    """Retention cannot be undone, so it happens where something is written, and never by mistake."""
    with cc.open_store(filled) as store:
        store.append("demo", cc.user("old", time=1_000))
    for arguments in (["export", "demo"], ["list"], ["doctor"]):
        assert run(*arguments, "--store", filled, CONTEXTC_RETENTION="90d").returncode == 0
    assert run("doctor", "--store", filled, CONTEXTC_RETENTION="0d").returncode == 2
    with cc.open_store(filled) as store:
        assert not any(message.redacted for message in store.load("demo"))


@pytest.mark.parametrize("arguments", ["export demo", "export demo --format openai_chat", "list"])
def test_a_closed_pipe_is_not_a_failure(run: Run, filled: str, arguments: str) -> None:
    with cc.open_store(filled) as store:
        store.extend("demo", [cc.user("x" * 1_000) for _ in range(500)])
        for number in range(2_000 if arguments == "list" else 0):
            store.append(f"conversation-{number:040}", cc.user("hi"))
    command = f"{sys.executable} -m contextc {arguments} --store {filled} | head -c 9"
    command += "; code=${PIPESTATUS[0]}; echo; echo $code"
    shown = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (shown.stdout.splitlines()[-1], shown.stderr) == ("0", "")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["export", "nope", "--store", "sqlite:///new.db"], "store not found"),
        (["import", "none.jsonl"], "none.jsonl cannot be read: No such file"),
        (["import", "-"], "the file is empty"),
        (["fork", "demo", "x", "--store", "oracle://"], "unknown store address"),
        (["import", "{name}", "--store", "sqlite:///no/such/folder.db"], "not found. Create it"),
        (["import", "{name}", "--store", "memory:"], "odd.jsonl: the kind of file cannot be recognised"),
        (["frobnicate"], "No such command"),
    ],
)
def test_a_wrong_call_exits_with_2_and_gives_the_reason(
    run: Run, arguments: list[str], problem: str, tmp_path: Path
) -> None:
    """Guarantee 15.1."""
    (tmp_path / "odd.jsonl").write_text("[]")
    failed = run(*[each.replace("{name}", "odd.jsonl") for each in arguments], text="")
    assert failed.returncode == 2
    assert problem in " ".join(failed.stderr.split())
    assert "Traceback" not in failed.stderr


def test_an_error_names_no_option_that_the_command_does_not_have(run: Run, filled: str) -> None:
    unknown = run("compile", "demo", "--model", "foo:bar", "--store", filled).stderr
    assert unknown.startswith("error: Provider 'foo' not found. Known providers: openai, ")
    assert unknown.endswith("For your own endpoint, set url below [providers.foo] in contextc.toml.\n")
    assert run("fork", "demo", "demo", "--store", filled).stderr == (
        "error: Conversation 'demo' already exists. Choose another name, or delete the conversation first.\n"
    )


def test_an_unknown_conversation_is_reported_with_similar_names(run: Run, filled: str) -> None:
    """Guarantee 15.1: the command in the fix lists the same store."""
    shows = f"`contextc list --store {filled}` shows the conversations of the store.\n"
    failed = run("export", "dmeo", "--store", filled).stderr
    assert failed == f"error: Conversation 'dmeo' not found. Did you mean 'demo'? {shows}"
    assert run("export", "other", "--store", filled).stderr == f"error: Conversation 'other' not found. {shows}"
    assert "`contextc list` shows" in run("export", "other", CONTEXTC_STORE=filled).stderr


def test_an_unknown_export_format_is_reported_with_those_of_archives(run: Run, filled: str) -> None:
    """Guarantee 15.1."""
    failed = run("export", "demo", "--format", "harr", "--store", filled)
    assert failed.returncode == 2
    assert failed.stderr.startswith("error: Format 'harr' not found. Did you mean har? Known formats: anthropic, ")
    assert failed.stderr.endswith(" For all requests of the conversation: har, lhar, html.\n")
    assert "Did you mean openai_chat or " in run("export", "demo", "--format", "openai", "--store", filled).stderr


def test_requests_are_exported_as_one_html_file(run: Run, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/sent.db"
    with cc.open_store(address) as store:
        compiler = cc.MessageCompiler(store, cc.provider("openai-chat:gpt-4o"))
        for text in ("first question", "second question"):
            store.append("demo", cc.user(text))
            compiler.commit(compiler.compile("demo"), cc.assistant("fine"))
        store.tag("demo", "a tag")
        store.add_note("demo", "for myself")
    written = run("export", "demo", "--format", "html", "-o", "demo.html", "--redact", "files", "--store", address)
    content = (
        "It contains requests, texts, results, findings, costs, tags. Left out: notes; --notes includes the notes.\n"
    )
    assert written.stderr == f"wrote demo.html\n{content}"
    whole = run("export", "demo", "--format", "html", "--notes", "--no-tags", "--store", address)
    assert ("for myself" in whole.stdout, "a tag" in whole.stdout) == (True, False)
    assert whole.stderr == "It contains requests, texts, results, findings, costs, notes. Left out: tags.\n"
    assert "second question" in (tmp_path / "demo.html").read_text(encoding="utf-8")
    one = run("export", "demo", "--format", "html", "--request", "1", "--redact", "(first)", "--store", address).stdout
    assert one.startswith("<!doctype html>")
    assert " question" in one
    assert "first question" not in one
    assert "second question" not in one
    for arguments, problem in (
        (["--request", "1"], "--request needs --format html. Add --format html"),
        (["--redact", "texts"], "--redact needs --format html. Add --format html"),
        (["--notes"], "--notes needs --format html. Add --format html"),
        (["--format", "html", "--request", "x"], "--request must be a number or CHANNEL/NUMBER, got 'x'."),
        (["--format", "html", "--request", "9"], "Conversation 'demo' cannot be shared: it has no request 9."),
        (["--format", "html", "--redact", "text"], "Use texts, results, files, keys, tokens, mail, or a regular"),
    ):
        failed = run("export", "demo", *arguments, "--store", address)
        assert failed.returncode == 2
        assert problem in failed.stderr


def test_list_shows_when_a_conversation_started(run: Run, tmp_path: Path) -> None:
    """The time of its first message, also where that is older than the conversation in the store."""
    with cc.open_store(tmp_path / "chat.db") as store:
        store.append("old", cc.user("hi", time=1_000_000_000_000))
    assert "2001-09-09 01:46" in run("list", "--store", f"sqlite:///{tmp_path}/chat.db").stdout


def test_an_import_into_what_is_there_is_reported(run: Run) -> None:
    """Nothing is imported twice, but a bare message is a new one: an existing name is reported."""
    line = '{"role": "user", "parts": [{"type": "text", "text": "hi"}]}\n'
    assert "already exists" not in run("import", "-", "--as", "demo", text=line).stderr
    assert "demo already exists: appended after its 1 message" in run("import", "-", "--as", "demo", text=line).stderr


def test_backup_and_restore_bring_a_store_back(run: Run, filled: str, tmp_path: Path) -> None:
    """A copy of the file alone is not a backup: the last writes may be in the log beside it."""
    written = run("backup", "copy.db", "--store", filled)
    size = (tmp_path / "copy.db").stat().st_size
    assert (written.returncode, written.stdout) == (0, f"wrote copy.db: 1 conversation, {size:,} bytes\n")
    assert run("backup", "copy.db", "--store", filled).returncode == 2
    with cc.open_store(filled) as store:
        store.delete("demo")
    asked = run("restore", "copy.db", "--store", filled)
    assert (asked.returncode, "--yes" in asked.stderr) == (2, True)
    restored = run("restore", "copy.db", "--yes", "--store", filled)
    assert (restored.returncode, "the replaced store is kept as" in restored.stdout) == (0, True)
    with cc.open_store(filled) as store:
        assert len(store.load("demo")) == 3


def test_what_is_exported_can_be_read_by_its_owner_alone(run: Run, filled: str, tmp_path: Path) -> None:
    """It holds what a store holds, whose files are private, too."""
    run("export", "demo", "-o", "lines.jsonl", "--store", filled)
    run("export", "demo", "-f", "openai_chat", "-o", "request.json", "--store", filled)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("lines.jsonl", "request.json")] == [0o600] * 2


def test_the_default_store_and_its_folder_are_private(run: Run, tmp_path: Path) -> None:
    """Other users of the machine may not read what was said."""
    home = tmp_path / "home"
    taken = run(
        "import",
        "-",
        "--as",
        "demo",
        text='{"role":"user","parts":[{"type":"text","text":"hi"}]}\n',
        HOME=str(home),
        XDG_DATA_HOME=str(home / "data"),
    )
    assert taken.returncode == 0, taken.stderr
    [file] = home.rglob("*.db")
    assert file.stat().st_mode & 0o777 == 0o600
    made = [folder for folder in file.parents if folder.is_relative_to(tmp_path) and folder != tmp_path]
    assert len(made) >= 3
    assert {folder.stat().st_mode & 0o777 for folder in made} == {0o700}


def test_doctor_reports_that_others_can_read_the_file(run: Run, filled: str, tmp_path: Path) -> None:
    """A file of an earlier version keeps its permissions: it may be shared on purpose."""
    assert "shared-file" not in run("doctor", "--store", filled).stdout
    (tmp_path / "chat.db").chmod(0o644)
    shown = run("doctor", "--store", filled)
    assert (shown.returncode, "mode 0644" in shown.stdout, "chmod 600" in shown.stdout) == (0, True, True)


def test_list_shows_every_conversation_and_takes_no_name_for_markup(run: Run, filled: str) -> None:
    """Names are data: they style nothing, and columns stay in line where letters are two cells wide."""
    with cc.open_store(filled) as store:
        store.fork("demo", "[red]会話[/]", at=1)
        store.rewind("demo", 1)
        store.append("active", cc.user("What is\n[bold]this[/]? " + "x" * 99))
    shown = run("list", "--store", filled, COLUMNS="90").stdout.splitlines()
    assert [line.split()[:3] for line in shown] == [
        ["conversation", "messages", "branches"],
        ["active", "1", "1"],
        ["[red]会話[/]", "1", "1"],
        ["demo", "1", "2"],
    ]
    assert shown[1].split("  ")[-1].startswith("What is [bold]this[/]? xxx")
    assert shown[1].rstrip().endswith("…")
    assert shown[3].index("1") == shown[0].index("messages")
    assert len({cell_len(line) for line in shown}) == 1


def test_a_damaged_copy_is_not_restored_and_the_advice_is_another_copy(run: Run, filled: str, tmp_path: Path) -> None:
    """The advice to restore a backup would lead in a circle."""
    run("backup", "copy.db", "--store", filled)
    whole = (tmp_path / "copy.db").read_bytes()
    for name, data in (("damaged.db", whole[:4096] + b"\xff" * (len(whole) - 4096)), ("notes.txt", b"hello\n" * 999)):
        (tmp_path / name).write_bytes(data)
        refused = run("restore", name, "--yes", "--store", filled)
        assert refused.returncode == 2
        assert f"{name}: the file is corrupt, or not a SQLite file. Give the file of another backup" in refused.stderr
        assert "contextc restore" not in refused.stderr
    assert run("list", "--store", filled).stdout.count("demo") == 1


def test_a_copy_that_is_missing_is_named_before_anything_is_asked(run: Run, filled: str) -> None:
    assert run("restore", "missing.db", "--store", filled).stderr.startswith("error: missing.db: file not found.")


@pytest.mark.parametrize("data", ["", "{", "[]", '{"hello": 1}', '{"type":"contextc"}\n{}\n'])
def test_an_import_that_fails_leaves_no_new_store(run: Run, tmp_path: Path, data: str) -> None:
    (tmp_path / "broken.json").write_text(data)
    failed = run("import", "broken.json", "--store", "sqlite:///new.db")
    assert failed.returncode == 2, failed.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("new.db")] == []


def test_a_command_that_fails_removes_no_store_that_was_there(run: Run, tmp_path: Path) -> None:
    """Also not an existing store without conversations."""
    cc.open_store(tmp_path / "empty.db").close()
    (tmp_path / "broken.json").write_text("{")
    assert run("import", "broken.json", "--store", "sqlite:///empty.db").returncode == 2
    assert (tmp_path / "empty.db").exists()


def test_a_new_store_that_another_process_uses_is_not_removed(tmp_path: Path) -> None:
    """Its first message may come a moment later."""
    path = tmp_path / "new.db"
    with cc.open_store(path) as store:
        remove_empty_store(str(path))
        assert path.exists()
        store.append("demo", cc.user("hi"))
    remove_empty_store(str(path))
    assert path.exists()


def test_chat_refuses_a_folder_that_does_not_exist(run: Run, tmp_path: Path) -> None:
    """Its tools would work in a folder that they make."""
    refused = run("chat", "--root", "nowhere", "hi", "--store", "sqlite:///new.db")
    text = "error: --root nowhere: directory not found. Create it, or name another one.\n"
    assert (refused.returncode, refused.stderr) == (2, text)
    assert not (tmp_path / "new.db").exists()


def test_a_compaction_is_previewed_made_and_undone(run: Run, tmp_path: Path) -> None:
    """Guarantee 7.12, on the command line; a preview and an undo call no model."""
    address = f"sqlite:///{tmp_path}/chat.db"
    with cc.open_store(address) as store:
        for number in range(30):
            store.extend("demo", [cc.user(f"question {number} " + "why " * 400), cc.assistant("because " * 400)])
    model = recorded(tmp_path / "sums.jsonl", *[says("It was about reasons.")] * 8)
    common = ("--model", model, "--tools", "none", "--store", address)
    preview = run("compact", "demo", "--preview", "--json", *common)
    found = json.loads(preview.stdout)
    assert found["before"] > found["after"]
    done = json.loads(run("compact", "demo", "--instructions", "keep reasons", "--json", *common).stdout)
    assert (done["upto"], done["before"], done["fallback"]) == (found["upto"], found["before"], "")
    assert run("compact", "demo", "--preview", *common).stdout == "There is nothing old enough to summarize.\n"
    assert json.loads(run("compact", "demo", "--undo", "--json", "--store", address).stdout) == {"upto": done["upto"]}
    assert run("compact", "demo", "--undo", "--store", address).stdout == "There is no summary to take back.\n"
    refused = run("compact", "demo", "--undo", "--preview", *common)
    assert (refused.returncode, "Pass one of them" in refused.stderr) == (2, True)


def test_a_compaction_says_what_it_lost() -> None:
    """Guarantee 7.11, on the command line and in the chat."""
    lost = ("ORD-17", "one sentence " * 20, *[f"ORD-{number}" for number in range(20, 40)])
    done = CompactionResult(upto=9, before=900, after=30, text="", receipt=Receipt(facts=40, kept=10, lost=lost))
    first, second, third = describe_compaction(done).splitlines()
    assert first == "summarized messages 1 to 9: 900 tokens became 30"
    assert second.startswith(
        "The next request has 25% of the names, figures and sentences of people. It lacks 30: ORD-17,"
    )
    assert second.endswith("one…, ORD-20, ORD-21, ORD-22, …")
    assert third == "The model still finds them with search_history."

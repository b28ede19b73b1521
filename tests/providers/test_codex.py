"""The Codex client with its real app-server and a strict local API: turns, failures, shutdown."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.errors import InvalidSetting
from contextc.formats.streams import NOTE_EVENT
from contextc.providers import ProviderCall as Request
from contextc.providers.codex.app_server import error_failure
from contextc.providers.codex.call_options import PERMANENT_SETTINGS, THREAD_SETTINGS, parse_call_options
from contextc.providers.codex.turns import replace_rejected, to_importable
from tests.fake_vendors import AcceptedRequest, FakeVendors, Fault, Reply, Scripted, faults
from tests.providers.codex_program import Codex, answered, body, directory, is_alive, seen, text_message


def replies() -> Scripted:
    return Scripted([f"answer {number}" for number in range(1, 9)])


async def test_turns_of_a_thread_extend_one_request(tmp_path: Path) -> None:
    """Guarantee 9.4: a session is given what is new, and every message is at the API exactly once."""
    with FakeVendors(replies()) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            first = await codex.ask(line, "one")
            pid = line.pid
            second = await codex.ask(line, "two", first)
            third = await codex.ask(line, "three", second)
        assert [first.text, second.text, third.text] == ["answer 1", "answer 2", "answer 3"]
        assert first.session == second.session == third.session
        assert len({first.cursor, second.cursor, third.cursor}) == 3
        assert seen(standin.records[-1]) == ["one", "answer 1", "two", "answer 2", "three"]
        assert not standin.refused
        assert not standin.breaks()
        assert not standin.defects
        assert first.reader.finished
        assert first.reader.message().usage == cc.Usage(
            input=standin.records[0].tokens.input,  # pyright: ignore[reportOptionalMemberAccess]
            output=standin.records[0].tokens.output,  # pyright: ignore[reportOptionalMemberAccess]
            cache_write=standin.records[0].tokens.written,  # pyright: ignore[reportOptionalMemberAccess]
        )
        assert pid is not None
        assert not is_alive(pid)


async def test_a_thread_is_continued_by_another_program_and_in_another_directory(tmp_path: Path) -> None:
    """Guarantee 9.5: a thread of Codex is found by its id alone."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with FakeVendors(replies()) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            first = await codex.ask(line, "one")
        async with codex.line() as line:
            second = await codex.ask(line, "two", first)
            third = await codex.ask(line, "three", second, directory=str(elsewhere))
        assert first.session == second.session == third.session
        assert seen(standin.records[-1]) == ["one", "answer 1", "two", "answer 2", "three"]
        assert [directory(record) for record in standin.records] == [str(codex.home)] * 2 + [str(elsewhere)]
        assert not standin.refused


async def test_history_is_taken_in_with_its_calls_and_results(tmp_path: Path) -> None:
    """Guarantee 9.10: a thread that begins in the middle gets the history by its own import, tool calls included."""
    look: JSONObject = {"type": "dynamicToolCall", "id": "call_1", "tool": "look", "arguments": {"thing": "a"}}
    look |= {"status": "completed", "success": True, "contentItems": [{"type": "inputText", "text": "seen"}]}

    with FakeVendors(replies()) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            first = await codex.ask(
                line, [text_message("What is there?"), look, answered("An a."), text_message("And now?")]
            )
            delta = [text_message("asked elsewhere"), answered("said elsewhere"), text_message("Go on.")]
            second = await codex.ask(line, delta, first)
        begins = ["What is there?", "function_call look", "function_call_output seen", "An a.", "And now?"]
        assert seen(standin.records[0]) == begins
        assert seen(standin.records[1]) == [*begins, "answer 1", "asked elsewhere", "said elsewhere", "Go on."]
        assert second.session == first.session
        assert not standin.refused
        assert not [event for event in first.events if event.get("type") == NOTE_EVENT]


def test_what_codex_does_not_take_goes_in_as_text_and_is_reported(tmp_path: Path) -> None:
    """Guarantee 9.10: as text only where the import fails. Codex refuses a list for one block it cannot read."""
    page: JSONObject = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}
    items: list[JSONObject] = [
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Mind."}]},
        {"type": "item_reference", "id": "rs_1"},
        {"role": "user", "content": [{"type": "input_text", "text": "Read."}, page]},
    ]
    taken, as_text = to_importable(items)
    assert [each.get("role") for each in taken] == ["developer", "user", "user"]
    assert taken[1]["content"] == [{"type": "input_text", "text": '{"type":"item_reference","id":"rs_1"}'}]
    assert as_text == 1
    text = "items[2] is not a valid response item: unknown variant `input_file`"
    others = replace_rejected(taken, text)
    assert others is not None
    assert [block["type"] for block in others[2]["content"]] == ["input_text", "input_text"]
    assert replace_rejected(others, text) is None
    assert replace_rejected(taken, "no place in it") is None


async def test_calls_of_one_thread_wait_for_each_other(tmp_path: Path) -> None:
    """Guarantee 9.5: a session has one writer. A second call with an old cursor continues from there, in a fork."""
    with FakeVendors(replies(), faults=lambda ask: faults.slow(0.01)) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            first = await codex.ask(line, "one")
            two, three = await asyncio.gather(codex.ask(line, "two", first), codex.ask(line, "three", first))
        assert seen(standin.records[1]) == ["one", "answer 1", "two"]
        assert seen(standin.records[2]) == ["one", "answer 1", "three"]
        assert standin.records[2].time - standin.records[1].time > 0.05
        assert two.session == first.session
        assert three.session != first.session
        assert "was continued elsewhere" in three.reader.notes[0]


async def test_a_turn_that_fails_explains_how(tmp_path: Path) -> None:
    """Guarantee 11.11: where Codex is not to try again, one request is one failure."""
    failures = {
        faults.overloaded(): ("transient", None),
        faults.unavailable(): ("transient", 503),
        faults.quota(): ("quota", None),
        faults.rate(1.0): ("rate", 429),
        faults.cut(0.6): ("transient", None),
        faults.error_inside(0.6, "internal"): ("transient", None),
    }

    with FakeVendors(replies(), faults=faults.listed(*failures)) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line(retries=0) as line:
            answer = [await codex.ask(line, "one") for _ in failures]
        errors = [each.error for each in answer if each.error is not None]
        assert [(error.kind, error.status) for error in errors] == list(failures.values())
        assert {each.methods[-1] for each in answer} == {"turn/completed"}
        assert len(standin.records) == len(failures)


@pytest.mark.thorough
async def test_what_goes_wrong_for_a_moment_is_retried_in_the_turn(tmp_path: Path) -> None:
    """Guarantee 11.11: Codex retries, twice at most. It reports only a broken stream."""

    def plan(ask: AcceptedRequest) -> Fault | None:
        return faults.overloaded() if "It stays so" in ask.raw.decode() else once(ask)

    once = faults.listed(None, faults.overloaded(), None, faults.cut(0.6))

    with FakeVendors(replies(), faults=plan) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            first = await codex.ask(line, "one")
            second = await codex.ask(line, "two", first)
            third = await codex.ask(line, "three", second)
            failed = await asyncio.wait_for(codex.ask(line, "It stays so", third), 60)
            await codex.ask(line, "four", third, revert=True)
        assert [record.fault for record in standin.records[:5]] == ["", "overloaded", "", "cut", ""]
        assert [len(each.reader.notes) for each in (first, second, third)] == [0, 0, 1]
        assert failed.error is not None
        assert (failed.error.kind, len(standin.records)) == ("transient", 9)
        assert seen(standin.records[-1]) == ["one", first.text, "two", second.text, "three", third.text, "four"]


async def test_refusals_of_the_api_are_read_through_codex(tmp_path: Path) -> None:
    """A wrong key, a window that is too small, no server: with the API's message, without the key."""
    with FakeVendors(replies()) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line({"CODEX_TEST_KEY": "wrong-key-0123456789"}) as line:
            wrong = await codex.ask(line, "one")
        async with codex.line() as line:
            standin.desk.window = 100
            long = await codex.ask(line, "one")
            with standin.refusing():
                answer = await codex.ask(line, "one")
        async with codex.line({"CODEX_TEST_KEY": ""}) as line:
            keyless = await codex.ask(line, "one")
        errors = [each.error for each in (wrong, long, answer, keyless)]
        assert [each and each.kind for each in errors] == ["auth", "context", "transient", "auth"]
        assert "wrong-key" not in str(wrong.error)
        assert "CODEX_TEST_KEY is not set" in str(keyless.error)


INFOS: list[tuple[JSON, str, int | None]] = [
    ("contextWindowExceeded", "context", None),
    ("usageLimitExceeded", "quota", None),
    ("unauthorized", "auth", None),
    ("serverOverloaded", "transient", None),
    ("badRequest", "invalid", None),
    ({"httpConnectionFailed": {"httpStatusCode": 502}}, "transient", 502),
    ({"responseStreamDisconnected": {"httpStatusCode": None}}, "transient", None),
    ({"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, "rate", 429),
    ({"somethingNew": {}}, "transient", None),
    (None, "transient", None),
]


@pytest.mark.parametrize(("info", "kind", "status"), INFOS)
def test_every_event_of_codex_has_a_kind(info: JSON, kind: str, status: int | None) -> None:
    failed = error_failure("codex", {"message": "No.", "codexErrorInfo": info}, ())
    assert (failed.kind, failed.status, failed.said) == (kind, status, "No.")


def test_a_program_that_does_not_run_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 15.1: what is wrong, and the way out."""
    with FakeVendors(replies()) as standin:
        codex = Codex(tmp_path / "home", standin)
        program = tmp_path / "codex"
        program.write_text("#!/bin/sh\necho 'bad configuration' >&2\nexit 2\n")
        program.chmod(0o700)
        answer = asyncio.run(codex.ask(codex.line(program=str(program)), "one"))
        assert answer.error is not None
        assert answer.error.kind == "abort"
        assert "it exited with status 2\nbad configuration" in str(answer.error)
        with pytest.raises(InvalidSetting, match="does not start"):
            asyncio.run(codex.ask(codex.line(program=str(tmp_path / "nothing")), "one"))
        monkeypatch.setitem(sys.modules, "codex_cli_bin", None)
        with pytest.raises(InvalidSetting, match=r"contextc\[codex\]"):
            asyncio.run(codex.ask(codex.line(), "one"))


def test_a_program_ends_with_the_loop_it_was_used_on(tmp_path: Path) -> None:
    """A client that was not closed leaves no process behind, and can be used again on another loop."""
    with FakeVendors(replies()) as standin:
        codex = Codex(tmp_path / "home", standin)
        line, pids = codex.line(), list[int]()

        async def run() -> None:
            assert (await codex.ask(line, "one")).error is None
            pids.append(line.pid or 0)

        asyncio.run(run())
        assert not is_alive(pids[0])
        asyncio.run(run())
        assert not is_alive(pids[1])


async def test_a_killed_program_is_started_again(tmp_path: Path) -> None:
    with FakeVendors(replies()) as standin:
        codex = Codex(tmp_path / "home", standin)
        async with codex.line() as line:
            first = await codex.ask(line, "one")
            os.kill(line.pid or 0, signal.SIGKILL)
            while line.pid is not None:
                await asyncio.sleep(0.01)
            second = await codex.ask(line, "two", first)
        assert second.session == first.session
        assert second.text == "answer 2"


def test_a_model_called_default_is_the_users_own(tmp_path: Path) -> None:
    """No model is asked for; the settings of a turn go with the turn."""
    provider = cc.provider("codex:default", window=100_000)
    call = Request(provider=provider, body=body("one", effort="low", sandbox="read-only"))
    found = parse_call_options(call)
    assert found.thread_params == {"developerInstructions": "Be brief.", "sandbox": "read-only", "cwd": str(Path.cwd())}
    assert found.turn_params == {"effort": "low"}


async def test_without_an_address_the_users_configuration_holds(tmp_path: Path) -> None:
    """The model, the provider and the retries are the user's; retries of Codex itself are reported."""
    with FakeVendors(lambda ask: Reply("answer"), faults=faults.listed(faults.cut(0.6))) as standin:
        codex = Codex(tmp_path / "home", standin)
        address = f'base_url = "{standin.url("openai_responses")}"\nenv_key = "CODEX_TEST_KEY"\n'
        written = 'model_provider = "mine"\nmodel = "gpt-6.1-terra"\n[features]\nplugins = false\n'
        written += f'[model_providers.mine]\nname = "mine"\nwire_api = "responses"\n{address}'
        (codex.home / "config.toml").write_text(written)
        provider = cc.provider("codex:default")
        async with cc.endpoint(provider, env=codex.environment) as line:
            reader = provider.formatter.create_reader()
            call = Request(provider=provider, body=body("one", model="default"), directory=str(tmp_path))
            async for event in line.stream(call):
                reader.read(event)
        assert reader.message().text == "answer"
        assert [record.model for record in standin.records] == ["gpt-6.1-terra"] * 2
        assert ["tried again" in note for note in reader.notes] == [True]
        assert not standin.refused


def test_a_setting_that_codex_does_not_know_is_refused() -> None:
    """It would pass over it silently, also where that was to be its sandbox."""
    from openai_codex.generated import v2_all

    call = Request(provider=cc.provider("codex:gpt-5.4"), body=b'{"sandboxx": "read-only", "items": []}')
    with pytest.raises(InvalidSetting, match="Did you mean 'sandbox'"):
        parse_call_options(call)
    content = {field.alias or name for name, field in v2_all.ThreadStartParams.model_fields.items()}
    assert content - {"cwd", *PERMANENT_SETTINGS} == set(THREAD_SETTINGS), "what the package's own types say"

"""The provider clients, each through the vendor's SDK, with a local server."""

import asyncio
import json
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

import contextc as cc
from contextc import providers
from contextc._json import JSONObject, encode
from contextc.errors import InvalidSetting, ProviderFailed
from contextc.providers import Provider, ProviderCall
from contextc.store.turn_records import join_deltas
from tests.conftest import some
from tests.providers.loopback_server import Answer, Loopback, loopback, loopback_in_a_thread, refused
from tests.providers.vendors import Vendor, vendors

KEY = "sk-test-0123456789abcdef"


VENDORS = {vendor.name: vendor for vendor in vendors()}
KEYED = [vendor for vendor in VENDORS.values() if vendor.variables]
VARIABLES = {name for vendor in KEYED for name in vendor.variables}
ALL = pytest.mark.parametrize("vendor", VENDORS.values(), ids=VENDORS.keys())
ALL_WITH_A_KEY = pytest.mark.parametrize("vendor", KEYED, ids=lambda vendor: vendor.name)


@pytest.fixture(autouse=True)
def one_key_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "GOOGLE_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def provider_at(vendor: Vendor, url: str) -> Provider:
    return cc.provider(vendor.spec, url=url + vendor.base, key="TEST_KEY")


def call_of(vendor: Vendor, provider: Provider, **fields: object) -> ProviderCall:
    return ProviderCall(provider=provider, body=encode(vendor.body), **fields)  # pyright: ignore[reportArgumentType]


async def asked(vendor: Vendor, *answers: Answer, **fields: object) -> tuple[list[JSONObject], Loopback]:
    async with loopback(*answers) as server:
        provider = provider_at(vendor, server.url)
        async with cc.endpoint(provider) as line:
            return [event async for event in line.stream(call_of(vendor, provider, **fields))], server


def failing(vendor: Vendor, *answers: Answer, **fields: object) -> cc.errors.ProviderFailed:
    with pytest.raises(cc.errors.ProviderFailed) as caught:
        asyncio.run(asked(vendor, *answers, **fields))
    return caught.value


@ALL
def test_what_arrives_is_what_was_compiled_to_the_byte(vendor: Vendor) -> None:
    """Guarantee 11.1: the request that is kept is the one that was sent."""
    events, server = asyncio.run(asked(vendor, vendor.streamed()))
    (arrived,) = server.arrived
    assert arrived.path == vendor.path
    assert arrived.body == encode(vendor.body)
    assert arrived.headers["content-type"] == "application/json"
    assert any(KEY in value for value in arrived.headers.values()) == bool(vendor.variables)
    assert events == vendor.events


@ALL
def test_the_events_are_what_the_reader_of_the_format_reads(vendor: Vendor) -> None:
    """Guarantee 12.1: deltas, and the whole message."""
    events, _ = asyncio.run(asked(vendor, vendor.streamed()))
    reader = cc.provider(vendor.spec).formatter.create_reader()
    deltas = [delta for event in events for delta in reader.read(event)]
    assert join_deltas(deltas) == (cc.Text("Hello"),)
    assert (reader.message().text, reader.message().finish, reader.finished) == ("Hello", "stop", True)


@ALL
def test_a_whole_reply_comes_as_one_event(vendor: Vendor) -> None:
    answer = Answer((encode(vendor.reply),), headers=(("content-type", "application/json"),))
    events, server = asyncio.run(asked(vendor, answer, stream=False))
    assert events == [vendor.reply]
    assert server.arrived[0].path == (vendor.whole_path or vendor.path)


@ALL
def test_a_server_that_cannot_stream_is_understood(vendor: Vendor) -> None:
    """Small servers ignore `stream`, and send the whole reply."""
    answer = Answer((encode(vendor.reply),), headers=(("content-type", "application/json; charset=utf-8"),))
    events, _ = asyncio.run(asked(vendor, answer))
    reader = cc.provider(vendor.spec).formatter.create_reader()
    assert [delta.text for event in events for delta in reader.read(event) if isinstance(delta, cc.Text)] == ["Hello"]
    assert (reader.message().text, reader.finished) == ("Hello", True)


@ALL
def test_a_connection_is_used_again(vendor: Vendor) -> None:
    """A handshake for every step would cost more than everything else."""

    async def twice() -> list[int]:
        answer = vendor.streamed()
        async with loopback(answer, answer) as server:
            provider = provider_at(vendor, server.url)
            async with cc.endpoint(provider) as line:
                for _ in range(2):
                    assert [event async for event in line.stream(call_of(vendor, provider))] == vendor.events
            return [arrived.connection for arrived in server.arrived]

    assert asyncio.run(twice()) == [1, 1]


@ALL
def test_a_line_may_be_used_again_on_another_loop(vendor: Vendor) -> None:
    """A program may call `asyncio.run` for every turn. What one loop opened is closed with it."""
    with loopback_in_a_thread(*[vendor.streamed()] * 3) as url:
        provider = provider_at(vendor, url)
        line = cc.endpoint(provider)

        async def asked_here() -> list[JSONObject]:
            return [event async for event in line.stream(call_of(vendor, provider))]

        assert [asyncio.run(asked_here()) for _ in range(3)] == [vendor.events] * 3


@ALL
@pytest.mark.parametrize("how", ["close", "cancel"])
async def test_closing_the_reader_closes_the_connection_at_once(vendor: Vendor, how: str) -> None:
    """Guarantee 11.10: a cancelled turn stops costing money; the provider sees the connection close."""
    async with loopback(vendor.streamed(vendor.events[:2], then="silence")) as server:
        provider = provider_at(vendor, server.url)
        async with cc.endpoint(provider) as line:
            got = asyncio.Event()

            async def read() -> None:
                async with aclosing(line.stream(call_of(vendor, provider))) as events:
                    async for _ in events:
                        got.set()
                        if how == "close":
                            return

            task = asyncio.create_task(read())
            await asyncio.wait_for(got.wait(), 60)
            if how == "cancel":
                task.cancel()
            await asyncio.wait([task])
            await asyncio.wait_for(server.hung_up.wait(), 60)
            assert task.cancelled() is (how == "cancel")


@ALL
def test_a_cut_connection_and_silence_may_pass(vendor: Vendor) -> None:
    """Guarantee 11.11: both are retried, by the caller that counts attempts."""
    cut = failing(vendor, vendor.streamed(vendor.events[:1], then="cut"))
    silent = failing(vendor, vendor.streamed(vendor.events[:1], then="silence"), timeout=0.1)
    garbled = failing(vendor, vendor.sent(vendor.garbled))
    assert [each.kind for each in (cut, silent, garbled)] == ["transient"] * 3
    assert all(each.may_retry and each.status is None and each.said for each in (cut, silent, garbled))


@ALL
@pytest.mark.parametrize("received", some([1, 0], 1))
def test_silence_explains_how_long_it_was(vendor: Vendor, received: int) -> None:
    """Guarantee 15.1: and not how the event loop of some HTTP client ended it."""
    silent = failing(vendor, vendor.streamed(vendor.events[:received], then="silence"), timeout=0.5)
    assert (silent.kind, silent.said) == ("transient", "no data received for 0.5 s")


@ALL
def test_a_missing_server_may_be_transient(vendor: Vendor) -> None:
    async def nobody() -> None:
        provider = provider_at(vendor, "http://127.0.0.1:9")
        async with cc.endpoint(provider) as line:
            async for _ in line.stream(call_of(vendor, provider)):
                pass

    with pytest.raises(cc.errors.ProviderFailed, match=r"[Cc]onnect.*Check the URL \(http://127\.0\.0\.1:9") as caught:
        asyncio.run(nobody())
    assert caught.value.kind == "transient"
    assert "Nothing is wrong" not in str(caught.value)


@ALL
@pytest.mark.parametrize("stream", [True, False])
def test_a_web_page_is_a_permanent_failure(vendor: Vendor, stream: bool) -> None:
    """Guarantees 11.11, 15.1: what came is named, and the address is what to look at."""
    page = Answer((b"<html><body>Welcome</body></html>",), headers=(("content-type", "text/html; charset=utf-8"),))
    failed = failing(vendor, page, stream=stream)
    assert (failed.kind, failed.status, failed.may_retry) == ("invalid", 200, False)
    assert "a web page (text/html)" in str(failed)
    assert "Check the URL: http://127.0.0.1:" in str(failed)


@ALL
def test_nothing_at_an_address_is_reported_of_the_address(vendor: Vendor) -> None:
    """Guarantee 15.1: a linter of requests would not help."""
    failed = failing(vendor, refused(404, {"error": {"message": "Not found"}}))
    assert (failed.kind, failed.status) == ("invalid", 404)
    assert "check the model's name and the URL" in str(failed)
    assert "lint" not in str(failed)


@ALL
def test_the_sdk_does_not_try_again_by_itself(vendor: Vendor) -> None:
    """Guarantee 11.11: retries are reported; a hidden retry would cost tokens without a trace."""
    failed = failing(vendor, refused(503, {"error": {"message": "Later"}}, retry_after="7"), vendor.streamed())
    assert (failed.kind, failed.status, failed.retry_after) == ("transient", 503, 7.0)


@ALL_WITH_A_KEY
def test_no_key_is_ever_in_an_error(vendor: Vendor) -> None:
    """Guarantee 13.3: error texts may be stored and shown."""
    failed = failing(vendor, refused(401, {"error": {"message": f"Bad key {KEY}, or Bearer {KEY}"}}))
    assert failed.kind == "auth", failed.said
    assert KEY not in str(failed)
    assert failed.__cause__ is None
    assert "Bad key [key]" in failed.said


@ALL
def test_an_error_in_the_middle_of_a_stream_is_given_and_raised(vendor: Vendor) -> None:
    """What came before it is kept with it."""
    error = vendor.overloaded
    got: list[JSONObject] = []

    async def read() -> None:
        async with loopback(vendor.streamed([*vendor.events[:1], error])) as server:
            provider = provider_at(vendor, server.url)
            async with cc.endpoint(provider) as line:
                async for event in line.stream(call_of(vendor, provider)):
                    got.append(event)

    with pytest.raises(cc.errors.ProviderFailed, match="Overloaded") as caught:
        asyncio.run(read())
    assert got == [*vendor.events[:1], error]
    assert (caught.value.kind, caught.value.code) == ("transient", vendor.code)


@ALL
def test_an_address_of_ones_own_gets_no_key_that_was_not_named(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 13.3: the key of one place is not shown to another."""
    for name in VARIABLES:
        monkeypatch.setenv(name, KEY)

    async def sent() -> dict[str, str]:
        async with loopback(vendor.streamed()) as server:
            provider = cc.provider(vendor.spec, url=server.url + vendor.base)
            async with cc.endpoint(provider) as line:
                assert [event async for event in line.stream(call_of(vendor, provider))] == vendor.events
            return server.arrived[0].headers

    assert KEY not in json.dumps(asyncio.run(sent()))


@ALL_WITH_A_KEY
def test_a_missing_key_reports_what_to_set(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_KEY")
    failed = failing(vendor, vendor.streamed(vendor.events))
    assert failed.kind == "auth"
    assert "TEST_KEY" in str(failed)


@pytest.mark.parametrize("vendor", [each for each in KEYED if each.needs_key], ids=lambda vendor: vendor.name)
def test_without_any_key_the_vendors_own_variable_is_named(
    vendor: Vendor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent before a key is there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    provider = cc.provider(vendor.spec)

    async def ask() -> None:
        async with cc.endpoint(provider) as line:
            async for _ in line.stream(call_of(vendor, provider)):
                pass

    with pytest.raises(cc.errors.ProviderFailed, match=vendor.variables[0]) as caught:
        asyncio.run(ask())
    assert (caught.value.kind, caught.value.status) == ("auth", None)


@ALL
def test_headers_of_a_call_are_added(vendor: Vendor) -> None:
    _, server = asyncio.run(asked(vendor, vendor.streamed(vendor.events), headers={"anthropic-beta": "some-2026"}))
    assert server.arrived[0].headers["anthropic-beta"] == "some-2026"


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini"])
def test_a_client_of_ones_own_is_used_and_left_open(name: str) -> None:
    """For proxies, certificates and tests: `http_client`, of httpx2 or httpx as the SDK takes it."""
    vendor, library = VENDORS[name], VENDORS[name].http_library

    def answer(request: Any) -> Any:
        content = b"".join(b"data: " + encode(event) + b"\n\n" for event in vendor.events)
        return library.Response(200, headers={"content-type": "text/event-stream"}, content=content)

    async def asked_through() -> list[JSONObject]:
        async with library.AsyncClient(transport=library.MockTransport(answer)) as client:
            provider = provider_at(vendor, "http://nowhere.invalid")
            async with cc.endpoint(provider, http_client=client) as line:
                events = [event async for event in line.stream(call_of(vendor, provider))]
            assert not client.is_closed
            return events

    assert asyncio.run(asked_through()) == vendor.events


def test_an_unknown_provider_is_not_called_at_another_address() -> None:
    """The OpenAI client is for many; without an address it would go to OpenAI, with OpenAI's key."""
    with pytest.raises(InvalidSetting, match="'groq': no address"):
        cc.endpoint(cc.provider("groq:llama-3.3-70b-versatile"))
    with pytest.raises(InvalidSetting, match="'anthropic': no address"):
        cc.endpoint(cc.provider("anthropic:claude-opus-5-5", format="openai_chat"))
    with pytest.raises(InvalidSetting, match="must start with http"):
        cc.endpoint(cc.provider("mine:own", url="127.0.0.1:8080/v1", window=9_000))
    with pytest.raises(InvalidSetting, match=r"expected a module of .*, got 'telex'"):
        cc.endpoint(cc.provider("mine:own", client="telex", window=9_000))
    with pytest.raises(InvalidSetting, match="seconds"):
        cc.endpoint(cc.provider("anthropic:claude-opus-5-5"), timeout=-1)


@pytest.mark.parametrize("vendor", some(list(VENDORS.values()), 1), ids=lambda vendor: vendor.name)
def test_the_loop_continues_while_an_sdk_is_loaded(vendor: Vendor) -> None:
    """Loading one takes a second or more, in which other turns go on."""
    code = f"""
import asyncio
import contextc as cc
from contextc.providers import ProviderCall
provider = cc.provider({vendor.spec!r}, url="http://127.0.0.1:9", key="TEST_KEY")
ticks = 0
async def tick():
    global ticks
    while True:
        await asyncio.sleep(0.005)
        ticks += 1
async def ask():
    task = asyncio.ensure_future(tick())
    await asyncio.sleep(0)
    try:
        async for _ in cc.endpoint(provider).stream(ProviderCall(provider=provider, body=b"{{}}")): pass
    except cc.errors.ProviderFailed:
        print(ticks)
asyncio.run(ask())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 10


def test_nothing_of_an_sdk_is_loaded_before_it_is_used() -> None:
    """An import of contextc costs next to nothing."""
    modules = ", ".join(f"contextc.providers.{each.name}" for each in iter_modules(providers.__path__))
    code = f"""
import sys, {modules}
print(sorted({ {vendor.package for vendor in VENDORS.values()} | {"httpx", "httpx2", "asyncio"}!r} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("[]", "['asyncio']")


@pytest.mark.parametrize("vendor", some(list(VENDORS.values()), 2), ids=lambda vendor: vendor.name)
def test_a_missing_an_old_and_a_broken_sdk_explain_what_to_install(vendor: Vendor) -> None:
    """Guarantee 15.1: the error says which of the three it is, and the command that helps."""
    code = f"""
import asyncio, importlib.metadata, sys
import contextc as cc
from contextc.providers import ProviderCall
provider = cc.provider("{vendor.name}:own", window=9000)
found = importlib.metadata.version
def pretend(answer):
    def version(name):
        if name != {vendor.distribution!r}:
            return found(name)
        if answer is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return answer
    importlib.metadata.version = version
async def ask():
    try:
        async for _ in cc.endpoint(provider).stream(ProviderCall(provider=provider, body=b"{{}}")): pass
    except cc.errors.InvalidSetting as error:
        print(error)
pretend(None)
asyncio.run(ask())
pretend("0.0.1")
asyncio.run(ask())
pretend("99.1")
sys.modules[{vendor.package!r}] = None
asyncio.run(ask())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    missing, old, broken = done.stdout.splitlines()
    package, extra = repr(vendor.distribution), f"'contextc[{cc.provider(vendor.spec).client}]'"
    assert missing == f"package {package} is not installed. Install it: pip install {extra}"
    assert old.startswith(f"package {package}: expected version ")
    assert old.endswith(f" or newer, got '0.0.1'. Upgrade it: pip install --upgrade {extra}")
    assert broken.startswith(f"package {package} 99.1 cannot be imported: ModuleNotFoundError")
    assert broken.endswith(f"Reinstall it: pip install --force-reinstall {extra}")


@pytest.mark.parametrize("form", ["openai_chat", "openai_responses", "anthropic", "gemini", "mistral", "ollama"])
async def test_a_redirect_is_not_followed(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 9.11: it would take the conversation to another address. The error names it, and is not retried."""
    monkeypatch.setenv("STANDIN_KEY", "a-key-of-a-provider")

    async with loopback() as other:
        moved = Answer(status=307, headers=(("location", f"{other.url}/v1/other"),))
        async with loopback(moved) as server:
            provider = cc.provider(
                f"standin-{form.replace('_', '-')}:m", url=f"{server.url}/v1", key="STANDIN_KEY", format=form,
                window=100_000, output=1_000,
            )  # fmt: skip
            executor = cc.AgentExecutor(cc.open_store("memory:"), provider, triggers=())
            done = await executor.start("x", "private").wait()
            assert len(server.arrived) == 1
        assert other.arrived == []
        assert not other.open
    assert isinstance(done.error, ProviderFailed)
    assert (done.error.kind, done.error.status) == ("invalid", 307)
    assert "redirects to http://127.0.0.1, and redirects are not followed" in str(done.error)

"""Injected faults as the vendors' SDKs report them."""

import asyncio
import time
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
import pytest

from contextc._json import JSONObject, encode
from contextc.formats.registry import formatter
from contextc.messages import Message, user
from tests.conftest import some
from tests.fake_vendors import KEY, FakeVendors, Fault, RandomFaults, Reply, RequestRecord, faults, listed
from tests.fake_vendors.sdks import Happened, SDKClient, client_of, clients
from tests.fake_vendors.server import head_of
from tests.fake_vendors.vendor import Trouble

TEXT = "A sentence that is long enough to come in a number of pieces, one after the other."


def body(client: SDKClient) -> JSONObject:
    return client.body([user("Say something.")])


def failed(client: SDKClient, fault: Fault, *, stream: bool = True, timeout: float = 10) -> tuple[Any, RequestRecord]:
    """What an SDK raises. Any: the three have no error in common."""
    with FakeVendors(lambda ask: Reply(TEXT), faults=listed(fault)) as standin:
        ask = client.events if stream else client.whole
        with pytest.raises(Exception) as caught:  # noqa: PT011 - see above
            ask(standin.url(client.name), body(client), timeout=timeout)
        assert formatter(client.format).decode_reply(client.whole(standin.url(client.name), body(client))).text == TEXT
        first, second = standin.records
        assert (first.fault, first.completed, second.completed) == (fault.name, False, True)
        return caught.value, first


@pytest.mark.parametrize("kind", ["overloaded", "internal", "unavailable", "rate"])
@pytest.mark.parametrize("stream", some([True, False], 1), ids=lambda stream: "stream" if stream else "whole")
def test_trouble_has_the_vendors_status_and_class(client: SDKClient, kind: Trouble, stream: bool) -> None:
    """Guarantee 11.11: what is worth another attempt looks as it does in the field."""
    error, record = failed(client, faults.trouble(kind), stream=stream)
    status, name = client.troubles[kind]
    assert (record.status, type(error).__name__) == (status, name)
    assert client.status(error) == status


def test_an_empty_account_looks_like_one(client: SDKClient) -> None:
    """Guarantee 11.11: no further attempt will help."""
    error, record = failed(client, faults.quota())
    status, text = client.quota
    assert record.status == status
    assert text in f"{error} {getattr(error, 'code', '')}"


def waits(client: SDKClient, fault: Fault) -> dict[str, str]:
    error, _ = failed(client, fault)
    return {name: value for name, value in client.headers(error).items() if name.startswith("retry-after")}


def test_a_rate_limit_reports_when_to_come_back(client: SDKClient) -> None:
    """Guarantee 11.11: in a header, in milliseconds, or, at Google, in the body."""
    assert waits(client, faults.rate(2.5)) == client.waits
    assert waits(client, faults.rate(2.5, form="seconds")) == {"retry-after": "2.5"}
    assert waits(client, faults.rate(2.5, form="none")) == {}
    date = parsedate_to_datetime(waits(client, faults.rate(60, form="date"))["retry-after"])
    assert 50 < date.timestamp() - time.time() < 70


def test_google_reports_in_the_body_when_to_come_back() -> None:
    """`RetryInfo`."""
    error, _ = failed(client_of("gemini"), faults.rate(2.5))
    assert error.details["error"]["details"][0]["retryDelay"] == "2.5s"


@pytest.mark.parametrize("at", some([0, 1, 0.5, -1], 2))
def test_a_line_that_is_cut_leaves_the_stream_incomplete(client: SDKClient, at: float) -> None:
    """Guarantee 11.11: at any event, by an end without a last chunk, or by a reset."""
    error, _ = failed(client, faults.cut(at))
    assert client.words["cut"] in chain(error)
    error, _ = failed(client, faults.cut(at, reset=True))
    assert client.words["reset"] in chain(error) or client.words["reset at once"] in chain(error)


def test_a_whole_reply_may_be_cut_as_well(client: SDKClient) -> None:
    error, _ = failed(client, faults.cut(), stream=False)
    assert client.words["cut whole"] in chain(error)


@pytest.mark.parametrize(("fault", "kind"), [(faults.reset(), "reset at once"), (faults.closed(), "closed at once")])
def test_a_line_may_go_before_anything_came(client: SDKClient, fault: Fault, kind: Happened) -> None:
    """Guarantee 11.11: resets are real, sent by the kernel."""
    error, record = failed(client, fault)
    assert record.status == 0
    assert client.words[kind] in chain(error)


@pytest.mark.parametrize("fault", some([faults.stalled(), faults.hang()], 1), ids=lambda fault: fault.name)
def test_silence_lasts_until_the_client_gives_up(client: SDKClient, fault: Fault) -> None:
    """Guarantee 11.11: a time limit is the client's own."""
    error, _ = failed(client, fault, timeout=0.3)
    assert client.words["silent"] in chain(error)


def chain(error: BaseException | None) -> str:
    """Return an error and its causes as text."""
    found: list[str] = []
    while error is not None:
        found.append(repr(error))
        error = error.__cause__ or error.__context__
    return " ".join(found)


def streamed(client: SDKClient, fault: Fault) -> Message:
    with FakeVendors(lambda ask: Reply(TEXT), faults=listed(fault)) as standin:
        return formatter(client.format).decode_stream(client.events(standin.url(client.name), body(client)))


def test_a_stream_that_ends_early_does_not_report_that_it_is_done(client: SDKClient) -> None:
    """Guarantee 11.10: no error is raised, so only the missing end shows it."""
    message = streamed(client, faults.ended())
    assert message.finish is None
    assert message.text
    assert TEXT.startswith(message.text)
    assert message.text != TEXT


def test_a_slow_stream_is_a_whole_one(client: SDKClient) -> None:
    started = time.perf_counter()
    assert streamed(client, faults.slow(0.01)).text == TEXT
    assert time.perf_counter() - started > 0.05


def test_a_garbled_event_cannot_be_read(client: SDKClient) -> None:
    """Guarantee 11.11: a malformed event is as good as a cut."""
    error, _ = failed(client, faults.garbled())
    assert client.words["garbled"] in chain(error)


@pytest.mark.parametrize("client", [client for client in clients() if client.inside], ids=lambda client: client.name)
def test_an_error_inside_a_stream_is_raised_by_the_sdk(client: SDKClient) -> None:
    """Guarantee 11.11: status 200, and then an error event."""
    for kind, expected in zip(("overloaded", "internal"), client.inside or (), strict=True):
        error, record = failed(client, faults.error_inside(kind=kind))
        assert record.status == 200
        assert expected in str(error)


def test_an_error_inside_responses_is_an_event_of_its_own() -> None:
    """Guarantee 11.11: the SDK passes it on; the reader of the stream must check it."""
    message = streamed(client_of("openai_responses"), faults.error_inside())
    assert (message.status, message.error) == ("error", "Our servers are currently overloaded. Please try again later.")
    message = streamed(client_of("openai_responses"), faults.error_inside(kind="internal"))
    assert (message.status, message.finish) == ("error", "error")


def test_the_port_is_closed_for_a_while(client: SDKClient) -> None:
    """Guarantee 11.11: a refused connection, and afterwards the same address again."""
    with FakeVendors(lambda ask: Reply(TEXT)) as standin:
        with standin.refusing(), pytest.raises(Exception) as caught:  # noqa: PT011
            client.whole(standin.url(client.name), body(client))
        assert "refused" in chain(caught.value)
        client.whole(standin.url(client.name), body(client))
        assert len(standin.records) == 1


@pytest.fixture
def bytes_sent() -> bytes:
    message = {"role": "user", "content": "a"}
    return encode({"model": "claude-opus-5-5", "max_tokens": 9, "stream": True, "messages": [message]})


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        (faults.cut(), httpx2.RemoteProtocolError),
        (faults.cut(reset=True), httpx2.ReadError),
        (faults.reset(), httpx2.ReadError),
        (faults.closed(), httpx2.RemoteProtocolError),
        (faults.hang(), httpx2.ReadTimeout),
        (faults.stalled(), httpx2.ReadTimeout),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_the_transport_raises_the_errors_of_a_connection(
    fault: Fault, raised: type[Exception], bytes_sent: bytes
) -> None:
    """One answer, acted out twice."""
    headers = {"x-api-key": KEY, "anthropic-version": "2026-10-21", "content-type": "application/json"}
    standin = FakeVendors(lambda ask: Reply(TEXT), faults=listed(fault, fault))

    async def post(client: httpx2.AsyncClient, url: str) -> None:
        async with client:
            await client.post(f"{url}/v1/messages", headers=headers, content=bytes_sent)

    with standin:
        timeout = 0.2 if raised is httpx2.ReadTimeout else 60
        for client, url in (
            (httpx2.AsyncClient(transport=standin.transport(), timeout=timeout), "http://standin"),
            (httpx2.AsyncClient(verify=False, timeout=timeout), standin.url()),
        ):
            with pytest.raises(raised):
                asyncio.run(post(client, url))


def test_faults_end_for_every_request(bytes_sent: bytes) -> None:
    """No request fails more often than it is tried; and the same seed has the same faults."""
    headers = {"x-api-key": KEY, "anthropic-version": "2026-10-21", "content-type": "application/json"}
    head = head_of("POST", "/v1/messages", [(name.encode(), value.encode()) for name, value in headers.items()])
    seen: list[list[str]] = []
    for _ in range(2):
        desk = FakeVendors(lambda ask: Reply(TEXT), faults=RandomFaults(1, share=1.0, most=3)).desk
        for _ in range(4):
            desk.answer(head, bytes_sent)
        seen.append([record.fault for record in desk.records])
    assert seen[0] == seen[1]
    assert [bool(fault) for fault in seen[0]] == [True, True, True, False]

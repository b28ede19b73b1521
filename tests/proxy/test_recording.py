"""Recording by another process: exactly once, and without credentials (Guarantees 16.5, 16.12 and 16.13)."""

import asyncio
import gzip
import json
import os
import signal
import time
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

import contextc as cc
from contextc._file_lock import is_locked
from contextc.inspection.raw_reply import find_raw_reply
from contextc.inspection.request_timeline import load_timeline
from contextc.observation.content_decoding import MAX_DECODED_BYTES, CannotDecode, decode_content
from contextc.proxy.proxy_server import ProxyServer, listen
from contextc.proxy.recorder_process import RecordedExchange, SpoolRecorder
from contextc.proxy.spool import FRAME, LOCK_FILE, ExchangeStart, GapLog, ResponseStart, Spool, SpoolReader
from contextc.proxy.upstreams import parse_upstream
from tests.conftest import often
from tests.fake_vendors import KEY, FakeVendors, Scripted

SECONDS = 120.0
MODEL = "claude-opus-4-5"
QUERY_KEY = "key-in-the-query-0123456789"


def body_of(number: int) -> bytes:
    content = [{"role": "user", "content": f"Question {number}"}]
    return json.dumps({"model": MODEL, "max_tokens": 100, "messages": content}).encode()


def reply_of(number: int) -> bytes:
    text = [{"type": "text", "text": f"Answer {number}"}]
    usage = {"input_tokens": 10, "output_tokens": 5}
    return json.dumps(
        {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": MODEL, "content": text,
         "stop_reason": "end_turn", "usage": usage}
    ).encode()  # fmt: skip


@contextmanager
def running_proxy(tmp_path: Path, upstream: str, **options: object) -> Generator[tuple[ProxyServer, str]]:
    proxy = ProxyServer(
        f"sqlite:///{tmp_path}/store.db",
        {"anthropic": parse_upstream("anthropic", upstream)},
        folder=tmp_path / "spool",
        **options,  # pyright: ignore[reportArgumentType]
    )
    try:
        with listen("127.0.0.1", 0) as listening, proxy.running(listening) as url:
            yield proxy, url
    finally:
        proxy.close(0)


def stored(tmp_path: Path) -> list[tuple[str, int]]:
    """Return the observed conversations, and how many requests each has."""
    with cc.open_store(f"sqlite:///{tmp_path}/store.db") as store:
        rows = store.read(
            lambda tx: tx.rows(
                "SELECT c.conversation, count(*) FROM main.channel c"
                " JOIN main.manifest m ON m.place / 4294967296 = c.number"
                " GROUP BY c.conversation ORDER BY c.conversation"
            )
        )
    return [(name, count) for name, count in rows]


def send(url: str, number: int, client: httpx2.Client, **headers: str) -> httpx2.Response:
    return client.post(
        f"{url}/anthropic/v1/messages?key={QUERY_KEY}",
        content=body_of(number),
        headers={
            "x-api-key": KEY, "anthropic-version": "2023-06-01", "content-type": "application/json",
            "authorization": f"Bearer {KEY}", "cookie": f"session={KEY}", **headers,
        },
    )  # fmt: skip


def files_with(folder: Path, secret: bytes) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and secret in path.read_bytes()]


def test_requests_through_the_proxy_are_recorded_without_credentials(tmp_path: Path) -> None:
    """The body is stored to the byte. Keys in headers and in the query are in no file, at no time."""
    found: list[str] = []
    with (
        FakeVendors(Scripted([f"Answer {number}" for number in range(3)])) as fake,
        httpx2.Client(timeout=SECONDS) as client,
    ):
        with running_proxy(tmp_path, fake.url()) as (proxy, url):
            for number in range(3):
                answer = send(url, number, client, **{"x-contextc-conversation": f"talk {number}"})
                assert answer.json()["content"][0]["text"] == f"Answer {number}"
                found += files_with(tmp_path, KEY.encode()) + files_with(tmp_path, QUERY_KEY.encode())
            assert proxy.recorder.wait_for(3, SECONDS)
            status = client.get(f"{url}/contextc/status").json()
            assert (status["requests"], status["recorded"], status["open"], status["gaps"]["count"]) == (3, 3, 0, 0)
            assert proxy.close()
        assert [record.raw for record in fake.records] == [body_of(number) for number in range(3)]
    found += files_with(tmp_path, KEY.encode()) + files_with(tmp_path, QUERY_KEY.encode())
    assert found == []
    assert stored(tmp_path) == [(f"talk {number}", 1) for number in range(3)]
    with cc.open_store(f"sqlite:///{tmp_path}/store.db") as store:
        assert [message.text for message in store.load("talk 1")] == ["Question 1", "Answer 1"]
        (request,) = load_timeline(store, "talk 1")
        assert request.first_chunk is not None
        assert request.latency is not None
        assert 0 <= request.first_chunk <= request.latency
        raw = find_raw_reply(store, request.channel, request.record.request)
        assert raw is not None
        assert json.loads(raw.data)["content"][0]["text"] == "Answer 1"
        assert (raw.status, raw.size, sum(size for _, size in raw.pieces)) == (200, len(raw.data), len(raw.data))
        assert all(0 <= time <= request.latency for time, _ in raw.pieces)
        assert KEY.encode() not in raw.data
    assert proxy.summary.requests == 3
    assert not list((tmp_path / "spool").iterdir())


def test_a_recorder_that_is_killed_records_everything_once(tmp_path: Path) -> None:
    """Killed again and again: every request succeeds, and each is in the store once."""
    count = often(12, 200)
    script = Scripted([f"Answer {number}" for number in range(count)])
    with (
        FakeVendors(script, strict=False) as fake,
        httpx2.Client(timeout=SECONDS) as client,
        running_proxy(tmp_path, fake.url()) as (proxy, url),
    ):
        for number in range(count):
            assert send(url, number, client).status_code == 200
            if number % 6 == 2:
                assert proxy.recorder.wait_for(number // 2, SECONDS)
                if (pid := proxy.recorder.pid) is not None:
                    os.kill(pid, signal.SIGKILL)
        assert proxy.recorder.wait_for(count, SECONDS)
        assert proxy.close()
    assert proxy.recorder.restarts >= 1
    assert proxy.gaps.count == 0
    assert sum([requests for _, requests in stored(tmp_path)]) == proxy.summary.requests == count


def test_a_store_that_cannot_be_opened_delays_the_record_only(tmp_path: Path) -> None:
    """Requests succeed meanwhile, the status shows the error, and everything is recorded afterwards."""
    (tmp_path / "store.db").mkdir()
    with (
        FakeVendors(Scripted(["one", "two"]), strict=False) as fake,
        httpx2.Client(timeout=SECONDS) as client,
        running_proxy(tmp_path, fake.url()) as (proxy, url),
    ):
        for number in range(2):
            assert send(url, number, client).status_code == 200
        end = time.monotonic() + SECONDS
        while not (error := client.get(f"{url}/contextc/status").json()["recorder"]["error"]):
            assert time.monotonic() < end
            time.sleep(0.01)
        assert "store.db" in error
        (tmp_path / "store.db").rmdir()
        assert proxy.recorder.wait_for(2, SECONDS)
        assert proxy.close()
    assert sum([requests for _, requests in stored(tmp_path)]) == 2


# ── without a process ─────────────────────────────────────────────────────────────────────────────────────────────────


def spooled(
    folder: Path,
    *,
    request: bytes | None = None,
    reply: bytes | None = None,
    ends: bool = True,
    headers: dict[str, str] | None = None,
    encoding: str = "",
) -> Spool:
    spool = Spool(folder, GapLog())
    record = spool.begin(
        ExchangeStart(
            upstream="anthropic", url="https://api.anthropic.com/v1/messages", format="anthropic", headers=headers or {}
        )
    )
    record.request(body_of(1) if request is None else request)
    record.sent()
    record.response(ResponseStart(status=200, encoding=encoding))
    record.reply(reply_of(1) if reply is None else reply)
    if ends:
        record.end("complete")
    return spool


def record_all(folder: Path, store: cc.Store, skip: Sequence[str] = ()) -> list[RecordedExchange]:
    recorder = SpoolRecorder(folder, store, skip=skip)
    return [done for _, done in [*recorder.record_ended(), *recorder.record_rest()] if done is not None]


def test_a_spool_that_is_read_twice_is_recorded_once(tmp_path: Path) -> None:
    """A recorder that is killed between its transaction and the removal of the segment reads the exchange again."""
    store = cc.open_store("memory:")
    spooled(tmp_path / "run").close()
    killed = SpoolRecorder(tmp_path / "run", store).record_ended()
    first = [next(killed)[1], next(killed)[1]][1:]
    again = record_all(tmp_path / "run", store)
    assert first == again
    assert len(store.load(again[0].conversation)) == 2


def test_what_is_recorded_leaves_the_spool(tmp_path: Path) -> None:
    """Guarantee 16.13: also if an exchange beside it is still open, or if it could not be recorded."""
    store, folder = cc.open_store("memory:"), tmp_path / "run"
    spool = Spool(folder, GapLog())
    start = ExchangeStart(upstream="anthropic", url="https://api.anthropic.com/v1/messages", format="anthropic")
    one, two, three = [spool.begin(start) for _ in range(3)]
    for number, record in ((1, one), (2, two), (3, three)):
        record.request(body_of(number))
    for record, status in ((one, 200), (three, 200), (two, 200)):
        record.sent()
        record.response(ResponseStart(status=status))
    one.reply(reply_of(1))
    one.end("complete")
    while not files_with(folder, b"Question 3"):  # what is dropped before is not written
        time.sleep(0.001)
    three.drop("it was too large")
    recorder = SpoolRecorder(folder, store)
    done = list[RecordedExchange]()
    while len(done) < 2:
        done += [each for _, each in recorder.record_ended() if each is not None]
    assert {each.exchange: each.problem for each in done} == {"run/1": "", "run/3": "it was too large"}
    assert files_with(folder, b"Question 2")
    assert not [text for text in (b"Question 1", b"Answer 1", b"Question 3") if files_with(folder, text)]
    two.reply(reply_of(2))
    two.end("complete")
    spool.close()
    assert [done.exchange for done in record_all(folder, store)] == ["run/2"]
    assert len(store.conversations()) == 2


def test_an_erasure_that_was_interrupted_is_completed(tmp_path: Path) -> None:
    """A recorder that was killed while it erased leaves frames without a beginning. The next one erases them, too."""
    store, folder = cc.open_store("memory:"), tmp_path / "run"
    spooled(folder).close()
    (path,) = folder.glob("*.frames")
    (exchange,) = SpoolReader(folder).read()
    segment, first, _ = exchange.spans[0]
    reader = SpoolReader(folder)
    begin_end = FRAME.unpack(path.read_bytes()[first : first + FRAME.size])[4] + FRAME.size
    exchange.spans[:] = [(segment, first, first + begin_end)]
    reader.erase(exchange)
    assert files_with(folder, b"Question 1")
    recorder = SpoolRecorder(folder, store)
    assert list(recorder.record_ended()) == []
    assert not files_with(folder, b"Question 1")


def test_the_spool_of_a_proxy_that_was_killed_is_recorded_by_the_next_one(tmp_path: Path) -> None:
    """What was not complete is recorded as unfinished."""
    left = spooled(tmp_path / "spool" / "earlier", reply=b"", ends=False)
    while left.queued_bytes:
        pass
    left._write([])  # pyright: ignore[reportPrivateUsage]
    os.close(left._lock)  # pyright: ignore[reportPrivateUsage]
    assert not is_locked(tmp_path / "spool" / "earlier" / LOCK_FILE)
    with running_proxy(tmp_path, "http://127.0.0.1:9") as (proxy, _):
        assert proxy.recorder.wait_for(1, SECONDS)
        assert proxy.close()
    assert [count for _, count in stored(tmp_path)] == [1]
    assert not list((tmp_path / "spool").iterdir())


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "x-gzip", "gzip, deflate", "identity", ""])
def test_compressed_bodies_are_recorded_decoded(tmp_path: Path, encoding: str) -> None:
    def compress(content: bytes) -> bytes:
        for name in filter(None, encoding.split(", ")):
            content = {"deflate": zlib.compress, "identity": bytes}.get(name, gzip.compress)(content)
        return content

    store = cc.open_store("memory:")
    headers = {"content-encoding": encoding}
    request, reply = compress(body_of(1)), compress(reply_of(1))
    spooled(tmp_path / "run", request=request, reply=reply, headers=headers, encoding=encoding).close()
    (done,) = record_all(tmp_path / "run", store)
    assert done.status == "ok"
    assert [message.text for message in store.load(done.conversation)] == ["Question 1", "Answer 1"]


def test_a_compressed_reply_that_broke_off_is_recorded_as_far_as_it_arrived() -> None:
    content = os.urandom(50_000)
    packed = gzip.compress(content)
    assert content.startswith(decode_content(packed[:30_000], "gzip"))
    assert len(decode_content(packed[:30_000], "gzip")) > 20_000
    with pytest.raises(CannotDecode, match="damaged"):
        decode_content(b"\x1f\x8b no gzip at all", "gzip")
    raw = zlib.compressobj(wbits=-15)
    assert decode_content(raw.compress(content) + raw.flush(), "deflate") == content
    assert decode_content(gzip.compress(b"a") + gzip.compress(b"b"), "gzip") == b"ab"


@pytest.mark.parametrize("encoding", ["br", "zstd", "unknown"])
def test_what_cannot_be_decoded_is_recorded_as_unreadable_with_the_reason(tmp_path: Path, encoding: str) -> None:
    store = cc.open_store("memory:")
    spooled(tmp_path / "one", reply=b"?????", encoding=encoding).close()
    (done,) = record_all(tmp_path / "one", store)
    assert done.status == "error"
    spooled(tmp_path / "two", request=b"?????", headers={"content-encoding": encoding}).close()
    (done,) = record_all(tmp_path / "two", store)
    assert done.is_gap
    assert encoding in done.problem


def pack(encoding: str, content: bytes) -> bytes:
    """Return compressed content. The libraries for br and zstd may be missing."""
    if encoding == "br":
        return bytes(pytest.importorskip("brotli").compress(content, quality=5))
    if encoding == "zstd":
        return bytes(pytest.importorskip("zstandard").ZstdCompressor().compress(content))
    return gzip.compress(content, 1)


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
def test_what_decodes_to_more_than_a_limit_is_recorded_as_that(tmp_path: Path, encoding: str) -> None:
    """A few kilobytes can decode to gigabytes. It is decoded in pieces, up to the limit."""
    small, bomb = os.urandom(2_000_000), pack(encoding, bytes(MAX_DECODED_BYTES + 1))
    assert decode_content(pack(encoding, small), encoding) == small
    assert len(bomb) < 1_000_000
    spooled(tmp_path / "one", reply=bomb, encoding=encoding).close()
    store = cc.open_store("memory:")
    (done,) = record_all(tmp_path / "one", store)
    (entry,) = load_timeline(store, done.conversation)
    assert entry.record.observed is not None
    assert "larger than 128 MB" in entry.record.observed.error
    with pytest.raises(CannotDecode, match="5 content encodings"):
        decode_content(b"", ", ".join([encoding] * 5))


def test_an_exchange_that_stops_the_recorder_is_left_out(tmp_path: Path) -> None:
    spooled(tmp_path / "run").close()
    (done,) = record_all(tmp_path / "run", cc.open_store("memory:"), skip=["run/1"])
    assert done.is_gap
    assert "stopped" in done.problem


def test_a_store_in_memory_is_refused() -> None:
    with pytest.raises(cc.errors.InvalidSetting, match="other processes"):
        ProxyServer("memory:", {})


def test_requests_are_accepted_before_the_recorder_starts(tmp_path: Path) -> None:
    """What uses the proxy does not wait for another process. What it sends meanwhile is in the spool."""
    proxy = ProxyServer(f"sqlite:///{tmp_path}/store.db", {}, folder=tmp_path / "spool")
    seen: list[object] = []

    async def serve() -> None:
        stop = asyncio.Event()

        def ready() -> None:
            seen.append(proxy.recorder.pid)
            stop.set()

        with listen("127.0.0.1", 0) as listening:
            await proxy.run(listening, stop, ready)

    asyncio.run(serve())
    assert proxy.close()
    assert seen == [None]

"""The spool: bounded, private, readable after any interruption. A failure is a gap, never an error of a request
(Guarantee 16.12).
"""

import asyncio
import errno
import gzip
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextc.observation.exchange_redaction import CredentialMask
from contextc.proxy import spool as spool_module
from contextc.proxy.spool import (
    QUEUE_FULL,
    SPOOL_FULL,
    TOO_LARGE,
    ExchangeStart,
    GapLog,
    ResponseStart,
    Spool,
    SpooledExchange,
    SpoolLimits,
    SpoolReader,
)
from tests.conftest import often
from tests.proxy.raw_servers import OK, RawConnection, RawUpstream, post, running_relay

START = ExchangeStart(upstream="up", url="http://up/v1/messages", format="anthropic")


def write_exchange(spool: Spool, request: bytes = b"request", reply: bytes = b"reply") -> None:
    record = spool.begin(START)
    record.request(request)
    record.sent()
    record.response(ResponseStart(status=200))
    record.reply(reply)
    record.end("complete")


def contents(exchanges: list[SpooledExchange]) -> list[tuple[int, bytes, bytes]]:
    return [(each.number, b"".join(each.request), b"".join(each.reply)) for each in exchanges]


def test_random_interleaved_exchanges_are_read_as_they_were_written(tmp_path: Path) -> None:
    """A reader that runs beside the writer gets each exchange once, when it ends, and removes what it has read."""
    for seed in range(often(5, 200)):
        draw = random.Random(seed)
        folder = tmp_path / str(seed)
        spool = Spool(folder, GapLog(), limits=SpoolLimits(segment=draw.choice([100, 5_000, 1 << 20])))
        reader, read, open_ones, written = (
            SpoolReader(folder),
            list[SpooledExchange](),
            dict[int, Any](),
            list[tuple[int, bytes, bytes]](),
        )
        for _ in range(300):
            action = draw.random()
            if action < 0.2 or not open_ones:
                record = spool.begin(START)
                open_ones[record.number] = (record, [], [])
                continue
            number = draw.choice(list(open_ones))
            record, request, reply = open_ones[number]
            data = draw.randbytes(draw.randrange(300))
            if action < 0.6:
                request.append(data)
                record.request(data)
            elif action < 0.9:
                reply.append(data)
                record.reply(data)
            elif action < 0.97:
                record.end("complete")
                written.append((number, b"".join(request), b"".join(reply)))
                del open_ones[number]
            else:
                read += reader.read()
                reader.remove_read()
        spool.close()
        read += reader.read()
        assert contents(read) == written
        assert reader.is_closed
        assert {each.number for each in reader.read_unfinished()} == set(open_ones)
        reader.remove_folder()
        assert not folder.exists()


def test_a_spool_that_was_cut_off_anywhere_is_read_up_to_there(tmp_path: Path) -> None:
    """A proxy can be killed within a write. The exchanges before are complete, and the last one is unfinished."""
    spool = Spool(tmp_path / "run", GapLog())
    for number in range(3):
        write_exchange(spool, b"request %d" % number)
    spool.close()
    (segment,) = (tmp_path / "run").glob("*.frames")
    raw = segment.read_bytes()
    counts = set[int]()
    for end in range(0, len(raw), often(13, 1)):
        segment.write_bytes(raw[:end])
        reader = SpoolReader(tmp_path / "run")
        ended = contents(list(reader.read()))
        assert ended == [(number + 1, b"request %d" % number, b"reply") for number in range(len(ended))]
        assert len(list(reader.read_unfinished())) <= 1
        counts.add(len(ended))
    assert counts == {0, 1, 2, 3}


def test_damaged_bytes_are_not_read_as_content(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "run", GapLog())
    write_exchange(spool, b"the request")
    spool.close()
    (segment,) = (tmp_path / "run").glob("*.frames")
    segment.write_bytes(segment.read_bytes().replace(b"the request", b"the reqXest"))
    reader = SpoolReader(tmp_path / "run")
    assert list(reader.read()) == []
    assert [each.is_sent for each in reader.read_unfinished()] == [False]


def test_the_files_are_private(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "folder" / "run", GapLog())
    write_exchange(spool)
    spool.close()
    for path in [tmp_path / "folder", tmp_path / "folder" / "run"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (tmp_path / "folder" / "run").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (SpoolLimits(queue=2_000), QUEUE_FULL),
        (SpoolLimits(folder=2_000), SPOOL_FULL),
        (SpoolLimits(exchange=2_000), TOO_LARGE),
    ],
)
async def test_what_exceeds_a_limit_is_a_gap_and_the_request_succeeds(
    tmp_path: Path, limits: SpoolLimits, reason: str
) -> None:
    async with RawUpstream() as upstream, running_relay(upstream.url, tmp_path, limits=limits) as relay:
        assert (await relay.send(post(body=bytes(100)))).endswith(b"ok")
        assert (await relay.send(post(body=bytes(100_000)))).endswith(b"ok")
        assert [len(each) > 100_000 for each in upstream.requests] == [False, True]
        recorded = relay.recorded()
        assert [len(each.request) for each in recorded if not each.problem] == [1]
        assert relay.gaps.counts == {reason: 1}
        assert relay.gaps.last[0].time > 1_600_000_000_000


class FullDisk:
    """A file on a disk that is full after some bytes."""

    def __init__(self, file: Any, room: list[int]) -> None:
        self.file, self.room = file, room

    def write(self, data: Any) -> int:
        size = min(len(data), self.room[0])
        if not size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room[0] -= size
        return self.file.write(bytes(data)[:size])

    def truncate(self, size: int) -> None:
        self.file.truncate(size)

    def close(self) -> None:
        self.file.close()


@pytest.mark.parametrize("room", [0, 100, 350])
async def test_a_full_disk_is_a_gap_and_the_record_goes_on_when_there_is_room(
    tmp_path: Path, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request succeeds. Those that could not be written are gaps, those before and after are complete."""
    left = [room]
    opened: Callable[..., Any] = os.fdopen

    def open_on_full_disk(handle: int, mode: str, buffering: int) -> FullDisk:
        return FullDisk(opened(handle, mode, buffering=buffering), left)

    monkeypatch.setattr(spool_module.os, "fdopen", open_on_full_disk)

    async with RawUpstream() as upstream, running_relay(upstream.url, tmp_path) as relay:
        while not relay.gaps.count:
            assert (await relay.send(post(body=b"before"))).endswith(b"ok")
        left[0] = 1 << 30
        for _ in range(3):
            assert (await relay.send(post(body=b"after"))).endswith(b"ok")
        recorded = [b"".join(each.request) for each in relay.recorded() if not each.problem]
    assert recorded.count(b"after") == 3
    lost = len(upstream.requests) - len(recorded)
    assert lost > 0
    assert relay.gaps.counts == {"the spool could not be written: No space left on device": lost}


async def test_the_relay_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a write hangs, requests pass."""
    is_free, has_begun = spool_module.Event(), spool_module.Event()
    append = Spool._append  # pyright: ignore[reportPrivateUsage]

    def hang(self: Spool, content: bytes | list[bytes]) -> None:
        has_begun.set()
        is_free.wait()
        append(self, content)

    monkeypatch.setattr(Spool, "_append", hang)

    async with RawUpstream() as upstream, running_relay(upstream.url, tmp_path) as relay:
        assert (await relay.send(post())).startswith(OK[:15])
        has_begun.wait()
        for _ in range(20):
            assert (await relay.send(post())).startswith(OK[:15])
        is_free.set()
        assert len(relay.recorded()) == 21


def chunked(data: bytes, size: int) -> bytes:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join([b"%x\r\n%b\r\n" % (len(each), each) for each in pieces]) + b"0\r\n\r\n"


@pytest.mark.parametrize("shape", ["plain", "chunked", "gzip", "pieces", "stream", "unreadable"])
async def test_a_credential_that_the_upstream_quotes_is_not_written(tmp_path: Path, shape: str) -> None:
    """The client gets the reply as it is. The record has asterisks, however the reply was split or compressed."""
    key, cookie, query = "sk-ant-" + "K9x" * 9, "cookie-0123456789", "query-0123456789"
    content = f'{{"error": {{"message": "Incorrect key: {key}, {cookie}, {query}"}}}}'.encode()
    coded = gzip.compress(content) if shape == "gzip" else content
    body = chunked(coded, 7) if shape == "chunked" else coded
    status = b"200 OK" if shape in ("pieces", "stream") else b"401 Unauthorized"
    framing = b"Transfer-Encoding: chunked" if shape == "chunked" else b"Content-Length: %d" % len(body)
    encoding = {"gzip": b"Content-Encoding: gzip\r\n", "unreadable": b"Content-Encoding: gzip\r\n"}.get(shape, b"")
    reply = b"HTTP/1.1 %b\r\n%b%b\r\n\r\n%b" % (status, encoding, framing, body)

    async def answer(connection: RawConnection, request: bytes) -> None:
        if shape != "pieces":
            await connection.send(reply)
            return
        for at in range(0, len(reply), 11):
            await connection.send(reply[at : at + 11])
            await asyncio.sleep(0)

    async with RawUpstream(answer) as upstream, running_relay(upstream.url, tmp_path) as relay:
        path = f"/up/v1/messages?key={query}"
        headers = (f"Authorization: Bearer {key}", f"Cookie: a=b; session={cookie}")
        assert (await relay.send(post(path, b"{}", *headers))).endswith(body)
        (exchange,) = relay.recorded()
    assert exchange.response is not None
    if shape == "unreadable":
        assert "cannot be read" in exchange.response.error
        return
    masked = content
    for each in (key, cookie, query):
        masked = masked.replace(each.encode(), b"*" * len(each))
    assert b"".join(exchange.reply) == masked
    assert exchange.response == ResponseStart(status=int(status[:3]))


def test_masks_find_credentials_in_any_pieces() -> None:
    generator = random.Random(5)
    for _ in range(often(50, 2_000)):
        keys = ["".join(generator.choices("ab", k=generator.randint(8, 10))) for _ in range(2)]
        content = "".join([generator.choice([*keys, "a", "b", "ab", keys[0][:5]]) for _ in range(20)]).encode()
        mask, found, at = CredentialMask(keys), b"", 0
        while at < len(content):
            size = generator.randint(1, 9)
            found += mask.feed(content[at : at + size])
            at += size
        found += mask.finish()
        assert len(found) == len(content)
        assert not any(key.encode() in found for key in keys)

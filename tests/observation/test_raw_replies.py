"""Responses of other software are kept as they arrived: bounded, timed, without credentials, redacted as a whole."""

import json
import zlib
from collections.abc import Iterator

import httpx
import pytest

import contextc as cc
from contextc.inspection.raw_reply import RawEvent, find_raw_reply, view_raw_reply
from contextc.observation.content_decoding import measure_pieces
from contextc.observation.observed_request import ObservedRequest
from contextc.store.raw_replies import MAX_BYTES, MAX_PIECES, RawReply, pack_raw_reply
from tests.observation.test_observe import chat

URL = "https://api.openai.com/v1/chat/completions"
SECRET = "sk-proj-" + "abcdefghijklmnop0123456789" * 2
BEGAN = 1_000_000


def chunk(text: str) -> bytes:
    event = {
        "id": "r",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": text}}],
    }
    return f"data: {json.dumps(event)}\n\n".encode()


END = b"data: [DONE]\n\n"


def record(
    store: cc.Store, *pieces: bytes, text: str = "Hello.", redact: object = None, headers: dict[str, str] | None = None
) -> ObservedRequest:
    """Record a streamed reply whose pieces arrive every 100 ms."""
    return cc.observe(
        store,
        request=json.dumps(chat(text)).encode(),
        reply=b"".join(pieces),
        url=URL,
        status=200,
        time=BEGAN,
        headers=headers,
        redact=redact,  # pyright: ignore[reportArgumentType]
        pieces=[(100 * (number + 1), len(each)) for number, each in enumerate(pieces)],
    )


def found(seen: ObservedRequest) -> RawReply | None:
    return find_raw_reply(seen.store, seen.channel, seen.request)


def test_each_event_has_the_time_at_which_its_end_arrived(store: cc.Store) -> None:
    """Guarantee 16.19."""
    one, two = chunk("Hel"), chunk("lo")
    seen = record(store, one[:10], one[10:] + two[:5], two[5:], END)
    view = view_raw_reply(found(seen))
    assert (view.is_stored, view.status, view.size, view.kept) == (
        True,
        200,
        len(one + two + END),
        len(one + two + END),
    )
    assert view.events == [
        RawEvent(offset=200, text=one.decode()),
        RawEvent(offset=300, text=two.decode()),
        RawEvent(offset=400, text=END.decode()),
    ]


def test_a_response_is_kept_to_a_limit_and_compressed(store: cc.Store) -> None:
    """Guarantee 16.19."""
    pieces = [chunk(f"word {number} ") for number in range(5_000)]
    seen = record(store, *pieces, END)
    raw = found(seen)
    assert raw is not None
    assert (raw.size, len(raw.data)) == (sum(map(len, pieces)) + len(END), MAX_BYTES)
    assert len(raw.pieces) <= MAX_PIECES
    assert sum(size for _, size in raw.pieces) == MAX_BYTES
    (packed,) = store.read(lambda tx: tx.rows("SELECT body FROM main.raw_reply"))
    assert len(bytes(packed[0])) < MAX_BYTES / 8


def test_credentials_of_the_request_are_not_in_it(store: cc.Store) -> None:
    """Guarantee 16.19: a server that quotes a key."""
    seen = record(store, chunk(f"Your key is {SECRET}."), END, headers={"Authorization": f"Bearer {SECRET}"})
    raw = found(seen)
    assert raw is not None
    assert SECRET.encode() not in raw.data
    assert b"Your key is ***" in raw.data


@pytest.mark.parametrize("pieces", [[chunk(f"Your key is {SECRET}.")], [chunk(SECRET[:9]), chunk(SECRET[9:])]])
def test_with_a_redaction_that_finds_something_nothing_is_kept(store: cc.Store, pieces: list[bytes]) -> None:
    """Guarantee 16.19: a match may be split between events."""
    assert found(record(store, *pieces, END, redact="keys")) is None
    assert found(record(store, chunk("Nothing."), END, text="Again.", redact="keys")) is not None


def test_redacting_and_deleting_removes_it(store: cc.Store) -> None:
    """Guarantee 2.8: in the whole tree, because a text may be split between events."""
    for way in ("message", "text", "conversation"):
        seen = record(store, chunk("Hel"), chunk("lo back"), END)
        assert found(seen) is not None
        name = seen.conversation
        if way == "message":
            store.redact(name, 2)
        elif way == "text":
            store.redact_text(name, "Hello")
        else:
            store.delete(name)
        assert store.read(lambda tx: tx.rows("SELECT * FROM main.raw_reply")) == []
        if way != "conversation":
            store.delete(name)


def test_a_reply_that_is_no_text_and_an_own_request_have_none(store: cc.Store) -> None:
    """Only bytes that arrived are shown as such."""
    seen = cc.observe(store, request=json.dumps(chat("a")), reply={"choices": []}, url=URL)
    assert view_raw_reply(found(seen)).is_stored is False


def test_a_tapped_client_keeps_what_it_got() -> None:
    """Guarantee 16.19."""
    body = chunk("Hi") + END
    with cc.open_store("memory:") as store:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Pieces([body[:20], body[20:]])))
        with cc.tap(store, httpx.Client(transport=transport)) as client:
            assert client.post(URL, json=chat("a")).content == body
        (row,) = store.read(lambda tx: tx.rows("SELECT body FROM main.raw_reply"))
        assert body in zlib.decompress(row[0])


class Pieces(httpx.SyncByteStream):
    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces


def test_pieces_of_compressed_content_are_measured_by_what_they_add() -> None:
    compressor = zlib.compressobj(wbits=31)
    pieces = [compressor.compress(text) + compressor.flush(zlib.Z_SYNC_FLUSH) for text in (b"one", b"and two")]
    timed = [*zip((10, 20), pieces, strict=True), (30, compressor.flush())]
    assert measure_pieces(timed, "gzip") == [(10, 3), (20, 7), (30, 0)]
    assert measure_pieces([(10, b"abc")], "br") == []
    assert measure_pieces([(10, b"not gzip")], "gzip") == []


def test_pieces_that_do_not_add_up_are_left_out() -> None:
    packed = pack_raw_reply(b"abc", [(1, 2)])
    assert zlib.decompress(packed) != zlib.decompress(pack_raw_reply(b"abc", [(1, 3)]))
    assert len(zlib.decompress(packed)) < len(zlib.decompress(pack_raw_reply(b"abc", [(1, 3)])))

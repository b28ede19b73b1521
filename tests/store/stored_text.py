"""Every place in which a store keeps text: all tables, which are found in the schema, all files, and all outputs."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from starlette.testclient import TestClient

import contextc as cc
from contextc._json import decode, encode
from contextc.analysis import store_findings
from contextc.compiler import ledger
from contextc.compiler.past_requests import explain
from contextc.interchange import export_archive, export_lines
from contextc.sharing.shared_html import build_shared_file
from contextc.store.ledger_schema import Channel, RowRange, channel_id, unpack_record
from contextc.store.message_log import SEQ_MASK, make_place
from contextc.store.transaction_engine import Transaction
from contextc.web.app_state import ServerOptions
from contextc.web.application import create_application

HOST = "http://127.0.0.1:8377"
ENDLESS = ("events", "changes", "stream")
"""The last parts of endpoints that send events until the client leaves."""


def find_secrets(
    store: cc.Store, secrets: Mapping[str, str], folder: Path | None = None, *, outputs: bool = False
) -> dict[str, set[str]]:
    """Return where each secret is: in which columns, files and outputs. Secrets that are nowhere are left out."""
    found: dict[str, set[str]] = {}
    wanted = [(kind, each.encode()) for kind, each in secrets.items()]
    places = [iter_columns(store), iter_wire_forms(store)]
    places += [iter_files(folder)] if folder is not None else []
    places += [iter_outputs(store)] if outputs else []
    for name, content in (each for some in places for each in some):
        for secret, raw in wanted:
            if raw in content:
                found.setdefault(secret, set()).add(name)
    return found


def iter_columns(store: cc.Store) -> Iterator[tuple[str, bytes]]:
    """Yield every value of every table, as stored and as decompressed."""

    def work(tx: Transaction) -> list[tuple[str, bytes]]:
        found: list[tuple[str, bytes]] = []
        if tx.dialect.name == "sqlite":  # the files of the index have the differences between terms
            tx.run("CREATE VIRTUAL TABLE IF NOT EXISTS temp.indexed USING fts5vocab('main', 'search_term', 'row')")
            found += [("search_term.terms", term.encode()) for (term,) in tx.rows("SELECT term FROM temp.indexed")]
        for table in list_tables(tx):
            names = list_columns(tx, table)
            for row in tx.rows(f"SELECT {', '.join(names)} FROM main.{table}"):
                for name, value in zip(names, row, strict=True):
                    raw = value if isinstance(value, bytes) else str(value).encode(errors="replace")
                    found.append((f"{table}.{name}", raw))
                    with suppress(ValueError):
                        found.append((f"{table}.{name}", unpack_record(raw)))
                    with suppress(ValueError, TypeError):  # escapes hide a text
                        found.append((f"{table}.{name}", encode(decode(raw))))
        return found

    yield from store.read(work)


def list_tables(tx: Transaction) -> list[str]:
    """Return all tables, those of virtual tables included."""
    if tx.dialect.name == "postgres":
        sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = ?"
        return [name for (name,) in tx.rows(sql, tx.schema)]
    return [name for (name,) in tx.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]


def list_columns(tx: Transaction, table: str) -> list[str]:
    if tx.dialect.name == "postgres":
        sql = "SELECT column_name FROM information_schema.columns WHERE table_schema = ? AND table_name = ?"
        return [name for (name,) in tx.rows(sql, tx.schema, table)]
    return [row[1] for row in tx.rows(f"PRAGMA table_info({table})")]


def iter_wire_forms(store: cc.Store) -> Iterator[tuple[str, bytes]]:
    """Yield the wire form of all ledger rows, as decompressed with their messages."""

    def work(tx: Transaction) -> list[bytes]:
        channels = [number for (number,) in tx.rows("SELECT number FROM main.channel")]
        layouts = [[RowRange(number, 0, SEQ_MASK)] for number in channels]
        return [row.chunk for layout in layouts for row in ledger.load_rows(tx, layout)]

    for chunk in store.read(work):
        yield "shown.wire", chunk


def iter_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path, _, names in os.walk(folder):
        for name in names:
            yield f"file {name}", (Path(path) / name).read_bytes()


def iter_outputs(store: cc.Store) -> Iterator[tuple[str, bytes]]:
    """Yield all that the library makes of stored conversations: exports, findings, manifests, events and web pages."""
    names = [each.name for each in store.conversations()]
    yield "findings", repr(store_findings(store)).encode()
    yield "events", b"".join([encode(store.events(name)) for name in names])
    yield "approvals, todos, queue", repr([(store.approvals(name), store.todos(name)) for name in names]).encode()
    for name in names:
        yield "export", b"\n".join(export_lines(store, name))
        with suppress(cc.errors.InvalidInput):  # it has no request
            yield "archive", export_archive(store, name, "har").data
            yield "shared file", build_shared_file(store, name, notes=True)
        for _, channel, _, _ in store.read(lambda tx, name=name: ledger.load_channels(tx, name)):
            for number in list_requests(store, channel):
                with suppress(cc.errors.UnknownRequest):
                    manifest = explain(store, channel, number)
                    yield "explain", f"{manifest} {encode(manifest.as_json())}".encode()
    yield from iter_pages(store, names)


def list_requests(store: cc.Store, channel: Channel) -> list[int]:
    """Return the numbers of all requests of a channel, also of those without an answer."""

    def work(tx: Transaction) -> list[int]:
        found = ledger.find_channel(tx, channel)
        assert found is not None
        low, high = make_place(found.number, 0), make_place(found.number, SEQ_MASK)
        rows = tx.rows("SELECT place FROM main.manifest WHERE place BETWEEN ? AND ?", low, high)
        return [place & SEQ_MASK for (place,) in rows]

    return store.read(work)


def iter_pages(store: cc.Store, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the answers of all GET endpoints of the server about each conversation and request."""
    application = create_application(store, ServerOptions(model="replay:none.jsonl"))
    with TestClient(application, base_url=HOST, raise_server_exceptions=False) as client:
        document = client.get("/api/openapi.json").json()["paths"]
        paths: list[str] = [path for path, used in document.items() if "get" in used]
        paths = [path for path in paths if path.rpartition("/")[2] not in ENDLESS]
        for path in paths:
            for name in names if "{name}" in path else [""]:
                for filled in fill_path(store, path, name):
                    yield f"GET {path}", client.get(f"/api{filled}").content


def fill_path(store: cc.Store, path: str, name: str) -> list[str]:
    whole = path.replace("{name}", quote(name, safe=""))
    if "{channel}" in path:
        channels = store.read(lambda tx: [each[1] for each in ledger.load_channels(tx, name)])
        return [
            whole.replace("{channel}", channel_id(channel)).replace("{number}", str(number))
            for channel in channels
            for number in (list_requests(store, channel) if "{number}" in path else [0])
        ]
    if "{number}" in path:
        return [whole.replace("{number}", str(store.conversation(name).length))]
    return [whole] if "{" not in whole else []

"""Packed files: gzip, zip archives of several files, and archives that are damaged or larger than they seem."""

import gzip
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

import contextc as cc
from contextc.interchange import packed_files
from contextc.interchange.file_import import ImportSummary, import_any
from contextc.interchange.input_files import InputFile

CLAUDE = {
    "type": "user", "sessionId": "s1", "uuid": "u1", "parentUuid": None, "cwd": "/work",
    "timestamp": "2026-01-01T00:00:00Z",
    "message": {"role": "user", "content": "What is in the log?"},
}  # fmt: skip
LOGGED = {
    "request": {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]},
    "response": {
        "id": "c1", "object": "chat.completion", "created": 1_760_000_000, "model": "gpt-4o",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
        "usage": {"prompt_tokens": 8, "completion_tokens": 2, "total_tokens": 10},
    },
}  # fmt: skip


def packed(added: Mapping[str, bytes] = MappingProxyType({}), **members: bytes) -> bytes:
    """Return a zip archive; `a__b_json` is the member a/b.json."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), data)
        for name, data in added.items():
            archive.writestr(name, data)
    return target.getvalue()


def take(store: cc.Store, path: Path, data: bytes) -> ImportSummary:
    path.write_bytes(data)
    found = import_any(store, [InputFile(path)])
    assert isinstance(found, ImportSummary)
    return found


LOG = json.dumps(LOGGED).encode() + b"\n"
SESSION = json.dumps(CLAUDE).encode() + b"\n"


def test_a_packed_file_is_imported_like_the_file_itself(store: cc.Store, tmp_path: Path) -> None:
    """Also under the same names, and from standard input."""
    plain = take(store, tmp_path / "calls.jsonl", LOG)
    with cc.open_store("memory:") as other:
        zipped = take(other, tmp_path / "calls.jsonl.gz", gzip.compress(LOG))
        assert [each.name for each in zipped.conversations] == [each.name for each in plain.conversations]
        assert zipped.total("requests") == plain.total("requests") == 1
    with cc.open_store("memory:") as other:
        piped = import_any(other, [InputFile(data=gzip.compress(LOG))])
        assert isinstance(piped, ImportSummary)
        assert piped.total("requests") == 1


def test_an_archive_may_hold_files_of_several_programs(store: cc.Store, tmp_path: Path) -> None:
    """What is not recognised is named, and the rest is imported; hidden files and folders are not even tried."""
    summary = take(
        store,
        tmp_path / "all.zip",
        packed({"__MACOSX/calls.jsonl": b"\0", ".hidden": b"\0", "folder/": b""}, a__calls_jsonl=LOG,
               session_jsonl=SESSION, more_jsonl_gz=gzip.compress(LOG), notes_txt=b"hello"),
    )  # fmt: skip
    assert summary.source == "request-log, claude-code"
    assert summary.total("requests") == 2
    (left,) = summary.left_out
    assert "all.zip/notes.txt" in left
    assert {each.error for each in summary.conversations} == {None}


def test_an_export_in_an_archive_is_imported(store: cc.Store, tmp_path: Path) -> None:
    with cc.open_store("memory:") as other:
        for name in ("one", "two"):
            other.extend(name, [cc.user(name), cc.assistant("done")])
        exports = {name: b"\n".join(cc.interchange.export_lines(other, name)) for name in ("one", "two")}
    summary = take(store, tmp_path / "exports.zip", packed(one_jsonl=exports["one"], two_jsonl=exports["two"]))
    assert {(each.name, each.length) for each in summary.conversations} == {("one", 2), ("two", 2)}


@pytest.mark.parametrize("kind", ["gzip", "zip", "several", "inner"])
def test_a_file_that_unpacks_to_too_much_is_refused(
    store: cc.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A megabyte of zeros takes a kilobyte. Bytes are counted as they come: archives may lie about their sizes."""
    monkeypatch.setattr(packed_files, "MAX_UNPACKED_BYTES", 1 << 20)
    big = b" " * ((1 << 20) + 1)
    data = {
        "gzip": gzip.compress(big),
        "zip": packed(a_json=big),
        "several": packed(a_json=big[: 1 << 19], b_json=big[: 1 << 19], c_json=b"more"),
        "inner": packed(a_json_gz=gzip.compress(big)),
    }[kind]
    assert len(data) < 10_000
    with pytest.raises(cc.errors.InvalidInput, match=r"unpacks to more than 1,048,576 bytes\. Unpack it first"):
        take(store, tmp_path / "bomb", data)
    assert store.conversations() == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (gzip.compress(LOG)[:-9], "cannot be unpacked: "),
        (b"\x1f\x8b\x08 packed", "cannot be unpacked: "),
        (packed(a_jsonl=LOG)[:-30], "cannot be unpacked: File is not a zip file"),
        (packed(_hidden=b""), "has no file in it"),
        (packed(notes_txt=b"hello"), "the kind of file cannot be recognised"),
        (packed(a_zip=packed(b_jsonl=LOG)), "is a zip archive inside another. Unpack it first: unzip"),
    ],
)
def test_an_archive_that_cannot_be_read_says_why(store: cc.Store, tmp_path: Path, data: bytes, problem: str) -> None:
    """Guarantee 15.1."""
    with pytest.raises(cc.errors.InvalidInput) as refused:
        take(store, tmp_path / "calls.bin", data)
    assert problem in str(refused.value)


def test_an_encrypted_archive_is_refused(store: cc.Store, tmp_path: Path) -> None:
    data = bytearray(packed(a_jsonl=LOG))
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(magic) + at] |= 1
    with pytest.raises(cc.errors.InvalidInput, match=r"is encrypted\. Unpack it first"):
        take(store, tmp_path / "calls.zip", bytes(data))

"""Packed input files: gzip, and zip archives of several files, unpacked into a temporary folder, up to a limit.

A few kilobytes can unpack to more than a disk holds, so bytes are counted while they are written, whatever the archive
says about its own size. Names inside an archive are only shown: no file is written under them.
"""

import gzip
import tempfile
import zipfile
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

from contextc.errors import InvalidInput, InvalidSetting
from contextc.interchange.input_files import InputFile

GZIP_MAGIC, ZIP_MAGIC = b"\x1f\x8b", b"PK\x03\x04"
MAX_UNPACKED_BYTES = 4 << 30
MAX_BYTES_IN_MEMORY = 512 << 20
MAX_MEMBERS = 10_000
COPIED_BYTES = 1 << 20
DAMAGED = (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile, NotImplementedError, RuntimeError, ValueError)


class _Unread(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


@contextmanager
def unpacked(files: Sequence[InputFile], *, limit: int | None = None) -> Generator[list[InputFile]]:
    """Yield the files, with what is in each packed one in its place, as long as the block lasts.

    Raises `InvalidInput` for an archive that is damaged, encrypted, empty, or larger than `limit` bytes.
    """
    if not any(is_packed(each) for each in files):
        yield [*files]
        return
    with tempfile.TemporaryDirectory(prefix="contextc-unpacked-") as folder:
        work = _Unpacking(Path(folder), MAX_UNPACKED_BYTES if limit is None else limit)
        found: list[InputFile] = []
        for each in files:
            found += work.unpack(each)
        yield found


def unpack_bytes(data: bytes, name: str, *, limit: int = MAX_BYTES_IN_MEMORY) -> bytes:
    """Return the content of a file that may be packed with gzip.

    Raises `InvalidInput` if it is damaged, or larger than `limit` bytes.
    """
    if not data.startswith(GZIP_MAGIC):
        return data
    try:
        with gzip.GzipFile(fileobj=BytesIO(data)) as content:
            found = content.read(limit + 1)
    except DAMAGED as error:
        raise InvalidInput(f"{name} cannot be unpacked: {error or type(error).__name__}.") from error
    if len(found) > limit:
        raise InvalidInput(f"{name} unpacks to more than {limit:,} bytes", fix="Split it into smaller files.")
    return found


def is_packed(file: InputFile) -> bool:
    """Return True for a file that is packed with gzip, or a zip archive."""
    return file.first().startswith((GZIP_MAGIC, ZIP_MAGIC))


class _Unpacking:
    """Unpacks files into a folder. All of them together count towards the limit."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self.written = self.count = 0

    def unpack(self, file: InputFile) -> list[InputFile]:
        first = file.first()
        if not first.startswith((GZIP_MAGIC, ZIP_MAGIC)):
            return [file]
        try:
            with file.open() as source:
                if first.startswith(GZIP_MAGIC):
                    with gzip.GzipFile(fileobj=source) as content:
                        return [self._copy(content, file, file.name, _without_suffix(file), source)]
                return self._members(file, source)
        except DAMAGED as error:
            raise InvalidInput(f"{file.name} cannot be unpacked: {error or type(error).__name__}.") from error

    def _members(self, file: InputFile, source: BinaryIO) -> list[InputFile]:
        found: list[InputFile] = []
        with zipfile.ZipFile(source) as archive:
            members = sorted([each for each in archive.infolist() if _is_content(each)], key=lambda each: each.filename)
            if not members:
                raise InvalidInput(f"{file.name} has no file in it.")
            if len(members) > MAX_MEMBERS:
                raise InvalidInput(f"{file.name} has {len(members):,} files: at most {MAX_MEMBERS:,} are read.")
            for each in members:
                if each.flag_bits & 1:
                    raise InvalidInput(f"{file.name} is encrypted", fix="Unpack it first.")
                path = PurePosixPath(each.filename)
                with archive.open(each) as content:
                    inner = self._copy(content, file, f"{file.name}/{each.filename}", path.stem, source)
                found += self.unpack(inner) if inner.first().startswith(GZIP_MAGIC) else [inner]
        return found

    def _copy(self, content: _Unread, file: InputFile, name: str, stem: str, source: BinaryIO) -> InputFile:
        self.count += 1
        path = self.folder / str(self.count)
        try:
            with path.open("wb") as target:
                while piece := content.read(COPIED_BYTES):
                    self.written += len(piece)
                    if self.written > self.limit:
                        raise InvalidInput(
                            f"{file.name} unpacks to more than {self.limit:,} bytes",
                            fix="Unpack it first, and import what is needed of it.",
                        )
                    target.write(piece)
                    if file.progress is not None:
                        file.progress(min(source.tell(), file.size), file.size)
        except OSError as error:
            if isinstance(error, DAMAGED):
                raise
            raise InvalidSetting(
                f"{file.name} cannot be unpacked to {self.folder}: {error.strerror}",
                fix="Free space there, or set TMPDIR to another folder.",
            ) from error
        inner = InputFile(path, progress=file.progress)
        inner.name, inner.stem = name, stem
        return inner


def _without_suffix(file: InputFile) -> str:
    """Return the stem of a file that is packed alone: calls.har.gz is calls."""
    return Path(file.stem).stem if file.name.endswith(".gz") else file.stem


def _is_content(member: zipfile.ZipInfo) -> bool:
    """Return False for folders and for what systems add: `__MACOSX/`, hidden files."""
    parts = PurePosixPath(member.filename).parts
    return not member.is_dir() and bool(parts) and parts[0] != "__MACOSX" and not parts[-1].startswith(".")

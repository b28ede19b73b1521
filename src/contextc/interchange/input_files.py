"""Input files of an import: sampled before they are read, and never written.

A log may be larger than memory, so lines are read one at a time. A file with one JSON value is read once. The last line
may be truncated, because its program died during a write; this is noted. A database is opened without writing any file
beside it. If it has a write-ahead log or a journal, a copy is read.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, TypeAlias, TypeVar, cast
from urllib.parse import quote

import msgspec

from contextc._json import JSON, JSONObject, decode_json
from contextc.errors import InvalidImport, InvalidInput, InvalidSetting
from contextc.interchange.contextc_jsonl import Progress

SQLITE_MAGIC = b"SQLite format 3\0"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SAMPLE_LINES, SAMPLE_BYTES = 200, 16 << 20  # sampled part of a file: lines, bytes
PROGRESS_BYTES = 4 << 20  # bytes between two progress reports
WAL_MODE = b"\2"
SIDE_FILE_SUFFIXES = ("-wal", "-journal")  # files of a writer beside a database
COPY_ATTEMPTS = 5
UNSUPPORTED_FILES = {
    b"\x1f\x8b": ("packed with gzip, twice", "Unpack it first: gunzip -k {name}"),
    b"PK\x03\x04": ("a zip archive inside another", "Unpack it first: unzip {name}"),
    b"\x28\xb5\x2f\xfd": ("packed with zstd", "Unpack it first: unzstd {name}"),
    b"\xff\xfe": ("text in UTF-16", "Make it UTF-8 first: iconv -f UTF-16 -t UTF-8 {name} > utf8-{short}"),
    b"\xfe\xff": ("text in UTF-16", "Make it UTF-8 first: iconv -f UTF-16 -t UTF-8 {name} > utf8-{short}"),
}
"""First bytes of files that must be unpacked or converted first."""
T = TypeVar("T")

FileShape: TypeAlias = Literal["lines", "list", "object", "database", "none"]


class FileSample(NamedTuple):
    """The start of a file: the values of its first lines, the first items of its list, or its one object. For a
    database, its tables with their columns.
    """

    shape: FileShape
    values: Sequence[JSON] = ()
    tables: Mapping[str, frozenset[str]] = {}

    @property
    def objects(self) -> list[JSONObject]:
        return [cast(JSONObject, value) for value in self.values if isinstance(value, dict)]

    def has_table(self, table: str, *columns: str) -> bool:
        """Return True if there is a table with at least these columns."""
        return table in self.tables and self.tables[table] >= set(columns)


class LocatedValue(NamedTuple):
    """A value, and its position in the file."""

    position: str
    line: int
    value: JSON


class InputFile:
    """One file, by its path or as bytes of standard input."""

    def __init__(self, path: Path | None = None, data: bytes | None = None, progress: Progress | None = None) -> None:
        self.path, self.progress = path, progress
        self.name = str(path) if path is not None else "standard input"
        self.stem = path.stem if path is not None else "import"
        self.notes: list[str] = []
        self._data = data
        self._sample: FileSample | None = None
        self._items: list[msgspec.Raw] = []

    @property
    def size(self) -> int:
        return self._size()

    def sample(self) -> FileSample:
        if self._sample is None:
            self._sample = self._read_sample()
        return self._sample

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Return the non-blank lines with their numbers, one at a time."""
        size, done, reported = self._size(), 0, 0
        with self.open() as file:
            for number, line in enumerate(file, 1):
                done += len(line)
                if self.progress and done - reported >= PROGRESS_BYTES:
                    reported = done
                    self.progress(done, size)
                if line.strip():
                    yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line

    def values(self) -> Iterator[LocatedValue]:
        """Return all values: of the lines, of the list, or the one value. Raise `InvalidImport` for an invalid line."""
        sample = self.sample()
        if sample.shape == "object":
            yield LocatedValue("the file", 1, sample.values[0])
        elif sample.shape == "list":
            for number, item in enumerate(self._items, 1):
                yield LocatedValue(f"item {number}", number, decode_json(bytes(item)))
        elif sample.shape == "lines":
            yield from self._line_values()

    @contextmanager
    def open_database(self) -> Generator[sqlite3.Connection]:
        """Open the database for reading."""
        if self.path is None:
            raise InvalidSetting("A database cannot be read from standard input", fix="Pass the path of its file.")
        if self.first() != SQLITE_MAGIC:
            raise InvalidInput(f"{self.name} is not a SQLite database.")
        try:
            with _open_read_only(self.path) as connection:
                yield connection
        except sqlite3.Error as error:
            raise InvalidInput(
                f"{self.name} cannot be read as a database: {error}",
                fix=f"If it is damaged, recover its rows with `sqlite3 {self.path.name} .recover`.",
            ) from error

    def check_lines(self) -> None:
        """Check that all lines are JSON before the first is used, so that an invalid one stores nothing."""
        if self.sample().shape == "lines":
            for _ in self._line_values():
                pass
            self.notes.clear()

    def read(self) -> bytes:
        with self.open() as file:
            return file.read()

    def _line_values(self) -> Iterator[LocatedValue]:
        torn: tuple[int, ValueError] | None = None
        for number, line in self.lines():
            if torn is not None:
                raise InvalidImport(
                    f"{self.name}: not valid JSON: {torn[1]}", line=torn[0], fix="Remove or correct the line."
                )
            try:
                value = decode_json(line)
            except ValueError as error:
                torn = number, error
                continue
            yield LocatedValue(f"line {number}", number, value)
        if torn is not None:
            self.notes.append(f"line {torn[0]}, the last, which is truncated")

    def first(self) -> bytes:
        """Return the first bytes, which tell some kinds of files."""
        with self.open() as file:
            return file.read(len(SQLITE_MAGIC))

    def _read_sample(self) -> FileSample:
        first = self.first()
        for mark, (what, way) in UNSUPPORTED_FILES.items():
            if first.startswith(mark) and (b"\0" in first or "UTF-16" not in what):
                short = self.path.name if self.path is not None else "FILE"
                named = way.format(name=self.name if self.path is not None else "FILE", short=short)
                raise InvalidInput(f"{self.name} is {what}", fix=f"{named}.")
        if first == SQLITE_MAGIC:
            with self.open_database() as connection:
                return FileSample("database", tables=_tables(connection))
        begins, is_one = self._beginning()
        if begins not in (b"[", b"{"):
            return FileSample("none")
        if is_one and begins == b"[" and (items := self._whole(list[msgspec.Raw])) is not None:
            self._items = items
            return FileSample("list", [decode_json(bytes(item)) for item in items[:SAMPLE_LINES]])
        if is_one and begins == b"{" and (found := self._whole(dict[str, JSON])) is not None:
            return FileSample("object", [found])
        return FileSample("lines", list(self._head()))

    def _beginning(self) -> tuple[bytes, bool]:
        """Return the first character, and True if the file may be one value: line 1 is none, or the only one."""
        with self.open() as file:
            first = file.readline(SAMPLE_BYTES).removeprefix(BYTE_ORDER_MARK)
            while first and not first.strip():
                first = file.readline(SAMPLE_BYTES)
            second = file.readline(SAMPLE_BYTES)
            while second and not second.strip():
                second = file.readline(SAMPLE_BYTES)
        return first.lstrip()[:1], not second or not _is_json(first)

    def _head(self) -> Iterator[JSON]:
        """Return the values of the first lines, without invalid ones."""
        seen = 0
        for _, line in islice(self.lines(), SAMPLE_LINES):
            seen += len(line)
            try:
                yield decode_json(line)
            except ValueError:
                continue
            if seen > SAMPLE_BYTES:
                return

    def _whole(self, kind: type[T]) -> T | None:
        """Return the file as one value of this type; None if it is not one. Invalid UTF-8 is replaced."""
        data = self.read().removeprefix(BYTE_ORDER_MARK)
        for text in (data, data.decode("utf-8", "replace")):
            try:
                return msgspec.json.decode(text, type=kind)
            except UnicodeDecodeError:
                continue
            except (msgspec.MsgspecError, RecursionError):
                return None
        return None

    def _size(self) -> int:
        return len(self._data) if self._data is not None else os.path.getsize(self.path or "")

    @contextmanager
    def open(self) -> Generator[BinaryIO]:
        """Open the file for reading."""
        if self._data is not None:
            yield BytesIO(self._data)
            return
        try:
            file = open(self.path or "", "rb")  # noqa: SIM115 (closed below; only errors of open() are converted)
        except OSError as error:
            raise InvalidSetting(f"{self.name} cannot be read: {error.strerror}.") from error
        with file:
            yield file


class ImportInput(NamedTuple):
    """The files of one import, the format of their requests if given, and the callback for progress."""

    files: Sequence[InputFile]
    format: str | None = None
    progress: Progress | None = None

    @property
    def stem(self) -> str:
        return self.files[0].stem

    def with_progress(self, rows: Sequence[T]) -> Iterator[T]:
        """Return the rows, and report progress after each."""
        for number, row in enumerate(rows):
            yield row
            if self.progress:
                self.progress(number + 1, len(rows))


def _is_json(line: bytes) -> bool:
    try:
        decode_json(line)
    except ValueError:
        return False
    return True


@contextmanager
def _open_read_only(path: Path) -> Generator[sqlite3.Connection]:
    """Open a connection that writes nothing, neither to the database nor beside it.

    A write-ahead log or a journal is part of the database, and opening it writes there. Then a copy is opened.
    """
    with tempfile.TemporaryDirectory() as folder:
        is_copy = any(map(_size, _side_files(path)))
        if is_copy:
            path = _copy_database(path, Path(folder))
        quiet = not is_copy and _is_wal_mode(path)
        mode = "rw" if is_copy else "ro&immutable=1" if quiet else "ro"
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode={mode}", uri=True)) as connection:
            connection.text_factory = _as_text
            connection.row_factory = sqlite3.Row
            yield connection


def _copy_database(path: Path, folder: Path) -> Path:
    """Return a consistent copy of a database and the files beside it."""
    copy = folder / "copy.db"
    for _ in range(COPY_ATTEMPTS):
        before = _file_stamps(path)
        for file, name in zip((path, *_side_files(path)), ("", *SIDE_FILE_SUFFIXES), strict=True):
            target = Path(f"{copy}{name}")
            target.unlink(missing_ok=True)
            if _size(file):
                shutil.copyfile(file, target)
        if _file_stamps(path) == before:
            return copy
    raise InvalidInput(f"{path} changes while it is copied", fix="Import it when its program is not running.")


def _side_files(path: Path) -> list[Path]:
    return [Path(f"{path}{name}") for name in SIDE_FILE_SUFFIXES]


def _file_stamps(path: Path) -> list[tuple[int, int]]:
    files = [each for each in (path, *_side_files(path)) if each.exists()]
    return [(each.stat().st_mtime_ns, each.stat().st_size) for each in files]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _as_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _is_wal_mode(path: Path) -> bool:
    """Return True if the header of a database states WAL mode."""
    with path.open("rb") as file:
        return file.read(20)[19:20] == WAL_MODE


def _tables(connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = "SELECT name FROM pragma_table_info(?)"
    return {name: frozenset(row[0] for row in connection.execute(columns, (name,))) for name in names}

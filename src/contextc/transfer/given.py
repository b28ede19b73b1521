"""What is given to an import: files of anybody's making, looked at before they are read, and never written.

A log may be larger than memory, so lines come one at a time; a file that is one JSON value is read once. The last line
may be torn, because its program died while it wrote: that is noted. A database is opened so that nothing is written
beside it either.
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

from contextc._json import JSON, JSONObject, parse_object
from contextc.errors import InvalidImport, InvalidInput, InvalidSetting
from contextc.transfer.lines import Progress

MAGIC = b"SQLite format 3\0"
MARK = b"\xef\xbb\xbf"
HEAD, HEAD_BYTES = 200, 16 << 20  # as much of a file as is looked at to know it
OFTEN = 4 << 20  # bytes after which a reader says how far it is
WAL_MODE = b"\2"
T = TypeVar("T")

Shape: TypeAlias = Literal["lines", "list", "object", "database", "none"]


class Sample(NamedTuple):
    """What a file begins with: the values of its first lines, the first items of its list, or the one object it is; of
    a database the tables, each with its columns.
    """

    shape: Shape
    values: Sequence[JSON] = ()
    tables: Mapping[str, frozenset[str]] = {}

    @property
    def objects(self) -> list[JSONObject]:
        return [cast(JSONObject, value) for value in self.values if isinstance(value, dict)]

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is such a table, with these columns at least."""
        return table in self.tables and self.tables[table] >= set(columns)


class Placed(NamedTuple):
    """A value, and where in its file it stands."""

    where: str
    line: int
    value: JSON


class File:
    """One file, by its path or as bytes that came through a pipe."""

    def __init__(self, path: Path | None = None, data: bytes | None = None, progress: Progress | None = None) -> None:
        self.path, self.progress = path, progress
        self.name = str(path) if path is not None else "standard input"
        self.stem = path.stem if path is not None else "import"
        self.notes: list[str] = []
        self._data = data
        self._sample: Sample | None = None
        self._items: list[msgspec.Raw] = []

    def sample(self) -> Sample:
        if self._sample is None:
            self._sample = self._look()
        return self._sample

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not blank, with their numbers, one at a time."""
        size, done, told = self._size(), 0, 0
        with self._open() as file:
            for number, line in enumerate(file, 1):
                done += len(line)
                if self.progress and done - told >= OFTEN:
                    told = done
                    self.progress(done, size)
                if line.strip():
                    yield number, line.removeprefix(MARK) if number == 1 else line

    def values(self) -> Iterator[Placed]:
        """All values: of the lines, of the list, or the one there is. Raises `InvalidImport` where a line is none."""
        sample = self.sample()
        if sample.shape == "object":
            yield Placed("the file", 1, sample.values[0])
        elif sample.shape == "list":
            for number, item in enumerate(self._items, 1):
                yield Placed(f"item {number}", number, decoded(bytes(item)))
        elif sample.shape == "lines":
            yield from self._line_values()

    @contextmanager
    def database(self) -> Generator[sqlite3.Connection]:
        """The database, to be read."""
        if self.path is None:
            raise InvalidSetting("A database cannot come through a pipe: give the path of its file.")
        try:
            with _reading(self.path) as connection:
                yield connection
        except sqlite3.Error as error:
            raise InvalidInput(
                f"{self.name} cannot be read as a database: {error}. If it is damaged, "
                f"`sqlite3 {self.path.name} .recover` may save what is left of it."
            ) from error

    def read(self) -> bytes:
        with self._open() as file:
            return file.read()

    def _line_values(self) -> Iterator[Placed]:
        torn: tuple[int, ValueError] | None = None
        for number, line in self.lines():
            if torn is not None:
                raise InvalidImport(
                    f"{self.name}: this is not JSON: {torn[1]}. Take the line out, or mend it", line=torn[0]
                )
            try:
                value = decoded(line)
            except ValueError as error:
                torn = number, error
                continue
            yield Placed(f"line {number}", number, value)
        if torn is not None:
            self.notes.append(f"line {torn[0]}, the last, which was cut off")

    def _look(self) -> Sample:
        with self._open() as file:
            first = file.read(len(MAGIC))
        if first == MAGIC:
            with self.database() as connection:
                return Sample("database", tables=_tables(connection))
        begins, is_one = self._beginning()
        if begins not in (b"[", b"{"):
            return Sample("none")
        if is_one and begins == b"[" and (items := self._whole(list[msgspec.Raw])) is not None:
            self._items = items
            return Sample("list", [decoded(bytes(item)) for item in items[:HEAD]])
        if is_one and begins == b"{" and (found := self._whole(dict[str, JSON])) is not None:
            return Sample("object", [found])
        return Sample("lines", list(self._head()))

    def _beginning(self) -> tuple[bytes, bool]:
        """The first character, and whether the file may be one value: its first line is none, or is all there is."""
        with self._open() as file:
            first = file.readline(HEAD_BYTES).removeprefix(MARK)
            while first and not first.strip():
                first = file.readline(HEAD_BYTES)
            second = file.readline(HEAD_BYTES)
            while second and not second.strip():
                second = file.readline(HEAD_BYTES)
        return first.lstrip()[:1], not second or not _is_json(first)

    def _head(self) -> Iterator[JSON]:
        """The values of the first lines, as far as they are any."""
        seen = 0
        for _, line in islice(self.lines(), HEAD):
            seen += len(line)
            try:
                yield decoded(line)
            except ValueError:
                continue
            if seen > HEAD_BYTES:
                return

    def _whole(self, kind: type[T]) -> T | None:
        """The file as one value of this kind; None where it is none."""
        try:
            return msgspec.json.decode(self.read().removeprefix(MARK), type=kind)
        except (msgspec.MsgspecError, RecursionError):
            return None

    def _size(self) -> int:
        return len(self._data) if self._data is not None else os.path.getsize(self.path or "")

    @contextmanager
    def _open(self) -> Generator[BinaryIO]:
        if self._data is not None:
            yield BytesIO(self._data)
            return
        try:
            file = open(self.path or "", "rb")  # noqa: SIM115 (closed below; only the opening is to be excused)
        except OSError as error:
            raise InvalidSetting(f"{self.name} cannot be read: {error.strerror}.") from error
        with file:
            yield file


class Given(NamedTuple):
    """The files that are imported together, the format their requests are in where somebody said so, and whom to tell
    how far it is.
    """

    files: Sequence[File]
    format: str | None = None
    progress: Progress | None = None

    @property
    def stem(self) -> str:
        return self.files[0].stem

    def counted(self, rows: Sequence[T]) -> Iterator[T]:
        """The rows, told one by one."""
        for number, row in enumerate(rows):
            yield row
            if self.progress:
                self.progress(number + 1, len(rows))


def decoded(data: bytes) -> JSON:
    """JSON, also where an emoji was cut in two or a byte is no text. Raises ValueError."""
    try:
        return msgspec.json.decode(data)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        found = parse_object(data.decode("utf-8", "replace"))
        if found is None:
            raise ValueError(str(error)) from error
        return found


def _is_json(line: bytes) -> bool:
    try:
        decoded(line)
    except ValueError:
        return False
    return True


@contextmanager
def _reading(path: Path) -> Generator[sqlite3.Connection]:
    """A connection that writes nothing, neither to the database nor beside it.

    A log that nobody has open (there is no index of it beside it) would be given one: then both are copied first.
    """
    log, index = Path(f"{path}-wal"), Path(f"{path}-shm")
    has_log = log.exists() and log.stat().st_size > 0
    with tempfile.TemporaryDirectory() as folder:
        if has_log and not index.exists():
            copy = Path(folder) / "copy.db"
            shutil.copyfile(path, copy)
            shutil.copyfile(log, f"{copy}-wal")
            path = copy
        quiet = not has_log and _writes_a_log(path)
        address = f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if quiet else ''}"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.text_factory = _as_text
            connection.row_factory = sqlite3.Row
            yield connection


def _as_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _writes_a_log(path: Path) -> bool:
    """Whether a database is written to by way of a log beside it; its header says so."""
    with path.open("rb") as file:
        return file.read(20)[19:20] == WAL_MODE


def _tables(connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = "SELECT name FROM pragma_table_info(?)"
    return {name: frozenset(row[0] for row in connection.execute(columns, (name,))) for name in names}

"""Files that a browser opens: each is imported into a store of its own, which is deleted when the file is closed.

The API works on the store of an opened file, below `/api/files/{file}`, as far as it only reads. A file with a single
request or a list of messages is not a conversation: `POST /api/open` inspects it.
"""

import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

from contextc.errors import ContextcError, InvalidInput
from contextc.interchange.file_import import ImportSummary, import_any
from contextc.interchange.found_conversation import DATA_ERRORS
from contextc.interchange.input_files import InputFile
from contextc.interchange.open_any import is_single_request
from contextc.interchange.packed_files import is_packed
from contextc.store import Store, open_store
from contextc.web.http_errors import HTTPError

MAX_OPENED_FILES = 8
"""The number of files that are open at the same time. Opening another one closes the oldest."""
MAX_FILE_NAME = 200
OpenedState: TypeAlias = Literal["reading", "ready", "request", "failed"]


class OpenedFile:
    """A file and the store that it is imported into. `read` fills it, on a thread.

    `done` of `total` bytes are read, and `requests` are recorded. The state "request" is that of a single request.
    """

    def __init__(self, name: str) -> None:
        self.id = secrets.token_hex(8)
        self.name = Path(name).name.replace("\0", "")[-MAX_FILE_NAME:] or "opened"
        self.folder = Path(tempfile.mkdtemp(prefix="contextc-opened-"))  # only for this user
        self.path = self.folder / "file"
        self.state: OpenedState = "reading"
        self.done, self.total, self.requests = 0, 0, 0
        self.conversations: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()
        self.error: Exception | None = None
        self.store: Store | None = None
        self.app_state: Any = None  # the state of the server for this store
        self._is_read, self._is_closed = threading.Event(), False

    def read(self, create_app_state: Callable[[Store], object]) -> None:
        """Import the file. Blocking; never raises."""
        try:
            self._read(create_app_state)
        except ContextcError as error:
            self.error, self.state = error, "failed"
        except (*DATA_ERRORS, OSError) as error:
            self.error = InvalidInput(f"{self.name} cannot be read: {type(error).__name__}: {error}.")
            self.state = "failed"
        finally:
            self._is_read.set()

    def _read(self, create_app_state: Callable[[Store], object]) -> None:
        self.total = self.path.stat().st_size
        file = self._input()
        if not is_packed(file) and is_single_request(file):
            self.state = "request"
            return
        self.store = open_store(self.folder / "opened.db")
        self.app_state = create_app_state(self.store)
        self.conversations, self.notes = self.import_into(self.store)
        self.state = "ready"

    def import_into(self, store: Store) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Import the file into a store. Return the names of the conversations, and what was left out. Blocking."""
        taken = import_any(store, [self._input()], progress=self._report, on_request=self._count_request)
        if not isinstance(taken, ImportSummary):
            return tuple(each.name for each in taken[0]), tuple(taken[1])
        names = tuple(each.name for each in taken.conversations if each.error is None)
        refused = tuple(f"{each.name}: {each.error}" for each in taken.conversations if each.error is not None)
        stopped = (f"The import stopped: {taken.stopped}",) if taken.stopped is not None else ()
        return names, (*taken.left_out, *refused, *stopped)

    def _input(self) -> InputFile:
        file = InputFile(self.path, progress=self._report)
        file.name, file.stem = self.name, Path(self.name).stem  # in messages, and in names of conversations
        return file

    def close(self) -> None:
        """Stop reading, and delete the copy of the file and its store. Blocking."""
        self._is_closed = True
        self._is_read.wait()
        if self.store is not None:
            self.store.close()
        self.delete()

    def delete(self) -> None:
        """Delete what is on the disk."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _report(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        self._check_open()

    def _count_request(self, *_: object) -> None:
        self.requests += 1
        self._check_open()

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidInput(f"{self.name} was closed.")


class OpenedFiles:
    """The opened files of a server, oldest first."""

    def __init__(self, create_app_state: Callable[[Store], object]) -> None:
        self._create_app_state = create_app_state
        self._files: dict[str, OpenedFile] = {}
        self._lock = threading.Lock()

    def add(self, file: OpenedFile) -> list[OpenedFile]:
        """Read a file on a thread of its own. Return the oldest ones if there are too many: the caller closes them."""
        with self._lock:
            too_many = [*self._files][: max(0, len(self._files) + 1 - MAX_OPENED_FILES)]
            closed = [self._files.pop(each) for each in too_many]
            self._files[file.id] = file
        threading.Thread(target=file.read, args=(self._create_app_state,), name="opened file", daemon=True).start()
        return closed

    def find(self, id: str) -> OpenedFile:
        found = self._files.get(id)
        if found is None:
            raise HTTPError(404, "This file is not open any more. Open it again.", "FileClosed")
        return found

    def all(self) -> list[OpenedFile]:
        return [*self._files.values()]

    def remove(self, id: str) -> OpenedFile:
        """Remove a file, which the caller closes."""
        file = self.find(id)
        with self._lock:
            self._files.pop(id, None)
        return file

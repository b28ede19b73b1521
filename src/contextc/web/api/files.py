"""Files that the browser opens: upload, progress, import into the store of the server, and closing."""

from tempfile import gettempdir

from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request

from contextc._worker_threads import REQUEST_SLOTS, run_blocking
from contextc.web.app_state import AppState
from contextc.web.http_errors import ErrorDetail, HTTPError, error_status_and_body
from contextc.web.opened_files import OpenedFile, OpenedState
from contextc.web.router import endpoint

BODY_TYPE = "application/octet-stream"


class FileQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name of the file."""

    name: str = ""


class FileView(Struct, frozen=True, kw_only=True):
    """An opened file. While it is `reading`, `done` of `total` bytes were read, and `requests` recorded.

    If it is `ready`, `/api/files/{file}/conversations` and all other endpoints that only read have its `conversations`,
    and `notes` is what was left out. If the state is `request`, the file is one request or a list of messages, which
    `/api/open` inspects.
    """

    id: str
    name: str
    state: OpenedState
    done: int
    total: int
    requests: int
    conversations: tuple[str, ...]
    notes: tuple[str, ...]
    error: ErrorDetail | UnsetType = UNSET


class FileList(Struct, frozen=True, kw_only=True):
    """The opened files, oldest first."""

    files: list[FileView]


class FileImport(Struct, frozen=True, kw_only=True):
    """The conversations that were imported into the store of the server, and what was left out."""

    conversations: tuple[str, ...]
    notes: tuple[str, ...]


@endpoint("POST", "/files", tag="files", status=202, body_type=BODY_TYPE)
async def upload_file(app: AppState, query: FileQuery, request: Request) -> FileView:
    """Open a file, whose bytes are the body. It is imported into a store of its own.

    The answer comes before the file is read. The store of the server is not changed, and the other one is deleted when
    the file is closed or the server ends.
    """
    if (kind := request.headers.get("content-type", "")) != BODY_TYPE:
        problem = f"Content-Type must be {BODY_TYPE}, got {kind[:100]!r}. Send the bytes with this header."
        raise HTTPError(415, problem, "UnsupportedMediaType")
    try:
        file = OpenedFile(query.name)
    except OSError as error:
        raise _disk_error(error) from error
    try:
        with file.path.open("wb") as target:
            async for piece in request.stream():
                await run_blocking(target.write, piece, slots=REQUEST_SLOTS)
    except OSError as error:
        file.delete()
        raise _disk_error(error) from error
    except BaseException:
        file.delete()
        raise
    await app.close_files(app.files.add(file))
    return _view(file)


def _disk_error(error: OSError) -> HTTPError:
    problem = f"The file cannot be copied to {gettempdir()}: {error.strerror}."
    problem += " Free space there, or set TMPDIR to another folder, and start the server again."
    return HTTPError(507, problem, "DiskFull")


@endpoint("GET", "/files", tag="files")
def list_files(app: AppState) -> FileList:
    """Return the opened files."""
    return FileList(files=[_view(each) for each in app.files.all()])


@endpoint("GET", "/files/{file}", tag="files")
def show_file(app: AppState, file: str) -> FileView:
    """Return an opened file, and how far it is read."""
    return _view(app.files.find(file))


@endpoint("DELETE", "/files/{file}", tag="files")
async def close_file(app: AppState, file: str) -> FileList:
    """Close a file and delete everything that was read from it. Return the others."""
    await app.close_files([app.files.remove(file)])
    return list_files(app)


@endpoint("POST", "/files/{file}/import", tag="files")
def import_file(app: AppState, file: str) -> FileImport:
    """Import an opened file into the store of the server. Messages that exist already are not imported again."""
    opened = app.files.find(file)
    if opened.state != "ready":
        raise HTTPError(409, f"{opened.name} has no conversation to import: it is {opened.state}.", "NotReady")
    names, notes = opened.import_into(app.store)
    return FileImport(conversations=names, notes=notes)


def _view(file: OpenedFile) -> FileView:
    return FileView(
        id=file.id,
        name=file.name,
        state=file.state,
        done=file.done,
        total=file.total,
        requests=file.requests,
        conversations=file.conversations,
        notes=file.notes,
        error=error_status_and_body(file.error)[1].error if file.error is not None else UNSET,
    )

"""The folder that file tools are confined to: a path from a model must be inside it, otherwise it is an error.

Symbolic links are resolved before the check, so a link to the outside is rejected. Hard links cannot be detected: a
private file (not readable by group and others) with a second name is rejected, because that name may be outside. Shared
files with several names are common, since package managers link what they install. Writing is atomic: the new text is
written to a temporary file beside the old one, which it then replaces, with the same mode.
"""

import difflib
import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from contextc._json import fix_surrogates
from contextc.errors import InvalidInput, InvalidSetting

MAX_TEXT_BYTES = 20_000_000
SAMPLE_BYTES = 8_192


class Workspace:
    """A folder, and the validation of a model's paths in it."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise InvalidSetting(
                "root must be an existing folder", got=str(root), fix="Pass the folder that the tools may work in."
            )

    def resolve(self, path: str) -> Path:
        """Return the resolved path, with all links followed. Raises `InvalidInput` if it is outside the folder."""
        if "\0" in path:
            raise InvalidInput("The path holds a NUL character. Leave it out.")
        try:
            found = (self.root / fix_surrogates(path)).resolve()
        except (OSError, RuntimeError) as error:
            raise InvalidInput(f"The path {path} leads nowhere: {_error_reason(error)}.") from error
        if not found.is_relative_to(self.root):
            raise InvalidInput(
                f"{path} is outside the folder you may work in. Give a path inside it, relative to its top, such as "
                "src/main.py."
            )
        return found

    def relative_path(self, place: Path) -> str:
        """Return a path relative to the folder."""
        return place.relative_to(self.root).as_posix()

    def resolve_file(self, path: str) -> Path:
        """Return the path of an existing regular file."""
        place = self.resolve(path)
        try:
            mode = place.stat().st_mode
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {_error_reason(error)}.{self._suggestion(place)}") from error
        if stat.S_ISDIR(mode):
            raise InvalidInput(f"{path} is a folder. Use list_files to see what is in it.")
        if not stat.S_ISREG(mode):
            raise InvalidInput(f"{path} is not a plain file, and is left alone.")
        if is_private_hard_link(place.stat()):
            raise InvalidInput(
                f"{path} is a private file with another name, which may be outside the folder you may work in. Ask the "
                "user to copy it."
            )
        return place

    def read_text(self, path: str) -> tuple[Path, str]:
        """Return the path and the whole unchanged text of a file."""
        place = self.resolve_file(path)
        try:
            size = place.stat().st_size
            if size > MAX_TEXT_BYTES:
                raise InvalidInput(f"{path} has {size:,} bytes; files of up to {MAX_TEXT_BYTES:,} can be changed here.")
            return place, place.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{path} is not text in UTF-8, so it cannot be changed here.") from error
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {_error_reason(error)}.") from error

    def resolve_for_writing(self, path: str) -> Path:
        """Return a path that may be written. Files in `.git` are rejected, because git runs some of them."""
        place = self.resolve(path)
        if any(part.lower() == ".git" for part in place.relative_to(self.root).parts):
            raise InvalidInput(f"{path} belongs to git itself, which runs what it finds there. It is left alone.")
        return place

    def write_text(self, place: Path, text: str, *, new: bool) -> None:
        """Write a text atomically. A `new` file never replaces an existing one."""
        beside = place.with_name(f".{uuid4().hex}.tmp")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(
                f"The folder of {self.relative_path(place)} cannot be made: {_error_reason(error)}."
            ) from error
        try:
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as handle:
                handle.write(fix_surrogates(text).encode())
                handle.flush()
                os.fsync(handle.fileno())
            if new:
                _rename_new(beside, place)
                return
            beside.chmod(stat.S_IMODE(place.stat().st_mode))
            beside.replace(place)
        except FileExistsError as error:
            raise InvalidInput(f"{self.relative_path(place)} is there already, and was left as it is.") from error
        except OSError as error:
            raise InvalidInput(f"{self.relative_path(place)} cannot be written: {_error_reason(error)}.") from error
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)

    def _suggestion(self, place: Path) -> str:
        """Return a suggestion with the most similar name in the same folder, empty if there is none."""
        with suppress(OSError):
            names = [each.name for each in os.scandir(place.parent)]
            alike = difflib.get_close_matches(place.name, names, 1)
            return f" Did you mean {self.relative_path(place.parent / alike[0])}?" if alike else ""
        return ""


def _rename_new(beside: Path, place: Path) -> None:
    """Rename a file unless the name exists. Without hard links in the file system the check is not atomic."""
    try:
        os.link(beside, place)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        if place.exists():
            raise FileExistsError(errno.EEXIST, "File exists") from error
        beside.replace(place)


def check_line_offset(path: str, offset: int, lines: int) -> None:
    """Raise `InvalidInput` if a text of so many lines does not have the line at which reading is to begin."""
    if offset > lines:
        raise InvalidInput(
            f"{path} has {lines:,} lines; there is no line {offset:,}", fix=f"Use an offset from 1 to {lines}."
        )


def is_private_hard_link(found: os.stat_result) -> bool:
    """Return True if a file is readable only by its owner and has more than one name."""
    return found.st_nlink > 1 and not found.st_mode & (stat.S_IRGRP | stat.S_IROTH)


def is_binary(sample: bytes) -> bool:
    return b"\0" in sample


def _error_reason(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return reason[:1].lower() + reason[1:]

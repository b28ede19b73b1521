"""The folder that file tools are kept in: a path from a model is inside it, or is refused with words.

Links are followed before the question is asked, so one that leads outside leads nowhere. A hard link cannot be seen: a
private file (not readable by group and others) that has a second name is refused, because that name may be outside.
Shared files with several names are usual, since package managers link what they install. Writing replaces a file as a
whole or not at all: the new text is written beside the old one, and then takes its name and its mode.
"""

import difflib
import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from contextc._json import well_formed
from contextc.errors import InvalidInput, InvalidSetting

LARGEST_TEXT = 20_000_000
SAMPLE = 8_192


class Folder:
    """A folder, and the only way from a model's path to a place in it."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise InvalidSetting(f"{root} is not a folder. Give the folder that the tools may work in.")

    def find(self, path: str) -> Path:
        """Where a path leads, with all links followed; InvalidInput where that is outside."""
        if "\0" in path:
            raise InvalidInput("The path holds a NUL character. Leave it out.")
        try:
            found = (self.root / well_formed(path)).resolve()
        except (OSError, RuntimeError) as error:
            raise InvalidInput(f"The path {path} leads nowhere: {_reason(error)}.") from error
        if not found.is_relative_to(self.root):
            raise InvalidInput(
                f"{path} is outside the folder you may work in. Give a path inside it, relative to its top, such as "
                "src/main.py."
            )
        return found

    def name(self, place: Path) -> str:
        """A place as a model writes it: relative to the top."""
        return place.relative_to(self.root).as_posix()

    def file(self, path: str) -> Path:
        """An existing plain file."""
        place = self.find(path)
        try:
            mode = place.stat().st_mode
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {_reason(error)}.{self._alike(place)}") from error
        if stat.S_ISDIR(mode):
            raise InvalidInput(f"{path} is a folder. Use list_files to see what is in it.")
        if not stat.S_ISREG(mode):
            raise InvalidInput(f"{path} is not a plain file, and is left alone.")
        if is_linked_secret(place.stat()):
            raise InvalidInput(
                f"{path} is a private file with another name, which may be outside the folder you may work in. Ask the "
                "user to copy it."
            )
        return place

    def text(self, path: str) -> tuple[Path, str]:
        """The whole text of a file, exactly as it is."""
        place = self.file(path)
        try:
            size = place.stat().st_size
            if size > LARGEST_TEXT:
                raise InvalidInput(f"{path} has {size:,} bytes; files of up to {LARGEST_TEXT:,} can be changed here.")
            return place, place.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{path} is not text in UTF-8, so it cannot be changed here.") from error
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {_reason(error)}.") from error

    def for_writing(self, path: str) -> Path:
        """A place that may be written. What git runs or reads by itself is not among them."""
        place = self.find(path)
        if any(part.lower() == ".git" for part in place.relative_to(self.root).parts):
            raise InvalidInput(f"{path} belongs to git itself, which runs what it finds there. It is left alone.")
        return place

    def write(self, place: Path, text: str, *, new: bool) -> None:
        """Put a text in place, whole or not at all. A `new` file never takes the place of another."""
        beside = place.with_name(f".{uuid4().hex}.tmp")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"The folder of {self.name(place)} cannot be made: {_reason(error)}.") from error
        try:
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as handle:
                handle.write(well_formed(text).encode())
                handle.flush()
                os.fsync(handle.fileno())
            if new:
                _name_new(beside, place)
                return
            beside.chmod(stat.S_IMODE(place.stat().st_mode))
            beside.replace(place)
        except FileExistsError as error:
            raise InvalidInput(f"{self.name(place)} is there already, and was left as it is.") from error
        except OSError as error:
            raise InvalidInput(f"{self.name(place)} cannot be written: {_reason(error)}.") from error
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)

    def _alike(self, place: Path) -> str:
        """A file of the same name elsewhere near, which is what a wrong path is mostly meant to be."""
        with suppress(OSError):
            names = [each.name for each in os.scandir(place.parent)]
            alike = difflib.get_close_matches(place.name, names, 1)
            return f" Did you mean {self.name(place.parent / alike[0])}?" if alike else ""
        return ""


def _name_new(beside: Path, place: Path) -> None:
    """Give a file its name, unless that is taken; where the file system has no links, nearly as safely."""
    try:
        os.link(beside, place)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        if place.exists():
            raise FileExistsError(errno.EEXIST, "File exists") from error
        beside.replace(place)


def is_linked_secret(found: os.stat_result) -> bool:
    """Return whether a file is readable by its owner alone and has more than one name."""
    return found.st_nlink > 1 and not found.st_mode & (stat.S_IRGRP | stat.S_IROTH)


def is_binary(sample: bytes) -> bool:
    return b"\0" in sample


def _reason(error: Exception) -> str:
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return said[:1].lower() + said[1:]

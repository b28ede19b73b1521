"""The page: files that come with the package. Nothing in them is anybody's, so everybody may have them.

What may run in the page is said by its policy: scripts and styles of this server, and the one import map that stands in
the page itself, known by its hash. Addresses within the page are behind a `#`, so there is one document. It names every
module that it begins with, so that a browser asks for all of them at once instead of finding them one by one.
"""

import re
from base64 import b64encode
from functools import lru_cache
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from contextc.web.address import below
from contextc.web.problems import Refused

STATIC = Path(__file__).parent / "static"
PAGE = "index.html"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
"""Files of another kind are not handed out."""
IMPORT_MAP = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)
MODULE = re.compile(rb'<script type="module" src="([^"]+)">')
IMPORTED = re.compile(r"""^(?:import|export)\b[^"';]*?from\s*["'](\.[^"']+)["']""", re.MULTILINE)
POLICY = (
    "default-src 'none'; script-src 'self'{maps}; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class File(NamedTuple):
    data: bytes
    tag: str
    policy: str


class Pages:
    """The files of a folder as an ASGI application; `/` is its page."""

    def __init__(self, folder: Path = STATIC) -> None:
        self.folder = folder.resolve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            said = "There is only something to look at here. The API is below /api."
            raise Refused(405, said, "NotAllowed", {"Allow": "GET, HEAD"})
        path = self._find(below(scope))
        state = path.stat()
        file = _read(path, state.st_mtime_ns, state.st_size)
        headers = {"ETag": file.tag, "Cache-Control": "no-cache", "Content-Security-Policy": file.policy}
        if file.tag in re.split(r"\s*,\s*", Headers(scope=scope).get("if-none-match", "").replace("W/", "")):
            answer = Response(status_code=304, headers=headers)
        else:
            answer = Response(file.data, headers={**headers, "Content-Type": KINDS[path.suffix]})
        await answer(scope, receive, send)

    def _find(self, asked: str) -> Path:
        """The file of a path. Whatever the path says, it is one of the folder's own."""
        named = PurePosixPath(asked.lstrip("/") or PAGE)
        try:
            found = (self.folder / named).resolve()
            if found.is_relative_to(self.folder) and found.suffix in KINDS and found.is_file():
                return found
        except (OSError, ValueError):  # no name of a file: too long, or with a zero in it
            pass
        raise Refused(404, "There is no such page. The app is at /, the API below /api.", "NotFound")


@lru_cache(maxsize=256)
def _read(path: Path, changed: int, size: int) -> File:
    """A file as it was at that moment; a page with the policy that its own import map needs."""
    data = path.read_bytes()
    if (begins := MODULE.search(data)) and path.suffix == ".html":
        names = [each.relative_to(path.parent).as_posix() for each in modules(path.parent / begins[1].decode())]
        links = "".join([f'<link rel="modulepreload" href="{name}">\n    ' for name in names])
        data = data[: begins.start()] + links.encode() + data[begins.start() :]
    maps = IMPORT_MAP.findall(data) if path.suffix == ".html" else []
    hashes = "".join([f" 'sha256-{b64encode(sha256(each).digest()).decode()}'" for each in maps])
    return File(data, f'"{sha256(data).hexdigest()[:32]}"', POLICY.format(maps=hashes))


def modules(first: Path) -> list[Path]:
    """The modules that one imports, and those that they import, itself first; not those it only asks for later."""
    found, left = dict.fromkeys([first.resolve()]), [first.resolve()]
    while left:
        here = left.pop()
        for name in IMPORTED.findall(here.read_text(encoding="utf-8")):
            if (there := (here.parent / name).resolve()).is_file() and there not in found:
                found[there] = None
                left.append(there)
    return list(found)

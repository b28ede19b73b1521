"""Static files of the web UI. They contain no user data, so they need no authentication.

The Content-Security-Policy allows scripts and styles of this server, and the inline import map by its hash. Routes of
the web UI are URL fragments, so there is one HTML document. It preloads every module that its entry point imports, so
that a browser fetches them in parallel. It refers to files below `/v/VERSION/`. The version changes with any file, so a
browser keeps them and asks only for the document again.
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

from contextc.web.http_errors import HTTPError
from contextc.web.security import path_below_mount

STATIC_FOLDER = Path(__file__).parent / "static"
INDEX_FILE = "index.html"
MEDIA_TYPES = {
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
"""Files with other extensions are not served."""
IMPORT_MAP = re.compile(rb'<script type="importmap">([^<]*+)</script>')
MODULE_SCRIPT = re.compile(rb'<script type="module" src="([^"]+)">')
RELATIVE_URL = re.compile(rb'((?:href|src)=")(?![a-z]+:|[/#])(?:\./)?|("\./)(?=vendor/)')
VERSIONED_PATH = re.compile(r"/v/([0-9a-f]{16})(/.+)")
STATIC_IMPORT = re.compile(
    r"""^(?:import|export)\b(?:(?!from\s*["']|\n(?:import|export)\b)[^"';])*+from\s*+["'](\.[^"'\n]++)["']""",
    re.MULTILINE,
)
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'{maps}; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class StaticFile(NamedTuple):
    data: bytes
    tag: str
    policy: str


class StaticFiles:
    """ASGI application that serves the files of a folder; `/` is `index.html`."""

    def __init__(self, folder: Path = STATIC_FOLDER) -> None:
        self.folder = folder.resolve()
        self._version = ""
        """The version of the last document that was served."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            problem = f"Method not allowed, got {scope['method'][:20]!r}. Use GET or HEAD; the API is below /api."
            raise HTTPError(405, problem, "NotAllowed", {"Allow": "GET, HEAD"})
        asked = path_below_mount(scope)
        versioned = VERSIONED_PATH.fullmatch(asked)
        path = self._find(versioned[2] if versioned else asked)
        if path.suffix == ".html" or not self._version:
            states = [(path, path.stat()) for path in sorted(self.folder.rglob("*.*"))]
            text = "\n".join(
                [f"{path.relative_to(self.folder)} {state.st_mtime_ns} {state.st_size}" for path, state in states]
            )
            self._version = sha256(text.encode()).hexdigest()[:16]
        state = path.stat()
        file = _read(path, state.st_mtime_ns, state.st_size, self._version if path.suffix == ".html" else "")
        is_current = versioned is not None and versioned[1] == self._version
        caching = "public, max-age=31536000, immutable" if is_current else "no-cache"
        headers = {"ETag": file.tag, "Cache-Control": caching, "Content-Security-Policy": file.policy}
        known = Headers(scope=scope).get("if-none-match", "").replace("W/", "").split(",")
        if file.tag in [each.strip() for each in known]:
            answer = Response(status_code=304, headers=headers)
        else:
            answer = Response(file.data, headers={**headers, "Content-Type": MEDIA_TYPES[path.suffix]})
        await answer(scope, receive, send)

    def _find(self, asked: str) -> Path:
        """Return the file of a path. It is always inside the folder."""
        named = PurePosixPath(asked.lstrip("/") or INDEX_FILE)
        try:
            found = (self.folder / named).resolve()
            if found.is_relative_to(self.folder) and found.suffix in MEDIA_TYPES and found.is_file():
                return found
        except (OSError, ValueError):  # invalid file name: too long, or with a null character
            pass
        raise HTTPError(404, "File not found. Open the web UI at /, or use the API below /api.", "NotFound")


@lru_cache(maxsize=256)
def _read(path: Path, changed: int, size: int, version: str) -> StaticFile:
    """Read a file at one modification time. An HTML file refers to a version and has the policy for its import map."""
    data = path.read_bytes()
    if (begins := MODULE_SCRIPT.search(data)) and path.suffix == ".html":
        names = [each.relative_to(path.parent).as_posix() for each in static_imports(path.parent / begins[1].decode())]
        links = "".join([f'<link rel="modulepreload" href="{name}">\n    ' for name in names])
        data = data[: begins.start()] + links.encode() + data[begins.start() :]
    if version:
        data = RELATIVE_URL.sub(rb"\1\2v/" + version.encode() + b"/", data)
    maps = IMPORT_MAP.findall(data) if path.suffix == ".html" else []
    hashes = "".join([f" 'sha256-{b64encode(sha256(each).digest()).decode()}'" for each in maps])
    return StaticFile(data, f'"{sha256(data).hexdigest()[:32]}"', CONTENT_SECURITY_POLICY.format(maps=hashes))


def static_imports(entry_point: Path) -> list[Path]:
    """Return a module and all its static imports, recursively. Dynamic imports are not included."""
    found, left = dict.fromkeys([entry_point.resolve()]), [entry_point.resolve()]
    while left:
        here = left.pop()
        for name in STATIC_IMPORT.findall(here.read_text(encoding="utf-8")):
            if (there := (here.parent / name).resolve()).is_file() and there not in found:
                found[there] = None
                left.append(there)
    return list(found)

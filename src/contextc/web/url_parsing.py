"""Parsing of request URLs, in one place, so that access control and routing cannot disagree.

The application may be mounted below another path. A client may send an absolute URL instead of a path (RFC 9112,
3.2.2); then its host counts, and the `Host` header does not.
"""

from urllib.parse import unquote

from starlette.types import Scope

API_PATH = "/api"
ADMIT_KEY = "contextc.admit"
"""Key in an ASGI scope's `state` of a function that is called after authentication.

It returns False if the server has too many connections."""
ABSOLUTE_URL_PREFIXES = (b"http://", b"https://")


def normalize_scope(scope: Scope) -> Scope:
    """Return the scope with a path instead of an absolute URL."""
    raw = bytes(scope.get("raw_path") or scope["path"].encode())
    scheme = next((each for each in ABSOLUTE_URL_PREFIXES if raw[: len(each)].lower() == each), None)
    if scheme is None:
        return scope
    host, _, path = raw[len(scheme) :].partition(b"/")
    headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
    path = b"/" + path
    there = unquote(path.decode("ascii", "replace"))
    return {**scope, "path": there, "raw_path": path, "headers": [(b"host", host), *headers]}


def path_below_mount(scope: Scope) -> str:
    """Return the path without the mount path of the application."""
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def is_api_request(scope: Scope) -> bool:
    path = path_below_mount(scope)
    return path == API_PATH or path.startswith(f"{API_PATH}/")


def api_segments(scope: Scope) -> list[str]:
    """Return the segments of the path below `/api`, decoded separately, because names may contain a slash."""
    raw = bytes(scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]
    foreign = scope["path"].count("/") - path_below_mount(scope).count("/")
    return [unquote(each.decode("ascii", "replace")) for each in raw.strip(b"/").split(b"/")[foreign + 1 :]]

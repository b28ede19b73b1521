"""Where a request goes: read in one place, so that who asks for the token and who answers cannot differ about it.

The application may be mounted below a path of somebody else's. A client may send a whole address in the place of a path
(RFC 9112, 3.2.2); its host then counts, and the `Host` header does not.
"""

from urllib.parse import unquote, urlsplit

from starlette.types import Scope

API = "/api"
ADMIT = "contextc.admit"
"""The key in an ASGI scope's `state` of the function that the guard calls when a request was authenticated.
It returns False where the server has no room for it."""
WHOLE = (b"http://", b"https://")


def plain(scope: Scope) -> Scope:
    """The same request, with a path where it has a whole address."""
    raw = bytes(scope.get("raw_path") or scope["path"].encode())
    scheme = next((each for each in WHOLE if raw[: len(each)].lower() == each), None)
    if scheme is None:
        return scope
    host, _, path = raw[len(scheme) :].partition(b"/")
    headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
    path = b"/" + path
    there = unquote(path.decode("ascii", "replace"))
    return {**scope, "path": there, "raw_path": path, "headers": [(b"host", host), *headers]}


def below(scope: Scope) -> str:
    """The path, without what the application is mounted on."""
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def is_api(scope: Scope) -> bool:
    path = below(scope)
    return path == API or path.startswith(f"{API}/")


def segments(scope: Scope) -> list[str]:
    """The parts of the path below `/api`, each decoded by itself: a conversation may have a slash in its name."""
    raw = bytes(scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]
    foreign = scope["path"].count("/") - below(scope).count("/")
    return [unquote(each.decode("ascii", "replace")) for each in raw.strip(b"/").split(b"/")[foreign + 1 :]]


def name_and_port(host: str) -> tuple[str, int | None]:
    """What a Host header says; "" where it is none."""
    try:
        found = urlsplit(f"//{host}")
        name, port = found.hostname or "", found.port
    except ValueError:
        return "", None
    if found.username is not None or found.path or found.query or found.fragment:
        return "", None
    return f"[{name}]" if ":" in name else name, port

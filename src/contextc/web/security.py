"""Access control and size limits, checked before anything else for every request.

Any website in a local browser can send requests to a local server. So the `Host` header must be an accepted name, which
prevents DNS rebinding. `Origin` and `Sec-Fetch-Site` must be of the web UI or absent. API requests need the token, if
one is set. Bodies that are too large are rejected before they are read. Only the static files, which contain no user
data, need no token and may be opened by links from other sites.
"""

import asyncio
import hmac
from urllib.parse import parse_qsl, quote, unquote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contextc._http_access import is_accepted_host, split_host
from contextc.web.app_state import ServerOptions
from contextc.web.http_errors import HTTPError
from contextc.web.http_errors import error_response as refused

# ── parsing of URLs ───────────────────────────────────────────────────────────────────────────────────────────────────
# Parsing of request URLs, in one place, so that access control and routing cannot disagree.
#
# The application may be mounted below another path. A client may send an absolute URL instead of a path (RFC 9112,
# 3.2.2); then its host counts, and the `Host` header does not.


API_PATH = "/api"
FILES_PATH = "/api/files"
"""The path to which the web UI uploads a file."""
CHUNK_KEY = "contextc.send_chunk"
"""Key of the function in the state of a scope that sends a part of a response whose length is not known."""
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


# ── access control ────────────────────────────────────────────────────────────────────────────────────────────────────


ANY = "*"
COOKIE_NAME = "contextc_token"
MAX_URL_BYTES = 16 << 10
"""Maximum bytes of a URL, including the query."""
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Default headers of every response."""
MAX_HEADERS = 200
RETRY_HEADERS = {"Retry-After": "5", "Connection": "close"}
BODY_TIMEOUT = 120.0
"""Seconds within which a request body must arrive."""
TOKEN_REQUIRED = (
    "Authentication required: send Authorization: Bearer <token>. The server printed the token when it started. "
    "In a browser, open the link that it printed."
)
TOKEN_INVALID = "Invalid token. The server creates a new token at each start: open the link that it printed last."


class SecurityMiddleware:
    """ASGI middleware that passes on only permitted requests."""

    def __init__(self, app: ASGIApp, options: ServerOptions) -> None:
        self.app, self.options = app, options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope = normalize_scope(scope)
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        allowed = origin if origin in self.options.origins else ""
        has_begun = False

        async def sending(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                _add_headers(message, allowed)
            await send(message)

        try:
            self._check(scope, headers)
            answer = _preflight(scope, headers, allowed) or self._token_redirect(scope, headers)
            await (answer or self.app)(scope, self._limit_body(scope, receive), sending)
        except Exception as error:
            if has_begun:
                raise
            await refused(error)(scope, receive, sending)

    def _check(self, scope: Scope, headers: Headers) -> None:
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_URL_BYTES:
            raise HTTPError(
                414, f"URL must be at most {MAX_URL_BYTES:,} bytes. Send long values in the body.", "TooLong"
            )
        if len(scope["headers"]) > MAX_HEADERS:
            raise HTTPError(431, f"Request must have at most {MAX_HEADERS} headers. Send fewer.", "TooManyHeaders")
        self._check_host(headers)
        self._check_origin(scope, headers)
        if scope["method"] != "OPTIONS" and is_api_request(scope):
            self._check_token(headers)
            if (admit := scope.get("state", {}).get(ADMIT_KEY)) and not admit():
                raise HTTPError(
                    503, "The server has too many open connections. Retry later.", "Overloaded", RETRY_HEADERS
                )
        length, limit = headers.get("content-length", "0"), self._max_body_bytes(scope)
        if not length.isdecimal() or int(length) > limit:
            raise _too_large(limit)

    def _check_host(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else ""
        if not is_accepted_host(host, self.options.hosts):
            there, name = ", ".join(self.options.hosts), split_host(host)[0]
            message = f"Host: expected one of {there}, got {name[:100]!r}. Use one of these names."
            raise HTTPError(421, message, "UnknownHost")

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is not None:
            if origin != f"{scope['scheme']}://{headers.get('host', '')}" and origin not in self.options.origins:
                raise HTTPError(
                    403,
                    f"Origin: not allowed, got {origin[:100]!r}. To allow it, add it to the origins of the server.",
                    "ForeignPage",
                )
        elif site not in ("none", "same-origin") and not _is_navigation(scope, headers):
            raise HTTPError(
                403, "Request of another website is not allowed. Open the URL of the server itself.", "ForeignPage"
            )

    def _check_token(self, headers: Headers) -> None:
        if not self.options.token:
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        if any(map(self._is_token, [given.strip()] if kind.lower() == "bearer" else _cookies(headers))):
            return
        raise _unauthorized(TOKEN_REQUIRED)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self.options.token.encode())

    def _token_redirect(self, scope: Scope, headers: Headers) -> Response | None:
        """Set the token cookie if the URL of the web UI has the token, and redirect to the URL without it."""
        given = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token")
        if not self.options.token or given is None or path_below_mount(scope) != "/":
            return None
        there = quote(scope["path"])  # without the query
        answer = Response(status_code=303, headers={"Location": there, "Cache-Control": "no-store"})
        if not self._is_token(given):
            if _is_navigation(scope, headers):
                return answer  # the web UI asks for the token
            raise _unauthorized(TOKEN_INVALID)
        name = cookie_name(headers.get("host", ""))
        answer.set_cookie(name, quote(self.options.token, safe=""), path=there, httponly=True, samesite="strict")
        return answer

    def _max_body_bytes(self, scope: Scope) -> int:
        is_file = scope["method"] == "POST" and path_below_mount(scope) == FILES_PATH
        return self.options.max_file_bytes if is_file else self.options.max_body_bytes

    def _limit_body(self, scope: Scope, receive: Receive) -> Receive:
        """Limit the size of a body, regardless of Content-Length, and the time until it has arrived."""
        limit = self._max_body_bytes(scope)
        taken, is_whole, deadline = 0, False, asyncio.get_running_loop().time() + BODY_TIMEOUT

        async def receiving() -> Message:
            nonlocal taken, is_whole
            if is_whole:  # the next message is the disconnect
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPError(
                    408,
                    f"Body must arrive within {BODY_TIMEOUT:.0f} seconds. Send it without pauses.",
                    "TooSlow",
                    {"Connection": "close"},
                ) from None
            taken, is_whole = taken + len(message.get("body", b"")), not message.get("more_body", False)
            if taken > limit:
                raise _too_large(limit)
            return message

        return receiving


def _too_large(limit: int) -> HTTPError:
    return HTTPError(413, f"Request body must be at most {limit:,} bytes. Send less at once.", "TooLarge")


def cookie_name(host: str) -> str:
    """Return the name of the token cookie for a Host header.

    Cookies ignore ports, so the name contains the port: otherwise two servers on one machine would overwrite each
    other's cookie. It is the port that the browser uses, also behind a proxy.
    """
    port = split_host(host)[1]
    return COOKIE_NAME if port is None else f"{COOKIE_NAME}_{port}"


def _cookies(headers: Headers) -> list[str]:
    """Return all values of the token cookie. Malformed cookies of other applications are ignored."""
    pairs = [each.partition("=") for header in headers.getlist("cookie") for each in header.split(";")]
    name = cookie_name(headers.get("host", ""))
    return [unquote(value.strip()) for found, _, value in pairs if found.strip() == name]


def _unauthorized(message: str) -> HTTPError:
    return HTTPError(401, message, "TokenNeeded", {"WWW-Authenticate": "Bearer"})


def _is_navigation(scope: Scope, headers: Headers) -> bool:
    """Return True if the request is a navigation to the web UI, for example by a link."""
    is_visit = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return is_visit and scope["method"] == "GET" and not is_api_request(scope)


def _preflight(scope: Scope, headers: Headers, allowed: str) -> Response | None:
    """Return the response to a CORS preflight request of an allowed origin."""
    if not allowed or scope["method"] != "OPTIONS" or "access-control-request-method" not in headers:
        return None
    cors = {
        "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
        "Access-Control-Allow-Headers": headers.get("access-control-request-headers", "content-type"),
        "Access-Control-Allow-Private-Network": "true",
        "Access-Control-Max-Age": "600",
    }
    return Response(status_code=204, headers=cors)


def _add_headers(message: Message, allowed: str) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in SECURITY_HEADERS.items():
        headers.setdefault(name, value)
    if allowed:
        headers["Access-Control-Allow-Origin"] = allowed
        headers["Access-Control-Expose-Headers"] = ANY
        headers.add_vary_header("Origin")

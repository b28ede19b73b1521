"""Who may ask, and how much at once: looked at before anything else is, for every request.

A server on this machine can be reached by every page that a browser here shows. So a request has to come to a name of
ours (`Host`: a page that points its own name here gets nothing), from a page of ours or none (`Origin`,
`Sec-Fetch-Site`), and with the token, if there is one. What is too large is refused before it is read. Only the page
itself, in which there is nothing of anybody's, may be opened from elsewhere and without a token.
"""

import asyncio
import hmac
from urllib.parse import parse_qsl, quote, unquote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contextc.web.address import ADMIT, below, is_api, name_and_port, plain
from contextc.web.desk import Options
from contextc.web.problems import Refused
from contextc.web.problems import answer as refused

ANYBODY = "*"
COOKIE = "contextc_token"
LONGEST = 16 << 10
"""Bytes of an address, what is asked for included."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""On every answer, unless it says otherwise itself."""
MOST_HEADERS = 200
RETRY = {"Retry-After": "5", "Connection": "close"}
BODY_SECONDS = 120.0
"""Seconds in which the body of a request has to be there."""
WITHOUT_TOKEN = (
    "Authentication required: send Authorization: Bearer <token>. `contextc serve` printed the token when it started. "
    "In a browser, open the link that it printed."
)
WRONG_TOKEN = "Wrong token. `contextc serve` makes a new one at each start: open the link that it printed last."


class Guard:
    """ASGI middleware. Everything that reaches the application behind it was let in."""

    def __init__(self, app: ASGIApp, options: Options) -> None:
        self.app, self.options = app, options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope = plain(scope)
        headers = Headers(scope=scope)
        allowed = self._allowed_origin(headers)
        has_begun = False

        async def sending(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                _add_headers(message, allowed)
            await send(message)

        try:
            self._check(scope, headers)
            answer = _preflight(scope, headers, allowed) or self._opened(scope, headers)
            await (answer or self.app)(scope, self._limited(receive), sending)
        except Exception as error:
            if has_begun:
                raise
            await refused(error)(scope, receive, sending)

    def _check(self, scope: Scope, headers: Headers) -> None:
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > LONGEST:
            raise Refused(414, f"The address is longer than {LONGEST:,} bytes. Send what is long as a body.", "TooLong")
        if len(scope["headers"]) > MOST_HEADERS:
            raise Refused(431, f"A request may have {MOST_HEADERS} headers. Send fewer.", "TooManyHeaders")
        self._check_host(headers)
        self._check_origin(scope, headers)
        if scope["method"] != "OPTIONS" and is_api(scope):
            self._check_token(headers)
            if (admit := scope.get("state", {}).get(ADMIT)) and not admit():
                raise Refused(503, "The server has too many open connections. Retry later.", "Overloaded", RETRY)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.options.largest:
            raise self._too_large()

    def _check_host(self, headers: Headers) -> None:
        said = headers.getlist("host")
        name = name_and_port(said[0])[0] if len(said) == 1 else ""
        if name not in self.options.hosts and ANYBODY not in self.options.hosts:
            there = ", ".join(self.options.hosts)
            message = f"This server does not go by the name {name[:100]!r}. It answers to: {there}."
            raise Refused(421, message, "UnknownHost")

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is not None:
            if origin != _own_origin(scope, headers) and origin not in self.options.origins:
                raise Refused(
                    403,
                    f"A page of {origin[:100]} may not ask this server. If it is yours: contextc serve --origin "
                    f"{origin[:100]}",
                    "ForeignPage",
                )
        elif site not in ("none", "same-origin") and not _opens_the_page(scope, headers):
            raise Refused(403, "Another page sent this request. Open the server's own address.", "ForeignPage")

    def _check_token(self, headers: Headers) -> None:
        if not self.options.token:
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        if any(map(self._is_token, [given.strip()] if kind.lower() == "bearer" else _cookies(headers))):
            return
        raise _without_token(WITHOUT_TOKEN)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self.options.token.encode())

    def _opened(self, scope: Scope, headers: Headers) -> Response | None:
        """Whoever opens the page with the token gets it as a cookie, and an address without it."""
        given = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token")
        if not self.options.token or given is None or below(scope) != "/":
            return None
        there = quote(scope["path"])  # the same, without what is asked for
        answer = Response(status_code=303, headers={"Location": there, "Cache-Control": "no-store"})
        if not self._is_token(given):
            if _opens_the_page(scope, headers):
                return answer  # the page says what to do
            raise _without_token(WRONG_TOKEN)
        name = cookie_name(headers.get("host", ""))
        answer.set_cookie(name, quote(self.options.token, safe=""), path=there, httponly=True, samesite="strict")
        return answer

    def _allowed_origin(self, headers: Headers) -> str:
        origin = headers.get("origin", "")
        return origin if origin in self.options.origins else ""

    def _limited(self, receive: Receive) -> Receive:
        """Limit a body in size, whatever its length was said to be, and in the time that it takes to come."""
        taken, is_whole, deadline = 0, False, asyncio.get_running_loop().time() + BODY_SECONDS

        async def receiving() -> Message:
            nonlocal taken, is_whole
            if is_whole:  # what comes now is that the client left
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise Refused(
                    408,
                    f"The body was not there within {BODY_SECONDS:.0f} seconds. Send it at once.",
                    "TooSlow",
                    {"Connection": "close"},
                ) from None
            taken, is_whole = taken + len(message.get("body", b"")), not message.get("more_body", False)
            if taken > self.options.largest:
                raise self._too_large()
            return message

        return receiving

    def _too_large(self) -> Refused:
        return Refused(413, f"A request may have {self.options.largest:,} bytes. Send less at once.", "TooLarge")


def cookie_name(host: str) -> str:
    """What the token's cookie is called at an address. Cookies know no ports, so its name has to: two servers of one
    machine would take it away from one another. The port is the one the browser knows, whoever stands in between.
    """
    port = name_and_port(host)[1]
    return COOKIE if port is None else f"{COOKIE}_{port}"


def _cookies(headers: Headers) -> list[str]:
    """Whatever is said to be the token. Cookies of others may stand beside it, however odd they are."""
    pairs = [each.partition("=") for said in headers.getlist("cookie") for each in said.split(";")]
    name = cookie_name(headers.get("host", ""))
    return [unquote(value.strip()) for found, _, value in pairs if found.strip() == name]


def _without_token(message: str) -> Refused:
    return Refused(401, message, "TokenNeeded", {"WWW-Authenticate": "Bearer"})


def _own_origin(scope: Scope, headers: Headers) -> str:
    return f"{scope['scheme']}://{headers.get('host', '')}"


def _opens_the_page(scope: Scope, headers: Headers) -> bool:
    """Whether somebody follows a link to the page. What it shows it asks for itself, from its own address."""
    is_visit = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return is_visit and scope["method"] == "GET" and not is_api(scope)


def _preflight(scope: Scope, headers: Headers, allowed: str) -> Response | None:
    """What a browser asks before it lets a page of another address ask."""
    if not allowed or scope["method"] != "OPTIONS" or "access-control-request-method" not in headers:
        return None
    said = {
        "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
        "Access-Control-Allow-Headers": headers.get("access-control-request-headers", "content-type"),
        "Access-Control-Allow-Private-Network": "true",
        "Access-Control-Max-Age": "600",
    }
    return Response(status_code=204, headers=said)


def _add_headers(message: Message, allowed: str) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    if allowed:
        headers["Access-Control-Allow-Origin"] = allowed
        headers["Access-Control-Expose-Headers"] = ANYBODY
        headers.add_vary_header("Origin")

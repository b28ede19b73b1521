"""Collect unwanted page activity: errors, warnings, failed requests and requests to other hosts.

A test expects none of it. One in which something has to fail says what, with `expects`, and then it has to.
"""

import re
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Error, Page, Request, Response

ALARM = "alarm"
"""What a script of somebody else's would call, if it ran: it is there in every page."""
POLICY = """
addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy: ${event.violatedDirective} refused ${event.blockedURI || event.sample}`);
});
"""


class Watch:
    """Everything that happens in the pages of a context."""

    def __init__(self, context: BrowserContext) -> None:
        self._context, self._follows = context, False
        self.begin("")
        context.expose_function(ALARM, self._on_alarm)  # pyright: ignore[reportUnknownMemberType] - its callback is
        context.add_init_script(POLICY)
        context.on("page", self._watch)
        context.on("requestfailed", self._on_failed)
        context.on("dialog", self._on_dialog)

    def begin(self, url: str) -> None:
        """Forget what has happened so far: what follows is on a page of this address."""
        self.problems: list[str] = []
        self.asked: list[str] = []
        """The addresses that were asked since `follow_requests`, in order, without the host."""
        if self._follows:
            self._follows = False
            self._context.remove_listener("request", self._on_request)
            self._context.remove_listener("response", self._on_response)
        self._host, self._expected = urlsplit(url).netloc, list[re.Pattern[str]]()
        self._found: set[re.Pattern[str]] = set()

    def follow_requests(self) -> None:
        """Note every request from now on. A page has 80 of them, and to hear of each takes a fifth of its load time.

        Without this, a refused request is an error in the console, and one to another host fails or is refused too.
        """
        self._follows = True
        self._context.on("request", self._on_request)
        self._context.on("response", self._on_response)

    def expects(self, *patterns: str) -> None:
        """Problems that are as they should be; each has to occur."""
        self._expected += [re.compile(each) for each in patterns]

    def check(self) -> None:
        assert not self.problems, "\n".join(self.problems)
        missing = [each.pattern for each in self._expected if each not in self._found]
        assert not missing, f"these were expected: {missing}"

    def _watch(self, page: Page) -> None:
        page.on("pageerror", self._on_error)
        page.on("console", self._on_console)

    def _note(self, problem: str) -> None:
        for pattern in self._expected:
            if pattern.search(problem):
                self._found.add(pattern)
                return
        self.problems.append(problem)

    def _on_alarm(self, *text: object) -> None:
        self._note(f"a script of somebody else's ran: {text}")

    def _on_dialog(self, dialog: Dialog) -> None:
        self._note(f"it opened a dialog: {dialog.message}")
        dialog.dismiss()

    def _on_error(self, error: Error) -> None:
        self._note(f"error in the page: {error.message}\n{error.stack}")

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._note(f"{message.type} in the console: {message.text} {message.location.get('url', '')}")

    def _on_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        self.asked.append(f"{request.method} {parts.path}{'?' if parts.query else ''}{parts.query}")
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != self._host:
            self._note(f"it asked another host: {request.url}")

    def _on_failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # given up by the page itself, or by leaving it
            self._note(f"a request failed: {request.failure} {request.method} {request.url}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self._note(f"the server answered {response.status}: {response.request.method} {response.url}")

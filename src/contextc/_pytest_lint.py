"""The check of `pytest --contextc-lint=fail`: every model request that a test suite sends, by its provider's rules.

A request is seen where a program hands it to its HTTP library, so it does not matter what answers: a stand-in server,
a mocked transport, a recording or the provider. Requests that are not to a model pass unseen.
"""

import importlib
import json
import sys
import sysconfig
from collections.abc import Callable, Generator
from functools import wraps
from importlib.util import find_spec
from inspect import currentframe, iscoroutinefunction
from threading import Lock
from typing import Any, NamedTuple, cast
from urllib.parse import urljoin

import pytest

from contextc._json import JSONObject, parse_object
from contextc.errors import ContextcError
from contextc.formats.rules_docs import find_rule
from contextc.linting import Violation, lint
from contextc.linting.lint_settings import read_lint_settings
from contextc.linting.sarif import SarifResult, SarifRule, file_uri, make_sarif
from contextc.observation.reply_decoding import FormatDetector
from contextc.providers.registry import formats_of_url

MARKER = "contextc_ignore"
MAX_SHOWN = 10
LIBRARY_FOLDERS = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


class SentViolation(NamedTuple):
    """A violation in a request: where it went, its format, and the line of code that sent it."""

    url: str
    format: str
    sender: str
    violation: Violation


class RequestLint:
    """The plugin of one pytest process: it wraps the HTTP libraries, and reports with each test what the test sent."""

    def __init__(self, config: pytest.Config, *, fails: bool, sarif: str | None) -> None:
        self._fails, self._sarif = fails, sarif
        self._settings = read_lint_settings(str(config.rootpath))
        self._lock, self._detector = Lock(), FormatDetector()
        self._requests, self._pending = 0, list[SentViolation]()
        self._undo: list[Callable[[], None]] = []
        self._total, self._failed_tests, self._results = 0, set[str](), list[SarifResult]()
        if not hasattr(config, "workerinput") and getattr(config.option, "numprocesses", None):
            return  # only the workers run tests
        for library, name, method, read in CALLS:
            self._wrap(library, name, method, read)

    def check(self, url: str, body: object) -> None:
        """Check a request if it is one to a model. Nothing is raised: the program must run as it does without this."""
        try:
            if not formats_of_url(url):
                return
            found = _as_object(body)
            if found is None:
                return
            format = self._detector.format_of(found, None, url)
            violations = lint(found, format=format)
        except (ContextcError, ValueError):
            return
        sender = _sender() if violations else ""
        with self._lock:
            self._requests += 1
            self._pending += [SentViolation(url.partition("?")[0], format, sender, each) for each in violations]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        self._judge(item, "call", (yield))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, None]:
        self._judge(item, "teardown", (yield))

    def _judge(self, item: pytest.Item, when: str, outcome: Any) -> None:
        """Fail a test for the requests that were sent since the last one, its fixtures included."""
        with self._lock:
            sent, self._pending = self._pending, []
            requests, self._requests = self._requests, 0
        ignored = [mark.args for mark in item.iter_markers(MARKER)]
        kept: dict[tuple[str, str, str, str], SentViolation] = {}
        for each in sent:
            code = each.violation.code
            is_ignored = any(not codes or code.startswith(tuple(map(str, codes))) for codes in ignored)
            if not is_ignored and self._settings.is_checked(code, str(item.path)):
                kept.setdefault((code, each.violation.path, each.violation.message, each.sender), each)
        found = list(kept.values())
        setattr(
            item, f"_contextc_{when}", {"requests": requests, "violations": [_as_row(item, each) for each in found]}
        )
        if not found:
            return
        text = _describe(found)
        if not self._fails or outcome.excinfo is not None:
            item.add_report_section(when, "contextc", text)
        else:
            outcome.force_exception(pytest.fail.Exception(text, pytrace=False))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, Any, None]:
        report = (yield).get_result()
        report.contextc_lint = getattr(item, f"_contextc_{call.when}", None)

    def pytest_runtest_logreport(self, report: Any) -> None:
        found: dict[str, Any] | None = getattr(report, "contextc_lint", None)
        if not found:
            return
        self._total += found["requests"]
        for row in found["violations"]:
            self._failed_tests.add(report.nodeid)
            self._results.append(SarifResult(**row))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        number, tests = len(self._results), len(self._failed_tests)
        checked = f"contextc: {_count(self._total, 'model request')} checked, "
        found = f"{_count(number, 'violation')} in {_count(tests, 'test')}" if number else "no violations"
        terminalreporter.write_line(checked + found)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._sarif is None or hasattr(session.config, "workerinput"):
            return
        rules = [find_rule(code) for code in sorted({each.rule for each in self._results})]
        listed = [SarifRule(each.code, each.title, each.reason, each.repair) for each in rules]
        with open(self._sarif, "w", encoding="utf-8") as file:
            json.dump(make_sarif(listed, self._results), file, indent=2)

    def pytest_unconfigure(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _wrap(self, library: str, name: str, method: str, read: "Read") -> None:
        """Wrap a function of a library, if the library is installed, so that its requests are checked first."""
        if find_spec(library.partition(".")[0]) is None:
            return
        module = importlib.import_module(library)
        owner = getattr(module, name) if name else module
        original = getattr(owner, method)

        def check_before(*given: Any, **named: Any) -> None:
            if (asked := read(*given, **named)) is not None:
                self.check(*asked)

        @wraps(original)
        def wrapped(*given: Any, **named: Any) -> Any:
            check_before(*given, **named)
            return original(*given, **named)

        @wraps(original)
        async def wrapped_coroutine(*given: Any, **named: Any) -> Any:
            check_before(*given, **named)
            return await original(*given, **named)

        setattr(owner, method, wrapped_coroutine if iscoroutinefunction(original) else wrapped)
        self._undo.append(lambda: setattr(owner, method, original))


Asked = tuple[str, object]
Read = Callable[..., Asked | None]


def _read_httpx(client: Any, request: Any, **others: Any) -> Asked | None:
    if request.method != "POST":
        return None
    try:
        return str(request.url), request.content
    except sys.modules[type(request).__module__.partition(".")[0]].RequestNotRead:  # a stream can be read only once
        return None


def _read_requests(session: Any, request: Any, **others: Any) -> Asked | None:
    return (request.url, request.body) if request.method == "POST" else None


def _read_aiohttp(
    session: Any, method: str, url: Any, *, data: object = None, json: object = None, **others: Any
) -> Asked | None:
    base = getattr(session, "_base_url", None)
    whole = urljoin(str(base), str(url)) if base is not None else str(url)
    return (whole, json if json is not None else data) if method.upper() == "POST" else None


def _read_botocore(request: dict[str, Any], endpoint_url: str, **others: Any) -> Asked | None:
    return endpoint_url.rstrip("/") + request["url_path"], request["body"]


# Each library, its class if there is one, the function that every request passes, and what reads a request from its
# arguments.
CALLS: tuple[tuple[str, str, str, Read], ...] = (
    ("httpx", "Client", "send", _read_httpx),
    ("httpx", "AsyncClient", "send", _read_httpx),
    ("httpx2", "Client", "send", _read_httpx),
    ("httpx2", "AsyncClient", "send", _read_httpx),
    ("requests", "Session", "send", _read_requests),
    ("aiohttp", "ClientSession", "_request", _read_aiohttp),
    ("botocore.client", "", "prepare_request_dict", _read_botocore),
)


def _as_object(body: object) -> JSONObject | None:
    """Return the JSON object of a body in any of the forms that HTTP libraries take."""
    if isinstance(body, bytes | bytearray):
        body = body.decode()
    if isinstance(body, str):
        return parse_object(body)
    return cast(JSONObject, body) if isinstance(body, dict) else None


def _sender() -> str:
    """Return the file and line of the innermost code that is in no library."""
    frame = currentframe()
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(LIBRARY_FOLDERS) and name != __file__ and not name.startswith("<"):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _describe(found: list[SentViolation]) -> str:
    """Return what a test is told about the requests that it sent."""
    lines = ["This test sent requests that break rules of their providers:"]
    for each in found[:MAX_SHOWN]:
        code, path, message, error = (
            each.violation.code,
            each.violation.path,
            each.violation.message,
            each.violation.error,
        )
        lines += ["", f"{code} {path}: {message}"] + ([f"    the provider: {error}"] if error else [])
        lines.append(f"    POST {each.url} ({each.format})" + (f", sent by {each.sender}" if each.sender else ""))
    if len(found) > MAX_SHOWN:
        lines += ["", f"… and {len(found) - MAX_SHOWN} more"]
    code = found[0].violation.code
    lines += ["", f"Explain a rule: contextc rule {code}. If it is meant: @pytest.mark.{MARKER}({code!r})"]
    return "\n".join(lines)


def _as_row(item: pytest.Item, sent: SentViolation) -> dict[str, object]:
    """Return a violation as the fields of `SarifResult`: values that reports can carry between processes."""
    file, line, _ = item.location
    violation = sent.violation
    return {
        "rule": violation.code,
        "level": "error",
        "message": violation.message,
        "uri": file_uri(file),
        "path": violation.path,
        "properties": {"test": item.nodeid, "url": sent.url, "sender": sent.sender, "provider": violation.error},
        "line": (line or 0) + 1,
    }


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")

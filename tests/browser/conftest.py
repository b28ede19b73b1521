"""Fixtures of the browser tests: a browser, a server with a scripted model, and a page driver.

A test fails if the page logs an error or a warning, if a request fails that the test did not expect to, or if anything
is asked of another host. What the page looked like at the end of a failed test is kept in `.cache/browser`.
"""

import os
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page

import contextc as cc
from contextc.web.app_state import ServerOptions
from tests.browser.chromium import PATIENCE, launched
from tests.browser.page_driver import Person
from tests.browser.page_errors import Watch
from tests.browser.scripted_model import KEY, SPEC, Model, speaking
from tests.browser.server import served

PICTURES = Path(__file__).parent.parent.parent / ".cache" / "browser"
DESK = {"width": 1280, "height": 800}


HAS_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep for the fixtures whether the test has failed."""
    report = yield
    item.stash[HAS_FAILED] = item.stash.get(HAS_FAILED, False) or report.failed
    return report


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for all tests of this folder; it goes with them, because its event loop is in the way of others'."""
    with launched() as found:
        yield found


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home directory without settings."""
    for name in [name for name in os.environ if name.startswith(("CONTEXTC_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(KEY, "a key")
    return tmp_path


@pytest.fixture
def model(home: Path) -> Iterator[Model]:
    with speaking(home) as found:
        yield found


@pytest.fixture
def options(tmp_path: Path) -> ServerOptions:
    root = tmp_path / "project"
    root.mkdir()
    return ServerOptions(root=root, model=SPEC)


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/served.db"


@pytest.fixture
def store(address: str) -> Iterator[cc.Store]:
    """The store that the server works on."""
    with cc.open_store(address) as handle:
        yield handle


@pytest.fixture
def server(store: cc.Store, options: ServerOptions, model: Model) -> Iterator[str]:
    with served(store, options) as url:
        yield url
        model.open_all()


Visit = Callable[..., Person]


class PagePool:
    """Pages that one test after the other may have, because a new one costs more than most tests do."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self._free: list[tuple[Page, Watch]] = []

    def take(self, url: str, **options: Any) -> Person:
        """A page at an address. One with options of Playwright's contexts is made for them, and is not kept."""
        page, watch = self._free.pop() if self._free and not options else self._made(**options)
        watch.begin(url)
        return Person(page, url, watch, reusable=not options)

    def give_back(self, person: Person, *, usable: bool) -> None:
        """Leave nothing of a test behind in its page, or close it."""
        context = person.page.context
        if usable and person.reusable and len(context.pages) == 1:
            with suppress(Error):  # it shows nothing that has a storage
                person.page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
                person.page.goto("about:blank")
                context.clear_cookies()
                context.clear_permissions()
                self._free.append((person.page, person.watch))
                return
        context.close()

    def _made(self, **options: Any) -> tuple[Page, Watch]:
        wanted: dict[str, Any] = {"viewport": DESK, "reduced_motion": "reduce", **options}
        context: BrowserContext = self.browser.new_context(**wanted)
        context.set_default_timeout(PATIENCE)
        watch = Watch(context)
        return context.new_page(), watch


@pytest.fixture(scope="package")
def page_pool(browser: Browser) -> PagePool:
    return PagePool(browser)


@pytest.fixture
def requests_followed() -> None:
    """For tests that look at every request of a page: it is noted in `watch.asked`, and has to be to the server."""


@pytest.fixture
def visiting(page_pool: PagePool, request: pytest.FixtureRequest) -> Iterator[Callable[..., Person]]:
    """A function that opens a browser of its own at an address, with the options of Playwright's contexts."""
    open_ones: list[Person] = []

    def visit(url: str, **options: Any) -> Person:  # of several types
        open_ones.append(page_pool.take(url, **options))
        if "requests_followed" in request.fixturenames:
            open_ones[-1].watch.follow_requests()
        return open_ones[-1]

    yield visit
    failed = request.node.stash.get(HAS_FAILED, False)
    for number, person in enumerate(open_ones):
        if failed:
            _keep(person, request.node.name, number)
        page_pool.give_back(person, usable=not failed)
    for person in open_ones:
        person.watch.check()


def _keep(person: Person, test: str, number: int) -> None:
    """What it looked like at the end."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.-]+", "-", test)[:100] + (f"-{number + 1}" if number else "")
    for page in person.page.context.pages[:1]:
        page.screenshot(path=PICTURES / f"{name}.png")


@pytest.fixture
def person(server: str, visiting: Visit) -> Person:
    """Return the driver of an open page."""
    return visiting(server)

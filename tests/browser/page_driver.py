"""Page driver: the actions of a user, and assertions on what the page shows."""

import re
from typing import Self

from playwright.sync_api import Locator, Page, expect

from tests.browser.page_errors import Watch

MESSAGES = "[data-testid=messages]"


class Person:
    def __init__(self, page: Page, url: str, watch: Watch, *, reusable: bool = False) -> None:
        self.page, self.url, self.watch = page, url, watch
        self.reusable = reusable
        """Whether the next test may have the same page."""

    def open(self, address: str = "") -> Self:
        """Open the page at `#/…`, or go there."""
        self.page.goto(f"{self.url}/{address}")
        return self

    def chat(self, name: str) -> Self:
        self.open(f"#/c/{name}")
        expect(self.page.get_by_test_id("composer")).to_be_visible()
        return self

    @property
    def name(self) -> str:
        """The conversation that is open."""
        found = re.search(r"#/c/([^/]+)", self.page.url)
        assert found is not None, self.page.url
        return found[1]

    # ── chat ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def composer(self) -> Locator:
        return self.page.get_by_test_id("composer")

    def says(self, text: str) -> None:
        self.composer.fill(text)
        self.composer.press("Enter")

    def begins(self, text: str) -> str:
        """Say something in a new conversation; its name."""
        self.open().says(text)
        self.page.wait_for_url(re.compile(r"#/c/"))
        return self.name

    def rows(self, role: str = "") -> Locator:
        """The messages that are on the page."""
        return self.page.locator(f"{MESSAGES} .row{f'.from-{role}' if role else ''}:not(.placeholder)")

    def texts(self, role: str) -> list[str]:
        """Return the shown texts of one role."""
        kind = ".typed" if role in ("user", "system") else ".prose"
        return [text.strip() for text in self.rows(role).locator(kind).all_inner_texts()]

    def sees_ended(self) -> None:
        """Wait until no turn runs and everything is stored."""
        expect(self.page.get_by_test_id("stop")).to_have_count(0)
        expect(self.page.locator(".assistant.live")).to_have_count(0)
        expect(self.page.locator(".user.sending")).to_have_count(0)

    def item(self, menu: Locator, label: str) -> None:
        """Choose something from a menu."""
        menu.click()
        self.page.get_by_role("menu").get_by_text(label, exact=False).click()

    # ── inspector ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def inspects(self, name: str, step: str = "") -> Self:
        """Open the inspector at the messages of a request, by default of the last one."""
        at = step if "?" in step else f"{step}?tab=messages"
        self.open(f"#/c/{name}/inspect{at}")
        expect(self.page.get_by_test_id("step")).to_be_visible()
        return self.shows_figures()

    def shows_figures(self) -> Self:
        """Show the figures above the tabs, which are folded on a phone."""
        self._unfolds(self.page.get_by_test_id("figures-button"))
        return self

    def shows_filters(self) -> Self:
        """Show the filters of the messages, likewise."""
        self._unfolds(self.page.get_by_role("button", name="Filters"))
        return self

    def _unfolds(self, button: Locator) -> None:
        if button.is_visible() and button.get_attribute("aria-expanded") == "false":
            button.click()

    def tab(self, label: str) -> Locator:
        """Choose a tab by keyboard, which works while the page above it still grows; its panel."""
        tab = self.page.get_by_role("tab", name=re.compile(f"^{re.escape(label)}"))
        tab.press("Enter")
        expect(tab).to_have_attribute("aria-selected", "true")
        return self.page.get_by_role("tabpanel")

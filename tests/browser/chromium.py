"""Start the browser of this machine."""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager

from playwright.sync_api import Browser, expect, sync_playwright

from tests.conftest import give_up

PATIENCE = 90_000
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox", "--headless=new", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--force-color-profile=srgb",
    "--renderer-process-limit=1", "--disable-site-isolation-trials",
    "--js-flags=--no-opt --no-maglev",  # no page lives long enough to be worth compiling its scripts again
    "--default-tile-width=1280", "--default-tile-height=512",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)  # fmt: skip


@contextmanager
def launched() -> Generator[Browser]:
    """Start a browser. Without one, the test is skipped, or fails in CI."""
    program = os.environ.get("CONTEXTC_CHROMIUM") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        give_up("There is no Chromium: the page is not tested. Install it, or name it with CONTEXTC_CHROMIUM.")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*ARGUMENTS])
        yield browser
        browser.close()

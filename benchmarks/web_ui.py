"""Frame times of the web UI in Chromium, with a conversation of 10,000 messages and 2,000 requests.

Usage: python benchmarks/web_ui.py [--requests 2000] [--store FILE] [--size 1440x900]

A server runs in a process of its own. The page is scrolled, filtered and searched, and follows requests that are made
meanwhile. The time between two frames is measured with `requestAnimationFrame`, which a headless browser calls 60 times
a second: 16.7 ms is the least. The goal is less than 50 ms at the 95th percentile.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from time import monotonic, process_time, sleep

from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.table import Table

import contextc as cc
from measure import Goal, show_goals

NAME, MODEL = "long", "openai-chat:gpt-4o"
PROMPT = cc.PromptFragment("identity", "You are a careful engineer. " * 40)
RESULTS = 4
"""Results per request. With the reply, that makes five messages."""
GOAL = 50.0
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--no-sandbox", "--headless=new", "--disable-gpu", "--disable-dev-shm-usage")
MESSAGES = "[data-testid=messages]"
LINK_FILE = re.compile(r"file://(\S+\.html)")
"""A server that does not write to a terminal names a file with the link and its token."""
TOOLS = [
    cc.Tool(name=name, description=f"{name} a file. " * 8, parameters={"type": "object", "properties": {}})
    for name in ("read", "search", "edit", "run")
]
START = """() => {
  window.frames_seen = [];
  let before = performance.now();
  const next = (now) => {
    window.frames_seen.push(now - before);
    before = now;
    window.frame_loop = requestAnimationFrame(next);
  };
  window.frame_loop = requestAnimationFrame(next);
}"""
STOP = "() => { cancelAnimationFrame(window.frame_loop); return window.frames_seen.slice(1); }"


class Conversation:
    """The long conversation, extended by one request at a time."""

    def __init__(self, store: cc.Store) -> None:
        self.store = store
        self.compiler = cc.MessageCompiler(store, cc.provider(MODEL, window=4_000_000, output=1_000))
        self.number = 0

    def add_request(self) -> None:
        self.number += 1
        if self.number % 25 == 1:
            self.store.append(NAME, cc.user(f"Task {self.number}: look at the next files, please."))
        compiled = self.compiler.compile(NAME, instructions=[PROMPT], tools=TOOLS)
        tokens = compiled.manifest.budget.input
        calls = [
            cc.tool_call(f"c{self.number}-{n}", TOOLS[n].name, {"path": f"src/file{self.number}-{n}.py"})
            for n in range(RESULTS)
        ]
        usage = cc.Usage(input=tokens, output=60, cache_read=max(0, tokens - 400))
        self.compiler.commit(compiled, cc.assistant(f"Step {self.number}.", tool_calls=calls), usage=usage)
        results = [
            cc.tool_result(call.id, call.name, f"line {self.number} of the output\n" * (2 + (self.number + n) % 9))
            for n, call in enumerate(calls)
        ]
        self.store.extend(NAME, results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--store", default="")
    parser.add_argument("--size", default="1440x900")
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(options.store or f"{folder}/long.db")
        with cc.open_store(file) as store:
            conversation = Conversation(store)
            conversation.number = len(store.load(NAME)) // (RESULTS + 1) if NAME in names(store) else 0
            begin = process_time()
            while conversation.number < options.requests:
                conversation.add_request()
            console.print(
                f"made in {process_time() - begin:.0f} s of CPU: {store.conversation(NAME).length:,} messages"
            )
            with serving(file) as link:
                width, height = map(int, options.size.split("x"))
                measured = measure(link, conversation, width, height)
    table = Table("while", "frames", "median ms", "95th percentile", "longest")
    for name, frames in measured.items():
        table.add_row(
            name, str(len(frames)), *[f"{each:.1f}" for each in (at(frames, 0.5), at(frames, 0.95), frames[-1])]
        )
    console.print(table)
    show_goals(
        console,
        [
            Goal(f"{name}: below {GOAL:.0f} ms", at(frames, 0.95) < GOAL, f"{at(frames, 0.95):.1f} ms")
            for name, frames in measured.items()
        ],
    )


def names(store: cc.Store) -> set[str]:
    return {each.name for each in store.conversations()}


def at(frames: list[float], share: float) -> float:
    return frames[min(len(frames) - 1, int(len(frames) * share))]


@contextmanager
def serving(file: Path) -> Generator[str]:
    """Start `contextc serve`, and give the link that it prints."""
    program = [sys.executable, "-m", "contextc", "serve", "--no-open", "--port", "0", "--store", f"sqlite:///{file}"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            file_of_link = next(found[1] for line in process.stdout if (found := LINK_FILE.search(line)))
            yield unescape(Path(file_of_link).read_text(encoding="utf-8").partition('href="')[2].partition('"')[0])
        finally:
            process.terminate()


def measure(link: str, conversation: Conversation, width: int, height: int) -> dict[str, list[float]]:
    """Return the frame times, sorted, of each kind of use."""
    program = os.environ.get("CONTEXTC_CHROMIUM") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*ARGUMENTS])
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(120_000)
        page.goto(link)
        base = page.url.split("#")[0]
        found: dict[str, list[float]] = {}

        def record(name: str, use: Callable[[Page], None]) -> None:
            page.evaluate(START)
            use(page)
            found[name] = sorted(page.evaluate(STOP))

        page.goto(f"{base}#/c/{NAME}")
        page.locator(f"{MESSAGES} .virtual-row").first.wait_for()
        record("scrolling the chat", lambda page: scroll(page, MESSAGES, -1))
        page.goto(f"{base}#/c/{NAME}/inspect?tab=messages")
        page.get_by_test_id("lines").locator(".line-button").first.wait_for()
        record("scrolling the messages of a request", lambda page: scroll(page, ".line-list", 1))
        record("filtering and searching them", filter_lines)
        record("going from request to request", walk)
        page.goto(f"{base}#/c/{NAME}/inspect")
        page.get_by_test_id("inspector").wait_for()
        record("following new requests live", lambda page: follow(page, conversation))
        browser.close()
    return found


def scroll(page: Page, selector: str, direction: int) -> None:
    page.locator(selector).first.hover()
    for _ in range(120):
        page.mouse.wheel(0, direction * 600)
        page.wait_for_timeout(25)


def filter_lines(page: Page) -> None:
    group = page.get_by_role("group", name="Filter messages")
    for _ in range(2):
        for index in range(group.get_by_role("button").count()):
            group.get_by_role("button").nth(index).click()
            page.wait_for_timeout(300)
    group.get_by_role("button").first.click()
    page.locator("[data-search]").first.press_sequentially("line 19", delay=60)
    page.wait_for_timeout(1_500)
    page.locator("[data-search]").first.fill("")
    page.wait_for_timeout(500)


def walk(page: Page) -> None:
    page.locator("h1").first.click()
    for _ in range(30):
        page.keyboard.press("ArrowLeft")
        page.wait_for_timeout(120)


def follow(page: Page, conversation: Conversation) -> None:
    done = threading.Event()

    def work() -> None:
        for _ in range(20):
            conversation.add_request()
            sleep(0.25)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    end = monotonic() + 120
    while not done.is_set() and monotonic() < end:
        page.wait_for_timeout(250)
    thread.join()
    page.wait_for_timeout(1_000)


if __name__ == "__main__":
    main()

"""The pictures of the README: `python -m tests.browser.screenshots` writes docs/pictures/inspector.png and chat.png.

They show the page itself, over a conversation that was compiled and answered here: a model looks for the reason why a
nightly job is slow, is cut back once when the window is full, and another model has the last word.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Page, expect

import contextc as cc
from contextc._json import JSONObject
from contextc.web.app_state import ServerOptions
from tests.browser.chromium import launched
from tests.browser.conftest import PagePool
from tests.browser.server import served
from tests.web.sample_conversations import SONNET, Life, provider_of

PICTURES = Path(__file__).parent.parent.parent / "docs" / "pictures"
SIZE = {"width": 1440, "height": 900}
NAME = "nightly-import"
WINDOW = 17_000
STEP = 11


def _tool(name: str, about: str, **properties: str) -> cc.Tool:
    schema: JSONObject = {
        "type": "object",
        "properties": {key: {"type": "string", "description": expected} for key, expected in properties.items()},
        "required": list(properties),
    }
    return cc.Tool(name=name, description=about, parameters=schema)


TOOLS = [
    _tool("read_file", "Read a text file of the project.", path="Where it is, below the root."),
    _tool("search_files", "Find lines that match a regular expression.", pattern="What to look for.", path="Where."),
    _tool("run_command", "Run a command in the project's folder. A person is asked first.", command="As in a shell."),
]
PROMPT = (
    cc.PromptFragment(
        "behaviour",
        "You work in somebody's project. Look before you change anything, and say what you found and how sure you are. "
        "Measure rather than guess. Change as little as will do, and leave the rest as it is. " * 3,
    ),
    cc.PromptFragment("project", "orders-service: Python 3.13, PostgreSQL 17, runs each night at 02:00. " * 8),
    cc.PromptFragment("todos", "1. find the slow part (doing) 2. mend it 3. measure again", "dynamic"),
)


def _log(batches: int, seconds: float) -> str:
    return "\n".join(
        f"2026-11-14 02:{number // 60 % 60:02d}:{number % 60:02d} INFO import_orders batch {number} of 480: 500 rows, "
        f"{seconds + number * 0.013:.2f} s, {500 - number % 7} written, {number % 7} unchanged"
        for number in range(1, batches)
    )


def _code(name: str, functions: int) -> str:
    return "\n\n".join(
        f"def {name}_{number}(rows: list[Row], connection: Connection) -> int:\n"
        f'    """Step {number} of the nightly import."""\n'
        f"    known = {{row.id: row for row in fetch_all(connection)}}\n"
        f"    changed = [row for row in rows if known.get(row.id) != row]\n"
        f"    connection.executemany(UPSERT_{number}, changed)\n"
        f"    return len(changed)"
        for number in range(functions)
    )


PLAN = """Seq Scan on orders  (cost=0.00..48210.00 rows=1 width=312) (actual time=0.021..402.118 rows=1 loops=500)
  Filter: (external_id = $1)
  Rows Removed by Filter: 1204311
Planning Time: 0.118 ms
Execution Time: 201077.402 ms"""
ANSWER = """Found it. The import looks up every order by `external_id`, which has no index since **migration 0042**:

| | before 0042 | now |
|---|---|---|
| plan | Index Scan | Seq Scan |
| one batch | 0.4 s | **201 s** |

```sql
CREATE INDEX CONCURRENTLY orders_external_id ON orders (external_id);
```

With the index on a copy of the table a batch takes **0.38 s** again. Nothing else has changed."""

TURNS: list[tuple[str, list[tuple[str, str, JSONObject, str]], str]] = [
    (
        "The nightly import takes five hours since last week. Please find out why.",
        [
            ("I begin with the job itself.", "read_file", {"path": "jobs/nightly.py"}, _code("import_orders", 9)),
            ("And what it says about itself.", "run_command", {"command": "tail -n 60 nightly.log"}, _log(60, 3.1)),
            ("", "search_files", {"pattern": "fetch_all", "path": "jobs"}, _code("fetch", 5)),
            ("Each batch is slower than the one before.", "read_file", {"path": "db/fetch.py"}, _code("fetch_all", 14)),
        ],
        "Each batch takes a little longer than the one before it. I suspect the lookup, and want to see its plan.",
    ),
    (
        "Go on. You may use the copy of the database.",
        [
            ("", "run_command", {"command": "psql copy -c 'EXPLAIN ANALYZE …'"}, PLAN),
            (
                "A sequential scan. When did that begin?",
                "run_command",
                {"command": "git log --stat db/"},
                _log(90, 0.4),
            ),
            ("", "read_file", {"path": "db/migrations/0042.sql"}, _code("migrate", 18)),
            ("", "search_files", {"pattern": "external_id", "path": "."}, _code("lookup", 24)),
            (
                "Let me compare with the night before.",
                "run_command",
                {"command": "head -n 120 old.log"},
                _log(120, 0.4),
            ),
        ],
        "Migration 0042 replaced the table, and did not bring the index on `external_id` along.",
    ),
    (
        "Try the index on the copy, then tell me what you would do.",
        [
            ("", "run_command", {"command": "psql copy -f add_index.sql"}, "CREATE INDEX\nTime: 8120.114 ms"),
            ("", "run_command", {"command": "python -m jobs.nightly --copy --batches 40"}, _log(40, 0.38)),
            (
                "One more look at what else uses it.",
                "search_files",
                {"pattern": "orders_", "path": "db"},
                _code("use", 20),
            ),
        ],
        ANSWER,
    ),
]


def talk(store: cc.Store) -> None:
    """The whole conversation, with usage as a provider that caches would report it."""
    life = Life(store, provider_of(SONNET, window=WINDOW), NAME)
    life.fragments, life.tools = PROMPT, TOOLS
    for asked, steps, answer in TURNS:
        store.append(NAME, cc.user(asked))
        for number, (expected, name, arguments, result) in enumerate(steps):
            call = cc.tool_call(f"toolu_{store.conversation(NAME).length}", name, arguments)
            thought = None if number else cc.Reasoning(text="What would explain a time that grows with the batch?")
            _answer(life, cc.assistant(expected, tool_calls=[call], reasoning=thought))
            store.append(NAME, cc.tool_result(call.id, name, result))
        _answer(life, cc.assistant(answer))
    other = Life(store, provider_of("openai-chat:gpt-4o", window=128_000), NAME)
    other.fragments, other.tools = PROMPT, TOOLS
    store.append(NAME, cc.user("A second opinion, please: is anything against CONCURRENTLY here?"))
    _answer(
        other, cc.assistant("No. It takes longer and must not run in a transaction, and nobody has to wait for it.")
    )


def _answer(life: Life, reply: cc.Message) -> None:
    compiled = life.compile()
    sent = compiled.budget.system + compiled.budget.tools + compiled.budget.used
    shared = min(sent, compiled.record.shared)
    written = (sent - shared) // 64 * 64 if life.provider.name == "anthropic" else 0
    spent = cc.Usage(input=sent, output=40 + len(reply.text) // 3, cache_read=shared, cache_write=written)
    life.compiler.commit(compiled, reply, usage=spent)


def main() -> None:
    os.environ["HOME"] = "/nonexistent"  # nobody's settings
    PICTURES.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder, cc.open_store(f"sqlite:///{folder}/picture.db") as store:
        for title in ("Rename the settings module", "Which tests are slow?", "Draft the release notes"):
            store.extend(title, [cc.user(title), cc.assistant("Done.")])
        talk(store)
        with served(store, ServerOptions(root=Path(folder), model=SONNET)) as url, launched() as browser:
            person = PagePool(browser).take(url, viewport=SIZE, color_scheme="light", locale="en-GB")
            _inspector(person.inspects(NAME).page)
            person.chat(NAME)
            expect(person.page.get_by_text("A second opinion")).to_be_visible()
            expect(person.page.get_by_test_id("inspect-link").last).to_contain_text("gpt-4o")
            person.page.mouse.move(0, 0)
            person.page.screenshot(path=PICTURES / "chat.png")
    for path in sorted(PICTURES.glob("*.png")):
        sys.stdout.write(f"{path.name}: {path.stat().st_size:,} bytes\n")


def _inspector(page: Page) -> None:
    """At a step soon after the cut, with its messages."""
    page.get_by_test_id("timeline-button").click()
    page.get_by_test_id("timeline").locator("g.column").nth(STEP - 1).click(force=True)
    expect(page.get_by_test_id("step")).to_contain_text(f"step {STEP} of")
    expect(page.locator(".line").first).to_be_visible()
    expect(page.get_by_role("tab", name="Rules")).to_contain_text("✓")
    page.mouse.move(0, 0)
    page.screenshot(path=PICTURES / "inspector.png")


if __name__ == "__main__":
    main()

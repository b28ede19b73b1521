"""PostgreSQL with 1,000 and with 20,000 conversations of 50 messages: operations that must not depend on the number.

Both stores are on one server and take turns, each time with other conversations. A figure is the lower quartile of the
rounds on the clock: an append waits for the disk, and the machine may do other work. The stores are filled on the
server from a few template conversations, so that a million messages take less than a minute. `--explain` prints the
plans of the operations that are slower in the large store.
"""

import argparse
import platform
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import ClassVar, NamedTuple

import psycopg
from rich.console import Console
from rich.table import Table

import contextc as cc
from contextc.messages import encode_message, make_root_id
from contextc.store import postgres
from contextc.store.message_log import BranchTip, build_row, prepare_entry, validate_for
from contextc.store.postgres import PostgresTransaction
from contextc.store.transaction_engine import Row
from fleet import new_schema, running_server
from measure import Cost, Goal, in_turn, show_goals, timed, wall

SIZES = (1_000, 20_000)
MESSAGES, EVENTS, TEMPLATES = 50, 20, 10
ROUNDS, FLAT = 15, 1.3
RARE, MISSING = "rhododendron", "xylophone"
"""A word in every 200th conversation, and a word in none."""
FIRST_SECOND = 1_700_000_000
PROVIDER = "anthropic:claude-sonnet-4-5"
WORDS = Path(__file__).read_text().split()

FILL = """
INSERT INTO {s}.conversation (number, name, tree, branch, revision, created, spoken, title)
    SELECT n, 'conversation ' || n, n, n, 0, ({t}::bigint + n) * 1000, {t} + n, '' FROM generate_series(1, {n}) n;
INSERT INTO {s}.branch (number, tree, parent, base_seq, base_id, conversation, created)
    SELECT n, n, NULL, 0, r.base_id, 'conversation ' || n, ({t}::bigint + n) * 1000
    FROM generate_series(1, {n}) n, root r;
INSERT INTO {s}.message (place, id, time, redacted, body)
    SELECT n::bigint * 4294967296 + t.seq, t.id, ({t}::bigint + n) * 1000, 0, t.body
    FROM generate_series(1, {n}) n JOIN template t ON t.number = CASE WHEN n % 200 = 0 THEN 0 ELSE 1 + n % {templates}
    END;
INSERT INTO {s}.event (place, body) SELECT n::bigint * 4294967296 + e,
    convert_to('{{"type":"turn-start","number":' || e || ',"turn":1,"seq":1,"agent":"assistant"}}', 'UTF8')
    FROM generate_series(1, {n}) n, generate_series(1, {events}) e;
INSERT INTO {s}.turn (place, agent, running, body) SELECT n::bigint * 4294967296 + 1, 'assistant', 0,
    '{{"number":1,"agent":"assistant","state":"finished","opened":1}}' FROM generate_series(1, {n}) n;
INSERT INTO {s}.step (place, turn, body) SELECT n::bigint * 4294967296 + e, 1, convert_to('{{"number":' || e
    || ',"turn":1,"index":' || e || ',"state":"finished","provider":"anthropic","model":"m"}}', 'UTF8')
    FROM generate_series(1, {n}) n, generate_series(1, 5) e;
INSERT INTO {s}.lease (conversation, agent, number, holder, expires, branch, seq)
    SELECT 'conversation ' || n, 'assistant', 1, '', 0, n, 0 FROM generate_series(1, {n}) n;
SELECT setval(pg_get_serial_sequence('{s}.conversation', 'number'), {n}),
    setval(pg_get_serial_sequence('{s}.branch', 'number'), {n});
"""


def template_rows() -> Iterator[tuple[int, int, bytes, bytes]]:
    """Yield the messages of the template conversations: template, seq, id, body. Template 0 has the rare word."""
    for number in range(TEMPLATES + 1):
        random, tip = Random(number), BranchTip(1, 1, 1, 0, 0, ROOT)
        for seq in range(1, MESSAGES + 1):
            text = " ".join(random.choices(WORDS, k=60)) + (f" {RARE}" if number == 0 and seq == 25 else "")
            message = cc.user(text) if seq % 2 else cc.assistant(text)
            stored, (_, identity, _, _) = build_row(tip, prepare_entry(validate_for(message, "template")))
            tip = BranchTip(1, 1, 1, 0, stored.seq, identity)
            yield number, seq, identity, encode_message(stored)


ROOT = make_root_id()


def fill(server: str, address: str, conversations: int) -> None:
    """Create a store with so many conversations."""
    cc.open_store(address).close()
    schema = address.rpartition("schema=")[2]
    with psycopg.connect(server) as connection:
        connection.execute("SET LOCAL synchronous_commit = off")
        connection.execute("CREATE TEMP TABLE root (base_id BYTEA)")
        connection.execute("CREATE TEMP TABLE template (number INT, seq INT, id BYTEA, body BYTEA)")
        connection.execute("INSERT INTO root VALUES (%s)", (ROOT,))
        with connection.cursor().copy("COPY template FROM STDIN") as copy:
            for row in template_rows():
                copy.write_row(row)
        script = FILL.format(s=schema, n=conversations, t=FIRST_SECOND, templates=TEMPLATES, events=EVENTS)
        connection.execute(script.encode())
    with psycopg.connect(server, autocommit=True) as connection:
        for (table,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)):
            connection.execute(f"VACUUM ANALYZE {schema}.{table}".encode())


class Filled(NamedTuple):
    """An open store, and the numbers of conversations that no operation has used yet."""

    store: cc.Store
    compiler: cc.MessageCompiler
    size: int
    numbers: Iterator[int]

    def next_name(self) -> str:
        return f"conversation {next(self.numbers)}"


def unused_numbers(size: int) -> Iterator[int]:
    numbers = list(range(1, size + 1))
    Random(size).shuffle(numbers)
    return iter(numbers)


def deep_cursor(filled: Filled) -> str:
    middle = filled.size // 2
    return f"{FIRST_SECOND + middle}-{middle}-0-0"


OPERATIONS: dict[str, Callable[[Filled], object]] = {
    "list, first page": lambda filled: filled.store.overviews(),
    "list, page in the middle": lambda filled: filled.store.overviews(before=deep_cursor(filled)),
    "search, text in a name": lambda filled: filled.store.overviews(search=f"tion {filled.size - 7}", limit=1),
    "search, found in 5 conversations": lambda filled: filled.store.overviews(search=RARE, limit=5),
    "search, not found (one call)": lambda filled: filled.store.overviews(search=MISSING),
    "open: messages, turns, events": lambda filled: open_conversation(filled.store, filled.next_name()),
    "append": lambda filled: filled.store.append(filled.next_name(), cc.user("And now?")),
    "new conversation": lambda filled: filled.store.append(f"new {next(FRESH)}", cc.user("hello")),
    "compile": lambda filled: filled.compiler.compile(filled.next_name(), instructions="Be brief.", retry=True),
    "lease, then release": lambda filled: hold_lease(filled.store, filled.next_name()),
    "recover (dead turns)": lambda filled: filled.store.recover(),
}
FRESH = count()


def open_conversation(store: cc.Store, name: str) -> object:
    return store.load(name), store.turns(name), store.events(name, after=EVENTS - 5), store.overview(name)


def hold_lease(store: cc.Store, name: str) -> None:
    with store.lease(name):
        pass


def measure(filled: list[Filled], rounds: int) -> dict[tuple[str, int], list[Cost]]:
    costs: dict[tuple[str, int], list[Cost]] = {}
    for name, run in OPERATIONS.items():
        for turn in range(rounds + 3):
            for each in in_turn(filled, turn):
                cost = timed(lambda run=run, each=each: run(each))
                if turn >= 3:
                    costs.setdefault((name, each.size), []).append(cost)
    return costs


def quartile(costs: list[Cost]) -> float:
    """Return the time that a quarter of the rounds did not exceed."""
    return sorted(wall(costs))[len(costs) // 4]


def scale_table(costs: dict[tuple[str, int], list[Cost]], sizes: tuple[int, ...]) -> Table:
    shown = Table(title=f"Conversations of {MESSAGES} messages", title_justify="left", caption_justify="left")
    shown.add_column("operation", no_wrap=True)
    for size in sizes:
        shown.add_column(f"{size:,} conversations", justify="right")
    shown.add_column("ratio", justify="right")
    for name in OPERATIONS:
        own = [costs[name, size] for size in sizes]
        shown.add_row(
            name, *[f"{quartile(each) * 1e3:,.2f} ms" for each in own], f"{quartile(own[-1]) / quartile(own[0]):.2f}"
        )
    return shown


def goals(costs: dict[tuple[str, int], list[Cost]], sizes: tuple[int, ...]) -> Iterator[Goal]:
    for name in OPERATIONS:
        share = quartile(costs[name, sizes[-1]]) / quartile(costs[name, sizes[0]])
        text = f"{name}: at most {FLAT}x with {sizes[-1] // sizes[0]} times the conversations"
        yield Goal(text, share <= FLAT, f"{share:.2f}x")


class Watched(PostgresTransaction):
    """Records the queries of all transactions."""

    asked: ClassVar[dict[tuple[str, tuple[object, ...]], None]] = {}

    def rows(self, sql: str, *values: object) -> list[Row]:
        self.asked[sql, values] = None
        return super().rows(sql, *values)


def print_plans(console: Console, filled: Filled, names: list[str]) -> None:
    """Print the slowest queries of some operations with their plans."""
    for name in names:
        Watched.asked.clear()
        postgres.PostgresTransaction = Watched
        try:
            OPERATIONS[name](filled)
        finally:
            postgres.PostgresTransaction = PostgresTransaction
        console.rule(name)
        plans: list[tuple[float, str, str]] = []
        for sql, values in list(Watched.asked)[:40]:
            if sql.startswith(("SELECT", "WITH")) and "FOR UPDATE" not in sql:
                query = f"EXPLAIN (ANALYZE, BUFFERS) {sql}"
                rows = filled.store.read(lambda tx, query=query, values=values: tx.rows(query, *values))
                plan = "\n".join(str(row[0]) for row in rows)
                plans.append((float(plan.rpartition("Execution Time: ")[2].partition(" ")[0] or 0), sql, plan))
        for took, sql, plan in sorted(plans, reverse=True)[:3]:
            console.print(f"{took:.2f} ms: {sql[:300]}\n{plan}\n", highlight=False, soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="PostgreSQL with few and with many conversations.")
    parser.add_argument("--sizes", type=int, nargs=2, default=SIZES, metavar="N", help="numbers of conversations")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--explain", action="store_true", help="print plans of operations that are not flat")
    options = parser.parse_args()
    sizes: tuple[int, ...] = tuple(options.sizes)
    console = Console(width=140)
    with running_server() as server, new_schema(server) as small, new_schema(server) as large:
        filled: list[Filled] = []
        for address, size in zip((small, large), sizes, strict=True):
            seconds = timed(lambda address=address, size=size: fill(server, address, size)).wall
            console.print(f"{size:,} conversations were stored in {seconds:.0f} s", highlight=False)
            store = cc.open_store(address)
            filled.append(Filled(store, cc.MessageCompiler(store, PROVIDER), size, unused_numbers(size)))
        console.print(f"Python {platform.python_version()}, psycopg {psycopg.__version__}", highlight=False)
        costs = measure(filled, options.rounds)
        console.print(scale_table(costs, sizes))
        reached = list(goals(costs, sizes))
        show_goals(console, reached)
        if options.explain:
            slower = [name for name, goal in zip(OPERATIONS, reached, strict=True) if not goal.met]
            print_plans(console, filled[-1], slower)
        for each in filled:
            each.store.close()


if __name__ == "__main__":
    main()

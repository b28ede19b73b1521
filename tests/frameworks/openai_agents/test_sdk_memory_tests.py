"""The SDK's own tests of sessions, from its source distribution, with a session on a store.

Nothing of that distribution is part of this project: it is downloaded into the cache. Files that are not run:
`test_sqlalchemy_compaction.py` and `test_openai_conversations_session.py` test other back-ends of the SDK,
`test_session_persistence_sanitize.py` uses no session, and `test_compaction_suffix.py` tests the replacement of a part
of the history, which only back-ends with the private method `_get_compaction_snapshot` have. The SDK's own
`SQLiteSession` without that method does not compact there either.
"""

import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.frameworks import ENVIRONMENTS
from tests.package_environments import ROOT

FILES = (
    "test_session.py",
    "test_session_limit.py",
    "test_session_context_wrapper.py",
    "test_openai_responses_compaction_session.py",
    "test_compaction_model_visibility.py",
)
CONNECTIONS = "uses the SQLite connections inside of SQLiteSession"
TABLES = "uses the tables of SQLiteSession"
NOT_JSON = "expects TypeError for what is not JSON, where contextc raises InvalidMessage; then uses the tables"
SNAPSHOT = "uses `_get_compaction_snapshot`, which is private to the back-ends of the SDK"
NOT_APPLICABLE = {
    "test_sqlite_session_close_closes_worker_thread_connections": CONNECTIONS,
    "test_sqlite_session_reaps_connections_from_exited_worker_threads": CONNECTIONS,
    "test_sqlite_session_closes_retired_connections_before_the_next_allocation": CONNECTIONS,
    "test_sqlite_session_keeps_connections_of_live_worker_threads": CONNECTIONS,
    "test_sqlite_session_rollback_failure_evicts_connection": CONNECTIONS,
    "test_sqlite_session_close_retries_quarantined_connection": CONNECTIONS,
    "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome": CONNECTIONS,
    "test_settled_pop_failure_invalidates_response_chain": CONNECTIONS,
    "test_settled_clear_failure_invalidates_response_chain": CONNECTIONS,
    "test_sqlite_session_file_lock_is_shared_across_instances": "uses the lock inside of SQLiteSession",
    "test_sqlite_session_closed_rejects_empty_add_items": "expects an error text with the name SQLiteSession",
    "test_sqlite_session_pop_item_skips_corrupt_most_recent": TABLES,
    "test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows": TABLES,
    "test_sqlite_session_get_items_limit_skips_corrupt_newest_rows": TABLES,
    "test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows": TABLES,
    "test_sqlite_session_failed_add_items_releases_write_lock": NOT_JSON,
    "test_sqlite_session_failed_clear_session_rolls_back": TABLES,
    "test_sqlite_session_failed_pop_item_releases_write_lock": TABLES,
    "test_automatic_compaction_rollback_budget": SNAPSHOT,
    "test_backend_read_limit_cannot_hide_retained_history_from_compaction": SNAPSHOT,
    "test_automatic_compaction_does_not_reload_unbounded_hidden_history": SNAPSHOT,
    "test_expired_read_overhead_does_not_authorize_hidden_history": SNAPSHOT,
}


@pytest.fixture
def source() -> Path:
    """The unpacked source distribution of the installed release."""
    release = version("openai-agents")
    folder = ENVIRONMENTS / f"openai-agents-{release}-source"
    unpacked = folder / f"openai_agents-{release}"
    if not (unpacked / "tests").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        pip = [os.path.realpath(sys.executable), "-m", "pip", "download", "--quiet", "--no-deps"]
        wanted = ["--no-binary", "openai-agents", "--dest", str(folder), f"openai-agents=={release}"]
        subprocess.run([*pip, *wanted], check=True)
        with tarfile.open(folder / f"openai_agents-{release}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return unpacked


def test_the_sdks_own_tests_of_the_protocol_pass(source: Path, tmp_path: Path) -> None:
    """Guarantee 21.1: all that is about the protocol passes, and what does not apply is exactly what is listed."""
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests_of_sdk", "-p", "no:cacheprovider", "-p", "no:xdist"]
    tests = [f"tests/memory/{name}" for name in FILES]
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "tests_of_sdk.py").write_text((Path(__file__).parent / "sdk_test_plugin.py").read_text())
    paths = os.pathsep.join([str(plugins), str(ROOT / "src")])
    done = subprocess.run(
        [*command, "-o", "addopts=", f"--junitxml={report}", *tests],
        cwd=source,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    names = {str(case.get("name")).partition("[")[0] for case in failed}
    assert names == {*NOT_APPLICABLE}, done.stdout[-6000:]
    assert len(cases) - len(failed) > 200

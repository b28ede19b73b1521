"""Plugin for the SDK's own tests: they get a session on a store in place of `SQLiteSession`.

Coroutine tests are run here, so that the environment needs no further plugin.
"""

import asyncio
import inspect
from pathlib import Path
from typing import Any

import agents
import agents.memory
import pytest

from contextc.adapters.openai_agents import Session


class StoreSession(Session):
    """A session with the constructor of `SQLiteSession`."""

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: Any = None,
    ) -> None:
        address = "memory:" if str(db_path) == ":memory:" else f"sqlite:///{db_path}"
        super().__init__(session_id, address, session_settings=session_settings)


agents.SQLiteSession = agents.memory.SQLiteSession = StoreSession


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names if name in pyfuncitem.funcargs}))
    return True

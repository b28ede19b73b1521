"""The real Claude Code and Codex, each once on a local model. Its answer is not checked.

Both are set up small: with none of their own tools, and without what they tell a large model about itself. The
questions are such that a very small model stops when it has answered them: nobody else would stop it, because a program
lets its model say as much as it likes.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.config import read_settings
from contextc.errors import InvalidSetting
from contextc.providers.local import LocalServer, check_installed, ensure_server, find_model_file, stop_server
from tests.conftest import give_up
from tests.sessions.cli_agents import AgentSetup, turn

MODEL, WINDOW, PATIENCE = "SmolLM2-135M-Instruct", 8_192, 55.0
KEY = "CONTEXTC_LOCAL_KEY"
CODEX: JSONObject = {
    "baseInstructions": "Be brief.",
    "config": {
        "include_environment_context": False,
        "include_permissions_instructions": False,
        "skills.include_instructions": False,
        "features.shell_tool": False,
        "features.multi_agent": False,
        "features.goals": False,
        "web_search": "disabled",
    },
}
CLAUDE: JSONObject = {"builtin_tools": [], "setting_sources": [], "extra_args": {"bare": None}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    folder = str(tmp_path_factory.mktemp("local"))
    try:
        check_installed()
        model = find_model_file(read_settings(environment={"HOME": os.devnull}))
    except InvalidSetting as error:
        give_up(str(error))
        raise AssertionError from error
    environment = {**os.environ, "HOME": folder, "XDG_DATA_HOME": folder, "XDG_CONFIG_HOME": folder}
    yield ensure_server(model, WINDOW, idle=120, environment=environment)
    stop_server(model, WINDOW, environment=environment)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "path", "settings", "options"),
    [("claude-code", "", CLAUDE, {"prompt": "replace"}), ("codex", "/v1", CODEX, {})],
    ids=["claude-code", "codex"],
)
def test_two_turns_on_the_local_model(
    server: LocalServer, tmp_path: Path, name: str, path: str, settings: JSONObject, options: dict[str, object]
) -> None:
    """Guarantees 9.2, 9.4: both are answered and recorded, and the second goes on in the session of the first."""
    setup = AgentSetup(cc.open_store(f"sqlite:///{tmp_path / 'chat.db'}"), tmp_path)
    provider = cc.provider(f"{name}:{MODEL}", url=server.url + path, key=KEY, window=WINDOW, output=64)

    async def work() -> cc.AgentExecutor:
        line = cc.endpoint(provider, store=setup.store, env={**setup.env, KEY: server.key}, **options)
        agent = cc.AgentExecutor(
            setup.store,
            provider,
            endpoint=line,
            instructions="Be brief.",
            settings=settings,
            directory=str(setup.work),
            triggers=(),
        )
        async with line, asyncio.timeout(PATIENCE):
            await turn(agent, "talk", "What is the capital of France?")
            await turn(agent, "talk", "What is the capital of Italy?")
        return agent

    agent = asyncio.run(work())
    text = setup.store.load("talk")
    assert [(message.role, message.status) for message in text] == [("user", "sent"), ("assistant", "sent")] * 2
    assert all(message.text.strip() and message.usage is not None for message in text if message.role == "assistant")
    modes = [agent.compiler.explain("talk", number, directory=agent.directory).mode for number in (1, 2)]
    assert modes == ["full", "resume"]
    (session,) = cc.SessionManager(setup.store).sessions("talk")
    assert session.requests == 2

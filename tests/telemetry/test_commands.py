"""Commands with an agent record spans if that is configured."""

from pathlib import Path

import pytest

from contextc.config import read_settings
from contextc.errors import InvalidSetting
from tests.cli.chat_terminal import recorded
from tests.cli.test_chat import chat
from tests.executor.scripted_provider import says

WARNING = "warning: telemetry is on, but there is no OpenTelemetry SDK"


@pytest.mark.parametrize(("value", "warns"), [("on", True), ("content", True), ("off", False)])
def test_a_command_says_that_nothing_is_exported_without_an_sdk(tmp_path: Path, value: str, warns: bool) -> None:
    """Guarantee 25.3: `opentelemetry-instrument` sets one up. The answer comes all the same."""
    model = recorded(tmp_path / "a.jsonl", says("Hello."))
    asked = chat(tmp_path, "-m", model, "hi", CONTEXTC_TELEMETRY=value)
    assert (asked.returncode, asked.stdout) == (0, "Hello.\n")
    assert (WARNING in asked.stderr) == warns


def test_a_wrong_value_is_an_error(tmp_path: Path) -> None:
    model = recorded(tmp_path / "a.jsonl", says("Hello."))
    asked = chat(tmp_path, "-m", model, "hi", CONTEXTC_TELEMETRY="maybe")
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "telemetry (CONTEXTC_TELEMETRY) must be off or on or content, got 'maybe'." in asked.stderr


def test_a_project_cannot_switch_it_on_without_trust(tmp_path: Path) -> None:
    """Spans leave the machine, so a cloned repository must not decide about them."""
    (tmp_path / "contextc.toml").write_text('telemetry = "content"\n')
    home = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "home")}
    with pytest.raises(InvalidSetting, match="not trusted, but it sets telemetry"):
        read_settings(environment=home, folder=str(tmp_path))

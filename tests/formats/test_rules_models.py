"""Rules for some models only: they are checked if the request names a model with the known fact."""

from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject

HI: JSONObject = {"role": "user", "content": "hi"}
HELLO: JSONObject = {"role": "assistant", "content": "Hello"}


def codes(format: str, body: JSON) -> list[str]:
    return [violation.code for violation in cc.lint(body, format=format)]


def claude(model: str, **body: JSON) -> JSONObject:
    return {"model": model, "max_tokens": 100, "messages": [HI], **body}


def test_the_users_model_settings_take_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 10.6: facts are data, and a setting overrides them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "contextc.toml").write_text('[models."claude-opus-5-5"]\nprefill = true\n', encoding="utf-8")
    assert codes("anthropic", claude("claude-opus-5-5", messages=[HI, HELLO])) == []

"""Beta flags of requests that litellm sends, as the configuration sets them."""

from pathlib import Path

import pytest

import contextc as cc
from contextc.adapters.litellm import Completions
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply
from tests.fake_vendors.scripts import Scripted
from tests.frameworks.litellm.report_agent import options, question

FLAG = "context-management-2025-06-27"


def test_flags_of_the_configuration_are_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """litellm itself leaves out flags that it does not know."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "contextc").mkdir()
    (tmp_path / "contextc" / "contextc.toml").write_text(f'[providers.anthropic]\nbetas = ["{FLAG}"]\n')
    with FakeVendors(Scripted([Reply(text="Hello.")])) as vendors:
        completions = Completions(cc.open_store("memory:"))
        completions.completion(conversation="demo", messages=question(), **options(vendors, "anthropic"))
        (record,) = vendors.records
    assert FLAG in record.headers["anthropic-beta"]

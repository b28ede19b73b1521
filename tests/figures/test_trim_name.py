"""A trim has one name wherever it is shown, and nobody is blamed for it."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from contextc.cli.explain import print_manifest
from contextc.compiler.past_requests import explain
from contextc.inspection.request_timeline import load_timeline
from contextc.store.ledger_schema import EpochReason, channel_id
from contextc.web.app_state import ServerOptions
from contextc.web.application import create_application
from tests.analysis.test_trimmed_requests import converse, misses

NAME = "context was trimmed"


def test_a_trim_has_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, (number, *_) = converse("anthropic", 12)
    channel = load_timeline(store, "c")[0].channel
    assert load_timeline(store, "c")[number - 1].record.why == EpochReason.OVER_BUDGET
    manifest = explain(store, channel, number)
    print_manifest(manifest)
    options = ServerOptions(root=tmp_path, model="replay:none.jsonl")
    with TestClient(create_application(store, options), base_url="http://127.0.0.1:8377") as client:
        place = f"/api/conversations/c/requests/{channel_id(channel)}/{number}"
        request, comparison = client.get(place).json(), client.get(f"{place}/comparison").json()
    (found,) = [each for each in misses(store) if each.request == number]
    shown = {
        "explain": capsys.readouterr().out, "manifest": str(manifest), "finding": found.title,
        "request": request["shared"]["broke"]["why"], "comparison": comparison["reason"], "fix": comparison["fix"],
    }  # fmt: skip
    assert [name for name, text in shown.items() if NAME not in text] == ["fix"]
    assert comparison["reason"] == f"{found.title}."
    assert comparison["fix"] == found.fix
    assert not any("summary replaced earlier" in text or "over budget" in text for text in shown.values())


def test_pages_use_the_name() -> None:
    """The scripts have words of their own for what the server records."""
    folder = Path(__file__).parents[2] / "src/contextc/web/static/app"
    reasons, layout = ((folder / name).read_text() for name in ("reasons.js", "inspect/timeline_layout.js"))
    assert f'["over budget", "{NAME}"]' in reasons
    assert f'["trimmed", "{NAME}"]' in reasons
    assert f'word: "{NAME}"' in layout

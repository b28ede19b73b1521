"""The mask of keys, tokens and logins in errors and log records."""

import re
from pathlib import Path

import pytest

import contextc
from contextc._credential_mask import CREDENTIAL_PATTERNS, compile_pattern, get_logger, mask_secrets
from tests.hostile_runs import Sampler

SOURCES = Path(contextc.__file__).parent
GITHUB = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"use {GITHUB} now", "use [key] now"),
        ("id AKIAIOSFODNN7EXAMPLE.", "id [key]."),
        ("password=hunter2secret, user=joe", "password=[key], user=joe"),
        ("PA\u017fSWORD=hunter2secret", "PA\u017fSWORD=[key]"),
        ('{"client_secret": "hunter2secret"}', '{"client_secret": "[key]"}'),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk!", "jwt [key]!"),
        ("sk-ant-api03-abcdef123456 and postgresql://joe:pw-s3cret@db/x", "[key] and postgresql://[key]@db/x"),
        ("120 tokens: 7 of them new, the token is missing", "120 tokens: 7 of them new, the token is missing"),
    ],
)
def test_what_looks_like_a_credential_is_masked(text: str, masked: str) -> None:
    """Guarantee 13.3: one list of patterns, for redaction and for the mask."""
    assert mask_secrets(text) == masked


@pytest.mark.parametrize("name", CREDENTIAL_PATTERNS)
def test_whatever_a_pattern_finds_is_masked(name: str) -> None:
    """Guarantee 13.3: texts without any sign of a credential are not searched, and no other ones."""
    patterns = [compile_pattern(name, each) for each in CREDENTIAL_PATTERNS[name] if isinstance(each, str)]
    for each in patterns:
        sampler = Sampler(each.pattern.pattern, each.pattern.flags, 1)
        samples = [f" {sampler.sample(sampler.tree)}\n" for _ in range(200)]
        found = [text for text in samples if list(each.spans(text))]
        assert found, each
        assert [text for text in found if mask_secrets(text) == text] == []


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError(GITHUB)


def test_a_logger_masks_messages_arguments_and_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    """Guarantee 13.3: whichever handler gets the record. A record without a key keeps its arguments and exception."""
    log = get_logger("contextc.tests")
    error = ValueError(f"no {GITHUB}")
    error.__cause__ = KeyError("password=hunter2secret")
    log.warning("%s: %s", "demo", error)
    log.warning("failed", exc_info=error)
    log.warning("plain %s", "text", exc_info=ValueError("plain"))
    log.warning("not printable: %s", Unprintable())
    first, second, third, fourth = caplog.records
    assert (first.getMessage(), first.args) == ("demo: no [key]", None)
    assert second.exc_info is None
    assert "ValueError: no [key]" in (second.exc_text or "")
    assert "KeyError: 'password=[key]'" in (second.exc_text or "")
    assert third.args == ("text",)
    assert third.exc_info is not None
    assert fourth.getMessage() == "not printable: %s"
    assert GITHUB not in caplog.text
    assert "hunter2" not in caplog.text


def test_every_logger_of_the_package_masks() -> None:
    """Guarantee 13.3: a logger that is made elsewhere would log keys as they are. The root takes handlers only."""
    made = re.compile(r"""getLogger\((?:__name__|["']contextc\.)""")
    mask = Path("_credential_mask.py")
    found = [path.relative_to(SOURCES) for path in SOURCES.rglob("*.py") if made.search(path.read_text())]
    assert [each for each in found if each != mask] == []

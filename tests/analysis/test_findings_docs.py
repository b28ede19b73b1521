"""The page of findings is built from the registry."""

from pathlib import Path

from contextc.analysis import all_codes
from contextc.analysis.findings_docs import render_findings


def test_the_page_of_findings_matches_the_registry() -> None:
    """Guarantee 17.6: `make rules` writes it."""
    page = Path(__file__).parent.parent.parent / "docs" / "findings.md"
    assert page.read_text() == render_findings()


def test_every_code_is_described_and_has_a_fix() -> None:
    codes = all_codes()
    assert len({each.code for each in codes}) == len({each.cause for each in codes}) == len(codes)
    for each in codes:
        assert each.title, each.code
        assert each.fix.endswith("."), each.code
        assert each.description, each.code

"""The estimate, where no vocabulary is at hand."""

from contextc.tokens.estimate import estimate


def test_a_drawn_line_is_not_counted_sign_by_sign() -> None:
    """Guarantee 6.1: logs and tables are full of them."""
    for sign in "-=*#_":
        assert estimate(sign * 300) < 20
    assert estimate("-" * 300) > estimate("-" * 30)

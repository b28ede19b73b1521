"""The estimate if no vocabulary is available."""

from contextc.models.tokens import estimate_tokens


def test_a_drawn_line_is_not_counted_sign_by_sign() -> None:
    """Guarantee 6.1: logs and tables are full of them."""
    for sign in "-=*#_":
        assert estimate_tokens(sign * 300) < 20
    assert estimate_tokens("-" * 300) > estimate_tokens("-" * 30)

"""Image sizes from the first bytes, and token figures for unknown media."""

import pytest

from contextc.messages import Media
from contextc.models.tokens import count_image_tokens, count_media_tokens, read_dimensions

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (640).to_bytes(4) + (480).to_bytes(4)
GIF = b"GIF89a" + (640).to_bytes(2, "little") + (480).to_bytes(2, "little")
JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(10) + b"\xff\xc0\x00\x11\x08" + (480).to_bytes(2) + (640).to_bytes(2)
) + bytes(9)
WEBP = b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")
LOSSLESS = b"RIFF\0\0\0\0WEBPVP8L" + bytes(4) + b"\x2f" + (639 | 479 << 14).to_bytes(4, "little") + bytes(9)
LOSSY = b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + (640).to_bytes(2, "little") + (480).to_bytes(2, "little")


@pytest.mark.parametrize("data", [PNG, GIF, JPEG, WEBP, LOSSLESS, LOSSY])
def test_the_size_of_a_picture_is_read_from_its_first_bytes(data: bytes) -> None:
    """Guarantee 6.1"""
    assert read_dimensions(data) == (640, 480)


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xd8", b"\xff\xd8\xff\xe0", PNG[:20], JPEG[:24], b"RIFF", b"BM1234", bytes(99)]
)
def test_what_cannot_be_read_has_a_typical_size(data: bytes) -> None:
    """Guarantee 6.1: cut off, damaged or unknown, never an error."""
    assert read_dimensions(data) is None
    assert count_media_tokens(Media(mime_type="image/png", data=data), "area") == count_image_tokens(None, "area")


def test_a_larger_picture_costs_more_up_to_a_limit() -> None:
    """Guarantee 6.1: as the providers' own pages say."""
    assert count_image_tokens((200, 200), "area") < count_image_tokens((1000, 1000), "area") < 1_400
    assert count_image_tokens((9000, 9000), "area") < 1_700
    assert count_image_tokens((512, 512), "tiles") == 255
    assert count_image_tokens((2048, 4096), "tiles") == 1_105


def test_media_cost_what_the_model_makes_of_them() -> None:
    """Guarantee 6.1: the same picture and page are 150 tokens or 1,800, as recorded requests say."""
    assert count_image_tokens((400, 301), "patches") == 158
    assert count_image_tokens((540, 360), "crops") == 1_806
    assert count_image_tokens((300, 300), "crops") == count_image_tokens((540, 360), "fixed") == 258
    assert count_image_tokens((540, 360), "frames") == 1_120
    page = Media(mime_type="application/pdf", data=b"%PDF /Type /Pages /Type /Page ")
    assert [count_media_tokens(page, rule) for rule in ("area", "tiles", "crops", "frames")] == [1_500, 950, 258, 560]


def test_bytes_that_lie_in_a_store_are_taken_from_there() -> None:
    """Guarantee 2.6: a stored part has its name and size, not its bytes."""
    stored = Media(mime_type="image/png", blob="00ff", size=len(PNG))
    assert count_media_tokens(stored, "area", PNG) < count_media_tokens(stored, "area")


def test_other_kinds_count_by_their_size() -> None:
    """Guarantee 6.1"""
    assert count_media_tokens(Media(mime_type="text/csv", blob="a", size=3_000), "area") == 1_000
    assert count_media_tokens(Media(mime_type="audio/mpeg", blob="a", size=160_000), "area") == 320
    one, many = b"%PDF /Type /Pages /Type /Page ", b"%PDF /Type /Pages" + b" /Type /Page " * 12
    pdf = "application/pdf"
    assert count_media_tokens(Media(mime_type=pdf, data=many), "area") == 12 * count_media_tokens(
        Media(mime_type=pdf, data=one), "area"
    )
    assert count_media_tokens(Media(mime_type="video/mp4", url="https://example.com/a.mp4"), "frames") > 1_000

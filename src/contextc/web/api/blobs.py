"""Bytes of media parts. They are untrusted, so browsers must never execute them: no HTML, scripts or SVG.

Raster images are displayed; everything else is a download.
"""

from msgspec import Struct

from contextc.app.agent_factory import resolve_model
from contextc.errors import InvalidInput
from contextc.messages import Media
from contextc.web.app_state import AppState
from contextc.web.endpoint_registry import RawResponse, endpoint
from contextc.web.http_errors import HTTPError

TAG = "blobs"
DISPLAYED_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
DOWNLOAD_TYPE = "application/octet-stream"
HEADERS = {
    "Cache-Control": "private, max-age=300",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Content-Type-Options": "nosniff",
}


class BlobQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`type` is the `mime_type` of the media part."""

    type: str = DOWNLOAD_TYPE


class MediaQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`type` is the `mime_type` of a media part. `model` is as for turns; without it, the server's own."""

    type: str
    model: str | None = None


class MediaSupport(Struct, frozen=True, kw_only=True):
    """`is_sent`: the model gets the bytes. Otherwise it gets a line of text with the name and the type."""

    is_sent: bool


@endpoint("GET", "/media-support")
def media_support(app: AppState, query: MediaQuery) -> MediaSupport:
    """Return whether a model gets media of this type. Text files of any type are sent to all models, as text."""
    provider = resolve_model(query.model or app.options.model).provider
    media = Media(mime_type=query.type)
    return MediaSupport(is_sent=media.kind in provider.model.media and provider.formatter.takes_media(query.type))


@endpoint("GET", "/blobs/{blob}", media_type="*/*")
def blob(app: AppState, blob: str, query: BlobQuery) -> RawResponse:
    """Return the bytes of a media part by its `blob`. PNG, JPEG, GIF and WebP are displayed, others are downloads."""
    try:
        data = app.store.blob(blob if blob.isprintable() else "")  # some stores reject some characters
    except InvalidInput as error:
        raise HTTPError(404, str(error), "UnknownBlob") from error
    if query.type in DISPLAYED_TYPES:
        return RawResponse(data, query.type, HEADERS)
    return RawResponse(data, DOWNLOAD_TYPE, {**HEADERS, "Content-Disposition": "attachment"})

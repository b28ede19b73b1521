"""The event stream of a conversation, in several vocabularies."""

from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.requests import Request

from contextc._worker_threads import run_blocking
from contextc.store.message_rows import SEQ_MASK
from contextc.web.app_state import AppState
from contextc.web.endpoint_registry import EventStream, endpoint
from contextc.web.streams import sse
from contextc.web.streams.agui_encoder import AGUIEncoder
from contextc.web.streams.sse import FrameEncoder, start_number, stream_conversation
from contextc.web.streams.vercel_encoder import VercelEncoder

TAG = "events"


class EventsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events after number `after`, as AG-UI events, contextc events, or Vercel AI SDK UI message chunks."""

    after: Annotated[int, Meta(ge=0, le=SEQ_MASK)] = 0
    vocabulary: Literal["agui", "contextc", "vercel"] = "agui"


@endpoint("GET", "/conversations/{name}/events", media_type="text/event-stream")
async def events(app: AppState, name: str, query: EventsQuery, request: Request) -> EventStream:
    """Stream events as server-sent events: the stored ones after number `after`, then new ones.

    The stream ends when the client disconnects, the conversation is deleted, or the server stops. The `id` of an event
    is its number: a client that reconnects with `Last-Event-ID` continues after it.
    """
    await run_blocking(app.store.conversation, name)  # raises if it does not exist
    return EventStream(
        stream_conversation(app, name, start_number(request, query.after), _encoder(name, query.vocabulary))
    )


def _encoder(name: str, vocabulary: str) -> FrameEncoder:
    match vocabulary:
        case "contextc":
            return sse.encode_native
        case "vercel":
            return VercelEncoder().frames
        case _:
            return AGUIEncoder(name).frames

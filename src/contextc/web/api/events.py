"""The event stream of a conversation, in several vocabularies."""

from typing import Annotated, Literal

from msgspec import Meta, Struct
from starlette.requests import Request

from contextc.executor.threads import durable
from contextc.store.reading import SEQ_MASK
from contextc.web.desk import Desk
from contextc.web.endpoint import Stream, endpoint
from contextc.web.streams import contextc
from contextc.web.streams.agui import Runs
from contextc.web.streams.sse import Encode, first_wanted, told
from contextc.web.streams.vercel import Chunks


class Wanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events after number `after`, as AG-UI events, contextc events, or Vercel AI SDK UI message chunks."""

    after: Annotated[int, Meta(ge=0, le=SEQ_MASK)] = 0
    vocabulary: Literal["agui", "contextc", "vercel"] = "agui"


@endpoint("GET", "/conversations/{name}/events", media_type="text/event-stream")
async def events(desk: Desk, name: str, query: Wanted, request: Request) -> Stream:
    """Stream events as server-sent events: the stored ones after number `after`, then new ones.

    The stream ends when the client disconnects, the conversation is deleted, or the server stops. The `id` of an event
    is its number: a client that reconnects with `Last-Event-ID` continues after it.
    """
    await durable(desk.store.conversation, name)  # raises if it does not exist
    return Stream(told(desk, name, first_wanted(request, query.after), _encoder(name, query.vocabulary)))


def _encoder(name: str, vocabulary: str) -> Encode:
    match vocabulary:
        case "contextc":
            return contextc.encode
        case "vercel":
            return Chunks().frames
        case _:
            return Runs(name).frames

"""Native event stream: `event:` is the type, `id:` the number, `data:` the event as JSON."""

from contextc.events import AnyEvent, encode_event
from contextc.web.streams.sse import frame


def encode_native(event: AnyEvent) -> bytes:
    return frame(encode_event(event), id=event.number, event=str(event.__struct_config__.tag))

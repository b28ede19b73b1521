"""Native event stream: `event:` is the type, `id:` the number, `data:` the event as JSON."""

from contextc.events import AnyEvent, event_to_json
from contextc.web.streams.sse import frame


def encode(event: AnyEvent) -> bytes:
    return frame(event_to_json(event), id=event.number, event=str(event.__struct_config__.tag))

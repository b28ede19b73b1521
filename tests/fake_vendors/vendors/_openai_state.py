"""State that OpenAI keeps between requests: stored responses, and conversations with their items.

A response is stored when it is complete, unless the request has `store: false`. A conversation gets input and output of
a response together when it is complete, and is locked until then. After a broken connection the response may or may not
be complete: its id decides, so that both cases occur. Error messages are those that the API was observed to use.
"""

from collections.abc import Callable
from hashlib import sha256
from itertools import count
from typing import cast
from weakref import WeakKeyDictionary

from contextc._json import JSON, JSONObject, decode
from tests.fake_vendors.json_access import as_list, as_object
from tests.fake_vendors.responses import FakeError, Outcome, RequestHead
from tests.fake_vendors.vendor import CREATED, AcceptedRequest, EncodedReply, Memory
from tests.fake_vendors.vendors._openai import refusal

RESPONSES, CONVERSATIONS = "/v1/responses/", "/v1/conversations"
MOST_ITEMS = 20
PREFIXES = {"message": "msg_", "function_call": "fc_", "function_call_output": "fco_", "reasoning": "rs_"}
LOCKED = "Another process is currently operating on this conversation. Please retry in a few seconds."
TOO_MANY = (
    "Invalid 'items': array too long. Expected an array with maximum length 20, but got an array with length {0} "
    "instead."
)


class Kept(Memory):
    """Stored responses and conversations.

    With `forgets`, nothing is stored, as for organizations with zero data retention. With `owns_up`, a response then
    states it.
    """

    def __init__(self) -> None:
        self.responses: dict[str, list[JSONObject]] = {}
        """Input and output items of each response, by its id."""
        self.whole: dict[str, JSONObject] = {}
        self.conversations: dict[str, list[JSONObject]] = {}
        self.locked: set[str] = set()
        self.forgets, self.owns_up = False, True
        self._histories: WeakKeyDictionary[AcceptedRequest, list[JSONObject] | None] = WeakKeyDictionary()
        self._numbers = count(1)

    def stores(self, body: JSONObject) -> bool:
        return body.get("store") is not False and not self.forgets

    def history(self, ask: AcceptedRequest) -> list[JSONObject] | None:
        """Return the items that a request continues, or None if they do not exist.

        They are looked up once: a test may remove them while the request is being answered.
        """
        if ask not in self._histories:
            name, before = conversation_of(ask.body), cast(JSON, ask.body.get("previous_response_id"))
            if name is not None:
                found = self.conversations.get(name)
            else:
                found = [] if before is None else self.responses.get(str(before))
            self._histories[ask] = None if found is None else [*found]
        return self._histories[ask]

    def lacks(self, ask: AcceptedRequest) -> FakeError | None:
        """Return the error if a request cannot be continued as it states."""
        name, before = conversation_of(ask.body), cast(JSON, ask.body.get("previous_response_id"))
        is_lost = self.history(ask) is None
        if name is not None and is_lost:
            return _no_conversation(name)
        if name in self.locked:
            return refusal(400, LOCKED, "invalid_request_error", "conversation_locked", param="conversation")
        if before is not None and is_lost:
            text, code = f"Previous response with id '{before}' not found.", "previous_response_not_found"
            return refusal(400, text, "invalid_request_error", code, param="previous_response_id")
        return None

    def begins(self, encoded: EncodedReply, response: JSONObject) -> Callable[[Outcome], None]:
        """Record a running response. Return the callback for its end."""
        body, history = encoded.body, self.history(encoded.ask) or []
        new = [_named(item, f"{response['id']} {number}") for number, item in enumerate(given(body))]
        added, name = [*new, *as_list(response["output"])], conversation_of(body)
        if name is not None:
            self.locked.add(name)

        def over(outcome: Outcome) -> None:
            self.locked.discard(name or "")
            if outcome == "refused" or (outcome == "broken" and int(response["id"][-1], 16) % 2):
                return
            if name in self.conversations:
                self.conversations[name] += added
            if self.stores(body):
                self.responses[response["id"]], self.whole[response["id"]] = [*history, *added], response

        return over

    # ── requests that no model is asked for ───────────────────────────────────────────────────────────────────────────

    def serves(self, head: RequestHead) -> bool:
        return head.path.startswith((RESPONSES, CONVERSATIONS))

    def answer(self, head: RequestHead, raw: bytes) -> JSONObject | FakeError:
        if head.path.startswith(RESPONSES):
            return self._response(head.method, head.path.removeprefix(RESPONSES))
        name, _, rest = head.path.removeprefix(CONVERSATIONS).strip("/").partition("/")
        if not name and head.method == "POST":
            return self._created(as_object(decode(raw)) if raw else {})
        if name not in self.conversations:
            return _no_conversation(name)
        match head.method, rest:
            case "GET", "":
                return _conversation(name)
            case "DELETE", "":
                del self.conversations[name]
                return {"id": name, "object": "conversation.deleted", "deleted": True}
            case "GET", "items":
                return _page(self.conversations[name], head.query)
            case _:
                text = f"Invalid URL ({head.method} {head.path})"
                return refusal(404, text, "invalid_request_error", None)

    def _created(self, body: JSONObject) -> JSONObject | FakeError:
        items = as_list(body.get("items"))
        if len(items) > MOST_ITEMS:
            text = TOO_MANY.format(len(items))
            return refusal(400, text, "invalid_request_error", "array_above_max_length", param="items")
        name = f"conv_{sha256(str(next(self._numbers)).encode()).hexdigest()[:48]}"
        self.conversations[name] = [_named(item, f"{name} {number}") for number, item in enumerate(items)]
        return _conversation(name)

    def _response(self, method: str, name: str) -> JSONObject | FakeError:
        if name not in self.responses:
            return refusal(404, f"Response with id '{name}' not found.", "invalid_request_error", None)
        if method == "GET":
            return self.whole[name]
        del self.responses[name]
        return {"id": name, "object": "response", "deleted": True}


def conversation_of(body: JSONObject) -> str | None:
    """Return the conversation id of a request: a string, or an object with an id."""
    found: JSON = body.get("conversation")
    return None if found is None else str(as_object(found).get("id") or found)


def given(body: JSONObject) -> list[JSONObject]:
    """Return the input as a list of items."""
    found: JSON = body.get("input")
    return [{"role": "user", "content": found}] if isinstance(found, str) else as_list(found)


def _named(item: JSONObject, seed: str) -> JSONObject:
    """Return an item in its stored form, with an id and a type."""
    kind = str(item.get("type") or "message")
    item = {"type": kind, "status": "completed", **item}
    item.setdefault("id", PREFIXES.get(kind, "item_") + sha256(seed.encode()).hexdigest()[:48])
    if isinstance(text := item.get("content"), str):
        side = "output_text" if item.get("role") == "assistant" else "input_text"
        part: JSONObject = {"type": side, "text": text}
        item["content"] = [{**part, "annotations": [], "logprobs": []} if side == "output_text" else part]
    return item


def _page(items: list[JSONObject], query: dict[str, str]) -> JSONObject:
    """Return a page of items, the latest first by default."""
    ordered = items if query.get("order") == "asc" else items[::-1]
    if after := query.get("after"):
        place = next((number for number, item in enumerate(ordered, 1) if item["id"] == after), len(ordered))
        ordered = ordered[place:]
    shown = ordered[: int(query.get("limit", "20"))]
    ends = {"first_id": shown[0]["id"], "last_id": shown[-1]["id"]} if shown else {"first_id": None, "last_id": None}
    return {"object": "list", "data": shown, "has_more": len(shown) < len(ordered), **ends}


def _conversation(name: str) -> JSONObject:
    return {"id": name, "object": "conversation", "created_at": CREATED, "metadata": {}}


def _no_conversation(name: str) -> FakeError:
    return refusal(404, f"Conversation with id '{name}' not found.", "invalid_request_error", None)

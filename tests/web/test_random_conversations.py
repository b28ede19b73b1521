"""Random conversations in the inspector: every state can be shown.

Agents, models, directories and sessions come and go in them; messages are edited, cut away, summed up and removed;
requests fail, race and are broken off.
"""

import random
from typing import Any

import pytest
from starlette.testclient import TestClient

from contextc.compiler import ledger
from contextc.compiler.past_requests import explain
from contextc.store.message_log import FIRST_UNANSWERED, SEQ_MASK, make_place
from contextc.web.app_state import ServerOptions
from contextc.web.application import create_application
from contextc.web.request_view import find_channel
from tests.compiler.test_random_conversations import Life, life
from tests.conftest import often
from tests.web.sample_conversations import strings_in

KINDS = ("system", "tools", "overhead", "dynamic", "history", "new", "reserve", "margin", "free")
GONE = ("redacted", "another form")
SEEDS = range(often(1, 30))


class Looking:
    """Looks at everything there is of a world, and says what does not add up."""

    def __init__(self, world: Life, client: TestClient) -> None:
        self.world, self.client, self.requests = world, client, 0

    def get(self, name: str, path: str, **query: object) -> Any:  # JSON
        params = {key: str(value) for key, value in query.items()}
        answer = self.client.get(f"/api/conversations/{name}/{path}", params=params)
        assert answer.status_code < 500, (path, answer.text)
        return answer

    def conversation(self, name: str) -> None:
        answer = self.get(name, "timeline").json()
        assert self.get(name, "next").status_code in (200, 422)
        times = [each["time"] for each in answer["requests"]]
        assert times == sorted(times)
        for channel in answer["channels"]:
            if channel["requests"]:
                self.ledger(name, channel)
            for number in [*range(1, channel["requests"] + 1), *self.unanswered(name, channel["id"])]:
                self.request(name, channel["id"], number)
                self.requests += 1

    def unanswered(self, name: str, channel: str) -> list[int]:
        """The requests that were not answered, and are kept."""
        store = self.world.store
        named = find_channel(store, name, channel)
        found = store.read(lambda tx: ledger.find_channel(tx, named))
        assert found is not None
        low, high = make_place(found.number, FIRST_UNANSWERED), make_place(found.number, SEQ_MASK)
        sql = "SELECT place FROM main.manifest WHERE place BETWEEN ? AND ?"
        return [where & SEQ_MASK for (where,) in store.read(lambda tx: tx.rows(sql, low, high))]

    def ledger(self, name: str, channel: dict[str, Any]) -> None:
        answer = self.get(name, f"channels/{channel['id']}/ledger").json()
        assert answer["epochs"][-1]["epoch"] == channel["epoch"]
        assert answer["session"] == channel["session"]
        assert len(answer["known"]) == min(200, answer["total"])
        seen = {each["seq"] for each in answer["known"] if each["kind"] == "message"}
        fresh = [each["seq"] for each in answer["new"] if each["kind"] == "message"]
        assert len(fresh) == len({*fresh})
        assert seen or fresh or answer["lost"] or channel["unanswered"]

    def request(self, name: str, channel: str, number: int) -> None:
        view = self.get(name, f"requests/{channel}/{number}").json()
        budget = view["budget"]
        room = max(budget["limit"] or budget["window"], budget["system"] + budget["tools"] + budget["used"])
        assert sum(budget[kind] for kind in KINDS) == room
        assert budget["overhead"] + budget["dynamic"] + budget["history"] + budget["new"] == budget["used"]
        broke = view["shared"]["broke"]
        assert bool(broke["why"]) == bool(view["why"])
        assert view["why"] or not broke["where"]
        self.lines(name, channel, number, view["counts"])
        bodies = [self.get(name, f"requests/{channel}/{number}/{rest}") for rest in ("body", "diff", "lint")]
        for answer in bodies:
            assert answer.status_code == 200 or any(text in answer.json()["error"]["message"] for text in GONE)
        if bodies[0].status_code == 200 and view["mode"] == "full":
            self.texts(name, channel, number, strings_in(bodies[0].json()))
        if bodies[1].status_code == 200 and view["request"] > 1 and view["budget"]["history"] and not view["why"]:
            assert bodies[1].json()["unchanged_bytes"] > 0

    def texts(self, name: str, channel: str, number: int, sent: set[str]) -> None:
        """Check that every text of a shown line is in the sent request."""
        found = self.get(name, f"requests/{channel}/{number}/lines", only="shown", limit=1000, parts="true").json()
        for line in found["lines"]:
            for part in line["parts"]:
                text = part.get("text", part.get("content"))
                is_answer = part["type"] == "tool_result" and part["call_id"] in sent  # else its call was summed up
                if (part["type"] == "text" or is_answer) and isinstance(text, str) and text.strip():
                    assert any(text.strip() in each for each in sent), line

    def lines(self, name: str, channel: str, number: int, counts: dict[str, int]) -> None:
        whole = explain(self.world.store, find_channel(self.world.store, name, channel), number).lines
        paged: list[Any] = []
        while True:
            answer = self.get(name, f"requests/{channel}/{number}/lines", after=len(paged), limit=7).json()
            paged += answer["lines"]
            if not answer["more"]:
                break
        assert [(line["seq"], line["text"], line["why"]) for line in paged] == [
            (line.seq, line.text, line.why) for line in whole
        ]
        assert counts["lines"] == len(paged)
        states = [line["state"] for line in paged]
        assert states == sorted(states, key=("shared", "new", "left").index)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_state_can_be_inspected(seed: int) -> None:
    """Guarantee 13.1: every request of every channel, and the next one, adds up and has a description."""
    world = Life(seed, "memory:")
    for step, number in life(seed):
        getattr(world, step)(random.Random(number))
    with TestClient(
        create_application(world.store, ServerOptions(model="openai-chat:gpt-4o")), base_url="http://127.0.0.1:8377"
    ) as client:
        looking = Looking(world, client)
        for name in world.conversations:
            looking.conversation(name)
    assert looking.requests == len(world.store.read(lambda tx: tx.rows("SELECT 1 FROM main.manifest")))
    world.store.close()


POLLED = ("timeline", "findings", "composition", "sub-agents", "cache-reads")
"""What a page asks for again after each change."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_page_that_stays_open_shows_what_a_new_one_shows(seed: int) -> None:
    """Guarantee 13.1: after requests, edits, failures, redaction and forks, what a server has kept is not outdated."""
    world = Life(seed, "memory:")
    options = ServerOptions(model="openai-chat:gpt-4o")
    chance = random.Random(seed)
    with TestClient(create_application(world.store, options), base_url="http://127.0.0.1:8377") as client:
        open_page = Looking(world, client)
        for step, number in life(seed):
            getattr(world, step)(random.Random(number))
            if not world.conversations or chance.random() < 0.7:
                continue
            name = chance.choice(sorted(world.conversations))
            with TestClient(create_application(world.store, options), base_url="http://127.0.0.1:8377") as fresh:
                new_page = Looking(world, fresh)
                for path in POLLED:
                    assert open_page.get(name, path).json() == new_page.get(name, path).json(), path
    world.store.close()

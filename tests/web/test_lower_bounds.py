"""Costs with an unknown factor in the HTTP API."""

from starlette.testclient import TestClient

import contextc as cc
from tests.web.sample_conversations import Asking, Life


def test_every_cost_of_the_api_says_that_it_is_a_lower_bound(client: TestClient, store: cc.Store) -> None:
    """Guarantee 17.2: a page that shows a part of a bill must be able to say so."""
    life = Life(store)
    life.turn("hi", usage=cc.Usage(input=1_000, output=100))
    life.turn("more", usage=cc.Usage(input=1_000, output=100, tier="hyperdrive"))
    ask = Asking(client, life)
    timeline = ask("timeline")
    assert [each["cost_is_lower_bound"] for each in timeline["requests"]] == [False, True]
    assert timeline["totals"]["cost_is_lower_bound"]
    found = client.get("/api/conversations/demo/findings").json()
    assert found["costs"]["cost_is_lower_bound"]
    assert client.get("/api/conversations/demo").json()["gauge"]["cost_is_lower_bound"]
    overview = client.get("/api/overview").json()
    assert overview["totals"]["cost_is_lower_bound"]
    reply = client.get(f"/api/conversations/demo/requests/{life.channel}/2/reply").json()
    assert reply["cost_is_lower_bound"]
    assert reply["usage"]["tier"] == "hyperdrive"

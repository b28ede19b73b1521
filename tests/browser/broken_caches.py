"""Recorded conversations whose caches break: each cause of a miss, with a title that is not the name."""

import contextc as cc
from tests.analysis.cached_client import MINUTE, SYSTEM, Client, tool

MOVING, EXPIRED, TOOLS, MIXED = "agent-7f3a-reminders", "agent-91bc-pause", "agent-c04d-tools", "agent-e55e-mixed"
DAY = 24 * 60 * MINUTE
SMALL = 4_500
"""Tokens that a request reads if its messages are not in the cache: tools and system prompt."""
TITLES = {MOVING: "Find the bug in the parser", EXPIRED: "Review the migration", TOOLS: "Fetch the pages"}


def start(store: cc.Store, name: str, requests: int = 3) -> Client:
    client = Client()
    client.time += len(store.conversations()) * DAY
    client.store, client.conversation = store, name
    return client.work(requests)


def send_reminders(client: Client, count: int) -> None:
    """Send requests with a reminder at the end, which the next request has at its own end."""
    for number in range(count):
        kept = [{**each, "content": [*each["content"]]} for each in client.messages]
        client.messages[-1]["content"].append(
            {"type": "text", "text": "<system-reminder>Run the tests.</system-reminder>"}
        )
        size = len(client.messages)
        client.send(SMALL if number else None)
        client.messages = [*kept, *client.messages[size:]]


def record_broken_caches(store: cc.Store) -> None:
    send_reminders(start(store, MOVING, 4), 4)

    client = start(store, EXPIRED)
    client.time += 9 * MINUTE
    client.send(0).send()

    client = start(store, TOOLS)
    client.tools.append(tool("fetch"))
    client.send(0).send()
    client.tools[1] = tool("write", client.tools[1]["description"] + "Never twice.")
    client.send(0)

    client = start(store, MIXED)
    client.settings["thinking"] = {"type": "enabled", "budget_tokens": 2_000}
    client.send(SMALL).send()
    client.system = [f"{SYSTEM} It is 12:31."]
    client.send(0).send()
    del client.messages[1:3]
    client.send(SMALL).send()
    client.tools.reverse()
    client.send(0).send()
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    cc.observe(store, request=client.body(), reply=error, conversation=MIXED, time=client.time, status=529)
    for name, title in TITLES.items():
        store.set_title(name, title)

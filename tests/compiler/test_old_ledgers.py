"""Ledgers of older schemas: their content and the bytes of their requests are unchanged in later versions.

`v2.db` was written once, with migrations 0001 and 0002; `v2.json` is what the store said of it then. `v3.db` has what
0003 added, too: turns with their steps and events, what waits, what triggers remember. `v4.db` adds transcripts, append
keys, given uids, an edge, a redaction, branches, and a reply that a killed process left. None of them is written anew.
"""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NotRequired, TypedDict

import msgspec
import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler.manifest import Manifest
from contextc.doctor import scan_store
from contextc.events import encode_event
from contextc.store import message_log
from contextc.store import session_transcripts as transcripts
from contextc.store.ledger_schema import EpochReason
from contextc.store.session_transcripts import TranscriptKey
from contextc.store.turn_records import load_trigger_states

GOLDEN = Path(__file__).parent.parent / "data" / "golden"


class Then(TypedDict):
    """What the store said of a conversation."""

    tip: str
    messages: list[str]
    pinned: list[int]
    todos: dict[str, list[str]]
    channels: list[str]
    turns: NotRequired[list[JSONObject]]
    steps: NotRequired[list[JSONObject]]
    events: NotRequired[list[JSONObject]]
    queued: NotRequired[list[str]]
    triggers: NotRequired[dict[str, JSONObject]]
    edge: NotRequired[int]
    branches: NotRequired[list[str]]


class Sent(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A request as it went out, and its account."""

    provider: str
    conversation: str
    request: int
    agent: str = "assistant"
    directory: str | None = None
    body: str
    mode: str
    epoch: int
    why: str
    input: int
    lines: list[str]


class Golden(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    schema: int = 0
    providers: dict[str, JSONObject]
    conversations: dict[str, Then]
    requests: list[Sent]
    calibration: dict[str, tuple[float, int]]
    summaries: list[str]
    recovered: list[str] = []
    transcripts: dict[str, str] = {}
    keys: dict[str, str] = {}
    uids: dict[str, int] = {}


@pytest.fixture(scope="module", params=[2, 3, 4], ids=["v2", "v3", "v4"])
def golden(request: pytest.FixtureRequest) -> Golden:
    found = msgspec.json.decode((GOLDEN / f"v{request.param}.json").read_bytes(), type=Golden)
    return msgspec.structs.replace(found, schema=request.param)


@pytest.fixture
def opened(tmp_path: Path, golden: Golden) -> Iterator[cc.Store]:
    copy = tmp_path / "old.db"
    copy.write_bytes((GOLDEN / f"v{golden.schema}.db").read_bytes())
    with cc.open_store(copy) as store:
        yield store


def compiler(store: cc.Store, golden: Golden, name: str) -> cc.MessageCompiler:
    return cc.MessageCompiler(store, cc.provider(**golden.providers[name]))


def manifest_texts(manifest: Manifest) -> list[str]:
    return [
        f"{'+' if line.shown else '-'} {line.seq} {line.role} {line.kind}{': ' + line.why if line.why else ''}"
        for line in manifest.lines
    ]


def test_the_file_is_of_its_schema(golden: Golden) -> None:
    """Written again by a later version, it would prove nothing."""
    with sqlite3.connect(f"file:{GOLDEN / f'v{golden.schema}.db'}?mode=ro&immutable=1", uri=True) as file:
        assert file.execute("SELECT version FROM main.schema_version").fetchall() == [(golden.schema,)]
    file.close()


def test_conversations_of_an_older_schema_are_what_they_were(opened: cc.Store, golden: Golden) -> None:
    """Guarantee 3.7: older schemas are migrated: messages, pins, todos, and the state of each channel."""
    for name, then in golden.conversations.items():
        assert opened.conversation(name).tip == then["tip"]
        assert [f"{each.seq} {each.role}: {each.text}" for each in opened.load(name)] == then["messages"]
        assert opened.pinned(name) == then["pinned"]
        for agent, todos in then["todos"].items():
            assert [f"{each.number} {each.state} {each.text}" for each in opened.todos(name, agent)] == todos
        assert [
            f"{each.channel}: {each.requests} requests, epoch {each.epoch}, session {each.id!r} at {each.cursor!r}, "
            f"error {each.error!r}"
            for each in cc.SessionManager(opened).sessions(name)
        ] == then["channels"]
    assert {each.code for each in scan_store(opened)} == {"open-call"}  # one that was never answered


def test_requests_of_an_older_schema_are_built_again_to_the_byte(opened: cc.Store, golden: Golden) -> None:
    """Guarantees 13.2, 9.2: cuts, a compaction, a fork, a resumed session, an edit; no later encoder changes them."""
    assert {(each.mode, each.why) for each in golden.requests} == {
        ("full", ""),
        ("full", "first request"),
        ("full", "over budget"),
        ("full", "compaction"),
        ("full", "edited or branched away"),
        ("resume", ""),
    }
    for each in golden.requests:
        rebuilt = compiler(opened, golden, each.provider).rebuild(
            each.conversation, each.request, name=each.agent, directory=each.directory
        )
        assert rebuilt.decode() == each.body, f"request {each.request} of {each.conversation} for {each.provider}"


def test_requests_of_an_older_schema_are_accounted_for(opened: cc.Store, golden: Golden) -> None:
    """Guarantee 13.1: what went in, what stayed out and why."""
    for each in golden.requests:
        account = compiler(opened, golden, each.provider).explain(
            each.conversation, each.request, name=each.agent, directory=each.directory
        )
        assert (account.mode, account.epoch, account.why, account.record.budget.input) == (
            each.mode,
            each.epoch,
            each.why,
            each.input,
        )
        lines = manifest_texts(account)
        more = [line for line in lines if line not in each.lines]  # of which older versions said nothing
        assert [line for line in lines if line not in more] == each.lines
        assert all(line.endswith((": summed up", ": the context was cleared after it")) for line in more)


def test_channels_of_an_older_schema_continue_where_they_were(opened: cc.Store, golden: Golden) -> None:
    """Guarantees 9.2, 9.3: what was shown stays, unless the encoder is newer; then the manifest reports it."""
    tool = cc.Tool(
        name="look",
        description="Looks at a thing.",
        parameters={"type": "object", "properties": {"at": {"type": "string"}}},
    )
    fragments = [cc.PromptFragment("identity", "You are a gardener.")]
    opened.append("fork", cc.user("And in winter?"))
    chat = compiler(opened, golden, "claude").compile("fork", instructions=fragments, tools=[tool])
    assert chat.manifest.why in ("", EpochReason.NEW_ENCODER)
    assert golden.summaries[0] in chat.params["messages"][0]["content"][0]["text"]
    kept = compiler(opened, golden, "keeper").compile("fork", instructions=fragments, tools=[tool], directory="/shed")
    assert (kept.mode, kept.session_id, kept.revert_to, kept.manifest.why) == ("resume", "session-2", "c1", "")


def test_what_an_older_schema_had_learned_is_known(opened: cc.Store, golden: Golden) -> None:
    """Guarantee 6.2: the correction factor of each model."""
    for name, (factor, samples) in golden.calibration.items():
        found = opened.read(
            lambda tx, name=name: tx.row("SELECT factor, samples FROM main.calibration WHERE model = ?", name)
        )
        assert found == (factor, samples)


def test_turns_of_an_older_schema_are_what_they_were(opened: cc.Store, golden: Golden) -> None:
    """Guarantees 3.3, 12.1: turns, steps, events, input that waits, what triggers remember."""
    for name, then in golden.conversations.items():
        assert [msgspec.to_builtins(each) for each in opened.turns(name)] == then.get("turns", [])
        assert [msgspec.to_builtins(each) for each in opened.steps(name)] == then.get("steps", [])
        events = [msgspec.json.decode(encode_event(each)) for each in opened.events(name)]
        assert events == then.get("events", [])
        waiting = [f"{each.number} {each.kind} {each.message.text}" for each in opened.queued(name)]
        assert waiting == then.get("queued", [])
        remembered = opened.read(
            lambda tx, name=name: load_trigger_states(tx, message_log.load_tip(tx, name).conversation, "assistant")
        )
        assert remembered == then.get("triggers", {})


def test_branches_and_edges_of_an_older_schema_are_what_they_were(opened: cc.Store, golden: Golden) -> None:
    """Rewinds, edits and resets must survive a migration."""
    for name, then in golden.conversations.items():
        if "branches" in then:
            assert opened.conversation(name).context_start == then.get("edge")
            assert [
                f"{each.number} on {each.parent} after {each.base}, {each.length} {each.tip}"
                for each in opened.branches(name)
            ] == then["branches"]


def test_names_of_an_older_schema_are_found(opened: cc.Store, golden: Golden) -> None:
    """A repeated append with a key returns the stored message; a client finds a message by the uid it gave."""
    for found, identity in golden.keys.items():
        name, _, key = found.partition(" ")
        text = opened.load(name, until=1)[0].text
        assert opened.append(name, cc.user(text), key=key).id == identity
    for found, seq in golden.uids.items():
        name, _, uid = found.partition(" ")
        assert opened.load(name, until=uid, last=1)[0].seq == seq


def test_a_dead_turn_of_an_older_schema_is_recovered(opened: cc.Store, golden: Golden) -> None:
    """A reply that was being written when the process was killed is kept by a newer version."""
    assert [
        f"{each.conversation}: {', '.join(message.text for message in each.messages)}" for each in opened.recovered
    ] == golden.recovered


def test_transcripts_of_an_older_schema_are_what_they_were(opened: cc.Store, golden: Golden) -> None:
    """A provider resumes its session from them."""
    for found, entries in golden.transcripts.items():
        project, session, subpath = found.split(" ")
        key = TranscriptKey(project, session, subpath)
        assert json.dumps(opened.read(lambda tx, key=key: transcripts.load_entries(tx, key))) == entries

"""Which requests of a log belong to one conversation, and which messages are equal."""

import json
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler.past_requests import rebuild
from contextc.formats import formatter
from contextc.inspection.request_timeline import load_timeline
from contextc.interchange import ImportSummary, import_files
from contextc.store.message_matching import is_truncated


def user(text: str) -> JSONObject:
    return {"role": "user", "content": text}


def model(text: str) -> JSONObject:
    return {"role": "assistant", "content": text}


def exchange(reply: JSONObject, *messages: JSONObject, prompt: str = "", **more: object) -> JSONObject:
    head = [{"role": "system", "content": prompt}] if prompt else []
    return {"request": {"model": "m", "messages": [*head, *messages]}, "response": reply, **more}


def taken(store: cc.Store, path: Path, *lines: JSONObject) -> ImportSummary:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return import_files(store, [path])


def lines_of(store: cc.Store, conversation: str) -> list[list[str]]:
    """Return the texts of each branch, the current one last."""
    current = store.conversation(conversation).branch
    numbers = sorted((each.number for each in store.branches(conversation)), key=lambda each: (each == current, each))
    return [[message.text for message in store.load(conversation, branch=each)] for each in numbers]


def turns(*prompts: str) -> list[JSONObject]:
    """A turn for each prompt, every request whole."""
    texts: list[JSONObject] = []
    found: list[JSONObject] = []
    for number, prompt in enumerate(prompts):
        texts = [*texts, user(f"question {number}")]
        found.append(exchange(model(f"answer {number}"), *texts, prompt=prompt))
        texts = [*texts, model(f"answer {number}")]
    return found


@pytest.mark.parametrize("backwards", [False, True])
def test_a_history_with_a_reply_is_merged_with_any_prompt(store: cc.Store, tmp_path: Path, backwards: bool) -> None:
    """Otherwise a prompt with a small change each time would make a conversation of every turn. Each keeps its own."""
    prompts = ("Documents: thyme", "Documents: moss", "Documents: fern")
    log = [{**each, "timestamp": 1_800_000_000 + at} for at, each in enumerate(turns(*prompts))]
    summary = taken(store, tmp_path / "log.jsonl", *(log[::-1] if backwards else log))
    (found,) = summary.conversations
    assert (found.messages, found.branches, found.requests, summary.left_out) == (6, 1, 3, ())
    bodies = [
        rebuild(store, entry.channel, formatter("openai_chat"), entry.record.request)
        for entry in load_timeline(store, found.name)
    ]
    assert [json.loads(body)["messages"][0]["content"] for body in bodies] == list(prompts)


def test_figures_join_nothing_without_a_reply(store: cc.Store, tmp_path: Path) -> None:
    """Two users with the same text are two conversations."""
    log = [exchange(model("Hello."), user("Hi"), prompt=f"You talk to customer {number}.") for number in (1, 2)]
    log += [
        exchange(
            model(money), user("Hi"), model("Hello."), user("What do I owe?"), prompt=f"You talk to customer {who}."
        )
        for who, money in ((1, "7 euros"), (2, "14 euros"))
    ]
    summary = taken(store, tmp_path / "log.jsonl", *log)
    assert [lines_of(store, each.name) for each in summary.conversations] == [
        [["Hi", "Hello.", "What do I owe?", money]] for money in ("7 euros", "14 euros")
    ]


def test_the_newest_answer_is_the_current_one(store: cc.Store, tmp_path: Path) -> None:
    """By the clock of the log where it has one, else by its order. Without an id, equal beginnings are several."""
    log = [exchange(model(text), user("Hi"), session_id="s") for text in ("one", "two", "three")]
    (found,) = taken(store, tmp_path / "log.jsonl", *log).conversations
    assert lines_of(store, found.name) == [["Hi", "one"], ["Hi", "two"], ["Hi", "three"]]
    timed = [
        exchange(model(text), user("Ho"), timestamp=1_800_000_000 - at, session_id="t")
        for at, text in enumerate(("one", "two"))
    ]
    (found,) = taken(store, tmp_path / "timed.jsonl", *timed).conversations
    assert lines_of(store, found.name)[-1] == ["Ho", "one"]
    again = [exchange(model(text), user("He")) for text in ("one", "two")]
    found = taken(store, tmp_path / "again.jsonl", *again).conversations
    assert [lines_of(store, each.name) for each in found] == [[["He", "one"]], [["He", "two"]]]


def response(id: str, text: str, **more: object) -> JSONObject:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"re {text}"}]}
    reply = {"id": id, "object": "response", "model": "m", "status": "completed", "output": [message]}
    return {"request": {"model": "m", "input": [user(text)], **more}, "response": reply}


def test_a_request_continues_from_the_response_it_names(store: cc.Store, tmp_path: Path) -> None:
    """In any order; a missing beginning is reported."""
    log = [
        response("r1", "one"),
        response("r2", "two", previous_response_id="r1"),
        response("r3", "three", previous_response_id="r2"),
        response("r4", "four", previous_response_id="r1"),
    ]
    whole = [["one", "re one", "two", "re two", "three", "re three"], ["one", "re one", "four", "re four"]]
    (found,) = taken(store, tmp_path / "log.jsonl", *log).conversations
    assert lines_of(store, found.name) == whole
    with cc.open_store("memory:") as other:
        (found,) = taken(other, tmp_path / "back.jsonl", *log[::-1]).conversations
        assert sorted(lines_of(other, found.name)) == sorted(whole)
    with cc.open_store("memory:") as other:
        summary = taken(other, tmp_path / "torn.jsonl", log[2], log[1])
        assert [lines_of(other, each.name) for each in summary.conversations] == [[whole[0][2:]]]
        (note,) = summary.left_out
        assert note.startswith("the history of a request that only the provider stored, first at")


def test_requests_in_a_conversation_that_the_provider_keeps_are_one(store: cc.Store, tmp_path: Path) -> None:
    log = [response("r1", "one", conversation="c"), response("r2", "two", conversation={"id": "c"})]
    (found,) = taken(store, tmp_path / "log.jsonl", *log).conversations
    assert lines_of(store, found.name) == [["one", "re one", "two", "re two"]]


def call(city: str) -> JSONObject:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "look", "arguments": {"city": city}}}],
    }


def exchange_with_result(text: str) -> JSONObject:
    return {"role": "tool", "tool_name": "look", "content": text}


def whole(message: JSONObject) -> JSONObject:
    return {"model": "m", "message": message, "done": True}


def test_calls_without_ids_are_matched_by_what_they_ask(store: cc.Store, tmp_path: Path) -> None:
    """Ollama's: the numbers we give them begin again with every request and every reply."""
    rome, paris = call("Rome"), call("Paris")
    log = [
        exchange(whole(paris), user("Weather?")),
        exchange(whole(rome), user("Weather?"), paris, exchange_with_result("33")),
        exchange(
            whole(model("Warm.")), user("Weather?"), paris, exchange_with_result("33"), rome, exchange_with_result("20")
        ),
    ]
    (found,) = taken(store, tmp_path / "log.jsonl", *log).conversations
    assert found.branches == 1
    history = store.load(found.name)
    asked = [each for message in history for each in message.tool_calls]
    given = [each for message in history for each in message.tool_results]
    assert [each.arguments["city"] for each in asked] == ["Paris", "Rome"]
    assert [each.text for each in given] == ["33", "20"]
    assert [each.id for each in asked] == [each.call_id for each in given] == ["call_0", "call_1"]


def test_another_result_of_the_same_call_is_another_branch(store: cc.Store, tmp_path: Path) -> None:
    asked = {
        **call("Rome"),
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }

    def result(text: str) -> JSONObject:
        return {"role": "tool", "tool_call_id": "c1", "content": text}

    log = [
        exchange({"choices": [{"message": asked}]}, user("Go")),
        exchange(model("Saw A."), user("Go"), asked, result("A, at length")),
        exchange(model("Saw B."), user("Go"), asked, result("B, which is other")),
        exchange(model("Yes."), user("Go"), asked, result("[cleared]"), model("Saw B."), user("Sure?")),
    ]
    log = [{**each, "session_id": "s"} for each in log]
    (found,) = taken(store, tmp_path / "log.jsonl", *log).conversations
    kept = [store.load(found.name, branch=each.number) for each in store.branches(found.name)]
    assert [(line[2].tool_results[0].text, line[3].text, len(line)) for line in kept] == [
        ("A, at length", "Saw A.", 4),
        ("B, which is other", "Saw B.", 6),
    ]
    bodies = [
        rebuild(store, entry.channel, formatter("openai_chat"), entry.record.request)
        for entry in load_timeline(store, found.name)
    ]
    assert [json.loads(body)["messages"][2:3] for body in bodies] == [
        [], [result("A, at length")], [result("B, which is other")], [result("[cleared]")]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("short", "long", "is_one"),
    [
        ("[cleared]", "Thyme", True),
        ("[Old tool result content cleared]", "ok", True),
        ("Thyme, mo…", "Thyme, moss and fern", True),
        ("Thyme [12 chars omitted] fern", "Thyme, moss, ivy, heather and fern", True),
        ("x" * 200, "x" * 300, True),
        ("1", "12", False),
        ("A", "B, which is other", False),
        ("[]", "[1, 2]", False),
        ("[cleared]", "[omitted]", False),
        ("no matches", "no matches in thyme.txt", False),
    ],
)
def test_what_a_shortened_text_is(short: str, long: str, is_one: bool) -> None:
    assert is_truncated(short, long) is is_one

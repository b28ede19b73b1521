"""Text is redacted before anything is stored; its placeholders are the same wherever it occurs."""

import json
import logging
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

import contextc as cc
from contextc.compiler.past_requests import explain
from contextc.errors import InvalidInput
from contextc.observation import exchange_redaction
from contextc.observation.exchange_parser import ObservedReply
from contextc.observation.exchange_redaction import PLACEHOLDER, Redactor, compile_patterns
from tests.observation.test_observe import answer, chat, texts

OPENAI = "sk-proj-" + "a1B2" * 8
SECRETS = {
    "keys": [
        OPENAI,
        "sk-ant-api03-" + "xY9_" * 10,
        "sk-or-v1-" + "0123456789abcdef" * 2,
        "AIza" + "Sy0_-" * 7,
        "AKIA" + "ABCD1234EFGH5678",
        "ghp_" + "a1B2" * 9,
        "gsk_" + "a1B2" * 9,
        "hf_" + "a1B2" * 9,
        "xoxb-1234567890-abcdef",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    ],
    "tokens": ["eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefgh-_", "ya29." + "a0Af" * 8],
    "mail": ["ann.lee+x@mail.example.co.uk"],
}


def redactor(*names: Any) -> Redactor:
    return Redactor(compile_patterns(names), b"k" * 32)


@pytest.mark.parametrize(("name", "secret"), [(name, each) for name, some in SECRETS.items() for each in some])
def test_builtin_patterns(name: str, secret: str) -> None:
    for text in (secret, f"a\n{secret}\nb", f'{{"x": "{secret}"}}', f'{{"x": "a\\n{secret}"}}', f"({secret})."):
        found = redactor(name).redact_text(text)
        assert secret not in found
        assert len(PLACEHOLDER.findall(found)) == 1, found
        assert PLACEHOLDER.sub(lambda _: secret, found) == text


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abcdefghijklmnop1234", "abcdefghijklmnop1234"),
        ('{"password": "hunter2hunter2"}', "hunter2hunter2"),
        ("postgresql://me:open-sesame@host/db", "open-sesame"),
        ("AZURE_API_KEY=0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef"),
        ('{\\"refresh_token\\": \\"abcdefgh12345678\\"}', "abcdefgh12345678"),
    ],
)
def test_only_the_value_is_removed(text: str, secret: str) -> None:
    found = redactor("keys", "tokens").redact_text(text)
    assert PLACEHOLDER.sub(lambda _: secret, found) == text
    assert secret not in found


def test_ordinary_text_stays() -> None:
    text = (
        "The task-list-for-the-next-milestone is at https://example.com/a:b@2x.png; tokens: 200. risk-assessment-2026"
        " disk_usage, max_tokens=4096, pip install x@1.2, @decorator, 01234567-89ab-cdef-0123-456789abcdef"
    )
    assert redactor("keys", "tokens", "mail").redact_text(text) == text


def test_placeholders_are_not_redacted_again() -> None:
    both = redactor("keys", re.compile(r"[0-9a-f]{16}"), r"red\w+")
    found = both.redact_text(f"{OPENAI} 0123456789abcdef")
    assert re.fullmatch(r"\[redacted:keys:\w{16}\] \[redacted:pattern:\w{16}\]", found)
    assert both.redact_text(found) == found


def test_formatting_and_escapes_stay() -> None:
    body = ('{ "a" : "caf\\u00e9 ' + OPENAI + '",\n "b":"\\ud83d \\n' + OPENAI + '", "é": 1.50, "c": "é\\/" }').encode()
    found = redactor("keys").redact_body(body).decode()
    placeholder = PLACEHOLDER.findall(found)[0]
    assert found == body.decode().replace(OPENAI, placeholder)
    assert redactor("keys").redact_body(b"\xff " + OPENAI.encode()) == b"\xff " + placeholder.encode()


@pytest.mark.parametrize("redact", [("key",), "(", "a*", 7, (re.compile(b"a"),), ("",)])
def test_invalid_patterns(redact: Any) -> None:
    store = cc.open_store("memory:")
    with pytest.raises((InvalidInput, TypeError)):
        cc.observe(store, request=chat("a"), format="openai_chat", redact=redact)
    with pytest.raises((InvalidInput, TypeError)):
        cc.tap(store, httpx.Client(), redact=redact)


def test_redacted_requests_are_inexact_and_still_compare(store: cc.Store) -> None:
    reply = f"your key is {OPENAI}"
    first = cc.observe(store, request=chat("hello"), reply=answer(reply), format="openai_chat", redact=True)
    second = cc.observe(
        store, request=chat("hello", reply, "ann@example.com"), reply=answer("ok"), format="openai_chat", redact=True
    )
    third = cc.observe(
        store,
        request=json.dumps(chat("hello", reply, "ann@example.com", "ok", "and?"), indent=1).encode(),
        format="openai_chat",
        redact=True,
    )
    assert {each.conversation for each in (first, second, third)} == {first.conversation}
    facts = [each.record.observed for each in (first, second, third)]
    assert [each.inexact for each in facts if each is not None] == [False, True, True]
    assert (second.record.why, third.record.why) == ("", "")
    assert third.record.shared_bytes > second.record.shared_bytes > 0
    stored = texts(store, first.conversation)
    assert [PLACEHOLDER.sub("*", text) for text in stored] == ["hello", "your key is *", "*", "ok", "and?"]
    body = third.body.decode()
    assert OPENAI not in body
    assert "ann@example.com" not in body
    assert PLACEHOLDER.sub("*", body) == json.dumps(chat("hello", "your key is *", "*", "ok", "and?"), indent=1)
    assert "inexact" in str(explain(store, third.channel))
    assert explain(store, third.channel).as_json()["observed"]["inexact"] is True  # type: ignore[index]


def test_a_secret_that_is_split_between_events_and_an_error(store: cc.Store) -> None:
    pieces = ["key ", OPENAI[:9], OPENAI[9:20], OPENAI[20:], " end"]
    events: list[Any] = [
        {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": each}}]}
        for each in pieces
    ]
    events.append({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    seen = cc.observe(store, request=chat("a"), reply=events, format="openai_chat", redact="keys")
    text = texts(store, seen.conversation)[-1]
    assert PLACEHOLDER.sub("*", text) == "key * end"
    failed = cc.observe(
        store, request=chat("b"), reply={"error": {"message": f"Incorrect API key {OPENAI}"}}, status=401,
        format="openai_chat", redact="keys",
    )  # fmt: skip
    assert failed.record.observed is not None
    assert PLACEHOLDER.sub("*", failed.record.observed.error) == "Incorrect API key *"


def test_nothing_removed_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    secrets = [OPENAI, "ann@example.com", "secret-project-x"]
    with cc.open_store(f"sqlite:///{path}") as store:
        request = chat("one " + " ".join(secrets), user="ann@example.com", tools=[
            {"type": "function", "function": {"name": "f", "description": secrets[2], "parameters": {"type": "object"}}}
        ])  # fmt: skip
        cc.observe(
            store, request=request, reply=answer(" ".join(secrets)), format="openai_chat",
            redact=("keys", "mail", r"secret-project-\w"),
            headers={"x-claude-code-session-id": "ann@example.com", "authorization": f"Bearer {OPENAI}"},
        )  # fmt: skip
        rows = store.read(lambda tx: tx.rows("SELECT session FROM main.observed_conversation"))
        assert PLACEHOLDER.fullmatch(rows[0][0])
    for file in tmp_path.iterdir():
        data = file.read_bytes()
        assert not [each for each in secrets if each.encode() in data]


def test_two_stores_have_other_placeholders_and_one_store_the_same(tmp_path: Path) -> None:
    found: list[str] = []
    for name in ("a.db", "b.db", "a.db"):
        with cc.open_store(f"sqlite:///{tmp_path / name}") as store:
            seen = cc.observe(store, request=chat(OPENAI), format="openai_chat", redact="keys")
            found.append(texts(store, seen.conversation)[0])
    assert found[0] == found[2] != found[1]
    with closing(sqlite3.connect(tmp_path / "a.db")) as file:
        assert file.execute("SELECT count(*) FROM main.redaction_key").fetchall() == [(1,)]


def test_a_client_that_is_recorded_with_redaction(store: cc.Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=answer(f"{OPENAI}!")))
    client = cc.tap(store, httpx.Client(transport=transport), redact=["keys"])
    reply = client.post("https://api.openai.com/v1/chat/completions", json=chat(OPENAI)).json()
    assert reply["choices"][0]["message"]["content"] == f"{OPENAI}!"
    name = store.conversations()[0].name
    placeholder = PLACEHOLDER.findall(texts(store, name)[0])[0]
    assert texts(store, name) == [placeholder, f"{placeholder}!"]
    assert not caplog.records


def test_a_pattern_that_matches_a_field_of_a_message_leaves_out_its_content() -> None:
    reply = ObservedReply(messages=(cc.Message(role="assistant", parts=(cc.Text("hello"),)),))
    (message,) = redactor(re.compile("role|parts")).redact_reply(reply).messages
    assert (message.role, message.parts) == ("assistant", ())


def test_a_long_text_is_searched_once_for_the_same_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long text without matches is remembered, one with a match is not, and other patterns search it again."""
    monkeypatch.setattr(exchange_redaction, "_clean", set[object]())
    monkeypatch.setattr(exchange_redaction, "MAX_CLEAN", 1)
    searched: list[str] = []
    search = Redactor.redact_text

    def count(self: Redactor, text: str) -> str:
        searched.append(text)
        return search(self, text)

    monkeypatch.setattr(Redactor, "redact_text", count)
    clean, other, secret = "a" * 300, "b" * 300, f"{'c' * 300} {OPENAI}"
    keys, mail = redactor("keys"), redactor("mail")
    for _ in range(2):
        assert keys.redact_body(json.dumps(clean).encode()) == json.dumps(clean).encode()
        assert OPENAI.encode() not in keys.redact_body(json.dumps(secret).encode())
    assert searched == [clean, secret, secret]
    mail.redact_body(json.dumps(clean).encode())
    assert searched[3:] == [clean]
    keys.redact_body(json.dumps(other).encode())
    keys.redact_body(json.dumps(other).encode())
    assert searched[4:] == [other]


def test_an_empty_secret_is_left() -> None:
    own = redactor(re.compile(r"key: ?(?P<secret>\w*)"))
    assert own.redact_text("key: -") == "key: -"
    assert PLACEHOLDER.sub("…", own.redact_text("key: - and key: abc!")) == "key: - and key: …!"


def test_a_body_with_an_invalid_escape_and_no_match_is_left_as_it_is() -> None:
    assert redactor("keys").redact_body(b'["\\ud800 \\q"]') == b'["\\ud800 \\q"]'


def test_a_text_that_takes_an_own_expression_too_long_is_removed_whole(caplog: pytest.LogCaptureFixture) -> None:
    """It runs in a process with a time limit: a tool result must not stop the recorder, nor keep what was to go."""
    slow = redactor(re.compile(r"(?:[a-z]+)+\d"))
    with caplog.at_level(logging.WARNING, "contextc.observation"):
        assert PLACEHOLDER.fullmatch(slow.redact_text("a" * 200_000))
    assert "takes too long on a text of 200000 characters" in caplog.text
    assert PLACEHOLDER.sub("…", slow.redact_text("THE WORDS ARE: secret7, and so on")) == "THE WORDS ARE: …, and so on"


def test_own_expressions_find_the_same_as_python_does() -> None:
    texts = ["nothing of the kind is here", "x1 and x22 and x333 and so on", "x1", "ünï x7 \ud83d x8 more of it"]
    for own in (re.compile(r"x\d+"), re.compile(r"x(?P<secret>\d+)"), re.compile("X(.)", re.IGNORECASE)):
        group = "secret" if own.groupindex else 0
        for text in texts:
            removed = [match[group] for match in own.finditer(text)]
            kept = PLACEHOLDER.split(redactor(own).redact_text(text))[::2]
            assert "".join([each for pair in zip(kept, [*removed, ""], strict=True) for each in pair]) == text

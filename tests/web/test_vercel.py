"""The Vercel AI SDK over HTTP: a real React page with unmodified `useChat` of @ai-sdk/react, in a browser."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from playwright.sync_api import Browser, Error, Page, Route, expect

import contextc as cc
from contextc._json import JSONObject
from contextc.web.app_state import ServerOptions
from tests.browser.chromium import PATIENCE, launched
from tests.cli.chat_terminal import recorded, refuses
from tests.conftest import some
from tests.executor.scripted_provider import call, says
from tests.web.clients.client_process import HERE, ClientProcess
from tests.web.conftest import Served
from tests.web.sse_reader import frames, read_events


@pytest.fixture(scope="module")
def bundle(judge: ClientProcess, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page with all it needs, as one script."""
    made = tmp_path_factory.mktemp("page") / "page.js"
    program = [str(judge.node), str(judge.folder / "node_modules" / "esbuild" / "bin" / "esbuild")]
    options = ["--bundle", "--jsx=automatic", "--format=iife", "--minify", f"--outfile={made}", "--log-level=warning"]
    source = judge.folder / "page.jsx"  # beside its packages, where they are found
    shutil.copy(HERE / "page.jsx", source)
    subprocess.run([*program, str(source), *options], check=True, timeout=120, cwd=judge.folder)
    return made.read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as found:
        yield found


@pytest.fixture(scope="module")
def page(browser: Browser) -> Page:
    """One for all tests: nothing of theirs is left when it is at another address."""
    found = browser.new_page()
    found.set_default_timeout(PATIENCE)
    return found


class Reader:
    """A person at such a page."""

    def __init__(self, page: Page, url: str, bundle: str) -> None:
        self.page = page
        self.problems: list[str] = []
        self.page.on("pageerror", self._on_error)
        self.url, self._bundle = url, bundle
        self.page.route(f"{url}/their-page*", self._serve)

    def open(self, id: str, *, resume: bool = False, messages: list[JSONObject] | None = None) -> None:
        """Load the page, or load it again."""
        wanted = {"id": id, "resume": resume, "messages": messages or []}
        self.page.add_init_script(f"window.wanted = {json.dumps(wanted)}")
        self.page.goto(f"{self.url}/their-page")
        self.page.wait_for_function("window.chat")

    def leave(self) -> None:
        self.page.goto("about:blank")
        self.page.remove_listener("pageerror", self._on_error)
        self.page.unroute_all()

    def _on_error(self, error: Error) -> None:
        self.problems.append(str(error))

    def _serve(self, route: Route) -> None:
        if route.request.url.endswith(".js"):
            route.fulfill(body=self._bundle, content_type="text/javascript")
        else:
            body = '<!doctype html><meta charset="utf-8"><div id="root"></div><script src="/their-page.js"></script>'
            route.fulfill(body=body, content_type="text/html")

    def do(self, what: str) -> None:
        """Something that a person does, without waiting for the answer."""
        self.page.evaluate(f"void window.chat.{what}")

    def awaits(self, what: str) -> None:
        """Something that a person does, and the whole answer."""
        self.page.evaluate(f"window.chat.{what}")
        self.waits_for("ready")

    def waits_for(self, status: str) -> None:
        expect(self.page.locator(f"main[data-status={status}]")).to_have_count(1, timeout=PATIENCE)

    def says(self, text: str) -> None:
        """Say something, and wait for the whole answer."""
        self.awaits(f"sendMessage({{ text: {json.dumps(text)} }})")

    @property
    def messages(self) -> list[JSONObject]:
        return cast(list[JSONObject], self.page.evaluate("window.chat.messages"))

    def texts(self) -> list[tuple[str, str]]:
        return [(each["role"], "".join(part.get("text", "") for part in each["parts"])) for each in self.messages]


@pytest.fixture
def options(tmp_path: Path) -> ServerOptions:
    model = recorded(tmp_path / "answers.jsonl", says("Good ", "day.", thinks=("Hm.",)), says("Yes."), says("No."))
    return ServerOptions(root=tmp_path, model=model, recordings=tmp_path)


@pytest.fixture
def reader(server: Served, page: Page, bundle: str) -> Iterator[Reader]:
    found = Reader(page, server.url, bundle)
    yield found
    found.leave()
    assert found.problems == []


def stored(server: Served, name: str = "demo") -> list[tuple[str, str]]:
    with cc.open_store(server.address) as store:
        return [(message.role, message.text) for message in store.load(name)]


def use(server: Served, model: str, name: str = "demo") -> None:
    """Have the next turns of a conversation answered by this model."""
    server.desk.turns.remember_model(name, model)


def test_a_page_talks_and_continues(server: Served, reader: Reader) -> None:
    """Guarantee 12.2: an existing `useChat` page works unchanged, and nothing is stored twice."""
    reader.open("demo")
    reader.says("Hello")
    expect(reader.page.locator("article.assistant em")).to_have_text("Hm.")
    reader.says("Really?")
    assert stored(server) == [("user", "Hello"), ("assistant", "Good day."), ("user", "Really?"), ("assistant", "Yes.")]
    assert [role for role, _ in reader.texts()] == ["user", "assistant", "user", "assistant"]
    kinds = reader.page.evaluate("window.data.map((part) => part.data.type)")
    assert {"turn-start", "turn-finish"} <= {*kinds}


def test_a_page_shows_a_call_and_its_result(server: Served, reader: Reader, tmp_path: Path) -> None:
    """Guarantee 12.2."""
    (tmp_path / "note.txt").write_text("buy milk")
    use(server, recorded(tmp_path / "t.jsonl", says(call(1, "read_file", path="note.txt")), says("Milk.")))
    reader.open("demo")
    reader.says("What is to be done?")
    expect(reader.page.locator("code[data-state=output-available]")).to_have_text("read_file")
    (shown,) = [part for part in reader.messages[-1]["parts"] if part["type"] == "dynamic-tool"]
    assert shown["input"] == {"path": "note.txt"}
    assert "buy milk" in shown["output"]


def test_a_page_stops_and_sends_another_message(server: Served, reader: Reader, tmp_path: Path) -> None:
    """Guarantee 11.10: the partial reply stays; the next message is not delayed."""
    slow = recorded(tmp_path / "slow.jsonl", says(*[f"{n} " for n in range(400)]), says("Here."))
    use(server, f"{slow}?seconds=0.05")
    reader.open("demo")
    reader.do('sendMessage({ text: "Count" })')
    expect(reader.page.locator("article.assistant .text")).to_contain_text("3 ")
    reader.do("stop()")
    reader.waits_for("ready")
    reader.says("And now?")
    found = stored(server)
    assert [role for role, _ in found] == ["user", "assistant", "user", "assistant"]
    assert found[1][1].startswith("0 1 2 3")
    assert found[3][1] == "Here."


def test_a_page_that_is_loaded_again_continues_with_the_answer(server: Served, reader: Reader, tmp_path: Path) -> None:
    """Guarantees 12.1, 12.2: the answer comes from its beginning, and runs on meanwhile."""
    slow = recorded(tmp_path / "slow.jsonl", says(*[f"{n} " for n in range(4_000)]))
    use(server, f"{slow}?seconds=0.05")
    reader.open("demo")
    reader.do('sendMessage({ text: "Count" })')
    expect(reader.page.locator("article.assistant .text")).to_contain_text("3 ")
    asked, already = reader.messages[:1], len(reader.texts()[1][1].split())
    reader.open("demo", resume=True, messages=asked)
    expect(reader.page.locator("article.assistant .text")).to_contain_text(f" {already + 20} ", timeout=PATIENCE)
    httpx.post(f"{server.url}/api/conversations/demo/cancel", json={})
    reader.waits_for("ready")
    assert reader.texts() == stored(server)
    assert httpx.get(f"{server.url}/api/chat/demo/stream").status_code == 204


def test_a_page_has_an_answer_regenerated(server: Served, reader: Reader) -> None:
    """Guarantee 3.4: the first answer stays, on its own branch."""
    reader.open("demo")
    reader.says("Hello")
    reader.says("Really?")
    reader.awaits("regenerate()")
    assert stored(server)[-2:] == [("user", "Really?"), ("assistant", "No.")]
    assert reader.texts()[-1][1] == "No."
    with cc.open_store(server.address) as store:
        assert len(store.branches("demo")) == 2


def test_a_page_edits_an_earlier_message(server: Served, reader: Reader) -> None:
    """Guarantee 3.4: what was said first stays, on its own branch."""
    reader.open("demo")
    reader.says("Hello")
    reader.says("Really?")
    reader.awaits('sendMessage({ text: "Truly?", messageId: window.chat.messages[2].id })')
    texts = [("user", "Hello"), ("assistant", "Good day."), ("user", "Truly?"), ("assistant", "No.")]
    assert stored(server) == texts
    with cc.open_store(server.address) as store:
        assert len(store.branches("demo")) == 2


def test_a_page_asks_before_a_tool_runs(server: Served, reader: Reader, tmp_path: Path) -> None:
    """The SDK's own way to ask a person, and to be answered."""
    writes = says(("w1", "write_file", {"path": "note.txt", "content": "hello"}))
    refused = says(("w2", "write_file", {"path": "other.txt", "content": "hello"}))
    use(server, recorded(tmp_path / "w.jsonl", writes, refused, says("Done.")))
    reader.open("demo")
    reader.says("Write")
    expect(reader.page.locator("code[data-state=approval-requested]")).to_have_text("write_file")
    assert not (tmp_path / "note.txt").exists()
    parts = "window.chat.messages.at(-1).parts"
    asked = f"{parts}.find((part) => part.state === 'approval-requested').approval.id"
    reader.do(f"addToolApprovalResponse({{ id: {asked}, approved: true }})")
    reader.page.wait_for_function(f"{parts}.filter((part) => part.type === 'dynamic-tool').length === 2")
    reader.waits_for("ready")
    assert (tmp_path / "note.txt").read_text() == "hello"
    reader.do(f"addToolApprovalResponse({{ id: {asked}, approved: false, reason: 'not there' }})")
    expect(reader.page.locator("article.assistant .text")).to_have_text("Done.")
    expect(reader.page.locator("code[data-state=output-denied]")).to_have_count(1)
    assert len(reader.messages) == 2
    assert not (tmp_path / "other.txt").exists()


def test_a_page_receives_the_error(server: Served, reader: Reader, tmp_path: Path) -> None:
    use(server, recorded(tmp_path / "f.jsonl", refuses(401, "No such key."), says("Now.")))
    reader.open("demo")
    reader.do('sendMessage({ text: "Hello" })')
    reader.waits_for("error")
    assert "No such key" in (reader.page.locator("main").get_attribute("data-error") or "")
    reader.do("regenerate()")
    reader.waits_for("ready")
    assert stored(server) == [("user", "Hello"), ("assistant", "Now.")]


# ── without a browser ─────────────────────────────────────────────────────────────────────────────────────────────────


def chat(server: Served, *messages: JSONObject, status: int = 200, **more: object) -> list[Any]:
    body = {"id": "demo", "messages": [*messages], "trigger": "submit-message", **more}
    answer = httpx.post(f"{server.url}/api/chat", json=body, timeout=120)
    assert answer.status_code == status, answer.text
    if status != 200:
        return [answer.json()["error"]]
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    found = list(frames(iter(answer.text.splitlines())))
    assert found[-1].data == "[DONE]"
    return [frame.json for frame in found[:-1]]


def user(text: str, id: str) -> JSONObject:
    return {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}


def test_a_page_that_sends_only_its_last_message_adds_to_what_there_is(server: Served) -> None:
    """What a page does not know is not taken for dropped."""
    with cc.open_store(server.address) as store:
        store.append("demo", cc.user("Hello"))
        store.append("demo", cc.assistant("Hello."))
    chat(server, user("Who are you?", "m1"))
    assert [text for _, text in stored(server)] == ["Hello", "Hello.", "Who are you?", "Good day."]


def test_a_history_that_was_begun_elsewhere_is_taken_in(server: Served) -> None:
    message = {"id": "a1", "role": "assistant", "parts": [{"type": "text", "text": "Hello."}]}
    chat(server, user("Hello", "m1"), message, user("Who are you?", "m2"))
    assert [text for _, text in stored(server)] == ["Hello", "Hello.", "Who are you?", "Good day."]


def test_messages_that_a_page_dropped_are_left_on_their_branch(server: Served) -> None:
    """Guarantee 3.4."""
    chat(server, user("One", "m1"))
    chat(server, user("One", "m1"), user("Two", "m2"))
    chat(server, user("One", "m1"), user("Three", "m3"))
    assert [text for role, text in stored(server) if role == "user"] == ["One", "Three"]


def test_what_other_clients_wrote_meanwhile_stays(server: Served) -> None:
    chat(server, user("One", "m1"))
    body = {"input": "From elsewhere"}
    begun = httpx.post(f"{server.url}/api/conversations/demo/turns", json=body).json()
    read_events(server.url, "demo", after=begun["after"])
    chat(server, user("One", "m1"), user("Two", "m2"))
    assert [text for role, text in stored(server) if role == "user"] == ["One", "From elsewhere", "Two"]


def test_what_is_refused_changes_nothing(server: Served, tmp_path: Path) -> None:
    """Guarantee 3.2: an answer that cannot be given again, for want of the model or because a turn runs, stays."""
    chat(server, user("One", "m1"))
    again = {"trigger": "regenerate-message", "messageId": "m1"}
    assert chat(server, user("One", "m1"), status=400, model="nobody:nothing", **again)[0]["kind"] == "InvalidSetting"
    slow = recorded(tmp_path / "slow.jsonl", says(*"abcdefgh" * 500)) + "?seconds=0.05"
    begun = httpx.post(f"{server.url}/api/conversations/demo/turns", json={"input": "Two", "model": slow}).json()
    assert chat(server, user("One", "m1"), status=409, **again)[0]["kind"] == "ConversationBusy"
    assert stored(server)[:3] == [("user", "One"), ("assistant", "Good day."), ("user", "Two")]
    httpx.post(f"{server.url}/api/conversations/demo/cancel", json={})
    read_events(server.url, "demo", after=begun["after"])
    with cc.open_store(server.address) as store:
        assert len(store.branches("demo")) == 1


def test_an_invalid_chat_is_refused(server: Served) -> None:
    assert chat(server, status=400)[0]["kind"] == "InvalidRequest"
    assert chat(server, {"id": "x"}, status=400)[0]["kind"] == "InvalidRequest"
    message = {"id": "a1", "role": "assistant", "parts": [{"type": "text", "text": "Hello."}]}
    assert "has no approval response" in chat(server, message, status=400)[0]["message"]


@pytest.mark.parametrize(
    "expected",
    some(
        [
            {"id": "m1", "role": "user", "parts": [5]},
            {"id": "m1", "role": "user", "parts": [{"type": "text", "text": 5}]},
            {"id": "m1", "role": "user", "parts": [{"type": "text"}]},
            {"id": "m" * 600, "role": "user", "parts": [{"type": "text", "text": "x"}]},
            {"id": "a1", "role": "assistant", "parts": 5},
            {"id": "a1", "role": "assistant", "parts": [1]},
            {"id": "a1", "role": "assistant", "parts": [{"toolCallId": "c1"}]},
            {"id": "a1", "role": "assistant", "parts": [{"type": 5, "toolCallId": "c1"}]},
            {
                "id": "a1",
                "role": "assistant",
                "parts": [{"type": "tool-x", "toolCallId": 5, "state": "approval-responded"}],
            },
        ],
        3,
    ),
)
def test_what_cannot_be_read_is_refused_and_stops_nothing(server: Served, tmp_path: Path, expected: JSONObject) -> None:
    """Guarantee 15.1: the answer that another page is being given goes on."""
    slow = recorded(tmp_path / "slow.jsonl", says(*[f"{n} " for n in range(4000)])) + "?seconds=0.05"
    body = {"id": "demo", "messages": [user("Count", "m0")], "model": slow}
    with httpx.stream("POST", f"{server.url}/api/chat", json=body, timeout=120) as answer:
        lines = answer.iter_lines()
        assert any("text-delta" in line for line in lines)
        chat(server, user("Count", "m0"), expected, status=400)
        chat(server, user("Count", "m0"), user("Now", "m1"), status=400, model="nobody:nothing")
        begun = server.desk.turns.running_turn("demo")
        assert begun is not None
        assert any("text-delta" in line for line in lines), "it goes on"
        assert server.desk.turns.running_turn("demo") is begun
        httpx.post(f"{server.url}/api/conversations/demo/cancel", json={})


@pytest.mark.parametrize("approval", [{"id": "1:c1", "approved": True}, {"id": "1:c1", "approved": False, "reason": 7}])
def test_a_late_approval_is_reported(server: Served, approval: JSONObject) -> None:
    part = {"type": "tool-x", "toolCallId": "c1", "state": "approval-responded", "input": {}, "approval": approval}
    message = {"id": "a1", "role": "assistant", "parts": [part]}
    assert chat(server, user("Hello", "m0"), message, status=409)[0]["kind"] == "UnknownApproval"

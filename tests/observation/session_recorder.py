"""The recorder of sessions: fake vendors that keep what a client sent, with filler in place of long texts."""

import json
import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from contextc._json import decode, encode
from tests.fake_vendors import FakeVendors, Fault, Reply
from tests.fake_vendors.responses import FakeResponse, RequestHead, RequestRecord
from tests.fake_vendors.vendor import AcceptedRequest
from tests.observation.recorded_sessions import save

Wire = dict[str, Any]
Plans = dict[str, list[Reply]]
MARK = re.compile(r"#[ma]\d+")
ID_HEADER = re.compile(r"x-claude-code-.*|x-codex-.*|x-openai-.*|x-client-request-id|.*(session|thread|conversation).*")
COUNTING = re.compile(r"/count_tokens$|:countTokens$|/input_tokens$")
LONG = 200
KEPT = 60
KEPT_PARTS = re.compile(r"\n[ \t]*|</?[\w-]{2,40}>|#[ma]\d+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+")
FILLER = "filler text in place of a vendor's "
LITERAL = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def log(*words: object) -> None:
    sys.stderr.write(" ".join([str(word) for word in words]) + "\n")


def fill(text: str) -> str:
    """Return filler for a long text: the first characters, lines, tags, numbers and ids are kept."""
    made, at = [text[:KEPT]], KEPT
    for found in KEPT_PARTS.finditer(text, KEPT):
        made += [_filler(found.start() - at), found[0]]
        at = found.end()
    return "".join([*made, _filler(len(text) - at)])


def _filler(length: int) -> str:
    return (FILLER * (length // len(FILLER) + 1))[:length]


def fill_body(raw: bytes) -> bytes:
    """Return a body with filler in place of its long texts. All other bytes stay."""

    def replace(found: re.Match[bytes]) -> bytes:
        if len(found[0]) <= LONG:
            return found[0]
        text: str = json.loads(found[0])
        is_text = len(text) > LONG and " " in text and not text.startswith("{")
        return json.dumps(fill(text), ensure_ascii=False).encode() if is_text else found[0]

    return LITERAL.sub(replace, raw)


class Script:
    """Replies by the last mark in a request. Summaries and titles are answered as their clients expect."""

    def __init__(self, plans: Plans, name: str) -> None:
        self.plans, self.name, self.steps, self.given = plans, name, dict[str, int](), 0

    def __call__(self, ask: AcceptedRequest) -> Reply:
        self.given += 1
        body = decode(ask.raw)
        last = ask.request.messages[-1].text
        if "title" in str(body.get("output_config")):
            return Reply(json.dumps({"title": f"Notes {self.given}"}))
        if "<summary>" in last or "handoff summary" in last.lower() or "CHECKPOINT COMPACTION" in last:
            return Reply(f"<analysis>All is said.</analysis>\n<summary>\nSummary {self.given} of it.\n</summary>")
        found = [mark for message in ask.request.messages for mark in MARK.findall(user_text(message))]
        plan = self.plans.get(found[-1], []) if found else []
        step = self.steps.get(found[-1], 0) if found else 0
        if found:
            self.steps[found[-1]] = step + 1
        reply = plan[step] if step < len(plan) else Reply(f"Answer {self.given}.")
        return reply if step else Reply(f"{reply.text} ({self.name})", reply.calls)  # as no two replies are alike


def user_text(message: Any) -> str:
    return message.text if message.role in ("user", "system", "developer") and not message.tool_results else ""


class Recorder:
    """The exchanges of all sessions of a client."""

    def __init__(self, client: str) -> None:
        self.client, self.lines, self.session = client, list[Wire](), 0

    @contextmanager
    def run(
        self,
        plans: Plans | None = None,
        *,
        plan: Callable[[AcceptedRequest], Fault | None] | None = None,
        strict: bool = False,
        window: int | None = None,
        namespace: dict[str, str] | None = None,
    ) -> Generator[FakeVendors]:
        """Record one session."""
        self.session += 1
        script = Script(plans or {}, f"{self.client} {self.session}")
        with FakeVendors(script, faults=plan, strict=strict, window=window) as standin:
            answer = standin.desk.answer

            def recorded(head: RequestHead, raw: bytes, connection: int = 0) -> tuple[FakeResponse, RequestRecord]:
                made, record = answer(head, raw, connection)
                if COUNTING.search(head.path):
                    name = "totalTokens" if head.path.endswith(":countTokens") else "input_tokens"
                    made = FakeResponse(status=200, steps=(encode({name: len(raw) // 4}),))
                for name, where in (namespace or {}).items():
                    steps = [named(step, name, where) if isinstance(step, bytes) else step for step in made.steps]
                    made = FakeResponse(status=made.status, steps=tuple(steps), kind=made.kind, streamed=made.streamed)
                self.add(head, raw, made, record)
                return made, record

            standin.desk.answer = recorded
            yield standin

    def add(self, head: RequestHead, raw: bytes, made: FakeResponse, record: RequestRecord) -> None:
        if head.method != "POST":
            return
        reply = b"".join([step for step in made.steps if isinstance(step, bytes)])
        calls = record.reply.calls if record.reply else ()
        self.lines.append({
            "session": self.session,
            **self.label(head, raw, [mark for call in calls for mark in MARK.findall(call.written)]),
            "time": int(record.time * 1000),
            "method": head.method,
            "path": head.path,
            "headers": {name: value for name, value in head.headers.items() if ID_HEADER.fullmatch(name)},
            "request": fill_body(raw).decode(),
            "status": made.status,
            "response": reply.decode(),
        })  # fmt: skip

    def label(self, head: RequestHead, raw: bytes, called: list[str]) -> Wire:
        """Propose labels. `called` has the marks of sub-agents that the reply starts; they are checked manually."""
        body = decode(raw)
        found = user_marks(body)
        agents = [mark for mark in found if mark.startswith("#a")]
        if COUNTING.search(head.path):
            conversation = "count"
        elif "title" in str(body.get("output_config")):
            conversation = "title"
        elif "web search for the query" in raw.decode():
            conversation = "search"
        else:
            conversation = f"agent {agents[-1][2:]}" if agents else "main"
        return {"conversation": conversation, "called": called}

    def save(self, folder: Path) -> None:
        self.link()
        save(folder / f"{self.client}.jsonl.gz", self.lines)

    def link(self) -> None:
        """Number side requests, and set the line number of each parent request."""
        number = 0
        for at, line in enumerate(self.lines):
            own = [index for index, each in enumerate(self.lines) if each["session"] == line["session"]]
            mains = [index for index in own if self.lines[index]["conversation"] == "main"]
            line["parent"] = None
            if line["conversation"].startswith("agent"):
                mark = f"#a{line['conversation'].split()[1]}"
                line["parent"] = next((index for index in own if mark in self.lines[index]["called"]), None)
            elif line["conversation"] != "main":
                before = [index for index in mains if index < at]
                line["parent"] = before[-1] if before else mains[0] if mains else None
        for line in self.lines:
            line.pop("called")
            if line["conversation"] in ("title", "count", "search"):
                number += 1
                line["conversation"] += f" {number}"


def named(step: bytes, name: str, where: str) -> bytes:
    """Return an event with the namespace of a tool, which the fake vendors do not write."""
    return step.replace(f'"name":"{name}"'.encode(), f'"name":"{name}","namespace":"{where}"'.encode())


def user_marks(value: Any) -> list[str]:
    """Return the marks in the user's texts of a body, not those in calls and results."""
    if isinstance(value, list):
        return [mark for each in cast(list[Any], value) for mark in user_marks(each)]
    if not isinstance(value, dict):
        return MARK.findall(value) if isinstance(value, str) else []
    value = cast(Wire, value)
    if value.get("role") in ("assistant", "model", "tool") or str(value.get("type")) in (
        "tool_result", "function_call", "function_call_output",
    ):  # fmt: skip
        return []
    keys = ("messages", "input", "contents", "content", "parts", "text")
    return [mark for key in keys if key in value for mark in user_marks(value[key])]

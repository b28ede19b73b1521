"""All surfaces name the same figure: a figure that is in two places is compared wherever it is.

A surface is one way to see a store: a command, an endpoint, a file. Each notes its figures by name, such as
`run: requests` or `run/3f2a/4: input`. Names that one surface alone knows are not counted.
"""

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import astuple
from starlette.testclient import TestClient

import contextc as cc
from contextc.analysis.conversation_findings import HARMLESS, findings, group_by_cause
from contextc.analysis.finding import get_code
from contextc.cli import app, demo
from contextc.cli.store_tools import StoreTools
from contextc.cli.watch import of_run
from contextc.compiler.draft import distribute
from contextc.inspection.request_timeline import load_timeline
from contextc.interchange import export_archive
from contextc.observation.observed_request import ObservedRequest
from contextc.proxy.proxy_status import TrafficSummary
from contextc.proxy.recorder_process import describe_recorded
from contextc.proxy.spool import SpooledExchange
from contextc.sharing.shared_html import SharedItem, SharedRequest, SharedRow, collect_shared_data
from contextc.store.message_log import FIRST_UNANSWERED
from contextc.web.app_state import ServerOptions
from contextc.web.application import create_application
from tests.figures.sample_store import CONVERSATIONS, DEMO, HEAD_MODELS, OBSERVED, fill_store

ENOUGH = 60
TOTALS = ("requests", "failed", "input", "estimated", "output", "cache_read", "cost")
CODE = re.compile(r"\b[A-Z]{3}\d{3}\b")
HARMLESS_CODES = tuple([get_code(cause).code for cause in HARMLESS])
Run = Callable[..., str]


class Figures:
    """Figures by name, with what each surface says."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, object]] = defaultdict(dict)

    def note(self, surface: str, about: str, **figures: object) -> None:
        """Note what a surface says about a thing."""
        for name, value in figures.items():
            said = self._said[f"{about}: {name}"]
            value = round(value, 8) if isinstance(value, float) else value
            assert said.setdefault(surface, value) == value, f"{surface} says two things about {about}: {name}"

    @property
    def compared(self) -> dict[str, dict[str, object]]:
        """The figures that several surfaces name."""
        return {name: said for name, said in self._said.items() if len(said) > 1}

    @property
    def contradictions(self) -> dict[str, dict[str, object]]:
        return {name: said for name, said in self.compared.items() if len(set(map(repr, said.values()))) > 1}


@pytest.fixture
def address(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path}/figures.db"
    fill_store(found)
    return found


@pytest.fixture
def client(address: str, tmp_path: Path) -> Iterator[TestClient]:
    options = ServerOptions(root=tmp_path, model="replay:none.jsonl")
    with (
        cc.open_store(address) as store,
        TestClient(create_application(store, options), base_url="http://127.0.0.1:8377") as asking,
    ):
        yield asking


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run a command in this process: the walk has a hundred of them."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            app(arguments)
        printed = capsys.readouterr()
        assert not ended.value.code, printed.err
        return printed.out

    return command


def test_all_surfaces_name_the_same_figures(run: Run, client: TestClient, address: str) -> None:
    figures = Figures()
    walk_api(figures, client)
    walk_commands(figures, run, address)
    walk_shared_files(figures, address)
    walk_agent_tools(figures, address)
    walk_archives(figures, address)
    walk_watched_runs(figures, address)
    compared = figures.compared
    sys.stdout.write(f"{len(compared)} figures compared, {sum(map(len, compared.values()))} values\n")
    assert figures.contradictions == {}
    assert len(compared) >= ENOUGH


def test_no_more_is_lost_or_shared_than_the_previous_request_had(address: str, client: TestClient) -> None:
    """By the endpoints and the shared files of the sample store, and of what `contextc demo` records."""
    with cc.open_store(address) as store:
        demo.record(store, lambda _done, _total: None)
        files = {name: collect_shared_data(store, name) for name in (*CONVERSATIONS, *DEMO)}
    checked = 0
    for name, data in files.items():
        base = f"/api/conversations/{name}"
        steps = client.get(f"{base}/timeline").json()["requests"]
        sizes = {(each["channel"], each["request"]): each["used"] for each in steps}
        shared = {(each.channel, each.number): each.same + len(each.again) for each in data.requests}
        for step in steps:
            place = step["channel"], step["request"] - 1
            assert step["shared"] <= sizes.get(place, 0), (name, step["request"])
            compared = client.get(f"{base}/requests/{step['channel']}/{step['request']}/comparison").json()
            if name in DEMO and compared["before"]:
                assert shared[step["channel"], step["request"]] == compared["unchanged"], (name, step["request"])
            new = [each["cost"] for each in compared["differences"] if each["cost"] is not None]
            assert sum(new) <= (step["cost"] or 0) + 1e-9, (name, step["request"])
            if compared["lost"]:
                assert compared["lost"] <= compared["before"]["input"], (name, step["request"])
        for each in client.get(f"{base}/findings").json()["findings"]:
            if each["code"].startswith("CAC") and each["tokens"]:
                at = each["evidence"][0]
                known = at.get("compared") or {"channel": at["channel"], "request": at["request"] - 1}
                assert each["tokens"] <= sizes[known["channel"], known["request"]], (name, at)
                checked += 1
        lost = [each.tokens for each in data.findings if each.code.startswith("CAC")]
        assert sum(lost) <= sum([each.size for each in data.requests[:-1]]), name
    assert checked > len(DEMO)


@pytest.mark.parametrize("name", ["own heads", "observed heads"])
def test_a_changed_head_is_shared_up_to_its_first_change(name: str, address: str, client: TestClient, run: Run) -> None:
    """As a prompt cache keeps it: tools precede the system prompt, except for Gemini. No message is shared then."""
    steps = client.get(f"/api/conversations/{name}/timeline").json()["requests"]
    for model in HEAD_MODELS:
        for number in (3, 4, 5):
            (step,) = [each for each in steps if (each["model"], each["request"]) == (model, number)]
            path = f"/api/conversations/{name}/requests/{step['channel']}/{number}/lines"
            lines = client.get(path, params={"detailed": "true"}).json()["lines"]
            same = [each["role"] for each in lines if each["state"] == "shared"]
            tools = [each["role"] for each in lines if each["role"] == "tool"]
            expected = {
                3: [] if "gemini" in model else tools,  # another system prompt
                4: ["system", *tools[:1]] if "gemini" in model else tools[:1],  # another second tool
                5: ["system"] if "gemini" in model else [],  # no tools
            }[number]
            assert same == expected, (model, number)
            tokens = sum(each["tokens"] for each in lines if each["state"] == "shared")
            request = client.get(path.removesuffix("/lines")).json()
            explained = run("explain", name, str(number), "--model", model, "--json", "--store", address)
            assert request["shared"]["tokens"] == step["shared"] == json.loads(explained)["shared"] == tokens
            assert f"shared with the previous request: {tokens:,} tokens" in run(
                "explain", name, str(number), "--model", model, "--store", address
            )


def walk_api(figures: Figures, client: TestClient) -> None:
    """Note the figures of the HTTP API, which the web UI shows."""

    def ask(path: str, **query: Any) -> Any:
        answer = client.get(f"/api/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    overview = ask("overview")
    figures.note("overview", "store", conversations=overview["found"])
    for each in overview["conversations"]:
        found = each["figures"]
        figures.note(
            "overview", each["conversation"]["name"], messages=each["conversation"]["length"],
            **{name: found[name] for name in TOTALS},
            cache_share=share(found["cache_share"]),
        )  # fmt: skip
    checked = client.post("/api/overview/findings", json={"names": CONVERSATIONS}).json()["conversations"]
    for each in checked:
        figures.note("checked", each["name"], causes=list_causes(one["code"] for one in each["causes"]))
        figures.note("checked", each["name"], findings=sum(one["count"] for one in each["causes"]))
        for one in each["causes"]:
            figures.note("checked", f"{each['name']}, {one['cause']}", tokens=one["tokens"], cost=one["cost"])
    for name in CONVERSATIONS:
        compared = ask("compare", a=name, b=CONVERSATIONS[0])["a"]
        figures.note("comparison", name, **{each: compared[each] for each in (*TOTALS, "rewrite_factor")})
        for each in ask(f"conversations/{name}/sub-agents")["agents"]:
            shown = ("requests", "failed", "input", "estimated", "output", "cost")
            figures.note("sub-agents", each["name"], **{one: each[one] for one in shown})
        timeline = ask(f"conversations/{name}/timeline")
        totals = timeline["totals"]
        figures.note(
            "timeline", name, failed=totals.get("failed", 0), cost=totals["cost"],
            **{each: totals[each] for each in ("requests", "input", "estimated", "output", "cache_read")},
        )  # fmt: skip
        sizes = {(each["channel"], each["request"]): each["used"] for each in timeline["requests"]}
        figures.note("steps", name, estimated=sum(each["estimated"] for each in timeline["requests"]))
        if name == "transcript":  # the provider reported no usage
            assert totals["estimated"] == sum(each["used"] for each in timeline["requests"]) > totals["input"] == 0
        for step in timeline["requests"]:
            about = f"{name}/{step['model']}/{step['request']}"
            figures.note(
                "timeline", about, input=step["input"], size=step["used"],
                output=step["output"], cost=step["cost"], window=step["window"],
                room=step["available"], cache_read=step["cache_read"], epoch=step["epoch"], shared=step["shared"],
            )  # fmt: skip
            request = ask(f"conversations/{name}/requests/{step['channel']}/{step['request']}")
            usage: dict[str, Any] = request["usage"] or {}
            figures.note(
                "request", about, size=request["budget"]["input"], output=usage.get("output"), cost=request["cost"],
                window=request["budget"]["window"], room=request["budget"]["room"],
                cache_read=usage.get("cache_read"), epoch=request["epoch"], shared=request["shared"]["tokens"],
            )  # fmt: skip
            composition = ask(f"conversations/{name}/requests/{step['channel']}/{step['request']}/composition")
            figures.note("composition", about, size=composition["tokens"], cost=composition["cost"])
            assert sum(each["tokens"] for each in composition["causes"]) == composition["tokens"], about
            figures.note("composition", about, **by_cause(list_causes_of_tokens(composition)))
            lines = ask(
                f"conversations/{name}/requests/{step['channel']}/{step['request']}/lines", limit=1_000, detailed="true"
            )["lines"]
            head, lines = [[each for each in lines if (each["index"] < 0) is is_head] for is_head in (True, False)]
            budget = request["budget"]
            above = budget["system"] + budget["tools"] + budget["overhead"]
            figures.note("lines", about, size=above + sum(each["tokens"] for each in lines), lines=len(lines))
            same, kept = [[each["tokens"] for each in some if each["state"] == "shared"] for some in (lines, head)]
            if same or head:
                shared = above + sum(same) if same or len(kept) == len(head) else sum(kept)
                # lines are parts of what was measured of this request, where the previous one can have had less in all
                most = sizes.get((step["channel"], step["request"] - 1), 0)
                figures.note("lines", about, shared=min(shared, most), listed=shared)
            figures.note("request", about, listed=request["shared"]["listed"])
            assert sum(each["tokens"] for each in head) == budget["system"] + budget["tools"], about
            figures.note(
                "lines", about, **sum_head(head), **number_messages([each["tokens"] for each in lines if each["shown"]])
            )
            figures.note("request", about, lines=request["counts"]["lines"])
            costs = [each["cost"] for each in (*head, *lines) if each["shown"]]
            assert (None in costs) == (request["cost"] is None), "a row has a cost where the request has one"
            if not above - sum(each["tokens"] for each in head):  # nothing was added by the provider
                paid = sum_known(each["cost"] for each in composition["causes"])
                figures.note("lines", about, cost_of_input=sum_known(costs))
                figures.note("composition", about, cost_of_input=None if composition["cost"] is None else paid)
        meter = ask(f"conversations/{name}")["gauge"]
        last = max(timeline["requests"], key=lambda each: each["time"])
        figures.note(
            "meter", f"{name}/{last['model']}/{last['request']}", size=meter["used"], window=meter["window"],
            room=meter["available"],
        )  # fmt: skip
        for change in ({}, {"edit": "1", "text": "Something else."}):
            following = client.get(
                f"/api/conversations/{name}/next", params={"limit": 1_000, "detailed": "true", **change}
            )
            if following.status_code == 200:
                about = f"{name}, next {sorted(change)}"
                budget, lines = following.json()["budget"], following.json()["lines"]
                rows = [sum(each["tokens"] for each in lines if each["shown"] and (each["state"] == "shared" or is_all))
                        for is_all in (True, False)]  # fmt: skip
                assert rows[0] + budget["overhead"] == budget["input"], about
                assert rows[1] + budget["overhead"] == following.json()["shared"]["listed"], about
                figures.note("next", about, shared=following.json()["shared"]["tokens"])
                figures.note("costs of the next", about, shared=following.json()["cost"]["cached_kept"])
                if (cache := following.json()["cost"].get("cache")) and not change:
                    assert cache["read"] + cache["paid_again"] <= last["used"], f"{name}: more than was sent"
        found = ask(f"conversations/{name}/findings")
        figures.note(
            "findings", name, cache_share=share(found["costs"]["cache_share"]),
            causes=list_causes(each["code"] for each in found["findings"] if each["cause"] not in HARMLESS),
        )  # fmt: skip
        figures.note("findings", name, **count_findings(found["findings"]))
        for cause, (tokens, cost) in sum_causes(found["findings"]).items():
            figures.note("findings", f"{name}, {cause}", tokens=tokens, cost=cost)
        for place, each in enumerate(found["findings"]):
            figures.note(
                "findings", f"{name}, finding {place}", **{key: each[key] for key in ("code", "tokens", "cost")}
            )


def count_findings(found: Iterable[Any]) -> dict[str, int]:
    """Return the number of findings, and of those of each cause, as figures."""
    codes = [each["code"] for each in found if each["cause"] not in HARMLESS]
    return {"findings": len(codes), **{f"findings {code}": count for code, count in Counter(codes).items()}}


def sum_causes(found: Iterable[Any]) -> dict[str, tuple[int, float | None]]:
    """Return the tokens and the cost of all findings of each cause."""
    by_cause: dict[str, list[Any]] = defaultdict(list)
    for each in found:
        by_cause[each["cause"]].append(each)
    return {
        cause: (sum(each["tokens"] for each in some), sum_known(each["cost"] for each in some))
        for cause, some in by_cause.items()
    }


def list_causes_of_tokens(composition: Any) -> Iterator[tuple[str, str, int, float | None]]:
    """Return kind, tool, tokens and cost of what the inspector shows a request to be made of."""
    for each in composition["causes"]:
        is_of_tools = each["cause"] in ("tool", "result")
        for one in each.get("children", [each]) if is_of_tools else [each]:
            yield each["cause"], one.get("tool", "") if is_of_tools else "", one["tokens"], one["cost"]
    for each in composition["answer"]:
        yield each["kind"], each["name"], each["tokens"], each["cost"]


def sum_head(lines: Iterable[Any]) -> dict[str, int]:
    """Return the tokens of each tool and of the system prompt as figures."""
    found: dict[str, int] = defaultdict(int)
    for each in lines:
        found[f"tokens of {each['role']} {each.get('tool', '')}"] += each["tokens"]
    return found


def number_messages(tokens: Sequence[int]) -> dict[str, int]:
    """Return the tokens of each message as figures, which are compared where a request has as many of them."""
    return {f"message {place} of {len(tokens)}": each for place, each in enumerate(tokens)}


def by_cause(found: Iterable[tuple[str, str, int, float | None]]) -> dict[str, object]:
    """Return the tokens and the cost of each cause of a request as figures."""
    named: dict[str, object] = {}
    for kind, tool, tokens, cost in found:
        named |= {f"tokens of {kind} {tool}": tokens, f"cost of {kind} {tool}": cost}
    return named


def share(value: float | None) -> float | None:
    """Return a share as it is shown."""
    return None if value is None else round(value, 3)


def find_internal_numbers(text: str) -> list[str]:
    """Return the numbers of requests under which those without an answer are kept: people know them by another."""
    return [each for each in re.findall(r"[\d,]{10,}", text) if int(each.replace(",", "")) > FIRST_UNANSWERED]


def list_causes(codes: Iterable[str]) -> list[str]:
    """Return the codes of findings in the order in which they come first."""
    return list(dict.fromkeys(codes))


def walk_commands(figures: Figures, run: Run, address: str) -> None:
    """Note the figures of the commands."""

    def ask(*arguments: str) -> Any:
        return json.loads(run(*arguments, "--json", "--store", address))

    listed = ask("list")
    figures.note("list", "store", conversations=len(listed))
    for each in listed:
        figures.note("list", each["name"], messages=each["length"])
    for name in CONVERSATIONS:
        found: Any = ask("explain", name)
        channels: list[Any] = found if "lines" not in found else [found]
        for model in [f"{each['provider']}:{each['model']}" for each in channels]:
            for each in ask("explain", name, "--requests", "--model", model):
                record = each["record"]
                about = f"{name}/{model}/{record['request']}"
                seen = ask("explain", name, str(record["request"]), "--model", model)
                figures.note("explain", about, lines=len(seen["lines"]))
                usage = seen.get("usage", {})
                figures.note("explain --requests", about, cost=each["cost"])
                figures.note(
                    "explain", about, size=seen["budget"]["input"], output=usage.get("output"),
                    window=seen["budget"]["window"], epoch=seen["epoch"], shared=seen["shared"],
                )  # fmt: skip
        found = ask("findings", name, "--costs")
        (costs,) = found["costs"]
        figures.note(
            "command", name, cache_share=share(costs["cache_share"]), cost=costs["cost"],
            rewrite_factor=costs["rewrite_factor"],
            causes=list_causes(each["code"] for each in found["findings"] if each["cause"] not in HARMLESS),
        )  # fmt: skip
        figures.note("command", name, **count_findings(found["findings"]))
        for cause, (tokens, cost) in sum_causes(found["findings"]).items():
            figures.note("command", f"{name}, {cause}", tokens=tokens, cost=cost)
        table = run("findings", name, "--store", address)
        assert not find_internal_numbers(table)
        listed = {each["code"] for each in found["findings"] if each["cause"] not in HARMLESS}
        assert set(CODE.findall(table)) == listed
        costs_of_rows = [float(each) for each in re.findall(r"^ *\$([\d.]+) ", table, re.MULTILINE)]
        assert costs_of_rows == sorted(costs_of_rows, reverse=True), "a row is one cause and place"
        for place, each in enumerate(found["findings"]):
            figures.note(
                "command", f"{name}, finding {place}", **{key: each[key] for key in ("code", "tokens", "cost")}
            )


def walk_shared_files(figures: Figures, address: str) -> None:
    """Note the figures of the files that people share."""
    with cc.open_store(address) as store:
        for name in CONVERSATIONS:
            data = collect_shared_data(store, name)
            figures.note(
                "shared file", name, causes=list_causes(each.code for each in data.findings), input=data.input,
                output=data.output, cost=data.cost, cache_share=share(data.cache_share), failed=data.failed,
                requests=data.requests_count, estimated=data.estimated, rewrite_factor=data.rewrite_factor,
                findings=data.findings_count,
            )  # fmt: skip
            rows: list[SharedRow] = []
            for each in data.requests:
                assert each.number < FIRST_UNANSWERED
                about = f"{name}/{each.model}/{each.number}{', failed' if each.status == 'unanswered' else ''}"
                figures.note(
                    "shared file", about, size=each.size, output=each.output, input=each.input, cost=each.cost,
                    cache_read=each.cache_read, window=each.window, **by_cause(map(astuple, each.costs)),
                )  # fmt: skip
                rows = [*rows[: each.same], *each.rows]
                tokens = list(distribute_rows(each, rows))
                figures.note("rows of a shared file", about, size=sum(tokens) + each.overhead)
                figures.note("rows of a shared file", about, **sum_rows(rows, tokens, data.items))


def distribute_rows(request: SharedRequest, rows: Sequence[SharedRow]) -> Iterator[int]:
    """Return the tokens of each row, as the script of the file computes them."""
    start = 0
    for count, tokens in request.parts:
        yield from distribute(tokens, [each.weight for each in rows[start : start + count]])
        start += count


def sum_rows(rows: Sequence[SharedRow], tokens: Sequence[int], items: Sequence[SharedItem]) -> dict[str, int]:
    """Return the tokens of tools, the system prompt, tool results and each message as figures."""
    found: dict[str, int] = defaultdict(int)
    messages: dict[str, int] = defaultdict(int)
    for row, count in zip(rows, tokens, strict=True):
        item = items[row.item]
        if item.kind in ("tool", "system"):
            found[f"tokens of {item.kind} {item.name}"] += count
        elif item.type == "tool_result":
            found[f"tokens of result {item.name}"] += count
        if item.kind == "message":
            messages[row.path.partition("]")[0]] += count
    return {**found, **number_messages(list(messages.values()))}


def walk_agent_tools(figures: Figures, address: str) -> None:
    """Note the figures of the tools that coding agents call."""
    with cc.open_store(address) as store:
        tools = StoreTools(store, None)
        for name in CONVERSATIONS:
            lines = tools.find_waste(name).splitlines()
            assert not find_internal_numbers("\n".join(lines))
            codes = [line[:6] for line in lines if CODE.match(line) and not line.startswith(HARMLESS_CODES)]
            figures.note("find_waste", name, causes=list_causes(codes))


def walk_archives(figures: Figures, address: str) -> None:
    """Note the figures of an exported log."""
    with cc.open_store(address) as store:
        for name in CONVERSATIONS:
            _, *entries = map(json.loads, export_archive(store, name, "lhar").data.splitlines())
            figures.note("archive", name, cost=sum_known(each["usage_ext"]["cost_usd"] for each in entries))
            used = [(each["gen_ai"]["usage"], each["usage_ext"]) for each in entries]
            kept = ("cache_read_tokens", "cache_write_tokens")
            figures.note(
                "archive", name, output=sum(usage["output_tokens"] for usage, _ in used),
                input=sum(usage["input_tokens"] + sum(more[each] for each in kept) for usage, more in used),
                cache_read=sum(more["cache_read_tokens"] for _, more in used),
            )  # fmt: skip


def walk_watched_runs(figures: Figures, address: str) -> None:
    """Note the figures that `contextc watch` prints at its end, as it would have recorded these conversations."""
    with cc.open_store(address) as store:
        for name in OBSERVED:
            summary = TrafficSummary()
            for each in load_timeline(store, name):
                seen = ObservedRequest(store=store, channel=each.channel, request=each.number, record=each.record)
                summary.add(describe_recorded("", cast(SpooledExchange, SimpleNamespace(began=0)), seen))
            figures.note(
                "watch", name, requests=summary.requests, failed=summary.failed, input=summary.input,
                output=summary.output, cache_read=summary.cache_read, cache_share=share(summary.cache_share),
                cost=summary.cost if summary.input else None, rewrite_factor=summary.rewrite_factor,
            )  # fmt: skip
            found = list(of_run(findings(store, name), summary.recorded))
            figures.note("watch", name, causes=[each.code for each in group_by_cause(found)])


def sum_known(costs: Iterable[float | None]) -> float | None:
    known = [each for each in costs if each is not None]
    return sum(known) if known else None

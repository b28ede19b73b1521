"""Frame of the inspector: header, step line, tabs and keys, findings, replies, failed requests and sub-agents."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Locator, expect

import contextc as cc
from contextc.web.app_state import ServerOptions
from tests.analysis.observed_run import ObservedRun, define_tool, words
from tests.analysis.test_parallel_requests import DOCUMENT, send
from tests.browser.accessibility import shut_out
from tests.browser.conftest import Visit
from tests.browser.page_driver import Person
from tests.browser.sample_conversations import busy, two_models
from tests.browser.scripted_model import SPEC, Model
from tests.browser.server import served
from tests.conftest import some
from tests.observation.test_conversation_match import claude, claude_answer
from tests.web.sample_conversations import SONNET, Life, provider_of

SIZES = [(390, 844), (768, 1024), (1280, 720), (1440, 900)]
HIGHEST = 96
LOWEST_SHARE = 0.55
NARROW = 400
SESSION = {"x-claude-code-session-id": "s1"}
START = 1_760_000_000_000


class Recorded(NamedTuple):
    """A server with recorded conversations: one with findings, one without, and one with sub-agents.

    Sub-agents one and two run at the same time, and two starts three.
    """

    url: str
    costly: str
    main: str
    agents: list[str]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    folder = tmp_path_factory.mktemp("recorded")
    with cc.open_store(f"sqlite:///{folder}/served.db") as store:
        run = ObservedRun(tools=[define_tool("read"), define_tool("draw", 3_000)], store=store)
        run.ask("Read the log.")
        run.fail(529, "Overloaded, <b>try</b> again")
        run.call("read", words(8_000), path="huge.log")
        for number in range(10):
            run.call("read", f"line {number}", path=f"{number}.txt")
            if number % 3 == 0:
                run.system, run.cached = f"You help. {words(6_000, 's')} It is {number} o'clock. {words(6_000, 't')}", 0
        run.send()
        Life(store, name="cheap").turn("hi", "hello", cc.Usage(input=500, output=9))
        common: dict[str, Any] = {"store": store, "format": "anthropic"}
        main = cc.observe(
            **common,
            request=claude("a"),
            reply=claude_answer("b"),
            time=START,
            first_chunk=START + 1_500,
            ended=START + 9_000,
            headers=SESSION,
        )
        agents = [
            cc.observe(
                **common, request=claude(f"work on {name}", system="Sub."), reply=claude_answer("done"),
                time=START + 1_000 * at, ended=START + 1_000 * at + 2_000,
                headers={
                    **SESSION, "x-claude-code-agent-id": name,
                    **({"x-claude-code-parent-agent-id": "two"} if name == "three" else {}),
                },
            )
            for at, name in enumerate(("one", "two", "three"), 1)
        ]  # fmt: skip
        with served(store, ServerOptions(root=folder, model=SPEC)) as url:
            yield Recorded(url, run.conversation, main.conversation, [each.conversation for each in agents])


@pytest.fixture
def reader(recorded: Recorded, model: Model, visiting: Visit) -> Person:
    return visiting(recorded.url)


def opens(person: Person, address: str) -> Person:
    """Open the inspector at a URL, and wait for the findings."""
    person.open(address)
    expect(person.page.get_by_test_id("step")).to_be_visible()
    expect(person.page.get_by_test_id("totals").get_by_role("status")).to_have_count(0)
    return person.shows_figures()


def selected(person: Person) -> Locator:
    return person.page.get_by_role("tab", selected=True)


def heading(person: Person) -> Locator:
    return person.page.get_by_test_id("step").get_by_role("heading", level=2)


@pytest.mark.thorough
@pytest.mark.parametrize(("width", "height"), some(SIZES, 1))
def test_the_header_is_low_and_the_line_of_a_request_is_one_line(
    recorded: Recorded, model: Model, visiting: Visit, width: int, height: int
) -> None:
    person = opens(
        visiting(recorded.url, viewport={"width": width, "height": height}), f"#/c/{recorded.costly}/inspect"
    )
    page = person.page
    expect(page.get_by_test_id("timeline")).to_have_count(0)
    head = page.get_by_test_id("inspect-head").bounding_box()
    assert head is not None
    assert head["height"] <= HIGHEST
    for part in ("totals", "mini-timeline", "timeline-button"):
        box = page.get_by_test_id(part).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= head["y"] + head["height"]
    expect(page.get_by_test_id("finding").first).to_be_in_viewport()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    for name in ("Findings", "Messages", "Changes", "Composition"):
        person.tab(name)
        box = page.get_by_role("tabpanel").bounding_box()
        assert box is not None
        assert min(height, box["y"] + box["height"]) - box["y"] >= LOWEST_SHARE * height, name
        tab = selected(person).bounding_box()
        assert tab is not None
        assert 0 <= tab["x"] <= tab["x"] + tab["width"] <= width
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        assert width > NARROW or shut_out(page) == []
    if width >= 1280:
        line = page.get_by_test_id("step-line").bounding_box()
        assert line is not None
        assert line["height"] <= 40


def test_the_header_stays_while_the_page_scrolls(reader: Person, recorded: Recorded) -> None:
    opens(reader, f"#/c/{recorded.costly}/inspect")
    reader.page.get_by_test_id("finding").last.scroll_into_view_if_needed()
    for part in ("totals", "mini-timeline"):
        expect(reader.page.get_by_test_id(part)).to_be_in_viewport(ratio=1)


def test_the_inspector_opens_at_findings_that_cost_something(reader: Person, recorded: Recorded) -> None:
    """Without such findings, or with a request in the URL, it opens at the messages."""
    opens(reader, f"#/c/{recorded.costly}/inspect")
    expect(selected(reader)).to_contain_text("Findings")
    channel = str(reader.page.get_by_test_id("place").first.get_attribute("href")).split("/")[4]
    opens(reader, "#/c/cheap/inspect")
    expect(selected(reader)).to_contain_text("Messages")
    expect(reader.page.get_by_test_id("lines")).to_contain_text("hi")
    opens(reader, f"#/c/{recorded.costly}/inspect/{channel}/3")
    expect(selected(reader)).to_contain_text("Messages")
    expect(heading(reader)).to_contain_text("Request 3 of 13")


def test_a_finding_has_its_cost_the_changed_words_a_fix_and_links(reader: Person, recorded: Recorded) -> None:
    opens(reader, f"#/c/{recorded.costly}/inspect")
    panel = reader.page.get_by_test_id("findings-panel")
    group = panel.get_by_test_id("cause").filter(has_text="CAC006")
    expect(group).to_contain_text(re.compile(r"\d findings with this cause, together \$0\.\d+"))
    finding = group.get_by_test_id("finding").first
    expect(finding).to_contain_text(re.compile(r"\$0\.\d+"))
    expect(finding).to_contain_text("% certain")
    expect(finding.locator("del")).to_contain_text("o'clock")
    expect(finding.locator("ins")).to_contain_text("o'clock")
    expect(finding).to_contain_text("Fix:")
    expect(group.get_by_test_id("finding")).to_have_count(1)
    group.get_by_test_id("all-requests").locator("summary").click()
    group.get_by_role("button", name="Show").click()
    assert group.get_by_test_id("finding").count() > 1
    finding.get_by_test_id("place").first.click()
    expect(reader.page).to_have_url(re.compile(r"/inspect/[^/]+/\d+\?tab=request&path=system"))
    expect(selected(reader)).to_contain_text("Request")
    expect(reader.page.locator(".json-row.is-active")).to_have_attribute("data-path", re.compile("^system"))
    marked = reader.page.locator(".json-row.is-active").get_by_test_id("changed-words")
    expect(marked).to_have_text(re.compile(r"^\d+$"))
    expect(marked).to_be_in_viewport()
    reader.page.go_back()
    expect(panel).to_be_visible()
    finding.get_by_role("link", name="Changes of request").click()
    expect(selected(reader)).to_contain_text("Changes")


def test_a_finding_about_two_conversations_leads_to_the_other_one(store: cc.Store, person: Person) -> None:
    """Guarantee 17.1: facts are not shown as a change, and the other conversation is a link with its title."""
    for number in range(2):
        send(store, f"sub{number}", [DOCUMENT, f"Task {number}"], began=100 * number, read=0, total=9_000)
    first, second = sorted([each.name for each in store.conversations() if "-sub" in each.name])
    store.set_title(first, "The first task")
    opens(person, f"#/c/{second}/inspect?tab=findings")
    card = person.page.get_by_test_id("finding").filter(has_text="CAC015")
    expect(card.get_by_role("heading")).to_contain_text("A request with the same prefix was still being answered")
    expect(card).to_contain_text("Another conversation with the same prefix began at the same time")
    expect(card.get_by_test_id("facts")).to_contain_text("request 1 of The first task was still being answered")
    expect(card.locator("del, ins")).to_have_count(0)
    card.get_by_role("link", name="Changes of request 1").click()
    expect(person.page.get_by_test_id("diff")).to_contain_text(f"Compared with request 1 of {first[:20]}")
    changed = person.page.get_by_test_id("difference").first
    expect(changed.locator("ins")).to_have_text("1")
    changed.get_by_title("Show in the request").click()
    expect(person.page.get_by_test_id("changed-words")).to_have_text("1")
    person.page.go_back()
    person.page.go_back()
    card.get_by_test_id("facts").get_by_role("link", name="The first task").click()
    person.page.wait_for_url(re.compile(rf"#/c/{first}/inspect/[^/]+/1"))


@pytest.mark.thorough
def test_findings_are_ordered_by_cost_and_costs_are_a_table(reader: Person, recorded: Recorded) -> None:
    opens(reader, f"#/c/{recorded.costly}/inspect")
    heads = reader.page.get_by_test_id("cause").all_inner_texts()
    sums = [max([float(each) for each in re.findall(r"\$(\d\.\d+)", text)], default=0.0) for text in heads]
    assert sums == sorted(sums, reverse=True)
    costs = reader.page.get_by_test_id("costs").get_by_role("table")
    expect(costs).to_contain_text("Tool results read")
    expect(costs).to_contain_text("all requests")
    costs.get_by_role("link", name="Tool results").click()
    expect(reader.page).to_have_url(re.compile(r"tab=messages&cause=result&tool=read"))


@pytest.mark.thorough
def test_the_findings_of_a_request_are_links_above_the_tabs(reader: Person, recorded: Recorded) -> None:
    opens(reader, f"#/c/{recorded.costly}/inspect?tab=messages")
    links = reader.page.get_by_test_id("request-findings")
    expect(links).to_contain_text("CAC006")
    links.get_by_role("link", name="CAC006").click()
    expect(selected(reader)).to_contain_text("Findings")
    group = reader.page.get_by_test_id("cause").filter(has_text="CAC006")
    expect(group).to_be_focused()
    expect(group.get_by_test_id("place").first).to_contain_text("request 13")
    group.locator("summary").click()
    earlier = group.get_by_role("link", name=re.compile(r"^request \d+$")).first
    name, address = earlier.inner_text(), earlier.get_attribute("href") or ""
    assert name != "request 13"
    opens(reader, re.sub("&finding=.*", "", address))
    expect(reader.page.get_by_test_id("finding").first.get_by_test_id("place").first).to_have_text(
        re.compile(f"^{name}\\b")
    )


@pytest.mark.thorough
def test_remarks_of_the_compiler_are_findings(store: cc.Store, person: Person) -> None:
    life = Life(store)
    life.turn("hi", usage=cc.Usage(input=500, output=9))
    store.append("demo", cc.tool_result("lost", "look", "a result that no call has asked for"))
    life.turn("and?", usage=cc.Usage(input=600, output=9))
    opens(person, "#/c/demo/inspect?tab=findings")
    expect(person.page.get_by_test_id("findings-panel")).to_contain_text("left out: a result for lost")
    expect(person.page.get_by_test_id("request-findings")).to_have_count(0)  # they would be twice on the screen
    person.tab("Messages")
    expect(person.page.get_by_test_id("request-findings").get_by_role("link")).to_have_count(1)


@pytest.mark.thorough
def test_keys_select_tabs_requests_and_the_timeline(reader: Person, recorded: Recorded) -> None:
    opens(reader, f"#/c/{recorded.costly}/inspect?tab=messages")
    names = [
        *("Findings", "Messages", "Composition", "Request", "Reply"),
        *("Changes", "Rules", "Session", "Preview next request"),
    ]
    for key, name in enumerate(names, 1):
        reader.page.keyboard.press(str(key))
        expect(selected(reader)).to_contain_text(name)
    reader.page.keyboard.press("5")
    reader.page.keyboard.press("ArrowLeft")
    expect(heading(reader)).to_contain_text("Request 12 of 13")
    expect(selected(reader)).to_contain_text("Reply")
    expect(reader.page).to_have_url(re.compile(r"/12\?tab=reply$"))
    slider = reader.page.get_by_role("slider", name="Request")
    slider.press("Home")
    expect(heading(reader)).to_contain_text("Request 1 of 13")
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"failed \(529\): Overloaded, <b>try</b> again"))
    slider.press("ArrowRight")
    expect(heading(reader)).to_contain_text("Request 2 of 13")
    reader.page.keyboard.press("?")
    expect(reader.page.get_by_test_id("shortcuts")).to_be_visible()  # it takes keys from then on
    expect(reader.page.get_by_test_id("shortcuts")).to_contain_text("Show or hide the timeline")
    reader.page.keyboard.press("Escape")
    expect(reader.page.get_by_test_id("shortcuts")).to_have_count(0)
    reader.page.keyboard.press("t")
    expect(reader.page.get_by_test_id("timeline")).to_be_visible()
    reader.page.keyboard.press("t")
    expect(reader.page.get_by_test_id("timeline")).to_have_count(0)


@pytest.mark.thorough
def test_the_timeline_is_hidden_until_it_is_wanted_and_the_choice_is_kept(reader: Person, recorded: Recorded) -> None:
    opens(reader, f"#/c/{recorded.costly}/inspect?tab=messages")
    button = reader.page.get_by_test_id("timeline-button")
    expect(button).to_have_attribute("aria-expanded", "false")
    button.click()
    expect(reader.page.get_by_test_id("timeline").locator("g.column")).to_have_count(13)
    reader.page.get_by_role("group", name="Timeline view").get_by_role("button", name="Table").click()
    table = reader.page.get_by_test_id("step-table")
    expect(table).to_be_visible()
    reader.page.reload()
    expect(table).to_be_visible()
    button.click()
    reader.page.reload()
    expect(reader.page.get_by_test_id("step")).to_be_visible()
    expect(table).to_have_count(0)


def test_steps_are_sorted_and_filtered_in_the_table(reader: Person, recorded: Recorded) -> None:
    """Guarantee 13.1: the order and the filters are in the URL, so that a link leads to the same table."""
    opens(reader, f"#/c/{recorded.costly}/inspect?tab=messages")
    reader.page.get_by_test_id("timeline-button").click()
    reader.page.get_by_role("group", name="Timeline view").get_by_role("button", name="Table").click()
    table = reader.page.get_by_test_id("step-table")
    head = table.get_by_role("columnheader", name="tokens in")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    cells = table.locator(".virtual-row > :nth-child(4)")

    def figures() -> list[int]:
        return [int(each.replace(",", "")) for each in cells.all_inner_texts() if each[0].isdigit()]

    greatest = figures()
    assert greatest == sorted(greatest, reverse=True)
    assert len(greatest) > 3
    reader.page.reload()
    expect(head).to_have_attribute("aria-sort", "descending")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert figures() == sorted(figures())
    filters = reader.page.get_by_test_id("step-filters")
    filters.get_by_role("button", name="Failed").click()
    expect(table.locator(".virtual-row")).to_have_count(1)
    expect(table.locator(".virtual-row")).to_contain_text("Overloaded")
    expect(filters.get_by_role("status")).to_have_text("1 of 13 steps")
    expect(table.locator(".virtual-row")).to_have_attribute("aria-current", "step")
    expect(filters.get_by_role("button", name="Left out")).to_be_disabled()
    reader.page.keyboard.press("ArrowRight")
    expect(filters.get_by_role("status")).to_have_text("1 of 13 steps, without the selected one")
    filters.get_by_role("button", name="Failed").click()
    filters.get_by_test_id("step-tool").select_option("read")
    expect(filters.get_by_role("status")).to_have_text("11 of 13 steps")
    table.locator(".step-pick").first.click()
    table.locator(".step-pick").first.press("ArrowDown")
    expect(table.locator(".virtual-row").nth(1)).to_have_attribute("aria-current", "step")
    assert shut_out(reader.page, "#timeline-panel") == []


@pytest.mark.thorough
def test_the_latency_of_replies_is_a_chart(reader: Person, recorded: Recorded) -> None:
    opens(reader, f"#/c/{recorded.main}/inspect?tab=messages")
    reader.page.get_by_test_id("timeline-button").click()
    reader.page.get_by_role("group", name="Timeline view").get_by_role("button", name="Latency").click()
    chart = reader.page.get_by_test_id("latency")
    expect(chart.locator("g.column rect")).to_have_count(2)
    expect(chart.get_by_test_id("latency-figures")).to_have_text(
        "Latency: median 9 s, 95 % within 9 s · First part: median 1.5 s, 95 % within 1.5 s"
    )
    slider = chart.get_by_role("slider", name="Step by latency")
    expect(slider).to_have_attribute("aria-valuetext", "request 1: 9 s, first part after 1.5 s")
    assert shut_out(reader.page, "#timeline-panel") == []


def test_a_failed_request_is_a_step_in_both_timelines(reader: Person, recorded: Recorded) -> None:
    opens(reader, f"#/c/{recorded.costly}/inspect?tab=messages")
    bars = reader.page.get_by_test_id("mini-timeline").locator("g.mini-bar")
    expect(bars).to_have_count(13)
    expect(reader.page.get_by_test_id("mini-timeline").locator(".is-failed")).to_have_count(1)
    reader.page.get_by_test_id("timeline-button").click()
    expect(reader.page.get_by_test_id("timeline").locator(".hollow")).to_have_count(1)
    bars.first.click(force=True)
    expect(reader.page.get_by_test_id("observed-failure")).to_contain_text("Overloaded, <b>try</b> again")
    reply = reader.tab("Reply").get_by_test_id("reply")
    expect(reply).to_contain_text("HTTP 529")
    expect(reply.get_by_role("region", name="Error")).to_contain_text("Overloaded, <b>try</b> again")
    expect(reply).to_contain_text("No part of a reply is stored.")
    reply.get_by_test_id("attempts").get_by_role("link", name="request 2").click()
    expect(heading(reader)).to_contain_text("Request 2 of 13")
    expect(reply).to_contain_text("complete")


def test_the_reply_has_its_content_stop_reason_and_latency(reader: Person, recorded: Recorded) -> None:
    opens(reader, f"#/c/{recorded.costly}/inspect?tab=reply")
    reply = reader.page.get_by_test_id("reply")
    expect(reply).to_contain_text("Answer 12.")
    expect(reply).to_contain_text("stop reason")
    expect(reader.page.locator(".step-facts")).to_contain_text("2 s")
    expect(reader.page.locator(".step-facts")).to_contain_text("stop")
    reader.page.keyboard.press("ArrowLeft")
    expect(reply).to_contain_text("call: read")
    reply.get_by_text("Stored messages as JSON").click()
    expect(reply.locator("details").filter(has_text="Stored messages as JSON")).to_contain_text('"finish": "tool_call')


def test_the_raw_response_is_shown_event_by_event(person: Person, store: cc.Store) -> None:
    """Guarantee 16.19: as text, with the time of each event. contextc keeps none of its own requests."""
    events = [b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"<b>hi</b>"}}]}\n\n', b"data: [DONE]\n\n"]
    seen = cc.observe(
        store,
        request={"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]},
        reply=b"".join(events),
        format="openai_chat",
        time=1_000,
        pieces=[(250, len(events[0])), (1_500, len(events[1]))],
    )
    opens(person, f"#/c/{seen.conversation}/inspect?tab=reply")
    raw = person.page.get_by_test_id("raw-reply")
    raw.get_by_text("Raw response").click()
    listed = raw.locator("li")
    expect(listed).to_have_count(2)
    expect(listed.first).to_contain_text("<b>hi</b>")
    expect(listed.first).to_contain_text("250 ms")
    expect(listed.last).to_contain_text("1.5 s")


@pytest.mark.thorough
def test_the_events_of_a_turn_are_in_the_reply(person: Person, model: Model) -> None:
    model.will()
    name = person.begins("hello")
    person.sees_ended()
    opens(person, f"#/c/{name}/inspect?tab=reply")
    events = person.page.get_by_test_id("reply-events")
    events.locator("summary").click()
    expect(events.get_by_role("list")).to_contain_text("step-start")


def test_sub_agents_are_a_tree_with_a_bar_for_each(reader: Person, recorded: Recorded) -> None:
    opens(reader, f"#/c/{recorded.main}/inspect")
    reader.page.get_by_test_id("agents-button").click()
    tree = reader.page.get_by_test_id("sub-agents")
    expect(tree.get_by_role("listitem")).to_have_count(4)
    bars = [each.bounding_box() for each in tree.locator(".agent-bar").all()]
    main, one, two, three = [box for box in bars if box is not None]
    assert main["width"] > 3 * one["width"]
    assert main["x"] < one["x"] < two["x"] < three["x"]
    assert two["x"] < one["x"] + one["width"]  # both ran at the same time
    assert three["x"] < two["x"] + two["width"]
    started = tree.get_by_role("listitem").filter(has=reader.page.get_by_role("link", name="work on two")).last
    expect(started.get_by_role("listitem")).to_have_count(1)
    expect(started.get_by_role("listitem")).to_contain_text("work on three")
    expect(tree.get_by_role("listitem").nth(1)).to_contain_text(re.compile(r"1 request.*\$0\.\d+, 2 s, from request 1"))
    assert shut_out(reader.page, "[data-testid=sub-agents]") == []
    tree.get_by_role("link", name="work on two").click()
    expect(reader.page).to_have_url(re.compile(f"/c/{recorded.agents[1]}/inspect"))
    head = reader.page.get_by_test_id("inspect-head")
    expect(head.get_by_test_id("source")).to_have_text("claude-code · sub-agent")
    expect(tree.locator(".agent.is-current")).to_contain_text("work on two")


def test_a_link_to_a_path_opens_the_request_there(reader: Person, recorded: Recorded) -> None:
    opens(reader, f"#/c/{recorded.costly}/inspect?tab=request&path=messages%5B2%5D.content%5B0%5D")
    active = reader.page.locator(".json-row.is-active")
    expect(active).to_have_attribute("data-path", "messages[2].content[0]")
    expect(active).to_be_in_viewport()
    reader.page.keyboard.press("2")
    expect(reader.page).to_have_url(re.compile(r"inspect\?tab=messages$"))
    opens(reader, f"#/c/{recorded.costly}/inspect?tab=request&path=messages%5B2%5D.content%5B0%5D&q=max_tokens")
    sought = reader.page.get_by_label("Search in the request")
    expect(sought).to_have_value("max_tokens")
    sought.press("Enter")
    expect(reader.page).to_have_url(re.compile(r"q=max_tokens&path=max_tokens$|path=max_tokens&q=max_tokens$"))


@pytest.mark.thorough
def test_a_click_on_a_line_of_a_request_is_a_link_to_it(reader: Person, recorded: Recorded) -> None:
    """The link names the request, so that it leads there also when a newer one comes."""
    opens(reader, f"#/c/{recorded.costly}/inspect?tab=request")
    reader.page.locator(".json-row").nth(1).click()
    active = reader.page.locator(".json-row.is-active")
    path = active.get_attribute("data-path")
    assert path
    expect(reader.page).to_have_url(re.compile(rf"/inspect/[^/]+/\d+\?tab=request&path={re.escape(path)}$"))
    reader.page.reload()
    expect(active).to_have_attribute("data-path", path)


def test_a_link_to_a_path_leads_into_the_window_below_an_open_timeline(visiting: Visit, recorded: Recorded) -> None:
    reader = visiting(recorded.url, viewport={"width": 1400, "height": 900})
    opens(reader, f"#/c/{recorded.costly}/inspect?tab=request")
    reader.page.get_by_test_id("timeline-button").click()
    reader.page.get_by_role("group", name="Timeline view").get_by_role("button", name="Table").click()
    expect(reader.page.get_by_test_id("step-table")).to_be_visible()
    opens(reader, f"#/c/{recorded.costly}/inspect?tab=request&path=messages%5B2%5D.content%5B0%5D")
    expect(reader.page.locator(".json-row.is-active")).to_be_in_viewport(ratio=1)
    below = reader.page.get_by_test_id("json").get_by_role("tree").evaluate("it => it.getBoundingClientRect().bottom")
    assert below <= 900


@pytest.mark.thorough
def test_the_first_request_is_no_cache_reset(reader: Person, recorded: Recorded) -> None:
    opens(reader, f"#/c/{recorded.costly}/inspect")
    reader.page.get_by_test_id("timeline-button").click()
    reader.page.get_by_role("group", name="Timeline view").get_by_role("button", name="Table").click()
    reader.page.get_by_test_id("step-filters").get_by_role("button", name="Cache reset").click()
    remarks = reader.page.get_by_test_id("step-table").locator(".virtual-row .step-why")
    expect(remarks.first).to_contain_text("Cache")
    assert not [each for each in remarks.all_inner_texts() if "First request" in each]


@pytest.mark.parametrize("size", some(SIZES, 2))
def test_the_title_is_readable_beside_all_tools(
    store: cc.Store, server: str, visiting: Visit, size: tuple[int, int]
) -> None:
    Life(store).turn("a conversation whose beginning is long, and needs much room")
    two_models(store)
    person = visiting(server, viewport={"width": size[0], "height": size[1]}).open("#/c/demo/inspect?tab=messages")
    expect(person.page.get_by_test_id("lines")).to_be_visible()
    title = person.page.get_by_test_id("inspect-head").get_by_role("heading", level=1).bounding_box()
    assert title is not None
    assert title["width"] >= 110
    tools = person.page.locator(".inspect-tools")
    assert tools.evaluate("each => each.scrollWidth <= each.clientWidth + 1")


@pytest.mark.thorough
def test_the_header_of_a_phone_leaves_the_screen_to_the_messages(store: cc.Store, server: str, visiting: Visit) -> None:
    """The figures above the tabs are one tap away; so are the filters."""
    busy(store)
    Life(store, provider_of(SONNET), "demo").turn("And you?", usage=cc.Usage(input=900, output=10))
    person = visiting(server, viewport={"width": 390, "height": 844}, has_touch=True)
    person.open("#/c/demo/inspect?tab=messages")
    expect(person.page.get_by_test_id("lines")).to_be_visible()
    expect(person.page.get_by_test_id("figures-button")).to_be_in_viewport(ratio=1)
    tabs = person.page.get_by_role("tablist", name="Request details").bounding_box()
    assert tabs is not None
    assert tabs["y"] + tabs["height"] <= 120
    expect(person.page.get_by_test_id("totals")).to_be_hidden()
    expect(person.page.locator(".step-cost")).to_be_visible()
    person.page.get_by_test_id("timeline-button-narrow").tap()
    person.page.get_by_role("group", name="Timeline view").get_by_role("button", name="Table").tap()
    expect(person.page.get_by_test_id("step-table").get_by_role("columnheader", name="cost")).to_be_in_viewport(ratio=1)
    person.page.get_by_test_id("timeline-button-narrow").tap()
    person.page.get_by_test_id("figures-button").tap()
    expect(person.page.get_by_test_id("totals")).to_be_visible()
    expect(person.page.get_by_test_id("budget").first).to_be_visible()
    expect(person.page.get_by_label("Any role").or_(person.page.get_by_label("Role"))).to_be_hidden()
    person.page.get_by_role("button", name="Filters").tap()
    expect(person.page.get_by_label("Role")).to_be_visible()
    assert shut_out(person.page) == []

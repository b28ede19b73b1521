"""The Messages tab of the inspector: rows, filters, search, order, and links that lead to exactly one view."""

import json
import re

import pytest
from playwright.sync_api import Locator, expect

import contextc as cc
from tests.browser.conftest import Visit
from tests.browser.page_driver import Person
from tests.web.sample_conversations import SONNET, Life, provider_of

READ = cc.Tool(
    name="read_file",
    description="Read a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string", "description": "Relative to the root."}}},
)
NEEDLE = "a needle in a haystack"
DECLINED = "Not run: the user declined."


def call(number: int, **arguments: object) -> cc.Message:
    return cc.assistant(f"reading {number}", tool_calls=[cc.tool_call(f"c{number}", "read_file", {**arguments})])


@pytest.fixture
def life(store: cc.Store) -> Life:
    """Three calls of a tool: one with a result, one that failed, one that was denied; then a changed system prompt."""
    life = Life(store, provider_of(SONNET, window=50_000))
    life.tools = [*life.tools, READ]
    life.turn("what is in a.py?", call(1, path="a.py", limit=20))
    store.append("demo", cc.tool_result("c1", "read_file", f"line of code {NEEDLE} " * 400))
    life.answer(call(2, path="b.py"))
    store.append("demo", cc.tool_result("c2", "read_file", "b.py not found", is_error=True))
    life.answer(call(3, path="c.py"))
    store.append("demo", cc.tool_result("c3", "read_file", DECLINED, is_error=True))
    life.answer("done", cc.Usage(input=3_000, output=9))
    return life


@pytest.fixture
def reader(life: Life, person: Person) -> Person:
    return person.open(link(life, 4))


def link(life: Life, request: int, query: str = "") -> str:
    return f"#/c/demo/inspect/{life.channel}/{request}{query}"


def lines_of(person: Person) -> Locator:
    return person.page.get_by_test_id("lines")


def rows(person: Person, **attributes: object) -> Locator:
    chosen = "".join(f'[data-{name}="{value}"]' for name, value in attributes.items())
    return lines_of(person).locator(f".line{chosen}:not(.is-coming)")


@pytest.mark.thorough
def test_system_prompt_and_tools_are_rows(reader: Person, life: Life) -> None:
    """They come before the messages, as the provider caches them, with their tokens; a tool opens to its schema."""
    expect(rows(reader).first.locator(".line-role")).to_have_text("definition")
    system = rows(reader).filter(has_text="You are a coder.").first
    expect(system.locator(".line-role")).to_have_text("system")
    tool = rows(reader).filter(has_text="Read a file.")
    expect(tool.locator(".line-role")).to_have_text("definition")
    expect(tool.locator(".line-call")).to_have_text("read_file")
    assert int(tool.locator(".line-tokens").inner_text().split()[0]) > 0
    expect(tool).to_have_attribute("data-state", "shared")
    tool.locator(".line-button").click()
    expect(tool.get_by_test_id("as-sent")).to_contain_text("Relative to the root.")
    expect(tool.get_by_test_id("as-sent")).to_contain_text("input_schema")
    system.locator(".line-button").click()
    expect(system.get_by_test_id("as-sent")).to_contain_text("You are a coder.")
    life.turn("once more", usage=cc.Usage(input=3_100, output=9))
    reader.open(link(life, 5))
    expect(tool).to_have_attribute("data-state", "paid")
    expect(tool.locator(".line-sign")).to_contain_text("unchanged, paid again")
    expect(lines_of(reader).get_by_test_id("glyph-legend")).to_contain_text("unchanged, paid again")
    expect(lines_of(reader).get_by_test_id("prefix")).to_contain_text("all of it was paid again")
    lines_of(reader).get_by_role("button", name=re.compile("^Paid again")).click()
    expect(rows(reader, state="shared")).to_have_count(0)
    expect(tool).to_be_visible()


def test_calls_have_values_and_lead_to_their_results(reader: Person) -> None:
    """A call is shown with its values. A result names its tool, and has a mark if it failed or was denied."""
    asked = rows(reader).filter(has_text="reading 1")
    expect(asked.locator(".line-call")).to_have_text('read_file(path="a.py", limit=20)')
    failed = rows(reader).filter(has_text="b.py not found")
    expect(failed.locator("[data-status=error]")).to_have_count(1)
    expect(failed.locator(".line-text .tag").last).to_have_text("read_file")
    expect(rows(reader).filter(has_text=DECLINED).locator("[data-status=denied]")).to_have_text(re.compile("denied"))
    asked.get_by_role("button", name="Go to the result").click()
    result = lines_of(reader).locator(".line.is-target")
    expect(result.get_by_test_id("as-sent")).to_contain_text(NEEDLE)
    result.get_by_test_id("as-sent").get_by_role("button", name="Go to the call").click()
    expect(lines_of(reader).locator(".line.is-target")).to_contain_text("reading 1")
    expect(lines_of(reader).locator(".line.is-target").get_by_test_id("as-sent")).to_contain_text('"a.py"')


def test_filters_are_combined_and_removed_one_by_one(reader: Person) -> None:
    """Filters are applied by the server, are in the URL, and are listed with a button that removes each."""
    lines = lines_of(reader)
    lines.get_by_label("Tool", exact=True).select_option("read_file")
    expect(rows(reader)).to_have_count(7)
    lines.get_by_label("Cause").select_option("result")
    expect(rows(reader)).to_have_count(3)
    lines.get_by_role("button", name=re.compile("Errors")).click()
    expect(rows(reader)).to_have_count(2)
    expect(reader.page).to_have_url(re.compile(r"tool=read_file&cause=result&error=1"))
    chips = lines.get_by_test_id("active-filters")
    expect(chips).to_contain_text("2 of 13 rows")
    chips.get_by_role("button", name="Remove filter: Cause: Tool results").click()
    expect(chips.get_by_role("listitem")).to_have_text([re.compile("Tool: read_file"), re.compile("Errors only")])
    chips.get_by_role("button", name="Remove all").click()
    expect(chips).to_have_count(0)
    expect(rows(reader)).to_have_count(13)
    lines.get_by_label("Role").select_option("user")
    expect(rows(reader).locator(".line-role").first).to_have_text("user")


@pytest.mark.thorough
def test_the_largest_rows_come_first_if_wanted(reader: Person) -> None:
    lines_of(reader).get_by_label("Order").select_option("size")
    expect(rows(reader).first).to_contain_text(NEEDLE)
    sizes = [int(each.split()[0].replace(",", "")) for each in rows(reader).locator(".line-tokens").all_inner_texts()]
    assert sizes == sorted(sizes, reverse=True)
    widths = rows(reader).locator(".size-fill").evaluate_all("all => all.map((each) => each.offsetWidth)")
    assert widths == sorted(widths, reverse=True)
    expect(reader.page).to_have_url(re.compile("sort=size"))


@pytest.mark.thorough
def test_a_search_goes_from_hit_to_hit(reader: Person) -> None:
    """Texts, calls with their values, and results are searched. The row of a hit is opened, with the words marked."""
    lines = lines_of(reader)
    search = lines.get_by_role("searchbox")
    search.fill("b.py")
    count = lines.get_by_test_id("hit-count")
    expect(count).to_have_text("1 of 2")
    expect(rows(reader)).to_have_count(13)
    hit = lines.locator(".line.is-target")
    expect(hit).to_contain_text("reading 2")
    expect(hit.locator(".line-open mark").first).to_have_text("b.py")
    search.press("Enter")
    expect(count).to_have_text("2 of 2")
    expect(hit.locator(".line-open mark").first).to_be_in_viewport()
    expect(hit).to_contain_text("not found")
    lines.get_by_role("button", name="Previous hit").click()
    expect(count).to_have_text("1 of 2")
    search.fill("haystack")
    expect(hit.locator(".line-open")).to_contain_text(NEEDLE)
    search.fill("Relative to the root")
    expect(hit).to_contain_text("Read a file.")
    search.fill("nowhere to be found")
    expect(count).to_have_text("No message matches.")


def test_a_link_leads_to_exactly_this_view(life: Life, server: str, visiting: Visit) -> None:
    """Filters, order, search and the open row are in the URL, and a reload keeps them."""
    page = visiting(server).open(link(life, 4, "?role=tool&sort=size&q=not+found"))
    hit = lines_of(page).locator(".line.is-target")
    expect(hit).to_contain_text("b.py not found")
    expect(page.page).to_have_url(re.compile(r"role=tool&sort=size&q=not\+found&line=5"))
    page.page.reload()
    expect(hit.get_by_test_id("as-sent")).to_contain_text("b.py not found")
    expect(lines_of(page).get_by_test_id("active-filters")).to_contain_text("Role: tool")
    other = visiting(server).open(link(life, 4, "?line=3"))
    target = lines_of(other).locator(".line.is-target")
    expect(target.get_by_test_id("as-sent")).to_contain_text(NEEDLE)
    expect(target).to_be_in_viewport()
    other.page.evaluate("localStorage.setItem('contextc.timeline.view', 'table')")
    other.page.reload()
    expect(other.page.get_by_test_id("step-table")).to_be_visible()
    expect(target.get_by_test_id("as-sent")).to_be_in_viewport()
    target.locator(".line-button").click()
    expect(other.page).to_have_url(re.compile(r"/4$"))


@pytest.mark.thorough
def test_the_change_is_one_click_away_and_filters_keep_its_place(store: cc.Store, server: str, visiting: Visit) -> None:
    """The prefix breaks at an edited message far down. The break stays before the first row behind the prefix."""
    life = Life(store, provider_of(SONNET, window=200_000))
    for number in range(60):
        life.turn(f"question {number}")
    store.edit("demo", 111, cc.user("another question"))
    life.answer("so")
    page = visiting(server).open(link(life, 61))
    lines = lines_of(page)
    expect(rows(page).first).to_contain_text("Looks.")
    lines.get_by_test_id("go-to-change").click()
    target = lines.locator(".line.is-target")
    expect(target).to_contain_text("another question")
    expect(target).to_be_in_viewport()
    broke = page.page.get_by_test_id("prefix-break")
    row = page.page.locator(".virtual-row").filter(has=broke)
    expect(row).to_contain_text("another question")
    lines.get_by_role("button", name=re.compile("^New")).click()
    expect(rows(page, state="shared")).to_have_count(0)
    expect(page.page.locator(".virtual-row").filter(has=broke)).to_contain_text("another question")
    lines.get_by_role("button", name=re.compile("^All")).click()
    lines.get_by_label("Role").select_option("assistant")
    expect(rows(page).first).to_contain_text("done")
    lines.get_by_test_id("go-to-change").click()
    expect(target).to_contain_text("another question")


def test_a_changed_tool_is_where_the_prefix_broke(store: cc.Store, server: str, visiting: Visit) -> None:
    life = Life(store, provider_of(SONNET, window=50_000))
    life.turn("hi")
    life.tools = [*life.tools, READ]
    life.turn("more")
    page = visiting(server).open(link(life, 2))
    states = rows(page).filter(has_text="Read a file.")
    expect(states).to_have_attribute("data-state", "new")
    expect(lines_of(page).get_by_test_id("prefix-break")).to_contain_text("tools")


@pytest.mark.thorough
def test_tools_of_an_opened_file_are_rows(person: Person) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string", "description": "Relative to the root."}}}
    asked = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.py"}'}}
    body = {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "look"},
            {"role": "assistant", "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": "c1", "content": f"Contents: {NEEDLE}"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "read_file", "description": "Read.", "parameters": schema}}
        ],
    }
    person.open("#/open")
    person.page.locator("#paste-field").fill(json.dumps(body))
    person.page.get_by_role("button", name="Open", exact=True).click()
    expect(rows(person)).to_have_count(5)
    expect(rows(person).nth(0).locator(".line-call")).to_have_text("read_file")
    expect(rows(person).nth(3).locator(".line-call")).to_have_text('read_file(path="a.py")')
    lines = lines_of(person)
    lines.get_by_label("Cause").select_option("result")
    expect(rows(person)).to_have_count(1)
    rows(person).get_by_role("button", name="Go to the call").click()
    expect(lines.locator(".line.is-target").get_by_test_id("as-sent")).to_contain_text("a.py")
    lines.get_by_role("searchbox").fill("relative to")
    expect(lines.locator(".line.is-target")).to_contain_text("Relative to the root.")


OVERLAPS = """() => {
  const controls = [...document.querySelectorAll(".line-bar :is(button, input, select, .hit-count)")];
  const some = controls.map((each) => [each, each.getBoundingClientRect()]);
  const before = (a, b) => a.right <= b.left + 1 || a.bottom <= b.top + 1;
  const named = (each) => each.ariaLabel ?? each.textContent;
  return some.flatMap(([one, a], at) => some.slice(at + 1).filter(([, b]) => !before(a, b) && !before(b, a))
    .map(([other]) => `${named(one)} over ${named(other)}`));
}"""


@pytest.mark.parametrize(
    "width", [390, pytest.param(900, marks=pytest.mark.thorough), pytest.param(1440, marks=pytest.mark.thorough)]
)
def test_controls_fit_on_every_screen(life: Life, server: str, visiting: Visit, width: int) -> None:
    page = visiting(server, viewport={"width": width, "height": 720}).open(link(life, 4, "?tool=read_file"))
    expect(rows(page).first).to_be_visible()
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    search = lines_of(page).get_by_role("searchbox")
    search.fill("b.py")
    expect(lines_of(page).get_by_test_id("hit-count")).to_have_text("1 of 2")
    expect(page.page.get_by_test_id("go-to-change")).to_be_visible()
    assert page.page.evaluate(OVERLAPS) == []
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.thorough
def test_ten_thousand_messages_are_filtered_and_sorted(store: cc.Store, server: str, visiting: Visit) -> None:
    """A filter, an order and a jump to the end are shown without a long wait."""
    life = Life(store, provider_of(SONNET, window=10_000_000))
    some: list[cc.Message] = []
    for number in range(2_500):
        result = cc.tool_result(f"c{number}", "read_file", f"result {number} " * 9, is_error=number % 100 == 0)
        some += [cc.user(f"question {number}"), call(number, path=f"a{number}.py"), result, cc.assistant("so it goes")]
    store.extend("demo", some)
    life.turn("last")
    page = visiting(server).open(link(life, 1))
    expect(rows(page).first).to_be_visible()
    lines = lines_of(page)
    lines.get_by_role("button", name=re.compile("Errors")).click()
    expect(lines.get_by_test_id("active-filters")).to_contain_text("25 of 10,006 rows")
    lines.get_by_role("button", name="Remove filter: Errors only").click()
    lines.get_by_label("Order").select_option("size")
    expect(rows(page).first).to_contain_text("fetch_result")
    expect(rows(page).nth(3)).to_contain_text("result 1")
    lines.get_by_label("Order").select_option("")
    lines.get_by_role("searchbox").fill("a2499.py")
    expect(lines.get_by_test_id("hit-count")).to_have_text("1 of 1")
    expect(lines.locator(".line.is-target")).to_be_in_viewport()
    assert rows(page).count() < 240

"""`lint`, `fix`, `convert` and `doctor --format` as processes, in every format."""

import json
from pathlib import Path

import pytest

import contextc as cc
from contextc.formats import format_names, formatter
from tests.cli.conftest import Run
from tests.conftest import some

SAID = [
    cc.user("Look."),
    cc.assistant("I will.", tool_calls=[cc.tool_call("c1", "look", '{"at":1}')]),
    cc.tool_result("c1", "look", "a ship"),
]


@pytest.mark.parametrize("format", some(format_names(), 3))
def test_every_format_is_linted_fixed_and_converted(run: Run, format: str) -> None:
    """Guarantee 10.6: a call without its result, as each format has it; fixed, and taken to another format and back.

    In one format both are one item, and there is nothing to fix.
    """
    form = formatter(format)
    broken = json.dumps(form.format(SAID)[:-1])
    found = run("lint", "-", "-f", format, "--json", text=broken)
    codes = [each["code"] for each in json.loads(found.stdout)]
    assert codes == [each.code for each in cc.lint(json.loads(broken), format=format)]
    assert found.returncode == (1 if codes else 0)
    fixed = run("fix", "-", "-f", format, text=broken)
    assert (fixed.returncode, fixed.stdout != "") == (0, True), fixed.stderr
    assert [line.split()[0] for line in fixed.stderr.splitlines()] == codes
    assert cc.lint(json.loads(fixed.stdout), format=format) == []
    other = "anthropic" if format != "anthropic" else "openai_chat"
    there = run("convert", "-", "--from", format, "--to", other, text=fixed.stdout)
    assert (there.returncode, cc.lint(json.loads(there.stdout), format=other)) == (0, [])
    back = run("convert", "-", "--from", other, "--to", format, text=there.stdout)
    assert cc.lint(json.loads(back.stdout), format=format) == []
    before, after = (form.decode_request(json.loads(each.stdout)).messages for each in (fixed, back))
    assert [each.text for each in after][:2] == ["Look.", "I will."]
    assert [each.tool_calls[0].arguments for each in after if each.tool_calls] == [
        {"at": 1} for each in before if each.tool_calls
    ]


@pytest.mark.parametrize("format", some(format_names(), 2))
def test_doctor_reports_what_a_format_could_not_express(run: Run, tmp_path: Path, format: str) -> None:
    """Before a provider is changed: what a model there would not see, and that the request would be taken."""
    address = f"sqlite:///{tmp_path}/chat.db"
    with cc.open_store(address) as store:
        store.extend("plain", SAID)
        foreign = cc.messages.ProviderBlock(provider="somebody", data={"type": "widget"})
        thought = cc.Reasoning(text="hm", signature="s", provider="somebody")
        store.extend("rich", [cc.user("hi"), cc.assistant([thought, cc.Text("yes"), foreign]), cc.user("on")])
        store.append("rich", cc.assistant("half", status="cancelled"))
    shown = run("doctor", "--format", format, "--store", address)
    assert (shown.returncode, shown.stderr) == (0, "")
    report = {
        each["conversation"]: each
        for each in json.loads(run("doctor", "-f", format, "--json", "--store", address).stdout)
    }
    assert [each["violations"] for each in report.values()] == [[], []]
    notes = report["rich"]["notes"]
    assert "left out: 1 message that failed or were cancelled" in notes
    assert any("somebody" in note for note in notes), "what only its own provider understands"
    assert all(note in shown.stdout for note in notes)
    made_up = ["made up: a tool no_tools, because there are calls and no tools"]
    expected = made_up if formatter(format).placeholder_tool is not None else []
    assert report["plain"]["notes"] == expected or format == "gemini"
    one = json.loads(run("doctor", "-f", format, "-c", "plain", "--json", "--store", address).stdout)
    assert one == [report["plain"]]

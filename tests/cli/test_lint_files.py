"""`contextc lint` over many files and folders: settings of the project, places in files, annotations and SARIF."""

import gzip
import json
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextc._json import JSON, JSONObject, encode
from contextc.errors import InvalidInput, InvalidSetting
from contextc.formats.lint_engine import format_path
from contextc.interchange.packed_files import unpack_bytes
from contextc.linting.lint_settings import LintSettings, read_lint_settings
from contextc.linting.positions import find_positions, find_positions_in_file
from contextc.linting.request_reading import read_requests
from tests.cli.conftest import Run
from tests.cli.test_lint_fix_convert import BROKEN, CHAT

MESSAGES = cast(list[JSON], BROKEN["messages"])


def write(path: Path, content: JSON) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2))


def test_a_folder_is_searched_and_other_json_is_passed_over(run: Run, tmp_path: Path) -> None:
    """Guarantee 10.6: the requests of all JSON files below a folder, and no false alarm about the others."""
    write(tmp_path / "requests/broken.json", BROKEN)
    write(tmp_path / "requests/deep/sound.json", CHAT)
    write(tmp_path / "requests/deep/list.json", MESSAGES)
    write(tmp_path / "requests/package.json", {"name": "x", "messages": {"hello": "world"}})
    write(tmp_path / "requests/rows.json", [{"id": 1}, {"id": 2}])
    write(tmp_path / "requests/node_modules/broken.json", BROKEN)
    write(tmp_path / "requests/.hidden/broken.json", BROKEN)
    (tmp_path / "requests/not.json").write_text("{")
    found = run("lint", "requests", "--json")
    assert found.returncode == 1
    codes = {each["file"]: [one["code"] for one in each["violations"]] for each in json.loads(found.stdout)}
    assert codes == {
        "requests/broken.json": ["ANT006", "ANT008"],
        "requests/deep/list.json": ["ANT006", "ANT008"],
        "requests/deep/sound.json": [],
    }
    assert found.stderr == "passed over: 3 files without a request\n"
    assert run("lint", "requests").stdout.endswith("4 violations in 2 of 3 files\n")


def test_packed_files_are_read(run: Run, tmp_path: Path) -> None:
    """A log that was rotated is a `.gz` file. Lines are those of its content."""
    (tmp_path / "requests").mkdir()
    lines = "\n".join(map(json.dumps, [BROKEN, BROKEN])).encode()
    (tmp_path / "requests/calls.jsonl.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "requests/notes.txt.gz").write_bytes(gzip.compress(b"{}"))
    (tmp_path / "requests/cut.json.gz").write_bytes(gzip.compress(lines)[:-9])
    found = run("lint", "requests", "--json")
    assert found.returncode == 1
    first, second = json.loads(found.stdout)
    assert first["file"] == second["file"] == "requests/calls.jsonl.gz"
    assert [[each["code"] for each in request["violations"]] for request in (first, second)] == [
        ["ANT006", "ANT008"]
    ] * 2
    places = run("lint", "requests", "--github").stdout
    assert "calls.jsonl.gz,line=1," in places
    assert "calls.jsonl.gz,line=2," in places
    assert found.stderr == "passed over: 1 file without a request\n"
    refused = run("lint", "requests/cut.json.gz")
    assert refused.returncode == 2
    assert "cut.json.gz cannot be unpacked" in refused.stderr
    (tmp_path / "one.json.gz").write_bytes(gzip.compress(json.dumps(BROKEN).encode()))
    fixed = run("fix", "one.json.gz")
    assert json.loads(fixed.stdout)["messages"] != BROKEN["messages"]


def test_what_unpacks_to_too_much_is_refused() -> None:
    """A few kilobytes can be gigabytes."""
    packed = gzip.compress(bytes(1 << 20))
    assert unpack_bytes(packed, "x.gz", limit=1 << 20) == bytes(1 << 20)
    with pytest.raises(InvalidInput, match=r"x\.gz unpacks to more than 1,048,575 bytes"):
        unpack_bytes(packed, "x.gz", limit=(1 << 20) - 1)


def test_named_files_must_be_requests_unless_others_may_be_skipped(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "body.json", CHAT)
    write(tmp_path / "package.json", {"name": "x"})
    refused = run("lint", "body.json", "package.json")
    assert refused.returncode not in (0, 1)
    assert "package.json" in refused.stderr
    skipped = run("lint", "--skip-unknown", "body.json", "package.json")
    assert (skipped.returncode, skipped.stdout) == (0, "no violations in 1 file\n")


def test_the_settings_of_a_project_choose_rules_and_files(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "sent/body.json", BROKEN)
    write(tmp_path / "sent/wrong/body.json", BROKEN)
    write(tmp_path / "sent/old.json", BROKEN)

    def lint(settings: str, *options: str) -> dict[str, list[str]]:
        (tmp_path / "pyproject.toml").write_text(settings)
        found = json.loads(run("lint", "sent", "--json", *options).stdout)
        return {each["file"]: [one["code"] for one in each["violations"]] for each in found}

    table = '[tool.contextc.lint]\nexclude = ["old.json"]\nignore = ["ANT008"]\n'
    expected = {"sent/body.json": ["ANT006"], "sent/wrong/body.json": ["ANT006"]}
    assert lint(table) == expected
    exceptions = '[tool.contextc.lint.per-file-ignores]\n"sent/wrong" = ["ANT006"]\n'
    assert lint(table + exceptions) == {**expected, "sent/wrong/body.json": []}
    assert lint(table, "--ignore", "ANT006") == {file: [] for file in expected}
    assert lint(table, "--select", "OAC") == {file: [] for file in expected}
    assert lint(table, "--select", "ANT006,ANT007") == expected


def test_with_exit_zero_violations_are_only_reported(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "body.json", BROKEN)
    found = run("lint", "body.json", "--exit-zero")
    assert (found.returncode, found.stdout.splitlines()[-1]) == (0, "2 violations")


@pytest.mark.parametrize(
    ("select", "ignore", "checked"),
    [
        ((), (), True),
        ((), ("ANT",), False),
        ((), ("ALL",), False),
        (("ANT",), ("ANT006",), False),
        (("ANT006",), ("ANT",), True),
        (("ANT006",), ("ANT006",), False),
        (("OAC",), (), False),
        (("ALL",), ("OAC",), True),
    ],
)
def test_the_longer_beginning_of_a_code_decides(
    select: tuple[str, ...], ignore: tuple[str, ...], checked: bool
) -> None:
    assert LintSettings(select=select, ignore=ignore).is_checked("ANT006") is checked


def test_settings_are_those_of_the_nearest_folder(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.contextc.lint]\nignore = ["ANT"]\n')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert read_lint_settings(str(inner)).ignore == ("ANT",)
    (tmp_path / "a" / "contextc.toml").write_text('[lint]\nignore = ["oac"]\n')
    assert read_lint_settings(str(inner)).ignore == ("OAC",)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("ignroe = []", r"tool\.contextc\.lint\.ignroe is not a setting\. Use one of select, ignore, exclude"),
        ('ignore = "ANT006"', r"ignore must be a list of texts"),
        ('ignore = ["ANT0006"]', r"no rule begins with this, got 'ANT0006'\. Did you mean ANT006\?"),
        ('per-file-ignores = ["x"]', r"per-file-ignores must be a table"),
        ('per-file-ignores = {"x" = "ANT"}', r"per-file-ignores\.x must be a list of texts"),
        ("ignore = [", r"pyproject\.toml cannot be read"),
    ],
)
def test_a_wrong_setting_is_an_error_with_its_place(tmp_path: Path, written: str, problem: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.contextc.lint]\n{written}\n")
    with pytest.raises(InvalidSetting, match=problem):
        read_lint_settings(str(tmp_path))


def test_settings_of_the_linter_need_no_trust(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "body.json", BROKEN)
    (tmp_path / "contextc.toml").write_text('[lint]\nignore = ["ANT"]\n')
    assert run("lint", "body.json").stdout == "no violations\n"
    assert run("models", "--json").returncode == 0


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.from_regex(r"[a-z_]{1,4}", fullmatch=True), inner),
    max_leaves=20,
)


@given(JSON_VALUES, st.sampled_from([None, 0, 2]), st.data())
def test_a_position_is_where_the_value_of_a_path_begins(value: JSON, indent: int | None, data: st.DataObject) -> None:
    steps: list[int | str] = []
    inner = value
    while inner and isinstance(inner, dict | list) and data.draw(st.booleans()):
        pairs = list(enumerate(cast(list[JSON], inner)) if isinstance(inner, list) else cast(JSONObject, inner).items())
        step, inner = data.draw(st.sampled_from(pairs))
        steps.append(step)
    path, text = format_path(tuple(steps)), json.dumps(value, indent=indent, ensure_ascii=False)
    line, column = find_positions(text, [path])[path]
    offset = sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + column - 1
    assert json.JSONDecoder(strict=False).raw_decode(text, offset)[0] == inner


def test_a_place_that_is_missing_is_that_of_its_parent() -> None:
    text = '{\n "a": [1,\n  {"b": 2}]}'
    found = find_positions(text, ["a[1].c.d", "a[7]", "x"])
    assert found == {"a[1].c.d": (3, 3), "a[7]": (2, 7), "x": (1, 1)}
    assert find_positions("no JSON", ["a"]) == {"a": (1, 1)}
    assert find_positions('{"a": [1, 2', ["a[1]"]) == {"a[1]": (1, 11)}


@pytest.mark.parametrize("blank", ["", "\n"])
def test_places_in_json_lines_and_sessions(blank: str) -> None:
    requests = b"\n".join([encode(CHAT), blank.encode(), encode(BROKEN)])
    found = find_positions_in_file(requests, read_requests(requests), 1, ["messages"])
    assert found["messages"].line == (3 + len(blank))
    messages = b"\n".join(map(encode, MESSAGES))
    found = find_positions_in_file(messages, read_requests(messages), 0, ["[2].content", "[0]"])
    assert [(path, place.line) for path, place in found.items()] == [("[2].content", 3), ("[0]", 1)]
    assert found["[2].content"].column == messages.splitlines()[2].index(b'"and hurry"') + 1


def test_sarif_and_annotations_name_file_line_and_column(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "a b.json", BROKEN)
    sarif = json.loads(run("lint", "a b.json", "--sarif").stdout)["runs"][0]["results"]
    places = [each["locations"][0]["physicalLocation"] for each in sarif]
    assert [each["artifactLocation"]["uri"] for each in places] == ["a%20b.json"] * 2
    lines = (tmp_path / "a b.json").read_text().splitlines()
    for place, kind in zip(places, ["tool_use", "tool_result"], strict=True):
        line, column = place["region"]["startLine"], place["region"]["startColumn"]
        assert lines[line - 1][column - 1 :] == "{"
        assert lines[line] == f'          "type": "{kind}",'
    printed = run("lint", "a b.json", "--github").stdout.splitlines()
    assert len(printed) == 2
    line = places[0]["region"]["startLine"]
    assert printed[0].startswith(
        f"::error file=a b.json,line={line},col=9,title=ANT006::messages[1].content[0]: call c1"
    )


def test_no_text_of_a_request_ends_an_annotation(run: Run, tmp_path: Path) -> None:
    """Commands of GitHub Actions are lines: a name with a line break must not begin another one."""
    messages: list[JSONObject] = [{"role": "tool", "tool_call_id": "x\n::stop-commands::y%", "content": "r"}]
    write(tmp_path / "body.json", {"model": "gpt-4o", "messages": messages})
    printed = run("lint", "body.json", "-f", "openai_chat", "--github").stdout.splitlines()
    assert all(line.startswith("::error file=body.json,") for line in printed)
    assert "%0A::stop-commands::y%25" in printed[0]


def test_the_line_of_a_request_log_is_the_place(run: Run, tmp_path: Path) -> None:
    entries: list[JSONObject] = [{"request": CHAT, "response": {}}, {"request": BROKEN, "response": {}}]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, entries)))
    sarif = json.loads(run("lint", "log.jsonl", "--sarif").stdout)["runs"][0]["results"]
    regions = [each["locations"][0]["physicalLocation"]["region"]["startLine"] for each in sarif]
    assert regions == [2, 2]

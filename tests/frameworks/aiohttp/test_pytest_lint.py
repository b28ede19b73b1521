"""`pytest --contextc-lint` checks what programs send with aiohttp itself, and changes nothing of it."""

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import asyncio
import json

import aiohttp
import pytest
from aiohttp import web

CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": {}}]}
ASKED = {"role": "user", "content": "What is in a.py?"}
SOUND = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": [ASKED]}
BROKEN = {**SOUND, "messages": [ASKED, CALL, {"role": "user", "content": "and hurry"}]}
PATH = "/v1/messages"


async def exchange(body, *, based, whole):
    received = []

    async def answer(request):
        received.append(await request.json())
        return web.json_response({"ok": True})

    application = web.Application()
    application.router.add_post(PATH, answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    sent = {"json": body} if whole else {"data": json.dumps(body).encode()}
    try:
        async with aiohttp.ClientSession(base if based else None) as session:
            async with session.post(PATH if based else base + PATH, **sent) as reply:
                assert await reply.json() == {"ok": True}
            async with session.request("POST", PATH if based else base + PATH, **sent) as reply:
                assert reply.status == 200
    finally:
        await runner.cleanup()
    assert received == [body, body]


@pytest.mark.parametrize("based", [True, False])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("body", [SOUND, BROKEN], ids=["sound", "broken"])
def test_request(body, based, whole):
    asyncio.run(exchange(body, based=based, whole=whole))
"""


def test_requests_of_aiohttp_are_checked(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--contextc-lint=fail", "-k", "sound")
    result.assert_outcomes(passed=4)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--contextc-lint=fail", "-k", "broken")
    result.assert_outcomes(failed=4)
    result.stdout.re_match_lines([r"ANT006 messages\[1\]\.content\[0\]: call c1 has no result"])
    result.stdout.re_match_lines(
        [r"    POST http://127\.0\.0\.1:\d+/v1/messages \(anthropic\), sent by .*test_requests.*"]
    )


def test_without_the_option_nothing_is_checked(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=8)

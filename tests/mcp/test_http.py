"""Servers with an address, and the newer protocol (guarantees 24.1, 24.3 and 24.4)."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import contextc as cc
from contextc.testing import FakeModel
from tests.mcp.modern_server import server as package_server
from tests.mcp.servers import calling, modern, results


@asynccontextmanager
async def serving(port: int = 0, app: Any = None) -> AsyncGenerator[str]:
    """Serve an application at an address on this machine, by default the server of the newer protocol."""
    app = app or package_server.streamable_http_app()
    web = uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical", timeout_graceful_shutdown=1))
    running = asyncio.create_task(web.serve())
    while not web.started:
        await asyncio.sleep(0)
    try:
        yield f"http://127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}/mcp"
    finally:
        web.should_exit = True
        await running


async def run_at(url: str, model: FakeModel, **options: Any) -> list[cc.ToolResult]:
    server = cc.MCPServer(name="modern", url=url, **options)
    async with cc.Agent(model, mcp_servers=[server]) as agent:
        return results(await agent.run("Go."))


def test_a_server_with_an_address_gets_its_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "token-of-the-shop")

    async def work() -> list[cc.ToolResult]:
        async with serving() as url:
            model = calling(
                ("modern__add", {"first": 1, "second": 2}),
                ("modern__header", {"name": "x-shop"}),
                ("modern__version", {}),
            )
            return await run_at(url, model, headers={"X-Shop": "${SHOP_TOKEN}"})

    sum_, header, version = asyncio.run(work())
    assert json.loads(sum_.text) == {"value": 3}
    assert (header.text, version.text) == ("token-of-the-shop", "2026-07-28")


class Tokens:
    """The tokens of a login, in memory."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError("the client is registered already")


class Guarded:
    """A server that wants a token, with the authorization server that gives it for the right secret."""

    def __init__(self) -> None:
        self.app, self.asked = package_server.streamable_http_app(), list[str]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request = Request(scope, receive)
        base, path = str(request.base_url).rstrip("/"), request.url.path
        answer: Response | None = None
        if path.startswith("/.well-known/oauth-protected-resource"):
            answer = JSONResponse({"resource": f"{base}/mcp", "authorization_servers": [base]})
        elif path.startswith("/.well-known/oauth-authorization-server"):
            ends = {"authorization_endpoint": f"{base}/authorize", "token_endpoint": f"{base}/token"}
            answer = JSONResponse({"issuer": base, "response_types_supported": ["code"], **ends})
        elif path == "/token":
            login = b64encode(b"agent:secret-of-the-agent").decode()
            is_right = request.headers.get("authorization") == f"Basic {login}"
            self.asked.append(str((await request.form())["grant_type"]) if is_right else "refused")
            token = {"access_token": "token-of-the-agent", "token_type": "Bearer", "expires_in": 3600}
            answer = JSONResponse(token if is_right else {"error": "invalid_client"}, 200 if is_right else 401)
        elif request.headers.get("authorization") != "Bearer token-of-the-agent":
            answer = Response(status_code=401, headers={"WWW-Authenticate": "Bearer"})
        await (answer or self.app)(scope, receive, send)


@pytest.mark.parametrize("secret", ["secret-of-the-agent", "another-secret"])
def test_a_login_of_the_package_gets_the_token_of_a_server(secret: str, caplog: pytest.LogCaptureFixture) -> None:
    tokens, guarded = Tokens(), Guarded()

    async def work() -> list[cc.ToolResult]:
        async with serving(app=guarded) as url:
            issuer = url.removesuffix("/mcp")
            login = ClientCredentialsOAuthProvider(url, tokens, client_id="agent", client_secret=secret, issuer=issuer)
            return await run_at(url, calling(("modern__add", {"first": 1, "second": 2})), auth=login)

    (found,) = asyncio.run(work())
    if secret == "another-secret":
        assert found.is_error
        assert tokens.tokens is None
        assert "modern does not run" in caplog.text
    else:
        assert json.loads(found.text) == {"value": 3}
        assert guarded.asked == ["client_credentials"]
        assert tokens.tokens is not None
    assert secret not in caplog.text
    assert "token-of-the-agent" not in caplog.text


def test_a_login_is_an_auth_of_the_package_and_for_an_address() -> None:
    with pytest.raises(cc.errors.InvalidSetting, match=r"auth must be an httpx2\.Auth, got str"):
        cc.MCPServer(name="shop", url="https://shop.example/mcp", auth="token")
    with pytest.raises(cc.errors.InvalidSetting, match="auth is for a server with a url"):
        cc.MCPServer(name="shop", command="shop", auth=object())


def test_a_changed_list_is_used_at_the_next_step_and_questions_to_the_user_are_refused() -> None:
    async def work() -> tuple[list[cc.ToolResult], FakeModel]:
        model = calling(("modern__grow", {}), ("modern__grown", {}), ("modern__greet", {}))
        async with cc.Agent(model, mcp_servers=[modern()]) as agent:
            return results(await agent.run("Go.")), model

    (_, grown, greeted), model = asyncio.run(work())
    assert "modern__grown" not in [getattr(each, "name", "") for each in model.requests[0].tools]
    assert "modern__grown" in [getattr(each, "name", "") for each in model.requests[1].tools]
    assert grown.text == "grown ran"
    assert greeted.is_error
    assert "did not declare the form elicitation capability" in greeted.text


def test_a_hanging_call_over_http_is_cancelled_and_the_connection_stays() -> None:
    async def work() -> list[cc.ToolResult]:
        async with serving() as url:
            model = calling(("modern__hangs", {}), ("modern__add", {"first": 1, "second": 2}))
            return await run_at(url, model, timeout=0.3)

    hung, added = asyncio.run(work())
    assert "had not ended after 0.3 seconds" in hung.text
    assert json.loads(added.text) == {"value": 3}


def test_ten_million_characters_over_http_do_not_lose_the_turn() -> None:
    async def work() -> list[cc.ToolResult]:
        async with serving() as url:
            return await run_at(url, calling(("modern__long", {"characters": 10_000_001})))

    (result,) = asyncio.run(work())
    assert result.is_error
    assert "returned 10,000,001 characters, which is too much" in result.text


def test_a_server_that_is_not_there_does_not_lose_the_turn() -> None:
    async def work() -> tuple[str, dict[str, str]]:
        server = cc.MCPServer(name="gone", url="http://127.0.0.1:9/mcp")
        async with cc.Agent(FakeModel("Hi."), mcp_servers=[server]) as agent:
            result = await agent.run("Hello.")
            assert agent.executor.config.servers is not None
            return result.text, agent.executor.config.servers.problems()

    text, problems = asyncio.run(work())
    assert text == "Hi."
    assert "gone" in problems


@pytest.mark.parametrize(("ttl", "is_found"), [(0, True), (3_600_000, False)])
def test_a_list_holds_as_long_as_a_server_says_that_announces_no_changes(ttl: int, is_found: bool) -> None:
    async def work() -> bool:
        model = calling(("modern__grow", {}))
        async with cc.Agent(model, mcp_servers=[modern(f"ttl={ttl}")]) as agent:
            await agent.run("Go.")
        return "modern__grown" in [getattr(each, "name", "") for each in model.requests[1].tools]

    assert asyncio.run(work()) == is_found


async def hang(scope: Any, receive: Any, send: Any) -> None:
    """Answer as a server of the older protocol that hangs as soon as its session has begun."""
    if scope["type"] != "http":
        return
    message = json.loads((await receive()).get("body") or b"{}")
    if message.get("method") not in ("initialize", "server/discover"):
        await asyncio.Event().wait()
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        info = {"name": "hangs", "version": "1"}
        body["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    else:
        body["error"] = {"code": -32601, "message": "unknown method"}
    headers = [(b"content-type", b"application/json"), (b"mcp-session-id", b"one")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


def test_a_server_that_hangs_in_its_session_keeps_neither_the_turn_nor_the_end_of_the_agent() -> None:
    async def work() -> str:
        async with serving(app=hang) as url:
            server = cc.MCPServer(name="hangs", url=url, start_timeout=0.5)
            async with cc.Agent(FakeModel("Hi."), mcp_servers=[server]) as agent:
                return (await agent.run("Hello.")).text

    assert asyncio.run(work()) == "Hi."


def test_a_server_that_goes_away_and_comes_back_is_connected_again() -> None:
    async def work() -> list[cc.ToolResult]:
        call = ("modern__add", {"first": 1, "second": 2})
        async with serving() as url:
            agent = cc.Agent(calling(call), mcp_servers=[cc.MCPServer(name="modern", url=url)])
            first = await agent.run("Go.")
        async with serving(int(url.split(":")[2].split("/")[0])), agent:
            second = await agent.run("Again.", model=calling(call))
        return [*results(first), *results(second)]

    assert [json.loads(each.text) for each in asyncio.run(work())] == [{"value": 3}, {"value": 3}]

"""The server as a process, over the network."""

import httpx
from starlette.testclient import TestClient

from contextc.web.app_state import AppState
from tests.web.conftest import Served


def test_what_is_not_there_is_refused_with_our_message(client: TestClient, desk: AppState) -> None:
    """Guarantee 15.1: an error says what to do."""
    answer = client.get("/api/nothing/here")
    assert (answer.status_code, answer.json()["error"]["kind"]) == (404, "NotFound")
    assert not desk.stopping.is_set()


def test_a_server_answers_over_the_network(server: Served) -> None:
    answer = httpx.get(f"{server.url}/api/nothing/here")
    assert (answer.status_code, answer.json()["error"]["kind"]) == (404, "NotFound")
    assert "server" not in answer.headers

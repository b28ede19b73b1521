"""Adapter for AWS's SDK: Converse and ConverseStream of boto3's client, created by botocore.

The SDK treats invalid JSON as an empty reply or event. This adapter raises an error for it.
"""

from collections.abc import Mapping
from contextlib import closing
from importlib import import_module
from typing import Any, ClassVar

from contextc._json import JSONObject
from contextc.formats.registry import formatter
from tests.fake_vendors.sdks import WORDS, Happened, Raised, SDKClient
from tests.fake_vendors.vendor import KEY, Trouble
from tests.formats.known.bedrock import is_of, session

NO_JSON = "What came is no JSON."


class BedrockClient(SDKClient):
    format: ClassVar[str] = "bedrock"
    model: ClassVar[str] = "us.anthropic.claude-opus-5-5"
    settings: ClassVar[JSONObject] = {"inferenceConfig": {"maxTokens": 1000}}
    specs: ClassVar[tuple[str, ...]] = (
        "bedrock:us.anthropic.claude-opus-5-5",
        "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    )
    overhead: ClassVar[int] = 1_000
    counts_reasoning: ClassVar[bool] = False
    unknown_key: ClassVar[Raised | None] = Raised(
        "ClientError", "The security token included in the request is invalid"
    )
    refused: ClassVar[str] = "ValidationException"
    orphan: ClassVar[tuple[JSONObject, str]] = (
        {"role": "assistant", "content": [{"toolResult": {"toolUseId": "tooluse_x", "content": [{"text": "1"}]}}]},
        "exceeds the number of toolUse blocks of previous turn.",
    )
    too_long: ClassVar[str] = "prompt is too long: "
    troubles: ClassVar[Mapping[Trouble, tuple[int, str]]] = {
        "overloaded": (503, "ServiceUnavailableException"),
        "internal": (500, "InternalServerException"),
        "unavailable": (503, "ServiceUnavailableException"),
        "rate": (429, "ThrottlingException"),
    }
    quota: ClassVar[tuple[int, str]] = (400, "exceeds the service quota")
    waits: ClassVar[Mapping[str, str]] = {"retry-after": "2.5"}
    inside: ClassVar[tuple[str, str] | None] = ("serviceUnavailableException", "internalServerException")
    words: ClassVar[Mapping[Happened, str]] = {
        **WORDS,
        "cut": "Response ended prematurely",
        "reset": "reset by peer",
        "cut whole": NO_JSON,
        "closed at once": "Connection was closed",
        "garbled": NO_JSON,
    }

    def cached(self, body: JSONObject) -> JSONObject:
        *before, last = body["messages"]
        marked = {**last, "content": [*last["content"], {"cachePoint": {"type": "default"}}]}
        return {**body, "system": [{"text": "Be brief."}], "messages": [*before, marked]}

    def client(self, url: str, key: str, timeout: float) -> Any:
        return session().create_client(
            "bedrock-runtime",
            region_name="us-east-1",
            endpoint_url=url,
            aws_access_key_id=key,
            aws_secret_access_key="secret",
            config=import_module("botocore.config").Config(
                signature_version="v4", read_timeout=timeout, connect_timeout=timeout, retries={"total_max_attempts": 1}
            ),
        )

    def whole(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> Any:
        with closing(self.client(url, key, timeout)) as client:
            reply = client.converse(**formatter(self.format).sdk_arguments(body, self.model))
        if "output" not in reply:
            raise ValueError(NO_JSON)
        return {name: value for name, value in reply.items() if name != "ResponseMetadata"}

    def events(self, url: str, body: JSONObject, *, key: str = KEY, timeout: float = 10) -> list[Any]:
        arguments = formatter(self.format).sdk_arguments(body, self.model)
        with (
            closing(self.client(url, key, timeout)) as client,
            closing(client.converse_stream(**arguments)["stream"]) as stream,
        ):
            return [self.checked(event) for event in stream]

    def checked(self, event: JSONObject) -> JSONObject:
        if {} in event.values():
            raise ValueError(NO_JSON)
        return event

    def is_event(self, event: JSONObject) -> None:
        assert is_of("ConverseStream", "stream", event) == []

    def status(self, error: Any) -> int:
        return error.response["ResponseMetadata"]["HTTPStatusCode"]

    def headers(self, error: Any) -> Mapping[str, str]:
        return error.response["ResponseMetadata"]["HTTPHeaders"]


CLIENT = BedrockClient()

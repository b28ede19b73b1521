"""The Bedrock client: signatures, regions, threads."""

import asyncio
import logging
import socket
import threading
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import contextc as cc
from contextc._json import JSONObject, encode
from contextc.errors import FailureKind, InvalidSetting
from contextc.providers import Endpoint, ProviderCall
from contextc.providers.bedrock import CURRENT, BedrockEndpoint, EventStreamParser, ThreadedResponse
from contextc.providers.http_client import MalformedEvent
from tests.conftest import some
from tests.fake_vendors import KEY
from tests.providers.loopback_server import Answer, Arrived, Loopback, loopback, refused
from tests.providers.vendors.bedrock import MODEL, VENDOR, frame

ACCESS, SECRET, SESSION = "AKIDTEST", "secret-0123456789abcdef", "session-token-0123456789"
VARIABLE = "CONTEXTC_STANDIN_KEY"
BODY = encode(VENDOR.body)


@pytest.fixture(autouse=True)
def without_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv(VARIABLE, KEY)


@pytest.fixture
def without_credential_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")


async def read(line: Endpoint, provider: cc.Provider, **fields: Any) -> list[JSONObject]:  # Any: those of a call
    return [event async for event in line.stream(ProviderCall(provider=provider, body=BODY, **fields))]


async def asked(*answers: Answer, spec: str = VENDOR.spec, **facts: Any) -> tuple[list[JSONObject], Loopback]:
    async with loopback(*answers) as server:
        provider = cc.provider(spec, url=server.url, **facts)
        async with cc.endpoint(provider) as line:
            return await read(line, provider), server


def failing(*answers: Answer) -> cc.errors.ProviderFailed:
    with pytest.raises(cc.errors.ProviderFailed) as caught:
        asyncio.run(asked(*answers))
    return caught.value


def arrived(**facts: Any) -> Arrived:
    events, server = asyncio.run(asked(VENDOR.streamed(), **facts))
    assert events == VENDOR.events
    return server.arrived[0]


def test_a_request_is_signed_over_our_bytes_with_the_credentials_that_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The signature is made again from what arrived, by AWS's own code: it would be refused with any byte changed."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    found = arrived()
    result = found.headers["authorization"]
    assert result.startswith(f"AWS4-HMAC-SHA256 Credential={ACCESS}/")
    assert "/eu-west-1/bedrock/aws4_request" in result
    assert found.headers["x-amz-security-token"] == SESSION
    assert SECRET not in str(found.headers)
    assert signed_again(found) == result
    assert signed_again(found._replace(body=BODY + b" ")) != result


def signed_again(found: Arrived) -> str:
    credentials = import_module("botocore.credentials").Credentials(ACCESS, SECRET)
    signer = import_module("botocore.auth").SigV4Auth(credentials, "bedrock", "eu-west-1")
    names = found.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    request = import_module("botocore.awsrequest").AWSRequest(
        "POST",
        f"http://{found.headers['host']}{found.path}",
        data=found.body,
        headers={name: found.headers[name] for name in names},
    )
    request.context["timestamp"] = found.headers["x-amz-date"]
    canonical = signer.canonical_request(request)
    signature = signer.signature(signer.string_to_sign(request, canonical), request)
    return f"{found.headers['authorization'].partition('Signature=')[0]}Signature={signature}"


def test_a_token_is_sent_where_it_is_named_and_to_no_other_address_than_amazons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guarantee 13.3: a signature gives nothing away, a token everything."""
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "token-0123456789")
    assert arrived().headers["authorization"].startswith("AWS4-HMAC-SHA256 ")
    assert arrived(key=VARIABLE).headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.usefixtures("without_credential_sources")
def test_a_custom_url_is_called_without_credentials_if_there_are_none() -> None:
    assert "authorization" not in arrived().headers


def unreached(**environment: str) -> cc.errors.ProviderFailed:
    """How a call fails that is not sent anywhere."""
    provider = cc.provider(VENDOR.spec)

    async def ask() -> None:
        async with cc.endpoint(provider) as line:
            await read(line, provider)

    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with pytest.raises(cc.errors.ProviderFailed) as caught:
            asyncio.run(ask())
    return caught.value


@pytest.mark.usefixtures("without_credential_sources")
def test_without_credentials_the_ways_to_them_are_named() -> None:
    """Guarantee 15.1."""
    failed = unreached(AWS_REGION="us-east-1")
    assert (failed.kind, failed.said) == ("auth", "no credentials were found")
    assert "Set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID" in str(failed)
    failed = unreached(AWS_PROFILE="nobody", AWS_REGION="us-east-1")
    assert (failed.kind, "(nobody)" in failed.said) == ("auth", True)


def test_without_a_region_it_is_reported_how_one_is_set() -> None:
    """Guarantee 15.1: botocore itself does not look at AWS_REGION."""
    failed = unreached()
    assert failed.kind == "invalid"
    assert "Set AWS_REGION" in str(failed)


@pytest.mark.parametrize(
    ("spec", "facts", "region"),
    [
        (VENDOR.spec, {}, "us-east-1"),
        (f"bedrock:arn:aws:bedrock:ap-south-1:123456789012:inference-profile/{MODEL}", {}, "ap-south-1"),
    ],
    ids=["none is set", "the model's full name"],
)
def test_the_region_follows_from_the_configuration(spec: str, facts: JSONObject, region: str) -> None:
    assert f"/{region}/bedrock/" in arrived(spec=spec, **facts).headers["authorization"]


@pytest.mark.parametrize(
    ("url", "region"),
    [
        ("https://bedrock-runtime.us-west-2.amazonaws.com", "us-west-2"),
        ("https://vpce-0a1b-2c.bedrock-runtime.us-west-2.vpce.amazonaws.com", "us-west-2"),
        ("https://ai-gateway-2.corp.example", "eu-central-1"),
        ("https://us-proxy-1.amazonaws.com.example", "eu-central-1"),
    ],
)
def test_only_an_address_of_amazons_reports_a_region(url: str, region: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere the one that is set wins, whatever a host is called."""
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    line = cast(BedrockEndpoint, cc.endpoint(cc.provider(VENDOR.spec, url=url)))
    assert line._opened().meta.region_name == region  # pyright: ignore[reportPrivateUsage]


def same(request: object) -> object:
    return request


@pytest.mark.parametrize(
    "facts",
    [{"key": VARIABLE}, {}, {"token": "bearer-0123456789"}],
    ids=["a key", "a signature", "a token of the environment"],
)
def test_no_secret_is_logged(
    facts: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Guarantee 13.3: botocore logs whole requests at DEBUG, what it signs, and addresses."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    caplog.set_level(logging.DEBUG)
    if token := facts.get("token"):
        monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", token)
        line = cast(BedrockEndpoint, cc.endpoint(cc.provider(VENDOR.spec)))
        client = line._opened()  # pyright: ignore[reportPrivateUsage]
        client._endpoint.http_session = SimpleNamespace(send=same)
        call = ProviderCall(provider=cc.provider(VENDOR.spec), body=BODY)
        sent = line._sent_by(client, call)  # pyright: ignore[reportPrivateUsage]
        assert str(sent.headers["Authorization"]) in (f"Bearer {token}", f"b'Bearer {token}'")
    else:
        assert arrived(**facts).headers["authorization"]
    logged = "\n".join(f"{record.getMessage()} {record.args}" for record in caplog.records)
    assert "botocore" in " ".join(record.name for record in caplog.records)
    for secret in (KEY, SECRET, SESSION, "bearer-0123456789"):
        assert secret not in logged


def test_what_others_send_is_logged_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    arrived()
    with caplog.at_level(logging.DEBUG, "botocore.endpoint"):
        logging.getLogger("botocore.endpoint").debug("Making request for somebody")
    assert "Making request for somebody" in caplog.text


ERRORS = [
    (429, "ThrottlingException", "Too many requests, please wait before trying again.", "rate"),
    (429, "ThrottlingException", "Too many tokens per day, please wait before trying again.", "quota"),
    (400, "ServiceQuotaExceededException", "Your request exceeds the service quota for your account.", "quota"),
    (408, "ModelTimeoutException", "Model has timed out in processing the request.", "transient"),
    (429, "ModelNotReadyException", "Model is not ready for inference.", "transient"),
    (424, "ModelErrorException", "The system encountered an unexpected error during processing.", "transient"),
    (503, "ServiceUnavailableException", "Bedrock is unable to process your request.", "transient"),
    (500, "InternalServerException", "The system encountered an unexpected error.", "transient"),
    (403, "AccessDeniedException", "You don't have access to the model with the specified model ID.", "auth"),
    (403, "UnrecognizedClientException", "The security token included in the request is invalid.", "auth"),
    (403, "ExpiredTokenException", "The security token included in the request is expired", "auth"),
    (403, "InvalidSignatureException", "The request signature we calculated does not match.", "auth"),
    (400, "ValidationException", "The provided model identifier is invalid.", "invalid"),
    (400, "ValidationException", "Input is too long for requested model.", "context"),
    (
        400,
        "ValidationException",
        "The model returned the following errors: input length and `max_tokens` exceed context limit: 1 + 2 > 2",
        "context",
    ),
    (400, "ValidationException", "too many total text bytes: 26000000 > 25000000", "context"),
    (
        400,
        "ValidationException",
        "Too many input tokens. Max input tokens: 300000, request input token count: 300001",
        "context",
    ),
    (
        400,
        "ValidationException",
        "The model returned the following errors: This model's maximum context length is 131072 tokens.",
        "context",
    ),
    (404, "ResourceNotFoundException", "This model version has reached the end of its life.", "invalid"),
]


@pytest.mark.parametrize(("status", "code", "expected", "kind"), some(ERRORS, 4))
def test_its_error_is_understood(status: int, code: str, expected: str, kind: FailureKind) -> None:
    """Guarantees 11.11, 7.6: the code comes in a header, with an address behind it."""
    failed = failing(
        refused(status, {"message": expected}, x_amzn_errortype=f"{code}:http://internal.amazon.com/coral/")
    )
    assert (failed.kind, failed.status, failed.code, failed.said) == (kind, status, code, expected)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("throttlingException", "rate"),
        ("modelStreamErrorException", "transient"),
        ("validationException", "invalid"),
        ("serviceUnavailableException", "transient"),
        ("internalServerException", "transient"),
    ],
)
def test_an_exception_inside_a_stream_is_understood(name: str, kind: FailureKind) -> None:
    """Guarantee 11.11: they are called there as elsewhere, but for the first letter."""
    code = name[:1].upper() + name[1:]
    failed = failing(VENDOR.streamed([VENDOR.events[0], {"error": {"type": code, "message": "No."}}]))
    assert (failed.kind, failed.code, failed.said) == (kind, code, "No.")


def test_what_was_signed_is_not_repeated() -> None:
    """Guarantee 13.3: AWS answers a wrong signature with all that should have been signed, tokens too."""
    text = f"The signature does not match.\n\nThe Canonical String for this request should have been\n'{SESSION}'"
    failed = failing(refused(403, {"message": text}, x_amzn_errortype="InvalidSignatureException"))
    assert (failed.kind, failed.said) == ("auth", "The signature does not match.")


def test_frames_are_read_in_any_pieces() -> None:
    whole = b"".join(map(frame, VENDOR.events))
    for size in (1, 7, 1000):
        frames = EventStreamParser()
        found = [event for start in range(0, len(whole), size) for event in frames.feed(whole[start : start + size])]
        assert (found, frames.end()) == (VENDOR.events, [])
    frames = EventStreamParser()
    assert frames.feed(whole[:-3]) == VENDOR.events[:-1]
    with pytest.raises(MalformedEvent, match="truncated event"):
        frames.end()


def test_cancelling_before_the_first_byte_closes_the_connection_at_once() -> None:
    """Guarantee 11.10: a model may think for a minute before it says anything, and botocore waits for it on a
    thread.
    """

    async def stop() -> None:
        silence = asyncio.Event()

        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"}]}]}")
            silence.set()
            await reader.read()
            left.set()
            writer.close()

        left = asyncio.Event()
        server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        provider = cc.provider(VENDOR.spec, url=url)
        async with cc.endpoint(provider) as line:
            task = asyncio.create_task(read(line, provider))
            await asyncio.wait_for(silence.wait(), 60)
            task.cancel()
            await asyncio.wait([task])
            await asyncio.wait_for(left.wait(), 60)
        server.close()

    asyncio.run(stop())
    for thread in threading.enumerate():
        if thread.name == "contextc-bedrock":
            thread.join(60)
            assert not thread.is_alive()


def test_a_line_that_is_closed_ends_its_calls() -> None:
    """Otherwise a call would keep its thread for as long as the provider is silent."""

    async def closed() -> cc.errors.ProviderFailed:
        async with loopback(VENDOR.streamed(VENDOR.events[:1], then="silence")) as server:
            provider = cc.provider(VENDOR.spec, url=server.url)
            line = cc.endpoint(provider)
            task = asyncio.create_task(read(line, provider))
            while not server.arrived:
                await asyncio.sleep(0.01)
            await line.close()
            with pytest.raises(cc.errors.ProviderFailed) as caught:
                await asyncio.wait_for(task, 60)
            return caught.value

    assert asyncio.run(closed()).kind == "transient"


def test_many_calls_at_once_do_not_wait() -> None:
    """Each has a thread of its own; those of the loop are the store's."""

    async def together(number: int) -> None:
        answers = [VENDOR.streamed(VENDOR.events[:1], then="silence")] * number
        async with loopback(*answers) as server:
            provider = cc.provider(VENDOR.spec, url=server.url)
            async with cc.endpoint(provider) as line:
                tasks = [asyncio.create_task(read(line, provider)) for _ in range(number)]
                while len(server.arrived) < number:
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(int)  # would wait for as long as they are silent
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    asyncio.run(asyncio.wait_for(together(40), 60))


def test_a_client_of_ones_own_is_used_and_left_as_it_was() -> None:
    """For a custom role, session or proxy; its owner continues to use it."""

    async def through() -> None:
        async with loopback(VENDOR.streamed(), Answer((encode(VENDOR.reply),))) as server:
            client: Any = (
                import_module("botocore.session")
                .Session()
                .create_client(
                    "bedrock-runtime",
                    region_name="us-west-2",
                    endpoint_url=server.url,
                    aws_access_key_id="OWN",
                    aws_secret_access_key="own",
                )
            )
            provider = cc.provider(VENDOR.spec)
            async with cc.endpoint(provider, http_client=client) as line:
                assert await read(line, provider) == VENDOR.events
            text = await asyncio.to_thread(lambda: client.converse(modelId=MODEL, messages=[])["output"])
            assert text == VENDOR.reply["output"]
            assert "Credential=OWN/" in server.arrived[0].headers["authorization"]
            assert server.arrived[1].body == b'{"messages": []}'
            client.close()

    asyncio.run(through())
    with pytest.raises(InvalidSetting, match=r"boto3\.client"):
        asyncio.run(read(cc.endpoint(VENDOR.spec, http_client=object()), cc.provider(VENDOR.spec)))


def test_a_call_that_is_left_late_does_not_hang_up_on_the_next_one() -> None:
    """Guarantee 11.11: a connection goes back when its answer has come, and serves another call; that one keeps it."""
    ours, theirs = socket.socketpair()

    def answered(pieces: list[bytes]) -> SimpleNamespace:
        raw = SimpleNamespace(stream=lambda: iter(pieces), close=lambda: None)
        return SimpleNamespace(status_code=200, headers={}, raw=raw)

    def first() -> SimpleNamespace:
        CURRENT.line.use_socket(ours)
        return answered([b"all of it"])

    def second() -> SimpleNamespace:
        CURRENT.line.use_socket(ours)
        taken.set()
        assert left.wait(60)
        ours.sendall(b"request")
        return answered([])

    async def both() -> int:
        early = ThreadedResponse(first)
        await early.wait_for_head()
        late = ThreadedResponse(second)
        assert await asyncio.to_thread(taken.wait, 60)
        await early.aclose()
        left.set()
        await late.wait_for_head()
        return late.status_code

    taken, left = threading.Event(), threading.Event()
    with ours, theirs:
        assert asyncio.run(both()) == 200
        assert theirs.recv(100) == b"request"

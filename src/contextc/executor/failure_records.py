"""Records of a failure: the received part of a reply, the text of an error, and its event."""

from typing import Literal

from msgspec.structs import replace

from contextc._credential_mask import mask_secrets
from contextc._json import fix_surrogates
from contextc.errors import ContextOverflow, ProviderFailed, describe_error
from contextc.events import ErrorOccurred, FailureDetails
from contextc.messages import Message
from contextc.providers import Provider
from contextc.store.partial_message_journal import drop_incomplete_call, may_have_run


def mark_incomplete(
    messages: list[Message], status: Literal["cancelled", "error"], why: str, provider: Provider
) -> list[Message]:
    """Return the messages of an interrupted reply, the last of them marked as incomplete.

    Calls of a provider that runs tools itself may have run: they are kept, and answered as interrupted.
    """
    if not messages or messages[-1].role != "assistant":
        return messages
    *before, last = messages
    parts = tuple(drop_incomplete_call(last.parts))
    if provider.runs_tools and may_have_run("tool_calls", parts):
        return [*before, replace(last, parts=parts, status="sent", error=None, finish="tool_calls")]
    return [*before, replace(last, status=status, error=why)]


def error_text(error: BaseException) -> str:
    """Return an exception as text that can be stored: invalid Unicode is replaced, and credentials are masked."""
    return mask_secrets(fix_surrogates(describe_error(error)))


def failure_details(error: ProviderFailed) -> FailureDetails:
    return FailureDetails(
        provider=error.provider,
        message=mask_secrets(fix_surrogates(error.said)),
        fix=fix_surrogates(error.way_out),
        case=error.case,
        detail=fix_surrogates(error.detail),
        status=error.status,
        code=fix_surrogates(error.code),
        retry_after=error.retry_after,
        request_id=fix_surrogates(error.request_id),
    )


def error_event(error: Exception) -> ErrorOccurred:
    text = error_text(error)
    if isinstance(error, ProviderFailed):
        return ErrorOccurred(kind=error.kind, error=text, failure=failure_details(error))
    return ErrorOccurred(kind="context" if isinstance(error, ContextOverflow) else "internal", error=text)

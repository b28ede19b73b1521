"""Findings about compactions: what the requests after them no longer have."""

from collections.abc import Iterator

from contextc.analysis.conversation_loader import StoredConversation
from contextc.analysis.finding import Evidence, Finding, FindingCode, conversation_finding, shorten
from contextc.analysis.request_view import RequestView
from contextc.compiler.compaction import StoredCompaction, load_compactions
from contextc.compiler.compaction_receipt import MIN_SCORE, describe_receipt

MAX_EVIDENCE = 20


@conversation_finding(
    "CMP001",
    "lossy_compaction",
    title="A compaction lost facts",
    fix="Say what summaries should keep (`summary_instructions`), give them more room (`summary_share`), pin the "
    "messages that must stay, or take the summary back with `contextc compact --undo`.",
)
def lossy_compactions(view: StoredConversation, code: FindingCode) -> Iterator[Finding]:
    """A summary replaced messages, and the requests after it lack much of what was in them. The finding names what was
    lost. All of it is still stored.

    Recognised: by the receipt that is stored with a summary. It is made without a model, and counts the names, figures
    and error texts in texts and calls, open todos, and sentences of people. Less than 80 % of them are in the summary,
    in the messages that stay, and in what the compiler keeps besides.
    """
    for agent in dict.fromkeys([each.channel.author for each in view.requests]):
        requests = [each for each in view.requests if each.channel.author == agent]
        for found in reversed(load_compactions(view.store, view.name, agent)):
            receipt = found.receipt
            if receipt is None or receipt.score >= MIN_SCORE:
                continue
            first = _first_request(requests, found)
            if first is None:
                continue
            yield code.make(
                view.name,
                [
                    Evidence(request=first.number, channel=first.channel_id, path="", after=text, is_change=False)
                    for text in receipt.lost[:MAX_EVIDENCE]
                ],
                title=shorten(f"The summary up to message {found.upto:,} {describe_receipt(receipt)}"),
                confidence=0.7,
            )


def _first_request(requests: list[RequestView], found: StoredCompaction) -> RequestView | None:
    """Return the first request that was sent with a summary."""
    later = (each for each in requests if each.record.why and each.record.tip >= found.upto)
    return next((each for each in later if each.record.time >= found.time), None)

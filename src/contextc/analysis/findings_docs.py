"""The causes of findings as one page, built from their registry: `docs/findings.md`."""

from collections.abc import Sequence

from contextc.analysis.finding import FindingCode, all_codes

MARK = "Recognised:"
HEADER = """# Findings

Findings answer four questions about a conversation, whether contextc ran it or only recorded it: why did the cache
miss, what fills the window, what failed, and what did it cost? Each finding has a code, a cause, evidence (the
request, the path in its body, and the words that changed), tokens, a cost in dollars, a fix, and a confidence. This
page is built from the source code (`make rules`). A code never changes its meaning.

Evidence has the words `before` and `after` a change. If nothing changed, `is_change` is false, and they are facts or
the beginning of what was found. `compared` names the request that it was compared with, if that is not the previous
one of the same channel: a request of another model or of another conversation. `name` is the tool that changed, was
added or was removed. The tokens of a finding about several requests are those of the request that its title names. A
finding about requests that lost little each has the sum, and each request in `losses`.

```python
import contextc as cc

store = cc.open_store("sqlite:///demo.db")
for minute in range(3):
    request = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 500,
        "system": [
            {
                "type": "text",
                "text": f"It is 12:0{minute}. " + "Be exact. " * 1_500,
                "cache_control": {"type": "ephemeral"},
            }
        ],
        "messages": [{"role": "user", "content": "Hello."}],
    }
    reply = {
        "role": "assistant",
        "content": [{"type": "text", "text": "Hi."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "cache_creation_input_tokens": 4_500, "output_tokens": 5},
    }
    time = 1_760_000_000_000 + minute * 60_000
    cc.observe(store, request=request, reply=reply, format="anthropic", conversation="demo", time=time)

for each in cc.findings(store, "demo"):
    print(each.code, each.cause, each.request, each.tokens, each.evidence[0].path)

costs = cc.analysis.conversation_costs(store, "demo")
for line in costs.lines:
    print(f"{line.label}: ${line.cost:.4f}")
print(f"in all ${costs.cost:.4f}, rewrite factor {costs.rewrite_factor:.1f}")
store.close()
```

```text
CAC006 system_changed 2 4510 system[0].text
CAC006 system_changed 3 4510 system[0].text
CAC001 first_request 1 0
system prompt: $0.0507
answers: $0.0002
history: $0.0001
in all $0.0509, rewrite factor 3.0
```

## The command

| command | |
|---|---|
| `contextc findings NAME` | the findings of a conversation, the most expensive first |
| `contextc findings` | the causes in the whole store, the most expensive first |
| `contextc findings FILE` | the findings of a log or HAR recording that `contextc import` reads; nothing is stored |
| `… --costs` | also what was spent for: system prompt, each tool, its results, history, media, answers … |
| `… --cache` | also, for each request, what the cache rules predict beside what the provider reported |
| `… --what-if` | also what the same requests would have cost in other ways; `--compact-at TOKENS` is one of them |
| `… --threshold DOLLARS` | exit code 1 if a cause costs more in one conversation (without NAME: in all) |
| `… --limit ROWS` | the number of rows of the table |
| `… --json`, `… --sarif` | JSON, or SARIF 2.1.0 for code scanning. `contextc lint` has `--sarif` too |

The table has one row for all cache misses of one cause and place in a conversation, with the sums; JSON has one finding
per request. USE003 is about many sessions, so it is in the findings of a store, of several conversations or of a file,
and in the web UI at the session that lost most. CAC001 and CAC002 are no loss: they are in the JSON only, and a
conversation with no others has “no findings”. Conversations of a log without ids are named after the file. With several
conversations, `--costs` and `--what-if` print a total at the end. In the JSON of a log, `place` names the line of the
request.

`contextc watch` names the most expensive cause when the program has ended. In Python there are `cc.findings(store,
name)`, the most expensive first, `cc.analysis.store_findings(store)`, `cc.analysis.conversation_costs(store, name)`
and `cc.analysis.cache_reads(store, name)`; over HTTP `GET /api/conversations/NAME/findings` and `GET /api/findings`.

In Python, nothing is kept between two calls: each one analyses the whole conversation. The time grows with the number
of requests: about 0.6 ms of CPU time for each in a conversation of 150,000 tokens that only grows, so 0.7 s after 1,000
requests; 1.8 s if the system prompt or earlier messages change all the time. Over HTTP, the last 4 conversations
are kept, and only what is new is read and compared: after one more request, findings take about 20 ms of CPU time, or
40 ms if earlier messages change all the time, and the timeline takes 5 ms. If
something earlier changed, for example a message was redacted, the whole conversation is analysed again.

```console
$ contextc findings demo --store sqlite:///demo.db
    cost  tokens  code    request  finding
 $0.0311   9,020  CAC006        2  The system prompt changed: it contains the time
                                   2 times: requests 2, 3
                                   system[0].text: It is 12:00. Be exact. Be exact. Be → It is
                                   12:01. Be exact. Be exact. Be
                                   fix: Move the time to the end of the conversation, or leave it
                                   out.
2 findings with 1 cause. Costs of different causes can overlap, so they are not added up.
```

## What the provider says

Anthropic and OpenAI explain a cache miss in their reply, if the request asks for it: with
`diagnostics.previous_message_id`, or with `prompt_cache_options.comparison_response_id`. The reason is recorded with
an observed request. A finding about this request has it as `vendor`, and `vendor_agrees` is true if it means the same
cause, false if it means another one, and null if it states none. If the provider names another cause, the title states
both, and the confidence is halved. A request that read its cache as it should has no finding, whatever the reason.

## Costs

Providers charge the beginning of a request as a cache read, what they write to the cache as a cache write, and the
rest as input. So the price of each part of a request follows from its position and from the reported usage. Costs by
cause add up to the cost of each request. A request without reported usage has no cost, and its tokens are an
estimate.

Cache writes that are kept for an hour cost more at Anthropic and Bedrock: twice the input price. Their share is that
of the reply; if it states none, as in stores of earlier versions, all writes of a request are long if all of its
breakpoints have `ttl: "1h"`. The price of OpenAI's 12-hour writes is known for one model only. For others they count
as other writes, and the cost is a lower bound, unless `cache_write_long` is part of the price in `contextc.toml`.

A tier, a speed or a region that the reply reports multiplies all prices ([models.md](models.md#what-is-billed)). If the
factor is unknown, `cost_is_lower_bound` is true, and texts say "at least". Calls that a provider makes beside the
answer, such as a compaction, have a line of their own, at the price of their model.

The cost of a finding is what it cost more than necessary. Findings of one cause are about different requests or parts,
so their costs are added up. Costs of different causes can overlap: a large result also makes a cache miss more
expensive. So they are not added up. Sizes of parts are shares of the provider's total by
our own count.

The *rewrite factor* is the number of tokens written to the cache, divided by the largest request of the conversation.
1.0 is ideal: everything was written once. Where a provider does not report cache writes, uncached input counts.

## What if

`--what-if` (and `cc.analysis.what_if(store, name)`) replays the recorded requests through a model of the provider's
cache: as they were, and with one change each. The difference of both predictions is what the change would have saved.

| change | |
|---|---|
| `drop_tools` | without the tools that were never called |
| `constant_system` | with the system prompt of the first request; what changed in it is sent at the end |
| `sort_tools` | with the tools sorted by name, if they were sent in different orders (CAC005) |
| `breakpoints` | with breakpoints that find what the request before sent, if those were missing (CAC012, CAC013) |
| `keep_warm` | the cache is read again before it expires, where that costs less than writing it again |
| `long_lifetime` | with breakpoints of an hour (Anthropic, Bedrock), as in USE001 |
| `short_lifetime` | with breakpoints of five minutes, if they were of an hour |
| `compact` | from `--compact-at` tokens on (half of the largest request), a summary replaces older messages |

`breakpoints` sets three: after the system prompt, where the request before ended, and at the end.

`compact` is not replayed if system prompt, tools and a summary of 2,000 tokens are more than half of that size: a
compaction would leave almost no room for messages. Without `--compact-at`, the size is at least twice as large as
these. The reason is printed, and in `skipped` of the JSON.

Answers are assumed to stay the same, and the quality of answers is not considered. The prediction for the requests as
they were is printed beside what was paid. If both differ by more than 15 %, the figures are marked as not reliable.
"""
GROUP_TITLES = {
    "cache": (
        "Cache misses",
        "A request has at most one of these, and none if its cache was read as it should have been. `also` names "
        "further causes that alone would have had the same effect.\n\n"
        "A loss below 1,024 tokens, or below 5 % of what could have been read, is not reported by itself. "
        "If\nrequests differ again and again, such losses of one cause are added up: three or more that are together "
        "as large as\na miss are one finding. It belongs to the request at which they reach that size, and has "
        "the tokens and the cost of all.",
    ),
    "cache_use": (
        "Use of the cache",
        "These are about all requests of a conversation, or about many conversations, and overlap with their cache "
        "misses.",
    ),
    "window": ("The window", "These are about what is sent again with every request."),
    "compaction": ("Compactions", "These are about what a model no longer has because a summary replaced it."),
    "failure": ("Failures", "These are about requests that failed, would fail, or were not sent as they were meant."),
}


def render_findings() -> str:
    """Return the text of `docs/findings.md`."""
    codes = all_codes()
    groups = [_render_group(name, [each for each in codes if each.group == name]) for name in GROUP_TITLES]
    return "\n".join([HEADER, *groups])


def _render_group(name: str, codes: Sequence[FindingCode]) -> str:
    title, text = GROUP_TITLES[name]
    table = [f"| [{each.code}](#{each.code.lower()}) | `{each.cause}` | {each.title} |" for each in codes]
    sections = [render_code(each) for each in codes]
    return "\n".join([f"## {title}", "", text, "", "| code | cause | |", "|---|---|---|", *table, "", *sections])


def render_code(code: FindingCode) -> str:
    """Return the section of one code: title, meaning, how it is recognised, fix."""
    meaning, found, recognised = code.description.partition(MARK)
    lines = [f"### {code.code}", "", f"`{code.cause}`: {code.title}", "", meaning.strip(), ""]
    if found:
        lines += [f"{MARK} {recognised.strip()}", ""]
    return "\n".join([*lines, f"Fix: {code.fix}", ""])

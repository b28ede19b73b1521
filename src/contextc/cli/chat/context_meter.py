"""Context meter: a bar with used and available tokens, usage and cost, in one line."""

from rich.text import Text

from contextc.messages import Usage

BAR = 20
FULL, HIGH = 0.9, 0.7


def render_meter(
    used: int, available: int, *, usage: Usage | None = None, cost: float | None = None, suffix: str = ""
) -> Text:
    """Return the meter. It is readable without colours too."""
    share = used / available if available else 1.0
    filled = min(BAR, max(1 if used else 0, round(share * BAR)))
    style = "red" if share >= FULL else "yellow" if share >= HIGH else "green"
    facts = [f"context {share:.0%}", f"{used:,} of {available:,} tokens"]
    if usage is not None:
        cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
        facts.append(f"{usage.input:,} in{cached}, {usage.output:,} out")
    if cost:
        facts.append(format_dollars(cost))
    facts += [suffix] if suffix else []
    return Text.assemble(("█" * filled, style), ("░" * (BAR - filled), "dim"), (" " + " · ".join(facts), "dim"), end="")


def format_dollars(cost: float) -> str:
    return f"${cost:,.4f}"

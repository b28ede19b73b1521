"""Token counts compared with those that providers reported for recorded requests."""

from statistics import median

import pytest

from contextc.messages import tool_result
from contextc.models.tokens import estimate_next_input, get_counter
from tests.tokens.overhead_fitting import VENDORS, all_counts, halved, left_out, samples
from tests.tokens.recorded_conversations import Step, all_steps, expected, steps

ENOUGH = 20
LIMITS = {"OpenAI": 0.03, "Anthropic": 0.15, "Gemini": 0.15}


@pytest.mark.parametrize("vendor", VENDORS)
def test_counts_are_near_what_the_provider_reports(vendor: str) -> None:
    """Guarantee 6.1: with the figures in the code; for vendors with few requests only a rough check."""
    errors = [abs(sample.counted / sample.real - 1) for sample in samples(vendor)]
    assert errors
    assert median(errors) < (LIMITS[vendor] if len(errors) >= ENOUGH else 0.25)


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_model_without_measurements_is_counted_by_what_its_kin_taught(vendor: str) -> None:
    """Guarantee 6.1: each model with figures fitted to the others alone, as a new model will be."""
    found = samples(vendor)
    errors = [error for _, error in left_out(found, words=vendor == "Anthropic")]
    assert median(errors) < (LIMITS[vendor] if len(errors) >= ENOUGH else 1)


@pytest.mark.parametrize("vendor", VENDORS)
def test_figures_of_one_half_of_the_tests_hold_for_the_other(vendor: str) -> None:
    """Guarantee 6.1: frames that only repeated their own requests would not."""
    found = samples(vendor)
    errors = [error for _, error in halved(found, words=vendor == "Anthropic")]
    assert median(errors) < (LIMITS[vendor] if len(errors) >= ENOUGH else 1)


def test_requests_of_every_kind_are_counted_within_a_tenth_or_forty_tokens() -> None:
    """Guarantee 6.1: with media, tools, schemas and reasoning, if their count follows from what they contain."""
    found = [each for each in all_counts() if not each.unknown]
    far = [each for each in found if not each.is_near]
    assert found
    assert len(far) <= (0.1 if len(found) >= 100 else 0.25) * len(found), far


@pytest.mark.parametrize("vendor", VENDORS)
def test_most_estimates_are_on_the_high_side(vendor: str) -> None:
    """Guarantee 6.1: a request that is larger than it was thought is refused; one that is smaller costs nothing."""
    found = samples(vendor)
    high = sum(sample.counted >= sample.real * 0.95 for sample in found) / len(found)
    assert high >= (0.75 if len(found) >= ENOUGH else 0.5)


def test_the_next_input_is_the_last_one_and_what_came_after() -> None:
    """Guarantee 6.2: requests that continue a conversation, of all vendors together and of each by itself."""
    found = all_steps()
    assert len(found) < ENOUGH or median([_error(step) for step in found]) < 0.05
    for vendor in VENDORS:
        own = [_error(step) for step in steps(vendor)]
        assert len(own) < 8 or median(own) < 0.05


@pytest.mark.parametrize(
    ("tokenizer", "provider", "model", "last", "output", "tool", "result", "real"),
    [
        ("o200k_base", "openai_chat", "gpt-4o", 48, 14, "get_weather", "sunny in Paris", 74),
        ("o200k_base", "openai_chat", "gpt-5.4-mini", 356, 24, "get_exchange_rate", "1 USD = 0.92 EUR", 400),
        ("claude", "anthropic", "claude-sonnet-4-5", 732, 39, "get_population", "8000000", 801),
        ("claude", "anthropic", "claude-sonnet-4-0", 377, 64, "get_weather", "Weather in Amsterdam: Sunny, 18°C", 464),
        ("gemini", "google", "gemini-3-pro-preview", 29, 212, "get_country", "Mexico", 257),
        ("gemini", "google", "gemini-3.6-flash", 341, 65, "lookup_refund_policy", "A-4417: refund allowed", 432),
    ],
)
def test_a_recorded_step_is_foreseen(
    tokenizer: str, provider: str, model: str, last: int, output: int, tool: str, result: str, real: int
) -> None:
    """Guarantee 6.2: what one request cost and its reply wrote, one result that came after, and what the next one
    cost.
    """
    new = get_counter(tokenizer, provider=provider, model=model).count_message(tool_result("c1", tool, result))
    assert estimate_next_input(last, output, new) == pytest.approx(real, rel=0.05)


def _error(step: Step) -> float:
    return abs(expected(step) / step.later.real - 1)

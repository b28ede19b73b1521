"""Models and sizes that cases of the half `report` share."""

SMALL_MODELS = {
    "anthropic": "claude-sonnet-5", "chat": "gpt-4o", "responses": "gpt-6.1-terra", "gemini": "gemini-3.6-flash",
    "bedrock": "eu.anthropic.claude-sonnet-5-v1:0",
}  # fmt: skip
LARGE = {"system": 26_000, "tools": 1_700, "result": 9_000}
MIDDLE = {"system": 14_000, "tools": 1_200, "result": 5_000}

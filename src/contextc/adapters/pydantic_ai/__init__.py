"""pydantic-ai: its conversations in a store (`ContextcConversationStore`), its requests within the window
(`PrepareRequests`).
"""

from contextc.adapters.request_preparation import require_package

MINIMUM = "2.66"
require_package("pydantic_ai", "pydantic-ai-slim", MINIMUM)

from contextc.adapters.pydantic_ai.conversation_store import ContextcConversationStore  # noqa: E402
from contextc.adapters.pydantic_ai.request_fitting import PrepareRequests  # noqa: E402

__all__ = ["ContextcConversationStore", "PrepareRequests"]

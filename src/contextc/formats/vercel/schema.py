"""Required fields of the parts of the AI SDK's messages, from its `modelMessageSchema` and `validateUIMessages`.

JSON has neither `URL` nor bytes. Where the schemas require those, text is accepted, as the SDK itself does.
"""

from contextc.formats.lint_engine import FieldTypes, PartKind

OPTIONS: FieldTypes = {"providerOptions?": dict}
CONTENT: dict[str, tuple[type, ...]] = {
    "system": (str,),
    "user": (str, list),
    "assistant": (str, list),
    "tool": (list,),
}
"""Roles, and the types of their content."""
PART_FIELDS: dict[str, FieldTypes] = {
    "text": {"text": str, **OPTIONS},
    "image": {"image": (str, dict), "mediaType?": str, **OPTIONS},
    "file": {"data": (str, dict), "mediaType": str, "filename?": str, **OPTIONS},
    "reasoning": {"text": str, **OPTIONS},
    "reasoning-file": {"data": (str, dict), "mediaType": str, **OPTIONS},
    "custom": {"kind": str, **OPTIONS},
    "tool-call": {"toolCallId": str, "toolName": str, "input": object, "providerExecuted?": bool, **OPTIONS},
    "tool-result": {"toolCallId": str, "toolName": str, "output": dict, **OPTIONS},
    "tool-approval-request": {"approvalId": str, "toolCallId": str, "reason?": str},
    "tool-approval-response": {"approvalId": str, "approved": bool, "reason?": str},
}
PART_ROLES: dict[str, tuple[str, ...]] = {
    "text": ("system", "user", "assistant"),
    "image": ("user",),
    "file": ("user", "assistant"),
    "reasoning": ("assistant",),
    "reasoning-file": ("assistant",),
    "custom": ("assistant",),
    "tool-call": ("assistant",),
    "tool-result": ("assistant", "tool"),
    "tool-approval-request": ("assistant",),
    "tool-approval-response": ("tool",),
}
"""Roles whose messages may hold a part, by part type."""
OUTPUTS: dict[str, FieldTypes] = {
    "text": {"value": str},
    "json": {"value": object},
    "execution-denied": {"reason?": str},
    "error-text": {"value": str},
    "error-json": {"value": object},
    "content": {"value": list},
}
OUTPUT_PARTS: dict[str, FieldTypes] = {
    "text": {"text": str, **OPTIONS},
    "file": {"data": (str, dict), "mediaType": str, "filename?": str, **OPTIONS},
    "media": {"data": str, "mediaType": str},
    "file-data": {"data": str, "mediaType": str, "filename?": str, **OPTIONS},
    "file-url": {"url": str, "mediaType?": str, **OPTIONS},
    "file-id": {"fileId": (str, dict), **OPTIONS},
    "file-reference": {"providerReference": dict, **OPTIONS},
    "image-data": {"data": str, "mediaType": str, **OPTIONS},
    "image-url": {"url": str, **OPTIONS},
    "image-file-id": {"fileId": (str, dict), **OPTIONS},
    "image-file-reference": {"providerReference": dict, **OPTIONS},
    "custom": OPTIONS,
}
METADATA: FieldTypes = {"providerMetadata?": dict}
UI_PARTS: dict[str, FieldTypes] = {
    "text": {"text": str, **METADATA},
    "reasoning": {"text": str, **METADATA},
    "custom": {"kind": str, **METADATA},
    "source-url": {"sourceId": str, "url": str},
    "source-document": {"sourceId": str, "mediaType": str, "title": str},
    "file": {"mediaType": str, "url": str, "filename?": str, "providerReference?": dict, **METADATA},
    "reasoning-file": {"mediaType": str, "url": str, **METADATA},
    "steering-message": {"parts": list},
    "step-start": {},
}
"""Parts of a `UIMessage`, except calls and `data-*`."""
CALL: FieldTypes = {
    "toolCallId": str,
    "state": str,
    "providerExecuted?": bool,
    "callProviderMetadata?": dict,
    "resultProviderMetadata?": dict,
    "approval?": dict,
}
STATES = (
    "input-streaming",
    "input-available",
    "approval-requested",
    "approval-responded",
    "output-available",
    "output-error",
    "output-denied",
)
STATE_FIELDS = {"output": "output-available", "errorText": "output-error"}
"""Fields that only a call in this state has."""
TOOL_TYPES = (None, "function", "dynamic", "provider")
REMOVED_FIELDS = ("function_call", "tool_calls", "toolInvocations")
"""Fields beside `content` in older versions, which version 7 silently removes."""
KINDS: dict[str, PartKind] = {
    "text": "text",
    "reasoning": "reasoning",
    "tool-call": "call",
    "tool-result": "result",
    "image": "media",
    "file": "media",
}

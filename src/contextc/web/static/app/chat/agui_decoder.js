/**
 * Decoder of AG-UI events into contextc's events. Deltas are AG-UI events and take the number of their frame. All other
 * events are complete in a CUSTOM event. AG-UI events that only repeat one of those are skipped.
 */

const OURS = "contextc.";
const REASONING = "-reasoning";

/** Return a function from a frame `{id, data}` to a contextc event or null. It keeps the names of open tool calls. */
export function createDecoder() {
  const calls = new Map();
  return ({ id, data }) => {
    const number = id ? Number(id) : 0;
    switch (data.type) {
      case "CUSTOM":
        return data.name.startsWith(OURS) ? data.value : null;
      case "TEXT_MESSAGE_CONTENT":
        return { type: "text-delta", number, uid: data.messageId, text: data.delta };
      case "REASONING_MESSAGE_CONTENT":
        return { type: "reasoning-delta", number, uid: data.messageId.slice(0, -REASONING.length), text: data.delta };
      case "TOOL_CALL_START":
        calls.set(data.toolCallId, { name: data.toolCallName, uid: data.parentMessageId });
        return null;
      case "TOOL_CALL_ARGS":
        return { type: "tool-call-delta", number, id: data.toolCallId, arguments: data.delta, ...calls.get(data.toolCallId) };
      default:
        return null;
    }
  };
}

/**
 * From AG-UI's events back to ours. Deltas are AG-UI's own and carry no number but that of the frame; all else rides
 * whole in a CUSTOM event. What only repeats one of those is left aside.
 */

const OURS = "contextc.";
const REASONING = "-reasoning";

/** A function from a frame `{id, data}` to an event of ours, or null. It remembers which call goes on. */
export function translator() {
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

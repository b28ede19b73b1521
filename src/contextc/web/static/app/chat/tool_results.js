/** Matching of tool calls and results by position, because models may reuse call ids. */

const FAR = 400;

/** Return the loaded results of the calls of message `seq`, by call id. @returns {Map<string, object>} */
export function resultsOf(messages, seq, calls) {
  const found = new Map();
  const open = new Set(calls.map((call) => call.id));
  for (let at = seq + 1; at <= seq + FAR && open.size; at += 1) {
    const message = messages.get(at);
    if (!message || message.role === "assistant") break;
    for (const part of message.parts ?? []) {
      if (part.type === "tool_result" && open.delete(part.call_id)) found.set(part.call_id, { ...part, time: message.time });
    }
  }
  return found;
}

/** Return true if all results of a message are shown with their calls. */
export function isShownWithCall(messages, message) {
  if (message.role !== "tool") return false;
  const wanted = new Set((message.parts ?? []).filter((part) => part.type === "tool_result").map((part) => part.call_id));
  for (let at = message.seq - 1; at > message.seq - FAR; at -= 1) {
    const before = messages.get(at);
    if (!before) return false;
    if (before.role !== "assistant") continue;
    return [...wanted].every((id) => before.parts?.some((part) => part.type === "tool_call" && part.id === id));
  }
  return false;
}

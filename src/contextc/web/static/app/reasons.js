/** Plain text for the reasons that the server records. Each key is a recorded code. Unknown ones are returned unchanged. */
import { number } from "./format.js";

/** Why a cache epoch began, as recorded → as shown. */
const RESETS = new Map([
  ["first request", "first request"],
  ["forked", "conversation was forked"],
  ["over budget", "context was full"],
  ["compaction", "conversation was compacted"],
  ["edited or branched away", "message was edited or branched"],
  ["cleared", "context was cleared"],
  ["redacted", "content was removed"],
  ["reasoning settings changed", "model settings changed"],
  ["new encoder version", "contextc was updated"],
  ["the request before it was replaced", "previous request was replaced"],
  ["no session", "provider has no session"],
  ["an earlier prompt may be in the session", "a failed prompt may be in the session"],
]);

/** Return the reason for a cache reset. */
export const resetReason = (why) => RESETS.get(why) ?? why ?? "";

/** Return a cache reset as one label. */
export function resetLabel(why) {
  if (!why) return "Cache reset";
  return why === "first request" ? "First request" : `Cache reset: ${resetReason(why)}`;
}

/** Return why a line of a request is sent otherwise than it is stored, or left out. */
export function lineReason({ why, reduction, original_length: length }) {
  if (!reduction) return String(why ?? "");
  const size = length ? `${number(length)} characters` : "";
  if (reduction === "stub") return `replaced by a stub${size && ` (${size})`}`;
  return `shortened${size && ` from ${size}`}`;
}

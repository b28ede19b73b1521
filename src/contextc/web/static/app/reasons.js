/** Plain text for the reasons that the server records. Each key is a recorded code. Unknown ones are returned unchanged. */
import { number } from "./format.js";

/** Why a cache epoch began, as recorded → as shown. */
const RESETS = new Map([
  ["first request", "first request"],
  ["forked", "conversation was forked"],
  ["over budget", "context was trimmed"],
  ["compaction", "conversation was compacted"],
  ["compaction undone", "compaction was undone"],
  ["edited or branched away", "message was edited or branched"],
  ["cleared", "context was cleared"],
  ["redacted", "content was removed"],
  ["reasoning settings changed", "model settings changed"],
  ["new encoder version", "contextc was updated"],
  ["the request before it was replaced", "previous request was replaced"],
  ["messages that were sent are missing from the conversation", "messages were lost"],
  ["stored system messages keep their place", "system messages were moved"],
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

/** Cause of a cache miss → as shown. Findings know the causes better than the recorded reasons of cache resets. */
const CAUSES = new Map([
  ["tools_reordered", "tools have another order"],
  ["tools_changed", "tools changed"],
  ["system_changed", "system prompt changed"],
  ["settings_changed", "model settings changed"],
  ["message_changed", "an earlier message changed"],
  ["message_removed", "an earlier message was removed"],
  ["message_inserted", "a message was inserted"],
  ["compacted", "conversation was compacted"],
  ["trimmed", "context was trimmed"],
  ["model_changed", "model changed"],
]);

/** Cause of a cache miss without a change of the request → label. The prefix was the same, so the cache was not reset. */
const MISSES = new Map([
  ["cache_expired", "Cache expired"],
  ["breakpoint_missing", "Cache missed: no cache breakpoint"],
  ["lookback_exceeded", "Cache missed: breakpoints are too far apart"],
  ["parallel_request", "Cache missed: the same prefix was still being answered"],
  ["provider_missed", "Cache missed: not used by the provider"],
]);

/** Said wherever costs of several causes of findings are listed. */
export const OVERLAP = "Costs of different causes can overlap, so they are not added up.";

const capitalised = (text) => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`;

/**
 * Return why a request did not read the cache, why it began a new cache epoch, or what it repeats; "" if it does neither. A
 * reset that lost nothing is not called one.
 * @param {{why: string, reset?: boolean, cause?: string, retry_of?: number, corrected?: boolean}} step `cause` is that of a finding
 */
export function stepLabel({ why, reset, cause, retry_of: retried, corrected }) {
  if (retried) return `${corrected ? "Corrected retry" : "Retry"} of request ${number(retried)}`;
  if (why === "first request") return resetLabel(why);
  if (MISSES.has(cause)) return MISSES.get(cause);
  if (!why && !cause) return "";
  const reason = CAUSES.get(cause) ?? (resetReason(why) || cause.replaceAll("_", " "));
  return reset === false ? capitalised(reason) : `Cache reset: ${reason}`;
}

/** Return why a line of a request is sent otherwise than it is stored, or left out. */
export function lineReason({ why, reduction, original_length: length }) {
  if (!reduction) return String(why ?? "");
  const size = length ? `${number(length)} characters` : "";
  if (reduction === "stub") return `replaced by a stub${size && ` (${size})`}`;
  return `shortened${size && ` from ${size}`}`;
}

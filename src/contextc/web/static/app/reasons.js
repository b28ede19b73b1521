/** Plain text for the reasons and remarks that the server records. Unknown texts are returned unchanged. */

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

/** Return why a message is sent otherwise than it is stored. */
export const lineReason = (why) => String(why ?? "").replace("result left out, can be fetched", "replaced by a stub");

const TIME_IN_PROMPT = /^Static fragment '([^']*)' names a moment \((.*?)\)\..*$/s;

/** Return a remark on a request. */
export const remarkText = (remark) =>
  String(remark ?? "").replace(
    TIME_IN_PROMPT,
    (_, fragment, time) => `Your system prompt contains a time (${time}), so the cache never hits. Make the fragment “${fragment}” dynamic.`,
  );

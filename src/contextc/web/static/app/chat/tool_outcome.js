/** How a tool call ended, from the text of its result: done, failed, denied by a person, or not run. */

/** Texts that begin the result of a denied call, in our own turns and in those of other software; the reason may follow. */
const DENIALS = [
  /^Not run: the user declined(?:\.$|: )/,
  /^Tool execution denied(?:\.$|: )/,
  /^The user doesn't want to proceed with this tool use\.[^]*?(?:the user said:\s*|$)/,
  /^The user doesn't want to take this action right now\.[^]*$/,
  /^(?:exec command )?rejected by user\.?/,
];
const NOT_RUN = /^Not run: /;
/** The most characters of a result that are looked at. */
const FAR = 2_000;

/** Return the text of a result. */
const textOf = ({ content }) => (Array.isArray(content) ? content.map((part) => part.text ?? "").join("\n") : content ?? "");

/**
 * Return how a call ended.
 * @param {string} text the result, or the beginning of it
 * @param {boolean} isError
 * @returns {{state: "done"|"error"|"denied"|"skipped", reason: string}} `reason` is that of a call that was not run
 */
export function outcomeOf(text, isError) {
  if (!isError) return { state: "done", reason: "" };
  const start = text.slice(0, FAR);
  const denial = DENIALS.map((each) => each.exec(start)).find(Boolean);
  if (denial) return { state: "denied", reason: start.slice(denial[0].length).trim() };
  if (NOT_RUN.test(start)) return { state: "skipped", reason: start.replace(NOT_RUN, "").trim() };
  return { state: "error", reason: "" };
}

/** Return how a call with a stored result ended. */
export const outcomeOfResult = (result) => outcomeOf(textOf(result), result.is_error);

/** Labels for conversations and requests that other software made and contextc recorded. */
import { duration, oneLine } from "./format.js";
import { openedFile } from "./route.js";

const KINDS = { agent: "sub-agent", side: "side request" };
const STATUSES = { error: "failed", unfinished: "failed: reply broke off", unanswered: "failed: no answer" };
/** Return true if the answer of an observed request is missing or incomplete; false if it was not recorded, because that is then unknown. */
export const hasFailed = (observed) => Boolean(observed) && observed.status !== "ok" && observed.status !== "unrecorded";
/** The reason of the server for a request that the user stopped. */
const STOPPED = "It was stopped.";

/** Return the client that made a conversation, and what kind of conversation it is. @param {object|undefined} source */
export function sourceLabel(source) {
  if (!source) return "";
  const client = oneLine(source.client, 40) || "observed";
  return KINDS[source.kind] ? `${client} · ${KINDS[source.kind]}` : client;
}

const AGENT_STATES = { stop: "done", error: "failed", waiting: "needs approval" };

/** Return the state of an agent that was called as a tool. @param {string} state */
export const agentState = (state) => AGENT_STATES[state] ?? oneLine(state.replaceAll("_", " "), 30);

/** Return the name of a source of conversations: a client, our own, or observed software. @param {string} source */
export const sourceName = (source) => ({ own: "own", observed: "observed" })[source] ?? oneLine(source, 40);

/** Milliseconds after its last message during which a conversation of other software counts as live. */
const LIVE = 60_000;

/** Return true if other software is making requests in a conversation now; never in an opened file. @param {object} entry of the list */
export const isLive = ({ observed, spoken }, now = Date.now()) => !openedFile && Boolean(observed) && !observed.imported && spoken > 0 && now - spoken < LIVE;

/** Return how an observed request failed; "" if it was answered. @param {object|undefined} observed @param {boolean} hasType with the type of the error */
export function failureLabel(observed, hasType = false) {
  if (observed?.status === "unrecorded") return "answer not recorded";
  const status = observed && STATUSES[observed.status];
  const facts = status ? [observed.code, hasType && oneLine(observed.error_type, 80)].filter(Boolean).join(", ") : "";
  return status ? `${status}${facts && ` (${facts})`}` : "";
}

/** Return the word for a request of our own without an answer. @param {string} ended its reason */
export const endedWord = (ended) => (ended === STOPPED ? "stopped" : "failed");

/** Return the text of a request's error; "" if there is none, or if it was only stopped. */
export const errorText = ({ ended, observed }) => (ended && ended !== STOPPED ? ended : observed?.error) ?? "";

/** Return the time until the reply ended; "" if it is unknown. */
export const latencyLabel = (observed) => (observed?.latency != null ? duration(observed.latency) : "");

/** Return how a request was sent. @param {string} mode */
export function modeLabel(mode) {
  if (mode === "observed") return "observed";
  return mode === "resume" ? "resumed session" : "full context";
}

/**
 * Provider errors for users of the web UI: a headline, the provider's message, and a fix that works here. The server sends
 * the kind of an error and the facts about a failed provider.
 *
 * @typedef {{headline: string, said: string, wayOut: string}} Description
 * @typedef {object} Details facts about the failure; a field that is not known is missing
 * @property {string} [provider] @property {string} [message] the provider's own text @property {string} [fix] if it has its own
 * @property {string} [case] "key" or "login" @property {string} [detail] environment variables, or the login command
 * @property {number} [retry_after] the requested wait, in seconds
 */
import { html } from "../html.js";
import { duration, visible } from "../format.js";
import { info } from "../state.js";

const CLASS = /^[A-Z][A-Za-z]*: /;
const AGAIN = "Then restart the server.";

/** Kind of failure → headline and fix. @type {Record<string, (name: string) => string[]>} */
const KINDS = {
  quota: (name) => [`${name}: the account has no credit left, or has reached its limit.`, "Add credit, or choose another model."],
  rate: (name) => [`${name}: rate limit reached.`, "Wait, then retry."],
  transient: (name) => [`${name} is overloaded or unreachable.`, "Retry."],
  context: () => ["The conversation is too long for this model.", "Compact the conversation, or choose a model with a larger context window."],
  session: (name) => [`${name}: the session no longer exists.`, "Retry: the whole context is sent to a new session."],
  invalid: (name) => [`${name} rejected this request.`, "Open Inspect to see what was sent; its Rules tab lists problems."],
  abort: () => ["The call was cancelled.", ""],
};

/**
 * Describe an error. Errors of older versions, and those of no provider, are one text.
 * @param {{error: string, errorKind?: string, failure?: Details}} notice @returns {Description}
 */
export function describeFailure({ error, errorKind: kind, failure }) {
  if (!failure?.provider) return { headline: "", said: String(error ?? "").replace(CLASS, ""), wayOut: "" };
  if (kind === "auth") return describeAuth(failure);
  const { provider, message, fix, retry_after: wait } = failure;
  const [headline, wayOut] = (KINDS[kind] ?? ((name) => [`${name} failed.`, ""]))(provider);
  const requested = wait === undefined ? "" : `It requested a wait of ${duration(wait * 1_000)}.`;
  return { headline, said: sentences(message, requested, fix), wayOut };
}

/** Describe a missing or rejected key, or a missing login. @param {Details} failure @returns {Description} */
function describeAuth({ provider, message, fix, case: which, detail }) {
  if (which === "key") {
    const wayOut = detail ? `Set ${detail} in the server's environment. ${AGAIN}` : "";
    return { headline: `No API key for ${provider}.`, said: "", wayOut };
  }
  if (which === "login" && detail) {
    return { headline: `${provider}: not logged in.`, said: sentences(message), wayOut: `Log in on the server: ${detail}` };
  }
  const known = info.value?.providers.find((each) => each.name === provider || each.also.includes(provider));
  const variables = known?.variables?.join(" or ");
  if (!variables) return { headline: `${provider}: not logged in.`, said: sentences(message, fix), wayOut: "" };
  const wayOut = `Check that ${variables} holds a key with access to this model. ${AGAIN}`;
  return { headline: `${provider} rejected the API key.`, said: sentences(message, fix), wayOut };
}

/** Join texts, each ended as a sentence. */
const sentences = (...texts) => texts.filter(Boolean).map((text) => (/[.!?…]$/.test(text) ? text : `${text}.`)).join(" ");

/** Return an error as one line. */
export function failureText(notice) {
  const { headline, said } = describeFailure(notice);
  return visible([headline, said].filter(Boolean).join(" "));
}

export function Failure({ notice }) {
  const { headline, said, wayOut } = describeFailure(notice);
  return html`<span class="failure">
    ${headline && html`<strong>${visible(headline)}</strong>`}
    ${said && html` <span class="wrap">${visible(said)}</span>`}
    ${wayOut && html` <span class="soft">${visible(wayOut)}</span>`}
  </span>`;
}

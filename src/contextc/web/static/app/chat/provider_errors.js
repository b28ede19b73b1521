/**
 * Provider errors for users of the web UI: a headline, the provider's message, and a fix that works here. An error is one
 * text; advice in it that addresses programs is removed.
 *
 * @typedef {{headline: string, said: string, wayOut: string}} Failure
 */
import { html } from "../html.js";
import { visible } from "../format.js";
import { info } from "../state.js";

const CLASS = /^[A-Z][A-Za-z]*: /;
const FAILED = /^(\S+) failed \((\w+)(?:: [^)]*)?\)(?:: |\. ?)(.*)$/s;
const FOR_PROGRAMS = /\s*(?:Set \S+[^.]*, or name another variable: cc\.provider\([^)]*\)\.|Check the key, and its access to this model\.)/g;
const UNSET = /(?:the environment variable (\S+) is not set|no key was found)\.?/;
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

/** Fixes in the library's errors, which address programs. They are removed: `KINDS` replaces them. */
const WAYS_OUT = [
  "The request is valid. Retry it.",
  "Too many requests in a short time. Wait, then retry.",
  "The account has no credit left. Add credit, or use another account.",
  "The request is too long for the model. Recompile it with a smaller budget.",
  "The session no longer exists. Call `SessionManager.invalidate()`, then recompile.",
  "The provider rejects this request. Check it with `contextc.lint()`.",
  "The call was aborted.",
];

/** Split an error text. @param {string} error of an event or a message @returns {Failure} */
export function describeFailure(error) {
  const text = String(error ?? "").replace(CLASS, "");
  const found = FAILED.exec(text);
  if (!found) return { headline: "", said: text, wayOut: "" };
  const [, name, kind, rest] = found;
  const said = WAYS_OUT.reduce((words, each) => words.replace(each, ""), rest.replace(FOR_PROGRAMS, "")).trim();
  if (kind === "auth") return keyFailure(name, said);
  const [headline, wayOut] = (KINDS[kind] ?? ((who) => [`${who} failed.`, ""]))(name);
  return { headline, said, wayOut };
}

/** Describe a missing or rejected key. Command-line agents have a login instead of a key. */
function keyFailure(name, said) {
  const known = info.value?.providers.find((each) => each.name === name || each.also.includes(name));
  const unset = UNSET.exec(said);
  const variables = unset?.[1] ? [unset[1]] : (known?.variables ?? []);
  const named = variables.join(" or ");
  if (unset) {
    const rest = said.replace(UNSET, "").trim();
    return { headline: `No API key for ${name}.`, said: rest, wayOut: named ? `Set ${named} in the server's environment. ${AGAIN}` : "" };
  }
  if (!variables.length) return { headline: `${name}: not logged in.`, said, wayOut: "" };
  return { headline: `${name} rejected the API key.`, said, wayOut: `Check that ${named} holds a key with access to this model. ${AGAIN}` };
}

/** Return an error as one line. */
export function failureText(error) {
  const { headline, said } = describeFailure(error);
  return visible([headline, said].filter(Boolean).join(" "));
}

export function Failure({ error }) {
  const { headline, said, wayOut } = describeFailure(error);
  return html`<span class="failure">
    ${headline && html`<strong>${visible(headline)}</strong>`}
    ${said && html` <span class="wrap">${visible(said)}</span>`}
    ${wayOut && html` <span class="soft">${visible(wayOut)}</span>`}
  </span>`;
}

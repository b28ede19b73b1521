/**
 * What went wrong with a provider, in words for whoever sits at the page: what it is, what the provider said of it, and a
 * way out that is open from here. An error comes as one text; what in it speaks to programs is left out.
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
const AGAIN = "Then start the server again.";

/** By kind of failure: what it is, and what helps. @type {Record<string, (name: string) => string[]>} */
const KINDS = {
  quota: (name) => [`The account with ${name} has no credit left, or has reached its limit.`, "Top it up, or ask another model."],
  rate: (name) => [`${name} was asked too much in a short time.`, "Wait a little, and ask again."],
  transient: (name) => [`${name} is overloaded, or cannot be reached.`, "Ask again."],
  context: () => ["The conversation is too long for this model.", "Have what is old summed up, or ask a model with a larger window."],
  session: (name) => [`${name} no longer has the session it was asked to go on with.`, "Ask again: it is told everything anew."],
  invalid: (name) => [`${name} does not take this request.`, "Inspect shows what was sent, and Rules what may be wrong with it."],
  abort: () => ["The call was given up.", ""],
};

/** What the library says for programs about what helps; the page has its own words for it. */
const WAYS_OUT = [
  "The request is valid. Retry it.",
  "Too many requests in a short time. Wait, then retry.",
  "The account has no credit left. Add credit, or use another account.",
  "The request is too long for the model. Recompile it with a smaller budget.",
  "The session no longer exists. Call `SessionManager.invalidate()`, then recompile.",
  "The provider rejects this request. Check it with `contextc.lint()`.",
  "The call was aborted.",
];

/** @param {string} error as an event or a message has it @returns {Failure} */
export function failureOf(error) {
  const text = String(error ?? "").replace(CLASS, "");
  const found = FAILED.exec(text);
  if (!found) return { headline: "", said: text, wayOut: "" };
  const [, name, kind, rest] = found;
  const said = WAYS_OUT.reduce((words, each) => words.replace(each, ""), rest.replace(FOR_PROGRAMS, "")).trim();
  if (kind === "auth") return refused(name, said);
  const [headline, wayOut] = (KINDS[kind] ?? ((who) => [`${who} failed.`, ""]))(name);
  return { headline, said, wayOut };
}

/** No key, or one that is not taken; a program has a login in its place. */
function refused(name, said) {
  const known = info.value?.providers.find((each) => each.name === name || each.also.includes(name));
  const unset = UNSET.exec(said);
  const variables = unset?.[1] ? [unset[1]] : (known?.variables ?? []);
  const named = variables.join(" or ");
  if (unset) {
    const rest = said.replace(UNSET, "").trim();
    return { headline: `There is no key for ${name}.`, said: rest, wayOut: named ? `Set ${named} where the server runs. ${AGAIN}` : "" };
  }
  if (!variables.length) return { headline: `${name} does not let this server in.`, said, wayOut: "" };
  return { headline: `${name} refuses the key.`, said, wayOut: `See that ${named} holds one that may use this model. ${AGAIN}` };
}

/** It in one line. */
export function inWords(error) {
  const { headline, said } = failureOf(error);
  return visible([headline, said].filter(Boolean).join(" "));
}

export function Failure({ error }) {
  const { headline, said, wayOut } = failureOf(error);
  return html`<span class="failure">
    ${headline && html`<strong>${visible(headline)}</strong>`}
    ${said && html` <span class="wrap">${visible(said)}</span>`}
    ${wayOut && html` <span class="soft">${visible(wayOut)}</span>`}
  </span>`;
}

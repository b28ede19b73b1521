/** Findings of many conversations: checked in small portions, first those that are visible, all of them on demand. */
import { signal } from "@preact/signals";
import { get, post } from "../api.js";
import { serverQuery } from "./selection.js";

const PORTION = 5;
const NAMES = 200;

/** The findings by name of the conversation: `{of, title, findings, causes, error}`. `of` differs if its requests have changed. */
export const checked = signal(new Map());

/** Progress of a check: `{done, total, all}`; null if none runs. */
export const checking = signal(null);

let running = null;

const identity = ({ figures }) => `${figures.requests} ${figures.failed} ${figures.input} ${figures.output}`;

/** Return the findings of an entry of the overview, as far as they are known. */
export function findingsOf(entry) {
  const known = checked.value.get(entry.conversation.name);
  return known?.of === identity(entry) ? known : entry.findings ? { findings: entry.findings, causes: null, error: "" } : null;
}

const isMissing = (entry) => entry.figures.requests + entry.figures.failed > 0 && !findingsOf(entry)?.causes;

/** Check the visible conversations, unless all are being checked. */
export function checkVisible(entries) {
  if (running?.all) return;
  stopCheck();
  const missing = entries.filter(isMissing);
  if (missing.length) run({ all: false }, async (task) => checkEntries(task, missing, 0, missing.length));
}

/** Check all selected conversations. @param {object} query the query of the URL */
export function checkAll(query, total) {
  stopCheck();
  run({ all: true }, async (task) => {
    for (let skip = 0; skip < total && !task.stop.signal.aborted; skip += NAMES) {
      const page = await get("overview", { ...serverQuery(query, { limit: NAMES, skip }), sort: "time" }, { signal: task.stop.signal });
      checking.value = { done: skip, total, all: true };
      await checkEntries(task, page.conversations.filter(isMissing), skip, total);
    }
  });
}

export function stopCheck() {
  running?.stop.abort();
  running = null;
  checking.value = null;
}

async function run(options, work) {
  const task = { ...options, stop: new AbortController() };
  running = task;
  try {
    await work(task);
  } catch (error) {
    if (error.name !== "AbortError" && running === task) checking.value = { ...checking.value, error };
  }
  if (running !== task) return;
  running = null;
  if (!checking.value?.error) checking.value = null;
}

async function checkEntries(task, entries, before, total) {
  for (let start = 0; start < entries.length; start += PORTION) {
    if (task.stop.signal.aborted) return;
    checking.value = { done: before + start, total, all: task.all };
    const some = entries.slice(start, start + PORTION);
    const found = await post("overview/findings", { names: some.map((each) => each.conversation.name) }, { signal: task.stop.signal });
    const entriesByName = new Map(some.map((each) => [each.conversation.name, each]));
    const next = new Map(checked.value);
    for (const each of found.conversations) {
      const entry = entriesByName.get(each.name);
      next.set(each.name, { ...each, of: identity(entry), title: entry.conversation.title });
    }
    checked.value = next;
  }
}

/** Compare two causes or requests: the more expensive one comes first. */
export const byCost = (one, other) => (other.cost ?? 0) - (one.cost ?? 0) || other.tokens - one.tokens;

/** Return the causes of some conversations, the most expensive first, each with its requests by conversation. */
export function causesOf(names) {
  const causes = new Map();
  for (const name of names) {
    const { causes: own = [], title } = checked.value.get(name) ?? {};
    for (const each of own) {
      const cause = causes.get(each.code) ?? { code: each.code, title: each.title, count: 0, conversations: 0, requests: 0, tokens: 0, cost: null, cost_is_lower_bound: false, parts: [] };
      cause.count += each.count;
      cause.requests += each.requests;
      cause.conversations += 1;
      cause.tokens += each.tokens;
      if (each.cost !== null) cause.cost = (cause.cost ?? 0) + each.cost;
      cause.cost_is_lower_bound ||= each.cost_is_lower_bound;
      cause.parts.push({ conversation: { name, title }, losses: each.losses });
      causes.set(each.code, cause);
    }
  }
  return [...causes.values()].sort(byCost);
}

/**
 * Layout computations of the timeline: columns, runs of equal items, axis ticks, and the kind of event behind a cache
 * reset. Pure functions without rendering.
 */

import { hasFailed } from "../observed.js";

const NARROWEST = 5;
const WIDEST = 56;
/** The greatest width of a step; its column does not fill it. */
const ROOMIEST = 180;

/**
 * Lay out steps as columns. Each step has its own column if that is at least NARROWEST pixels wide. Otherwise neighbours
 * share a column, which shows their mean. Zooming in widens the columns up to WIDEST.
 * @param {object[]} steps
 * @param {number} room pixels to draw in
 * @param {number} zoom 1 fits all into the room
 */
export function columnLayout(steps, room, zoom) {
  const fit = Math.min(ROOMIEST, Math.max(room, 1) / Math.max(steps.length, 1));
  const each = Math.min(Math.max(WIDEST, fit), fit * zoom);
  const together = each >= NARROWEST ? 1 : Math.ceil(NARROWEST / each);
  return {
    each,
    together,
    length: each * steps.length,
    columns: Math.ceil(steps.length / together),
    canGrow: each < WIDEST - 0.01,
    canShrink: zoom > 1,
  };
}

/** Return the steps whose number is written below a chart, as many as fit. */
export function numberedSteps(count, shape, left, inner) {
  const every = Math.max(1, Math.ceil(34 / shape.each));
  const apart = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 5000].find((each) => each >= every) ?? every;
  const found = apart > 4 && left < shape.each ? [0] : [];
  const first = Math.max(1, Math.floor(left / shape.each / apart)) * apart - 1;
  for (let index = first; index < count && index * shape.each - left < inner - 12; index += apart) found.push(index);
  return found;
}

/** Return the values of a column: the means of its steps. */
export function column(steps, first, last) {
  const own = steps.slice(first, last + 1).map((step) => ({ ...step, ...splitTokens(step) }));
  const mean = (name, some = own) => some.reduce((sum, step) => sum + (step[name] ?? 0), 0) / Math.max(some.length, 1);
  const known = own.filter((step) => step.cache_share != null);
  return {
    first,
    last,
    read: mean("read"),
    write: mean("write"),
    fresh: mean("fresh"),
    output: mean("output"),
    cost: mean("cost"),
    share: known.length ? mean("cache_share", known) : null,
  };
}

/** Split the input tokens of a step by cache state. Without the provider's usage, all are uncached. */
export function splitTokens(step) {
  const input = step.input ?? step.used ?? 0;
  const read = Math.min(input, step.cache_read ?? 0);
  const write = Math.min(input - read, step.cache_write ?? 0);
  return { input, read, write, fresh: Math.max(0, input - read - write) };
}

/**
 * Return all requests in order, also those without an answer. Such a step has `ended`, the reason. `request` is its
 * number in the URL: below 0 if the request is not stored; `wouldBe` is the number that an answer would have given it.
 */
export function mergeSteps(requests, unanswered) {
  const lost = unanswered.map((each, index) => {
    const later = each.time == null ? -1 : requests.findIndex((step) => step.time > each.time);
    return { at: later < 0 ? requests.length : later, step: unansweredStep(each, index) };
  });
  lost.sort((one, other) => one.at - other.at || (one.step.time || Infinity) - (other.step.time || Infinity));
  const found = [];
  let next = 0;
  for (const { at, step } of lost) {
    while (next < at) found.push(requests[next++]);
    found.push(step);
  }
  return [...found, ...requests.slice(next)];
}

function unansweredStep(found, index) {
  const { usage, number, why, time } = found;
  return {
    ...found, request: number ?? -(index + 1), isStored: number != null, wouldBe: found.request, ended: why || "unknown", why: "",
    epoch: null, mode: "full", time: time ?? 0, left: 0, window: 0,
    input: usage?.input ?? null, output: usage?.output ?? null, cache_read: usage?.cache_read ?? null,
    cache_write: usage?.cache_write ?? null, reasoning: usage?.reasoning ?? null,
    cache_share: usage?.input ? usage.cache_read / usage.input : null,
  };
}

/** Return true if a request has no complete answer. */
export const isFailed = (step) => Boolean(step.ended) || hasFailed(step.observed);

/** Return the number of a request on its channel. */
export const requestNumber = (step) => step.wouldBe ?? step.request;

/** Return the steps with the cache epoch that each belongs to: one without an answer has that of the step before it. */
export function epochKeys(steps) {
  const last = new Map();
  return steps.map((step) => {
    if (step.epoch != null) last.set(step.channel, step.epoch);
    return `${step.channel} ${last.get(step.channel) ?? 0}`;
  });
}

/** Group adjacent items with equal keys, as index ranges. */
export function groupRuns(items, key) {
  const found = [];
  items.forEach((item, index) => {
    const name = key(item, index);
    const last = found[found.length - 1];
    if (last && last.key === name) last.to = index;
    else found.push({ key: name, from: index, to: index, item });
  });
  return found;
}

/** Return round axis ticks from 0 to at least the largest value. */
export function ticks(largest, about = 4) {
  if (!(largest > 0)) return [0, 1];
  const rough = largest / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const apart = [1, 2, 2.5, 5, 10].map((times) => times * power).find((candidate) => candidate >= rough);
  const found = [];
  for (let at = 0; at < largest + apart; at += apart) found.push(at);
  return found;
}

/** Kinds of cache resets: a sign and a word each, so that colour is never the only distinction. */
export const EVENTS = {
  start: { sign: "▸", word: "first request" },
  cut: { sign: "✂", word: "context was trimmed" },
  summary: { sign: "≡", word: "compaction" },
  edit: { sign: "✎", word: "edited" },
  session: { sign: "⟲", word: "session or context cleared" },
  change: { sign: "◆", word: "prompt, tools or settings changed" },
};

const EVENT_PATTERNS = [
  [/first request/i, "start"],
  [/summar|compact/i, "summary"],
  [/budget|does not fit|window|cut|too long/i, "cut"],
  [/session|lost|clear|shortened/i, "session"],
  [/edited|branched|rewound|forked|redacted/i, "edit"],
];

/** Return the kind of event of a recorded reason; null if there is none. */
export function eventKind(why) {
  if (!why) return null;
  return (EVENT_PATTERNS.find(([pattern]) => pattern.test(why)) ?? [null, "change"])[1];
}

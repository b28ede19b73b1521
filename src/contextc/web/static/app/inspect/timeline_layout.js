/**
 * Layout computations of the timeline: columns, runs of equal items, axis ticks, and the kind of event behind a cache
 * reset. Pure functions without rendering.
 */

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
 * Return the unanswered requests with the index of the step after each. One without a time is still running, and comes last.
 */
export function placeUnanswered(lost, steps) {
  const found = lost.map((each) => {
    const later = each.time == null ? -1 : steps.findIndex((step) => step.time > each.time);
    return { ...each, at: later < 0 ? steps.length : later };
  });
  return found.sort((one, other) => one.at - other.at || (one.time ?? Infinity) - (other.time ?? Infinity));
}

/** Group adjacent items with equal keys, as index ranges. */
export function groupRuns(items, key) {
  const found = [];
  items.forEach((item, index) => {
    const name = key(item);
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
  cut: { sign: "✂", word: "context was full" },
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

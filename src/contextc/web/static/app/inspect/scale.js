/**
 * Arithmetic of the timeline: which steps share a column, where a run of equal things begins and ends, which figures an
 * axis names, and what kind of event the reason for an epoch tells of. No drawing here, so it can be read and tried alone.
 */

const NARROWEST = 5;
const WIDEST = 56;
/** Of few steps each may take more room; its column does not fill it. */
const ROOMIEST = 180;

/**
 * Steps as columns. As long as each can have NARROWEST pixels it stands alone; beyond that neighbours share one, which
 * shows their mean. Zooming in widens all, until each has WIDEST.
 * @param {object[]} steps
 * @param {number} room pixels to draw in
 * @param {number} zoom 1 fits all into the room
 */
export function layout(steps, room, zoom) {
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

/** What one column shows: the mean of its steps, and what happened in any of them. */
export function column(steps, first, last) {
  const own = steps.slice(first, last + 1).map((step) => ({ ...step, ...split(step) }));
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

/** Where the tokens of a step's input came from. Without a provider's figures, what was shared stands for the cache. */
export function split(step) {
  const input = step.input ?? step.used ?? 0;
  const read = Math.min(input, step.cache_read ?? 0);
  const write = Math.min(input - read, step.cache_write ?? 0);
  return { input, read, write, fresh: Math.max(0, input - read - write) };
}

/**
 * Requests that were not answered, each with the step it stands before: its place in time. One that has no time is on its
 * way, and comes last.
 */
export function placed(lost, steps) {
  const found = lost.map((each) => {
    const later = each.time == null ? -1 : steps.findIndex((step) => step.time > each.time);
    return { ...each, at: later < 0 ? steps.length : later };
  });
  return found.sort((one, other) => one.at - other.at || (one.time ?? Infinity) - (other.time ?? Infinity));
}

/** Neighbours that are alike, as spans of indices. */
export function runs(items, key) {
  const found = [];
  items.forEach((item, index) => {
    const name = key(item);
    const last = found[found.length - 1];
    if (last && last.key === name) last.to = index;
    else found.push({ key: name, from: index, to: index, item });
  });
  return found;
}

/** Round figures from 0 to at least the largest: 1, 2 or 5 times a power of ten apart. */
export function ticks(largest, about = 4) {
  if (!(largest > 0)) return [0, 1];
  const rough = largest / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const apart = [1, 2, 2.5, 5, 10].map((times) => times * power).find((candidate) => candidate >= rough);
  const found = [];
  for (let at = 0; at < largest + apart; at += apart) found.push(at);
  return found;
}

/** The kinds of event that begin an epoch: a sign and a word each, so that none is told by colour alone. */
export const EVENTS = {
  start: { sign: "▸", word: "first request" },
  cut: { sign: "✂", word: "cut" },
  summary: { sign: "≡", word: "compaction" },
  edit: { sign: "✎", word: "edit" },
  session: { sign: "⟲", word: "session" },
  change: { sign: "◆", word: "change" },
};

const TOLD = [
  [/first request/i, "start"],
  [/summar|compact/i, "summary"],
  [/budget|does not fit|window|cut|too long/i, "cut"],
  [/session|lost|clear|shortened/i, "session"],
  [/edited|branched|rewound|forked|redacted/i, "edit"],
];

/** Which kind of event a reason tells of; null where no epoch began. */
export function event(why) {
  if (!why) return null;
  return (TOLD.find(([pattern]) => pattern.test(why)) ?? [null, "change"])[1];
}

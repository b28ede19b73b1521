/** Formatting of numbers, sizes and times, and sanitizing of untrusted text for display. */

const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const clockTime = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const dayAndYear = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const NONE = "–";

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** 12,345 */
export const number = (value) => (isNumber(value) ? whole.format(value) : NONE);

/** 980, 12.3k, 1.25M */
export function tokens(value) {
  if (!isNumber(value)) return NONE;
  if (Math.abs(value) < 1_000) return whole.format(value);
  if (Math.abs(value) < 999_950) return `${trimmed(value / 1_000, value < 100_000 ? 1 : 0)}k`;
  return `${trimmed(value / 1_000_000, 2)}M`;
}

/**
 * Return the input of several requests as text: the tokens that providers reported, and estimates of the others: ≈ 12.3k.
 * @param {{input: number, estimated?: number}} figures
 */
export const inputText = ({ input, estimated = 0 }, text = tokens) => `${estimated ? "≈ " : ""}${text(input + estimated)}`;

/** Return the output of several requests as text: "–" if no provider has reported any. */
export const outputText = ({ input, estimated, output }, text = tokens) => (estimated && !input ? NONE : text(output));

/** $0.0042, $1.20 */
export function dollars(value) {
  if (!isNumber(value)) return NONE;
  if (value === 0) return "$0";
  if (Math.abs(value) < 0.0001) return "<$0.0001";
  return `$${value.toFixed(Math.abs(value) < 0.01 ? 4 : Math.abs(value) < 1 ? 3 : 2)}`;
}

/**
 * Return a cost as text. Of a lower bound, because a factor of a price is unknown: "at least $1.20".
 * @param {{cost: number|null, cost_is_lower_bound?: boolean}} figures
 */
export const costText = ({ cost, cost_is_lower_bound: isLowerBound }) => (isLowerBound && isNumber(cost) ? `at least ${dollars(cost)}` : dollars(cost));

/** 0.834 → 83%. Values above 0 are never shown as 0%, values below 1 never as 100%. */
export function percent(value) {
  if (!isNumber(value)) return NONE;
  if (value > 0 && value < 0.01) return "<1%";
  if (value < 1 && value > 0.99) return ">99%";
  return `${Math.round(value * 100)}%`;
}

/** 420 ms, 1.3 s, 2 min 5 s */
export function duration(milliseconds) {
  if (!isNumber(milliseconds)) return NONE;
  if (milliseconds < 1_000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 60_000) return `${trimmed(milliseconds / 1_000, 1)} s`;
  const seconds = Math.round(milliseconds / 1_000);
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} min`;
}

/** 812 B, 4.2 kB, 1.1 MB */
export function bytes(value) {
  if (!isNumber(value)) return NONE;
  if (value < 1_000) return `${value} B`;
  if (value < 1_000_000) return `${trimmed(value / 1_000, 1)} kB`;
  return `${trimmed(value / 1_000_000, 1)} MB`;
}

/** now, 5 min, 14:32, 3 Mar, 3 Mar 2025: the shortest useful form. */
export function ago(time, now = Date.now()) {
  if (!time) return "";
  const passed = now - time;
  if (passed < 60_000) return "now";
  if (passed < 3_600_000) return `${Math.floor(passed / 60_000)} min`;
  const then = new Date(time);
  const today = new Date(now);
  if (then.toDateString() === today.toDateString()) return clockTime.format(then);
  return (then.getFullYear() === today.getFullYear() ? day : dayAndYear).format(then);
}

/** The author of notes and rules that are made in the web UI. */
export const AUTHOR = "web UI";
/** Return who wrote a note, or made a rule. The server knows no names of people. */
export const authorName = (who) => (who === "http" ? "HTTP API" : oneLine(who, 40));

/** In place of the time of a request, if its file states none. */
export const NO_TIME = "time not recorded";
export const clock = (time) => (time ? clockTime.format(new Date(time)) : "");
export const dateTime = (time) => (time ? full.format(new Date(time)) : "");

/** 1 message, 2 messages */
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

const trimmed = (value, digits) => value.toFixed(digits).replace(/\.0+$/, "");

/* Joiners and emoji variation selectors are kept: names and code legitimately contain them. */
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffc\u{1d159}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
const OVERRIDES = /[\u202a-\u202e]/g;

/** Return a text for security decisions: invisible and direction-changing characters are shown as code points. */
export function visible(text) {
  return String(text ?? "").replace(HIDDEN, (each) => `⟨U+${each.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** Return a text for reading: characters that override the text direction are replaced. */
export function readable(text) {
  return String(text ?? "").replace(OVERRIDES, "\ufffd");
}

/** The server cuts the titles that it makes of messages at this many characters. */
const CUT_TITLE = 80;

/** Return the title of a conversation, or its name, as one line. A title that the server has cut ends with an ellipsis. */
export function titleLine({ title, name }, limit = 90) {
  const isCut = title?.length >= CUT_TITLE && [...title].length === CUT_TITLE;
  return oneLine(isCut ? `${title.trimEnd()}…` : title || name, limit);
}

/** Return a text as one line, cut at a length. */
export function oneLine(text, limit = 120) {
  const flat = visible(String(text ?? "").slice(0, limit * 4).replace(/\s+/g, " ").trim());
  return flat.length > limit ? `${flat.slice(0, limit - 1)}…` : flat;
}

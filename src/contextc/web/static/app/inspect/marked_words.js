/**
 * Words to mark in a request that a link leads to. A link has a text near them (`near`), and the characters of it to mark
 * (`mark`, such as "8-14"). Without `near`, `mark` is the number of a character, whose row is shown. White space of that text may differ from the request, so only other characters are counted.
 */

const AROUND = 24;
const MOST = 160;

/** Return the words that changed between two texts, as parts of a URL. @returns {{near: string, mark: string}} */
export function markOfChange(before, after) {
  const near = after.replace(/…$/, "");
  let [start, end] = [0, near.length];
  while (start < end && before[start] === near[start]) start += 1;
  const old = before.replace(/…$/, "");
  for (let at = old.length; end > start && at > start && old[at - 1] === near[end - 1]; at -= 1) end -= 1;
  return wholeWords(near, start, end);
}

/** Return the first words that were added, as parts of a URL. @param {{kind: string, text?: string}[]} segments */
export function markOfSegments(segments) {
  const at = segments.findIndex((each) => each.kind === "added" && each.text?.trim());
  if (at < 0) return { near: "", mark: "" };
  const sameText = (index) => (segments[index]?.kind === "same" ? segments[index].text ?? "" : "");
  const [before, after] = [sameText(segments[at - 1]?.kind === "removed" ? at - 2 : at - 1), sameText(at + 1)];
  const start = before.slice(-AROUND);
  const words = segments[at].text.slice(0, MOST);
  const rest = words.length < MOST ? after.slice(0, AROUND) : "";
  return wholeWords(`${start}${words}${rest}`, start.length, start.length + words.length);
}

function wholeWords(near, start, end) {
  while (start > 0 && /\S/.test(near[start - 1])) start -= 1;
  while (end < near.length && /\S/.test(near[end])) end += 1;
  return { near, mark: near.trim() ? `${start}-${end}` : "" };
}

/**
 * Return the characters to mark in the rows of a value.
 * @param {import("./json_rows.js").Row[]} rows @param {number} first the row where the value begins
 * @returns {Map<number, [number, number]>} row → start and end; empty if the text is not found
 */
export function findMarked(rows, first, near, mark) {
  const found = new Map();
  const [start, end] = mark.split("-").map(Number);
  if (first >= 0 && !near && mark) return rowAt(rows, first, start);
  const pattern = patternOf(near);
  if (first < 0 || !pattern || !(end >= start)) return found;
  const places = rowsOfValue(rows, first);
  const text = places.map((index) => rows[index].text).join("");
  const match = pattern.exec(text);
  if (!match) return found;
  const from = match.index + skip(match[0], letters(near.slice(0, start)));
  const to = match.index + lengthOf(match[0], letters(near.slice(0, end)));
  let at = 0;
  for (const index of places) {
    const size = rows[index].text.length;
    if (at < to && at + size > from) found.set(index, [Math.max(0, from - at), Math.min(size, to - at)]);
    at += size;
  }
  return found;
}

/** Return the place of a row in its value, as the part of a URL that `rowAt` reads; "" for the first row. */
export function markOfRow(rows, index) {
  if (rows[index].kind !== "more") return "";
  let [first, start] = [index, 0];
  while (rows[first].kind === "more") start += rows[--first].text.length;
  return `${start}`;
}

/** Return the row of a value with its character number `start`, and no words of it. */
function rowAt(rows, first, start) {
  const places = rowsOfValue(rows, first);
  let at = 0;
  const index = places.find((each) => (at += rows[each].text.length) > start);
  return index === undefined ? new Map() : new Map([[index, [rows[index].text.length, rows[index].text.length]]]);
}

/** Return a pattern for a text, whatever its white space; null for an empty one. */
function patternOf(text) {
  const words = text.trim().split(/\s+/).filter(Boolean);
  return words.length ? new RegExp(words.map((each) => each.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&")).join("\\s+")) : null;
}

function rowsOfValue(rows, first) {
  const isOpen = rows[first].kind === "open";
  const found = [];
  for (let index = first; index < rows.length; index += 1) {
    const { kind } = rows[index];
    if (isOpen ? index > rows[first].end : index > first && kind !== "more") break;
    if (!isOpen || kind === "string" || kind === "more") found.push(index);
  }
  return found;
}

const letters = (text) => text.replace(/\s+/g, "").length;

/** Return the length of a text up to its letter number `count`, without white space after it. */
function lengthOf(text, count) {
  let at = 0;
  for (let seen = 0; at < text.length && seen < count; at += 1) if (/\S/.test(text[at])) seen += 1;
  return at;
}

/** Return the place of the letter after the first `count` ones. */
function skip(text, count) {
  let at = lengthOf(text, count);
  while (at < text.length && /\s/.test(text[at])) at += 1;
  return at;
}

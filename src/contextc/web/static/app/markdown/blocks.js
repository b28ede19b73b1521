/**
 * Markdown as blocks: headings, paragraphs, lists, quotes, tables, fences. A line at a time, and never back: whatever is
 * written gives some list of blocks, in linear time, and of a size like its own. HTML is words like any other.
 *
 * @typedef {{type: string, at: number, text?: string, level?: number, language?: string, children?: Block[], ordered?: boolean,
 *   start?: number, tight?: boolean, items?: {checked: boolean|null, children: Block[]}[], align?: string[], head?: string[],
 *   rows?: string[][], open?: boolean}} Block
 */

const DEEPEST = 12;
const WIDEST = 200;
/** So many cells that are not written are added to the rows of a table. */
const FILLED = 10_000;
const FENCE = /^( {0,3})(`{3,}|~{3,})([^`]*)$/;
const FENCE_END = /^ {0,3}(`+|~+)[ \t]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]([^]*))?$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-+*]|\d{1,9}[.)])(?:( +)([^]*)|)$/;
const DIVIDER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*(?:\|[ \t]*)?$/;
const UNDERLINE = /^ {0,3}(=+|-+)[ \t]*$/;

const isBlank = (line) => line === undefined || line.trim() === "";
const indentOf = (line) => line.length - line.trimStart().length;

/** @returns {Block[]} `at` is the line a block begins with */
export function blocksOf(lines, depth = 0) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) at += 1;
    else {
      const [block, next] = depth > DEEPEST ? paragraph(lines, at, true) : blockAt(lines, at, depth);
      found.push({ ...block, at });
      at = next;
    }
  }
  return found;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  const heading = HEADING.exec(line);
  if (heading) return [{ type: "heading", level: heading[1].length, text: titleOf(heading[2] ?? "") }, at + 1];
  if (FENCE.test(line)) return fence(lines, at);
  if (RULE.test(line)) return [{ type: "rule" }, at + 1];
  if (QUOTE.test(line)) return quote(lines, at, depth);
  if (isItem(line)) return list(lines, at, depth);
  if (/^(?: {4}|\t)/.test(line)) return indented(lines, at);
  if (line.includes("|") && DIVIDER.test(lines[at + 1] ?? "") && lines[at + 1].includes("-")) {
    const head = cells(line);
    if (head.length <= WIDEST && head.length === cells(lines[at + 1]).length) return table(lines, at, head);
  }
  return paragraph(lines, at);
}

/** A heading without the marks that may close it. */
function titleOf(written) {
  const title = written.trim();
  let end = title.length;
  while (title[end - 1] === "#") end -= 1;
  return end < title.length && /[ \t]/.test(title[end - 1] ?? "") ? title.slice(0, end).trimEnd() : title;
}

const isItem = (line) => {
  const match = ITEM.exec(line);
  return Boolean(match) && match[1].length < 4 && !RULE.test(line);
};

/** Whether a line ends the paragraph above it. */
function interrupts(line) {
  const item = ITEM.exec(line);
  const begins = item && item[1].length < 4 && item[4]?.trim() && (!/\d/.test(item[2]) || /^1[.)]$/.test(item[2]));
  return isBlank(line) || HEADING.test(line) || FENCE.test(line) || RULE.test(line) || QUOTE.test(line) || Boolean(begins);
}

function fence(lines, at) {
  const [, indent, marks, language] = FENCE.exec(lines[at]);
  const inside = [];
  let next = at + 1;
  while (next < lines.length && !FENCE_END.exec(lines[next])?.[1].startsWith(marks)) {
    inside.push(lines[next].slice(Math.min(indent.length, indentOf(lines[next]))));
    next += 1;
  }
  const open = next >= lines.length;
  return [{ type: "code", language: language.trim(), text: inside.join("\n"), open }, open ? next : next + 1];
}

function indented(lines, at) {
  let next = at;
  while (next < lines.length && (isBlank(lines[next]) || /^(?: {4}|\t)/.test(lines[next]))) next += 1;
  const inside = lines.slice(at, next).map((line) => line.replace(/^(?: {1,4}|\t)/, ""));
  return [{ type: "code", language: "", text: inside.join("\n").trimEnd() }, next];
}

function quote(lines, at, depth) {
  const inside = [];
  let next = at;
  while (next < lines.length && (QUOTE.test(lines[next]) || (!interrupts(lines[next]) && !isBlank(inside.at(-1))))) {
    inside.push(lines[next].replace(QUOTE, ""));
    next += 1;
  }
  return [{ type: "quote", children: blocksOf(inside, depth + 1) }, next];
}

function list(lines, at, depth) {
  const kindOf = (mark) => (/\d/.test(mark) ? mark.at(-1) : mark);
  const [, , mark] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(mark);
  const items = [];
  let next = at;
  let tight = true;
  const goesOn = (line) => line !== undefined && isItem(line) && kindOf(ITEM.exec(line)[2]) === kindOf(mark);
  while (goesOn(lines[next])) {
    const [inside, after, gap] = itemLines(lines, next);
    const task = /^\[([ xX])\][ \t]+/.exec(inside[0]);
    if (task) inside[0] = inside[0].slice(task[0].length);
    const children = blocksOf(inside, depth + 1);
    tight = tight && !(gap && goesOn(lines[after])) && !children.some((child, index) => index > 0 && isBlank(inside[child.at - 1]));
    items.push({ checked: task ? task[1] !== " " : null, children });
    next = after;
  }
  return [{ type: "list", ordered, start: ordered ? parseInt(mark, 10) : 1, tight, items }, next];
}

/** The lines of one item without their indent, where the next thing begins, and whether a gap comes before it. */
function itemLines(lines, at) {
  const [, lead, mark, spaces = " ", rest = ""] = ITEM.exec(lines[at]);
  const width = lead.length + mark.length + (spaces.length > 4 ? 1 : spaces.length);
  const inside = [spaces.length > 4 ? spaces.slice(1) + rest : rest];
  let next = at + 1;
  while (next < lines.length) {
    const line = lines[next];
    const indent = indentOf(line);
    if (isBlank(line)) inside.push("");
    else if (indent >= width) inside.push(line.slice(width));
    else if (indent >= lead.length + 2 && ITEM.test(line)) inside.push(line.slice(indent)); // models indent too little
    else if (!isBlank(inside.at(-1)) && !interrupts(line) && !isItem(line)) inside.push(line.trimStart());
    else break;
    next += 1;
  }
  let gap = 0;
  while (inside.length > 1 && isBlank(inside.at(-1))) {
    inside.pop();
    gap += 1;
  }
  return [inside, next, gap > 0];
}

function table(lines, at, head) {
  const align = cells(lines[at + 1]).map((cell) => {
    const [left, right] = [cell.startsWith(":"), cell.endsWith(":")];
    return left && right ? "center" : right ? "end" : "start";
  });
  const rows = [];
  let filled = 0;
  let next = at + 2;
  while (next < lines.length && lines[next].includes("|") && !interrupts(lines[next])) {
    const row = cells(lines[next]).slice(0, head.length);
    for (; row.length < head.length && filled < FILLED; filled += 1) row.push("");
    rows.push(row);
    next += 1;
  }
  return [{ type: "table", align, head, rows }, next];
}

function cells(line) {
  const inside = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inside.split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, "|"));
}

function paragraph(lines, at, plain = false) {
  let next = at + 1;
  while (next < lines.length && !isBlank(lines[next])) {
    const underline = plain ? null : UNDERLINE.exec(lines[next]);
    if (underline) {
      const text = lines.slice(at, next).join("\n").trim();
      return [{ type: "heading", level: underline[1][0] === "=" ? 1 : 2, text }, next + 1];
    }
    if (!plain && interrupts(lines[next])) break;
    next += 1;
  }
  return [{ type: "paragraph", text: lines.slice(at, next).map((line) => line.trimStart()).join("\n").trimEnd() }, next];
}

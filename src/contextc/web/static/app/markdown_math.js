/**
 * Math in Markdown: `$…$` and `\(…\)` within a line, `$$…$$` and `\[…\]` on their own. Prices and shell variables stay text:
 * a formula begins and ends with something other than a space, and no letter or digit touches its dollar signs from outside.
 */
import { html } from "./html.js";
import { visible } from "./format.js";
import { mathNode } from "./tex.js";

const LONGEST = 2_000;
const TEX = /[\\^_={}<>]/;
/** Words of prose beside a space: short ones are prose only in a text without signs of a formula. */
const WORDS = /\p{L}{2,}\s|\s\p{L}{2,}/u;
const LONG_WORDS = /\p{L}{3,}\s|\s\p{L}{3,}/u;
const CLOSING = { "$$": "$$", $: "$", "\\(": "\\)", "\\[": "\\]" };

/** Add the rules to a markdown-it. */
export function addMath(markdown) {
  markdown.inline.ruler.before("escape", "math", inlineRule);
  markdown.block.ruler.before("fence", "math", blockRule, { alt: ["paragraph", "blockquote", "list"] });
}

/** Return true if a text between single dollar signs is a formula. */
function isFormula(text) {
  if (/^\s|\s$/.test(text) || !text) return false;
  return text.includes("\\") || !(TEX.test(text) ? LONG_WORDS : WORDS).test(text);
}

/** Return true if a text between escaped brackets is a formula: Markdown also uses them for plain brackets. */
const isTex = (text) => TEX.test(text) || /^\s*\p{L}(?:\(\p{L}\))?\s*$/u.test(text) || /[+*/-]/.test(text.trim().slice(1));

/** Return the position of a closing mark that is not escaped; -1 if there is none near. */
function closingAt(text, mark, start) {
  const near = text.slice(start, start + LONGEST);
  for (let at = near.indexOf(mark); at >= 0; at = near.indexOf(mark, at + 1)) {
    let slashes = 0;
    while (near[at - 1 - slashes] === "\\") slashes += 1;
    if (slashes % 2 === 0) return start + at;
  }
  return -1;
}

function inlineRule(state, silent) {
  const { src, pos } = state;
  const two = src.slice(pos, pos + 2);
  const open = two in CLOSING ? two : src[pos] === "$" ? "$" : "";
  if (!open || (open[0] === "$" && /[\p{L}\d$]/u.test(src[pos - 1] ?? ""))) return false;
  const start = pos + open.length;
  const end = closingAt(src, CLOSING[open], start);
  if (end < 0 || end > state.posMax) return false;
  const content = src.slice(start, end);
  const after = end + open.length;
  const isMath = open === "$" ? isFormula(content) && !/[\p{L}\d]/u.test(src[after] ?? "") : open === "$$" ? content.trim() !== "" : isTex(content);
  if (!isMath) return false;
  if (!silent) Object.assign(state.push("math", "", 0), { content, markup: open });
  state.pos = after;
  return true;
}

/** Block rule: a formula over several lines without an empty one. At the end of the text it may still be open. */
function blockRule(state, start, end, silent) {
  if (state.sCount[start] - state.blkIndent >= 4) return false;
  const lineAt = (line) => state.src.slice(state.bMarks[line] + state.tShift[line], state.eMarks[line]);
  const first = lineAt(start);
  const open = first.slice(0, 2);
  if (open !== "$$" && open !== "\\[") return false;
  const lines = [];
  let [line, isOpen, length] = [start, true, 0];
  for (; line < end && isOpen; line += 1) {
    length += state.eMarks[line] - state.bMarks[line] + 1;
    if (length > LONGEST || (line > start && (state.isEmpty(line) || state.sCount[line] < state.blkIndent))) return false;
    const text = line > start ? lineAt(line) : first.slice(2);
    const at = closingAt(text, CLOSING[open], 0);
    if (at >= 0 && text.slice(at + 2).trim()) return false; // part of a paragraph
    lines.push(at < 0 ? text : text.slice(0, at));
    isOpen = at < 0;
  }
  const content = lines.join("\n");
  if ((!isOpen && !content.trim()) || (open !== "$$" && !isOpen && !isTex(content))) return false;
  if (isOpen && lines[0].trim() && !TEX.test(lines[0])) return false;
  if (silent) return true;
  state.line = line;
  Object.assign(state.push("math_block", "", 0), { content, markup: open, map: [start, line], meta: { isOpen } });
  return true;
}

/** Render a formula, or its source if it is not supported or not complete yet. */
export function Formula({ source, markup, isOpen = false }) {
  const isDisplay = markup === "$$" || markup === "\\[";
  const node = isOpen ? null : mathNode(source, isDisplay);
  const shown = node ?? html`<code class="math-source" dir="ltr">${visible(isOpen ? `${markup}${source}` : source.trim())}</code>`;
  if (!isDisplay) return html`<span data-testid="math">${shown}</span>`;
  return html`<span class="math-display" tabindex="0" role="group" aria-label="Formula" data-testid="math">${shown}</span>`;
}

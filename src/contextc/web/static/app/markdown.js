/**
 * Markdown rendering of model output: markdown-it's tokens become vnodes. Text never becomes markup; only the elements made
 * here can appear. Formulas become MathML. Links must be http, https or mailto. An image becomes a link and is never loaded. While a text streams,
 * only its last block is parsed again. Earlier blocks, and unchanged pieces of the last one, are reused as the same objects.
 */
import MarkdownIt from "markdown-it";
import { html, h, useRef } from "./html.js";
import { safeUrl } from "./safe_url.js";
import { Code } from "./code_block.js";
import { readable, visible } from "./format.js";
import { addMath, Formula } from "./markdown_math.js";

/** Heading level of a message. Headings inside are below it, and skip no level. */
const MESSAGE_LEVEL = 2;
/** Limits beyond which content is plain text: nesting of blocks, nesting within a paragraph, columns of a table. */
const DEEPEST_BLOCK = 20;
const DEEPEST_INLINE = 16;
const WIDEST = 200;
/** The most missing cells that are added to the rows of a table. */
const FILLED = 10_000;
/** A longer paragraph is plain text in slabs, because the layout of long paragraphs is slow. */
const LONGEST = 20_000;
const SLABS = /[^]{1,8000}(?:\s|$)|[^]{8000}/gu;
const TASK = /^\[([ xX])\][ \t]+/;
const ALIGNED = { "text-align:center": "center", "text-align:right": "end" };

const markdown = new MarkdownIt({ html: false, linkify: true, maxNesting: 2 * DEEPEST_BLOCK });
/* A definition at the end would change earlier links, which are rendered already. */
markdown.disable(["reference"]);
/* URLs stay as written; `safeUrl` decides which of them become links. */
markdown.validateLink = () => true;
markdown.normalizeLink = (address) => address;
markdown.normalizeLinkText = (address) => address;
markdown.linkify.set({ fuzzyLink: false, fuzzyEmail: false }).add("ftp:", null).add("mailto:", null).add("//", null);
markdown.block.ruler.before("table", "plain", plainParagraph);
addMath(markdown);

/** Block rule: blocks nested too deep, and tables that are too wide, become one paragraph with all their text. */
function plainParagraph(state, start, end, silent) {
  if (silent || (state.level < DEEPEST_BLOCK && !isWideTable(state, start, end))) return false;
  let next = start + 1;
  while (next < end && !state.isEmpty(next) && state.sCount[next] >= state.blkIndent) next += 1;
  state.line = next;
  state.push("paragraph_open", "p", 1).map = [start, next];
  state.push("inline", "", 0).content = state.getLines(start, next, state.blkIndent, false).trim();
  state.push("paragraph_close", "p", -1);
  return true;
}

function isWideTable(state, line, end) {
  const lineAt = (number) => state.src.slice(state.bMarks[number] + state.tShift[number], state.eMarks[number]);
  return line + 1 < end && /^[|:-]/.test(lineAt(line + 1)) && lineAt(line).split("|", WIDEST + 2).length > WIDEST + 1;
}

/** Cache of rendered pieces by their text, so that equal pieces render once, also across parses. */
let drawing = { before: new Map(), now: new Map() };

/** @param {{text: string}} props */
export function Markdown({ text }) {
  const kept = useRef({ written: "", ...parseBlocks(null, "") });
  if (kept.current.written !== text) kept.current = { written: text, ...parseBlocks(kept.current, text) };
  return html`<div class="prose" dir="auto">${kept.current.blocks.map((each) => each.shown)}</div>`;
}

/**
 * Return the blocks of a text. If it extends the text before, its closed blocks are reused.
 *
 * `closed` is the number of closed blocks, and `start` the offset of the next one. More text changes the last block. It may
 * also change the start of a block whose first two lines are incomplete: "2" may become "2. item" of the list above, and a
 * row of dashes may become a table head. So parsing restarts at the block before those.
 */
export function parseBlocks(before, written) {
  const text = written.replace(/\r\n?/g, "\n").replaceAll("\0", "\ufffd");
  const goesOn = before !== null && text.startsWith(before.text);
  const blocks = goesOn ? before.blocks.slice(0, before.closed) : [];
  let [closed, start] = goesOn ? [before.closed, before.start] : [0, 0];
  const from = start;
  const lines = text.slice(from).split("\n");
  const tokens = [];
  markdown.block.parse(lines.join("\n"), markdown, {}, tokens);
  drawing = { before: before?.drawn ?? new Map(), now: new Map() };
  let [line, offset] = [0, from];
  for (const node of treeOf(tokens)) {
    for (; line < node.token.map[0]; line += 1) offset += lines[line].length + 1;
    if (line < lines.length - 2) [closed, start] = [blocks.length, offset];
    const above = blocks.at(-1)?.level ?? MESSAGE_LEVEL;
    const isHeading = node.token.type === "heading_open";
    const level = isHeading ? Math.min(Number(node.token.tag[1]) + MESSAGE_LEVEL, above + 1, 6) : above;
    blocks.push({ level, shown: shown(node, blocks.length, level) });
  }
  return { text, blocks, closed, start, drawn: drawing.now };
}

/** Return tokens as a tree. Nodes deeper than `deepest` are dropped, but their contents are kept. */
function treeOf(tokens, deepest = Infinity) {
  const open = [[]];
  for (const token of tokens) {
    if (token.nesting < 0) open.pop();
    else {
      const isTooDeep = open.length > deepest;
      const node = { token, children: token.type === "image" ? treeOf(token.children, deepest - open.length) : [] };
      if (!isTooDeep) open.at(-1).push(node);
      else if (token.nesting === 0) open.at(-1).push(...(token.type === "image" ? node.children : [node]));
      if (token.nesting > 0) open.push(isTooDeep ? open.at(-1) : node.children);
    }
  }
  return open[0];
}

const textOf = (node) => node.children[0]?.token.content ?? "";

function shown(node, key, rank = 6) {
  const { token, children } = node;
  if (token.type === "heading_open") return h(`h${rank}`, { key, class: token.tag }, pieces(textOf(node)));
  if (token.type === "paragraph_open") return paragraph(textOf(node), key, token.hidden);
  if (token.type === "hr") return html`<hr key=${key} />`;
  if (token.type === "fence") return h(Code, { key, text: token.content.replace(/\n$/, ""), language: token.info.trim() });
  if (token.type === "code_block") return h(Code, { key, text: token.content.trimEnd() });
  if (token.type === "blockquote_open") return h("blockquote", { key, dir: "auto" }, children.map((each, at) => shown(each, at)));
  if (token.type === "table_open") return table(node, key);
  if (token.type === "math_block") return html`<div key=${key}>${formula(token)}</div>`;
  return h(token.tag, { key, start: token.attrGet("start") ?? undefined, dir: "auto" }, children.map(item));
}

function paragraph(text, key, isBare) {
  return isBare ? html`<span key=${key}>${pieces(text)}</span>` : html`<p key=${key} dir="auto">${pieces(text)}</p>`;
}

function item({ children }, key) {
  const [first, ...others] = children;
  const isText = first?.token.type === "paragraph_open";
  const task = isText ? TASK.exec(textOf(first)) : null;
  const isDone = task !== null && task[1] !== " ";
  const make = () => html`
    <li key=${key} class=${task ? "task" : ""}>
      ${task && html`<input type="checkbox" checked=${isDone} disabled aria-label=${isDone ? "done" : "to do"} />`}
      ${task ? paragraph(textOf(first).slice(task[0].length), 0, first.token.hidden) : first && shown(first, 0)}
      ${others.map((each, at) => shown(each, at + 1))}
    </li>`;
  return isText && first.token.hidden && !others.length ? once(`- ${key} ${textOf(first)}`, make) : make();
}

function table({ children: [head, body] }, key) {
  const classOf = (cell) => ALIGNED[cell.token.attrGet("style")] ?? "start";
  let filled = 0;
  const rowOf = (row) => {
    const written = row.children.findLastIndex((cell) => textOf(cell) !== "") + 1;
    filled += row.children.length - written;
    const cells = filled > FILLED ? row.children.slice(0, written) : row.children;
    const words = cells.map((cell) => `${classOf(cell)} ${textOf(cell)}`).join("\n");
    return once(`| ${words}`, () => h("tr", null, cells.map((cell) => h("td", { class: classOf(cell) }, pieces(textOf(cell))))));
  };
  const titles = head.children[0].children;
  return html`
    <div key=${key} class="table" tabindex="0" role="group" aria-label="Table">
      <table>
        <thead><tr>${titles.map((cell) => html`<th scope="col" class=${classOf(cell)}>${pieces(textOf(cell))}</th>`)}</tr></thead>
        <tbody>${body?.children.map(rowOf)}</tbody>
      </table>
    </div>`;
}

const pieces = (text) => once(`= ${text}`, () => renderInline(text));

function once(key, make) {
  const { before, now } = drawing;
  if (!now.has(key)) now.set(key, before.get(key) ?? make());
  return now.get(key);
}

/** Render the inline content of a paragraph, a cell or a heading. */
export function renderInline(text) {
  if (text.length > LONGEST) return text.match(SLABS).map((part) => html`<div>${readable(part)}</div>`);
  const [{ children }] = markdown.parseInline(text, {});
  return drawn(treeOf(children, DEEPEST_INLINE));
}

const ELEMENTS = { em_open: "em", strong_open: "strong", s_open: "del" };

function drawn(nodes, isLinked = false) {
  return nodes.map(({ token, children }) => {
    if (ELEMENTS[token.type]) return h(ELEMENTS[token.type], null, drawn(children, isLinked));
    if (token.type === "code_inline") return html`<code dir="ltr">${visible(token.content)}</code>`;
    if (token.type === "math") return formula(token);
    if (token.type === "hardbreak") return html`<br />`;
    if (token.type === "softbreak") return "\n";
    if (token.type === "link_open") return link(token, children, isLinked);
    if (token.type === "image") return picture(token, children, isLinked);
    return readable(token.content);
  });
}

const formula = ({ content, markup, meta }) => once(`$ ${markup}${meta?.isOpen ? "…" : ""}${content}`, () => html`
  <${Formula} source=${content} markup=${markup} isOpen=${Boolean(meta?.isOpen)} />`);

function link(token, children, isLinked) {
  const written = token.attrGet("href");
  const href = isLinked ? "" : safeUrl(written);
  if (href) return anchor(href, drawn(children, true));
  if (token.markup === "autolink") return ["<", ...drawn(children), ">"];
  return [...drawn(children, isLinked), written && token.markup !== "linkify" ? readable(` (${written})`) : ""];
}

function picture(token, children, isLinked) {
  const written = token.attrGet("src");
  const href = isLinked ? "" : safeUrl(written);
  const words = drawn(children, isLinked || href !== "");
  return href ? anchor(href, words.length ? words : readable(written), "picture-link") : words;
}

const anchor = (href, words, kind) => html`
  <a href=${href} target="_blank" rel="noopener noreferrer" title=${visible(href)} class=${kind}>${words}</a>`;

/**
 * What a model wrote, as vnodes. Nothing of it is ever markup: text becomes text, and there is no way to an element but
 * those made here. While it streams, only the last block is read again; those before it stay the same objects, and the
 * page does not look at them. Of the last one, too, what reads as before is taken over.
 */
import { html, h, useRef } from "./html.js";
import { Code } from "./code.js";
import { readable, visible } from "./format.js";
import { blocksOf } from "./markdown/blocks.js";
import { inlineOf } from "./markdown/inline.js";

/** The heading that a message itself has; those in it are below, and skip no level. */
const MESSAGE_LEVEL = 2;
/** Words without end are laid out some at a time: a page takes its time for a long paragraph. */
const LONG = 20_000;
const SLABS = /[^]{1,8000}(?:\s|$)|[^]{8000}/gu;
/** What was drawn of a text by what it says: once, however often it stands there, and not again when it is read again. */
let drawing = { before: new Map(), now: new Map() };

/** @param {{text: string}} props */
export function Markdown({ text }) {
  const kept = useRef({ text: "", blocks: [] });
  if (kept.current.text !== text) kept.current = extended(kept.current, text);
  return html`<div class="prose" dir="auto">${kept.current.blocks.map((each) => each.shown)}</div>`;
}

/**
 * Blocks with where each begins; of a text that goes on, all but the last are taken over. `drawn` is
 * what was drawn for those that were read.
 */
export function extended(before, text) {
  const goesOn = before.blocks.length > 1 && text.startsWith(before.text);
  const blocks = goesOn ? before.blocks.slice(0, -1) : [];
  const start = goesOn ? before.blocks.at(-1).from : 0;
  const lines = text.slice(start).replace(/\r\n?/g, "\n").split("\n");
  const places = [start];
  const source = text.slice(start);
  for (let at = 0; at < source.length; at += 1) {
    if (source[at] === "\n" || (source[at] === "\r" && source[at + 1] !== "\n")) places.push(start + at + 1);
  }
  drawing = { before: before.drawn ?? new Map(), now: new Map() };
  for (const block of blocksOf(lines)) {
    const above = blocks.at(-1)?.level ?? MESSAGE_LEVEL;
    const level = block.type === "heading" ? Math.min(block.level + MESSAGE_LEVEL, above + 1, 6) : above;
    blocks.push({ from: places[block.at], level, shown: shown({ ...block, rank: level }, blocks.length) });
  }
  return { text, blocks, drawn: drawing.now };
}

function shown(block, key) {
  if (block.type === "heading") return h(`h${block.rank ?? 6}`, { key, class: `h${block.level}` }, pieces(block.text));
  if (block.type === "paragraph") return html`<p key=${key} dir="auto">${pieces(block.text)}</p>`;
  if (block.type === "rule") return html`<hr key=${key} />`;
  if (block.type === "code") return html`<${Code} key=${key} text=${block.text} language=${block.language} />`;
  if (block.type === "quote") return html`<blockquote key=${key} dir="auto">${block.children.map(shown)}</blockquote>`;
  if (block.type === "table") return table(block, key);
  const items = block.items.map((item, index) => itemAt(index, item, block.tight));
  return h(block.ordered ? "ol" : "ul", { key, start: block.ordered && block.start !== 1 ? block.start : undefined, dir: "auto" }, items);
}

function itemAt(index, item, tight) {
  const { checked, children } = item;
  const make = () => html`<li key=${index} class=${checked === null ? "" : "task"}>${itemOf(item, tight)}</li>`;
  const isLine = tight && checked === null && children.length === 1 && children[0].type === "paragraph";
  return isLine ? once(`- ${index} ${children[0].text}`, make) : make();
}

function itemOf({ checked, children }, tight) {
  const box = html`<input type="checkbox" checked=${checked} disabled aria-label=${checked ? "done" : "to do"} />`;
  const isBare = (child) => tight && child.type === "paragraph";
  const drawn = children.map((child, key) => (isBare(child) ? html`<span key=${key}>${pieces(child.text)}</span>` : shown(child, key)));
  return [checked === null ? null : box, ...drawn];
}

function table({ head, rows, align }, key) {
  const cellsOf = (row) => row.map((cell, at) => html`<td class=${align[at]}>${pieces(cell)}</td>`);
  const rowOf = (row) => once(`| ${align.join(" ")}\n${row.join("\n")}`, () => html`<tr>${cellsOf(row)}</tr>`);
  return html`
    <div key=${key} class="table" tabindex="0" role="region" aria-label="Table">
      <table>
        <thead><tr>${head.map((cell, at) => html`<th scope="col" class=${align[at]}>${pieces(cell)}</th>`)}</tr></thead>
        <tbody>${rows.map(rowOf)}</tbody>
      </table>
    </div>`;
}

const pieces = (text) => once(`= ${text}`, () => drawn(slabs(inlineOf(text))));

function once(key, make) {
  const { before, now } = drawing;
  if (!now.has(key)) now.set(key, before.get(key) ?? make());
  return now.get(key);
}

function slabs(found) {
  const [first] = found;
  if (found.length !== 1 || typeof first !== "string" || first.length < LONG) return found;
  return first.match(SLABS).map((part) => ({ type: "div", children: [part] }));
}

function drawn(found) {
  return found.map((piece) => {
    if (typeof piece === "string") return readable(piece);
    if (piece.type === "code") return html`<code dir="ltr">${visible(piece.text)}</code>`;
    if (piece.type === "break") return html`<br />`;
    if (piece.type === "link" || piece.type === "picture") {
      const kind = piece.type === "picture" ? "picture-link" : undefined;
      return html`
        <a href=${piece.href} target="_blank" rel="noopener noreferrer" title=${visible(piece.href)} class=${kind}>
          ${drawn(piece.children)}
        </a>`;
    }
    return h(piece.type, null, drawn(piece.children));
  });
}

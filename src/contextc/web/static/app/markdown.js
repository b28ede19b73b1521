/**
 * What a model wrote, as vnodes. Nothing of it is ever markup: text becomes text, and there is no way to an element but
 * those made here. While it streams, only the last block is read again; those before it stay the same objects, and the
 * page does not look at them.
 */
import { html, h, useRef } from "./html.js";
import { Code } from "./code.js";
import { readable, visible } from "./format.js";
import { blocksOf } from "./markdown/blocks.js";
import { inlineOf } from "./markdown/inline.js";

/** The heading that a message itself has; those in it are below, and skip no level. */
const MESSAGE_LEVEL = 2;

/** @param {{text: string}} props */
export function Markdown({ text }) {
  const kept = useRef({ text: "", blocks: [] });
  if (kept.current.text !== text) kept.current = extended(kept.current, text);
  return html`<div class="prose" dir="auto">${kept.current.blocks.map((each) => each.shown)}</div>`;
}

/** Blocks with where each begins; of a text that goes on, all but the last are taken over. */
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
  for (const block of blocksOf(lines)) {
    const above = blocks.at(-1)?.level ?? MESSAGE_LEVEL;
    const level = block.type === "heading" ? Math.min(block.level + MESSAGE_LEVEL, above + 1, 6) : above;
    blocks.push({ from: places[block.at], level, shown: shown({ ...block, rank: level }, blocks.length) });
  }
  return { text, blocks };
}

function shown(block, key) {
  if (block.type === "heading") return h(`h${block.rank ?? 6}`, { key, class: `h${block.level}` }, pieces(block.text));
  if (block.type === "paragraph") return html`<p key=${key} dir="auto">${pieces(block.text)}</p>`;
  if (block.type === "rule") return html`<hr key=${key} />`;
  if (block.type === "code") return html`<${Code} key=${key} text=${block.text} language=${block.language} />`;
  if (block.type === "quote") return html`<blockquote key=${key} dir="auto">${block.children.map(shown)}</blockquote>`;
  if (block.type === "table") return html`<${Table} key=${key} block=${block} />`;
  const items = block.items.map((item, index) => html`
    <li key=${index} class=${item.checked === null ? "" : "task"}>${itemOf(item, block.tight)}</li>`);
  return h(block.ordered ? "ol" : "ul", { key, start: block.ordered && block.start !== 1 ? block.start : undefined, dir: "auto" }, items);
}

function itemOf({ checked, children }, tight) {
  const box = html`<input type="checkbox" checked=${checked} disabled aria-label=${checked ? "done" : "to do"} />`;
  const isBare = (child) => tight && child.type === "paragraph";
  const drawn = children.map((child, key) => (isBare(child) ? html`<span key=${key}>${pieces(child.text)}</span>` : shown(child, key)));
  return [checked === null ? null : box, ...drawn];
}

function Table({ block }) {
  const { head, rows, align } = block;
  return html`
    <div class="table" tabindex="0" role="region" aria-label="Table">
      <table>
        <thead><tr>${head.map((cell, at) => html`<th scope="col" class=${align[at]}>${pieces(cell)}</th>`)}</tr></thead>
        <tbody>${rows.map((row) => html`<tr>${row.map((cell, at) => html`<td class=${align[at]}>${pieces(cell)}</td>`)}</tr>`)}</tbody>
      </table>
    </div>`;
}

const pieces = (text) => drawn(inlineOf(text));

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

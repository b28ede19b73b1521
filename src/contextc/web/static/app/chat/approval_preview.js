/**
 * Preview of a tool call that needs approval: every line of it, numbered and wrapped, so that a line break cannot be mistaken
 * for a wrapped line, and nothing is out of sight. The server spells out invisible and direction-changing characters, and
 * counts long runs of spaces and blank lines: `⟨U+3164⟩`, `⟨3,000 spaces⟩`. They are marked here.
 */
import { html, useLayoutEffect, useRef, useState } from "../html.js";
import { plural, visible } from "../format.js";

/** A longer preview is shown in full only on request. */
const [MANY_LINES, MANY_CHARACTERS] = [300, 12_000];
/** Pixels that may be missing at the end of a preview that has been scrolled to its end. */
const CLOSE = 8;
const MARK = /(⟨[^⟨⟩]*⟩)/;
const SIGNS = { "+": "added", "-": "removed", "@": "place" };

/** @param {{lines: string[], label: string, onRead: () => void}} props `onRead` is called when everything has been visible */
export function ApprovalPreview({ lines, label, onRead }) {
  const [whole, setWhole] = useState(false);
  const [read, setRead] = useState(false);
  const box = useRef(null);
  const characters = lines.reduce((sum, line) => sum + line.length + 1, -1);
  const some = whole ? lines : beginning(lines);
  const isCut = some.length < lines.length;
  const check = () => {
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    if (read || isCut || !clientHeight || scrollTop + clientHeight < scrollHeight - CLOSE) return;
    setRead(true);
    onRead();
  };
  useLayoutEffect(() => {
    const sized = new ResizeObserver(check);
    sized.observe(box.current);
    check();
    return () => sized.disconnect();
  });
  const isDiff = lines.some((line) => line.startsWith("@"));
  const kind = isDiff ? "is-diff" : lines.length > 1 ? "has-ends" : "";
  return html`
    <figure class="code bare preview ${kind} ${whole ? "whole" : ""}">
      <pre ref=${box} tabindex="0" role="group" aria-label=${label} onScroll=${check}><code dir="ltr">${some.map((line, at) => html`
        <span key=${at} class="preview-line ${isDiff ? SIGNS[line[0]] ?? "" : ""}"><${Marked} line=${line} /></span>${"\n"}`)}</code></pre>
    </figure>
    ${!read && html`
      <p class="preview-rest" role="status">
        ${plural(lines.length, "line")}, ${plural(characters, "character")}. Scroll to the end before you allow it, or
        <button type="button" class="link-button" onClick=${() => setWhole(true)}>show all lines</button>.
      </p>`}`;
}

/** Return the first lines, up to a limit. */
function beginning(lines) {
  let characters = 0;
  const end = lines.findIndex((line, at) => at >= MANY_LINES || (characters += line.length) > MANY_CHARACTERS);
  return end < 0 ? lines : lines.slice(0, Math.max(1, end));
}

function Marked({ line }) {
  return line.split(MARK).map((piece, at) => (at % 2 ? html`<mark class="spelled">${visible(piece)}</mark>` : visible(piece)));
}

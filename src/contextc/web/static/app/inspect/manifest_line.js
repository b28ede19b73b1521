/** One manifest line: a message or an inserted text, collapsed to one row or expanded to its full content. */
import { html } from "../html.js";
import { Code } from "../code_block.js";
import { dollars, number, oneLine, readable } from "../format.js";
import { lineReason } from "../reasons.js";
import { useLoad } from "./use_load.js";
import { LoadError, Skeleton } from "./placeholders.js";

/**
 * @typedef {object} AccountLine
 * @property {number} index @property {number} seq @property {string} kind @property {string} role @property {boolean} shown
 * @property {number} tokens @property {number|null} cost @property {string} why @property {string} text
 * @property {"shared"|"new"|"left"|"shown"} state @property {string} uid
 * @property {string} original the stored text, if the model was sent another one
 * @property {""|"stub"|"shortened"} [reduction] how a tool result is sent @property {number} [original_length] its characters
 */

/** State → sign and meaning. The legend lists them too. */
export const SIGNS = {
  shared: ["=", "already sent"],
  new: ["+", "new"],
  again: ["↻", "sent again, uncached"],
  left: ["−", "left out"],
  shown: ["", ""],
};

/** @param {{line: AccountLine|undefined, state: string, open: boolean, toggle: () => void, detail?: Function}} props */
export function ManifestLine({ line, state, detail, open, toggle, isActive, onFocus, sought }) {
  if (!line) return html`<div class="line is-coming" aria-hidden="true"><span class="rail"></span><span
      class="skeleton coming-bar"></span></div>`;
  const [sign, meaning] = SIGNS[state] ?? ["·", state];
  return html`<div class=${`line is-${state} ${open ? "is-open" : ""}`} data-state=${state} data-seq=${line.seq || undefined}>
    <span class="rail" aria-hidden="true"></span>
    <button type="button" class="line-button" aria-expanded=${String(Boolean(open))} tabindex=${isActive ? 0 : -1}
        onClick=${toggle} onFocus=${onFocus}>
      <span class="line-sign" title=${meaning || undefined}><span aria-hidden="true">${sign}</span><span
          class="off-screen">${meaning}</span></span>
      <span class="line-seq">${line.seq ? `${line.seq}` : ""}</span>
      <span class=${`line-role role-${line.role}`}>${line.role}</span>
      <span class="line-text">${line.kind !== "message" && html`<span class="tag">${line.kind}</span>`} <${Highlighted}
          text=${around(line.text, sought)} sought=${sought} /></span>
      ${line.why && html`<span class="line-why" title=${oneLine(lineReason(line), 400)}><span
          class="off-screen">because </span>${oneLine(lineReason(line), 200)}</span>`}
      <span class="line-tokens">${line.tokens ? number(line.tokens) : ""}${line.tokens ? html`<span
          class="off-screen"> tokens</span>` : ""}</span>
      <span class="line-cost">${line.cost ? dollars(line.cost) : ""}</span>
    </button>
    ${open && html`<${Opened} line=${line} detail=${detail} />`}
  </div>`;
}

/** A text with the search term marked. */
export function Highlighted({ text, sought }) {
  if (!sought) return text;
  const [low, words, pieces] = [text.toLowerCase(), sought.toLowerCase(), []];
  let at = 0;
  for (let hit = low.indexOf(words); hit >= 0 && low.length === text.length; hit = low.indexOf(words, at)) {
    pieces.push(text.slice(at, hit), html`<mark>${text.slice(hit, hit + words.length)}</mark>`);
    at = hit + words.length;
  }
  return [...pieces, text.slice(at)];
}

/** Return the start of a text in one line, or the part around the search term. */
function around(text, sought) {
  const at = sought ? text.toLowerCase().indexOf(sought.toLowerCase()) : -1;
  return at > 200 ? `…${oneLine(text.slice(at - 80), 300)}` : oneLine(text, 300);
}

/** The full text as sent, with the stored original behind a toggle if it differs. */
function Opened({ line, detail }) {
  const { data, error, reload } = useLoad(detail ? `${line.index} ${line.uid}` : null, (signal) => detail(line.index, signal));
  return html`<div class="line-open">
    ${line.why && html`<p class="soft">${line.shown ? "Sent" : "Left out"}: ${oneLine(lineReason(line), 1000)}</p>`}
    ${!detail && html`<${PlainText} text=${line.text} />`}
    ${detail && !data && !error && html`<${Skeleton} lines=${2} />`}
    ${error && html`<${LoadError} error=${error} reload=${reload} />`}
    ${data && html`<div data-testid="as-sent"><${Parts} parts=${data.parts} text=${data.text} /></div>`}
    ${data?.original_parts && html`<details class="line-rest" data-testid="original"><summary>Original message</summary>
      <${Parts} parts=${data.original_parts} text=${data.original} /></details>`}
    ${data?.parts?.length > 0 && html`<details class="line-rest"><summary>As JSON</summary><${Code}
        text=${JSON.stringify(data.parts, null, 2)} language="json" limit=${20000} /></details>`}
  </div>`;
}

const PlainText = ({ text }) => html`<pre class="words">${readable(text)}</pre>`;

/** The parts of a message: text as text, everything else as JSON. A removed message has no parts. */
function Parts({ parts, text }) {
  if (!parts?.length) return html`<${PlainText} text=${text} />`;
  return parts.map((part, index) => html`<${Part} key=${index} part=${part} />`);
}

function Part({ part }) {
  const kind = part.type ?? "part";
  if (typeof part.text === "string") {
    return html`<div class="part">${kind !== "text" && html`<span class="tag">${kind}</span>`}<${PlainText} text=${part.text} /></div>`;
  }
  if (kind === "tool_call") {
    return html`<div class="part"><span class="tag">call: ${oneLine(part.name)}</span><${Code}
        text=${JSON.stringify(part.arguments ?? {}, null, 2)} language="json" limit=${8000} bare /></div>`;
  }
  if (kind === "tool_result" && typeof part.content === "string") {
    return html`<div class="part"><span class="tag">result of ${oneLine(part.name)}</span><${PlainText} text=${part.content} /></div>`;
  }
  return html`<div class="part"><span class="tag">${oneLine(kind)}</span><${Code} text=${JSON.stringify(part, null, 2)}
      language="json" limit=${8000} bare /></div>`;
}

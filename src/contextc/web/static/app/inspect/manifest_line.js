/** One row of a request: the system prompt, a tool definition, a message or an inserted text; collapsed or expanded. */
import { html, useEffect, useRef } from "../html.js";
import { CallAnswer } from "../chat/approval_rules.js";
import { Code } from "../code_block.js";
import { dollars, number, oneLine, percent, readable } from "../format.js";
import { lineReason } from "../reasons.js";
import { useLoad } from "../use_load.js";
import { LoadError, Skeleton } from "./placeholders.js";

/**
 * @typedef {object} AccountLine
 * @property {number} index @property {number} seq @property {string} kind @property {string} role @property {boolean} shown
 * @property {number} tokens @property {number|null} cost @property {string} why @property {string} text
 * @property {"shared"|"new"|"left"|"shown"} state @property {string} uid
 * @property {string} original the stored text, if the model was sent another one
 * @property {""|"stub"|"shortened"} [reduction] how a tool result is sent @property {number} [original_length] its characters
 * @property {string[]} [causes] @property {string} [tool] @property {boolean} [again] @property {boolean} [paid_again]
 * @property {boolean} [changed] a system prompt or tool of which the previous request had another version
 * @property {{id: string, name: string, text: string, result: number|null}[]} [calls]
 * @property {{call_id: string, name: string, status: "ok"|"error"|"denied", call: number|null}[]} [results]
 */

/** State → sign and meaning. The legend lists them too. */
export const SIGNS = {
  shared: ["=", "unchanged"],
  paid: ["$", "unchanged, paid again"],
  new: ["+", "new"],
  changed: ["±", "changed"],
  again: ["↻", "sent again, uncached"],
  left: ["−", "left out"],
  shown: ["", ""],
};

/**
 * Return the state of a row. After a break, messages that were sent before are sent again: new only to the cache. Unchanged
 * rows that the provider did not read from its cache are paid again.
 */
export function stateOf(line) {
  if (line?.state === "new" && line.again) return "again";
  if (line?.state === "new" && line.changed) return "changed";
  return line?.state === "shared" && line.paid_again ? "paid" : line?.state;
}

/** Status of a result → sign, label, style. */
const STATUSES = { error: ["✕", "error", "bad"], denied: ["⊘", "denied", "warn"] };

/**
 * @param {{line: AccountLine|undefined, state: string, open: boolean, toggle: () => void, goTo?: (index: number) => void,
 *   detail?: Function, input?: number, isHit?: boolean, isBreak?: boolean, isTarget?: boolean, sought: string}} props
 *   `input` are the tokens of the request, `isTarget` is true for the row that the URL names
 */
export function ManifestLine({ line, state, detail, open, toggle, goTo, isActive, onFocus, sought, input = 0, isHit, isBreak, isTarget }) {
  if (!line) return html`<div class="line is-coming" aria-hidden="true"><span class="rail"></span><span
      class="skeleton coming-bar"></span></div>`;
  const [sign, meaning] = SIGNS[state] ?? ["·", state];
  const look = `line is-${state} ${open ? "is-open" : ""} ${isHit ? "is-hit" : ""} ${isTarget ? "is-target" : ""}`;
  return html`<div class=${look} data-state=${state} data-line=${line.index} data-seq=${line.seq || undefined}>
    <span class="rail" aria-hidden="true"></span>
    <div class="line-row">
      <button type="button" class="line-button" aria-expanded=${String(Boolean(open))} tabindex=${isActive ? 0 : -1}
          onClick=${toggle} onFocus=${onFocus}>
        <span class="line-sign" title=${meaning || undefined}><span aria-hidden="true">${sign}</span><span
            class="off-screen">${meaning}</span></span>
        <span class="line-seq">${line.seq ? `${line.seq}` : ""}</span>
        <span class=${`line-role role-${line.role}`}>${line.kind === "tool" ? "definition" : line.role === "tool" ? "result" : line.role}</span>
        <span class="line-text">${isBreak && html`<span class="tag new">⚡ cached prefix ends here</span>`}<${Brief} line=${line}
            sought=${sought} /></span>
        ${line.why && html`<span class="line-why" title=${oneLine(lineReason(line), 400)}><span
            class="off-screen">${line.kind === "summary" ? "" : "because "}</span>${oneLine(lineReason(line), 200)}</span>`}
        <${Size} tokens=${line.tokens} input=${input} />
        <span class="line-cost">${line.cost ? dollars(line.cost) : ""}</span>
      </button>
      <${PairLink} line=${line} goTo=${goTo} isActive=${isActive} />
    </div>
    ${open && html`<${Opened} line=${line} detail=${detail} sought=${sought} isTarget=${isTarget} goTo=${goTo} />`}
  </div>`;
}

/** Tokens, and a bar for their share of the request. */
function Size({ tokens, input }) {
  if (!tokens) return html`<span class="line-tokens"></span>`;
  const share = input > 0 ? Math.min(1, tokens / input) : 0;
  return html`<span class="line-tokens" title=${input > 0 ? `${percent(share)} of the request` : undefined}>${number(tokens)}<span
      class="off-screen"> tokens${input > 0 ? `, ${percent(share)} of the request` : ""}</span>${input > 0 && html`<span
      class="size-bar" aria-hidden="true"><span class="size-fill" style=${{ width: `${share * 100}%` }}></span></span>`}</span>`;
}

/** One line of text: names of tools, calls with their values, results with their status. */
function Brief({ line, sought }) {
  const mark = (text) => html`<${Highlighted} text=${around(text, sought)} sought=${sought} />`;
  const [first] = line.calls ?? [];
  const [result] = line.results ?? [];
  if (line.kind === "tool") {
    return html`<span class="line-call">${mark(line.tool ?? "")}</span> ${mark(withoutStart(line.text, `${line.tool}: `, line.tool))}`;
  }
  const kind = !["message", "system"].includes(line.kind) && html`<span class="tag">${line.kind}</span> `;
  if (first) {
    const at = line.text.indexOf(`calls ${first.name}(`);
    return html`${kind}${mark(at < 0 ? line.text : line.text.slice(0, at))} ${line.calls.map((call, place) => html`<span key=${place}
        class="line-call">${mark(call.text)}</span> `)}`;
  }
  if (result) {
    return html`${kind}<${Status} status=${result.status} /><span class="tag">${oneLine(result.name || "result", 60)}</span>
      ${" "}${mark(withoutStart(line.text, `${result.name}: `))}`;
  }
  return html`${kind}${mark(line.text)}`;
}

const withoutStart = (text, ...starts) => {
  const start = starts.find((each) => each && text.startsWith(each));
  return start ? text.slice(start.length) : text;
};

function Status({ status }) {
  if (!(status in STATUSES)) return null;
  const [sign, label, style] = STATUSES[status];
  return html`<span class=${`tag ${style}`} data-status=${status}><span aria-hidden="true">${sign}</span> ${label}</span> `;
}

/** Button that goes from a result to its call, or from a call to its result. */
function PairLink({ line, goTo, isActive }) {
  const call = line.results?.find((each) => each.call !== null)?.call;
  const result = line.calls?.find((each) => each.result !== null)?.result;
  const target = call ?? result;
  if (!goTo || target === undefined) return null;
  const label = call !== undefined ? "Go to the call" : "Go to the result";
  return html`<button type="button" class="line-pair" aria-label=${label} title=${label} tabindex=${isActive ? 0 : -1}
      onClick=${() => goTo(target)}><span aria-hidden="true">${target < line.index ? "↑" : "↓"}</span></button>`;
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
function Opened({ line, detail, sought, isTarget, goTo }) {
  const { data, error, reload } = useLoad(detail ? `${line.index} ${line.uid}` : null, (signal) => detail(line.index, signal));
  const element = useRef(null);
  useEffect(() => {
    if (data && isTarget && sought) element.current?.querySelector("mark")?.scrollIntoView({ block: "nearest" });
  }, [data, isTarget, sought]);
  return html`<div class="line-open" ref=${element}>
    ${line.why && html`<p class="soft">${reasonTitle(line)}: ${oneLine(lineReason(line), 1000)}</p>`}
    ${!detail && html`<${PlainText} text=${line.text} sought=${sought} />`}
    ${detail && !data && !error && html`<${Skeleton} lines=${2} />`}
    ${error && html`<${LoadError} error=${error} reload=${reload} />`}
    ${data && html`<div data-testid="as-sent">${data.definition
        ? html`<${Definition} line=${data} sought=${sought} />`
        : html`<${Parts} parts=${data.parts} text=${data.text} line=${data} sought=${sought} goTo=${goTo} />`}</div>`}
    ${data?.original_parts && html`<details class="line-rest" data-testid="original" open=${isOnlyIn(data.original, data.text, sought)}><summary>Original
      message</summary>${isOnlyIn(data.original, data.text, sought) && html`<p class="soft">The model did not get these words.</p>`}
      <${Parts} parts=${data.original_parts} text=${data.original} sought=${sought} /></details>`}
    ${data?.parts?.length > 0 && html`<details class="line-rest"><summary>As JSON</summary><${Code}
        text=${JSON.stringify(data.parts, null, 2)} language="json" limit=${20000} /></details>`}
  </div>`;
}

/** Return true if a search term is in a text, and not in another one. */
function isOnlyIn(text, other, sought) {
  const words = sought.trim().toLowerCase();
  return Boolean(words) && text.toLowerCase().includes(words) && !other.toLowerCase().includes(words);
}

const reasonTitle = (line) => (line.kind === "summary" ? "Summary" : line.shown ? "Sent" : "Left out");

const PlainText = ({ text, sought = "" }) => html`<pre class="words" tabindex="0"><${Highlighted} text=${readable(text)} sought=${sought} /></pre>`;

/** JSON with colours, or with the search term marked. */
const Json = ({ value, sought, limit = 8000 }) => {
  const text = JSON.stringify(value, null, 2);
  return sought && text.toLowerCase().includes(sought.toLowerCase())
    ? html`<${PlainText} text=${text} sought=${sought} />` : html`<${Code} text=${text} language="json" limit=${limit} bare />`;
};

/** A tool definition: its description, then its schema as sent. */
function Definition({ line, sought }) {
  const description = withoutStart(line.text, `${line.tool}: `, line.tool);
  return html`<div class="part"><span class="tag">tool: ${oneLine(line.tool ?? "", 80)}</span>
    ${description && html`<${PlainText} text=${description} sought=${sought} />`}
    <${Json} value=${line.definition} sought=${sought} limit=${20000} /></div>`;
}

/** The parts of a message: text as text, everything else as JSON. A removed message has no parts. */
function Parts({ parts, text, line, sought, goTo }) {
  if (!parts?.length) return html`<${PlainText} text=${text} sought=${sought} />`;
  const [calls, results] = [[...(line?.calls ?? [])], [...(line?.results ?? [])]];
  return parts.map((part, index) => html`<${Part} key=${index} part=${part} seq=${line?.seq} sought=${sought} goTo=${goTo}
      call=${part.type === "tool_call" ? calls.shift() : undefined} result=${part.type === "tool_result" ? results.shift() : undefined} />`);
}

const Link = ({ to, goTo, children }) => (to == null || !goTo ? null
  : html`<button type="button" class="inline-link" onClick=${() => goTo(to)}>${children}</button>`);

function Part({ part, seq, sought, call, result, goTo }) {
  const kind = part.type ?? "part";
  if (typeof part.text === "string") {
    return html`<div class="part">${kind !== "text" && html`<span class="tag">${kind}</span>`}<${PlainText} text=${part.text}
        sought=${sought} /></div>`;
  }
  if (kind === "tool_call") {
    return html`<div class="part"><p class="part-head"><span class="tag">call: ${oneLine(part.name)}</span>
        <${Link} to=${call?.result} goTo=${goTo}>Go to the result<//></p><${Json} value=${part.malformed ? part.raw : part.arguments ?? {}}
        sought=${sought} /><${CallAnswer} seq=${seq} call=${part.id} /></div>`;
  }
  if (kind === "tool_result" && typeof (part.content ?? "") === "string") {
    return html`<div class="part"><p class="part-head"><${Status} status=${result?.status} /><span class="tag">result of
        ${" "}${oneLine(part.name || result?.name || "a tool")}</span> <${Link} to=${result?.call} goTo=${goTo}>Go to the call<//></p><${PlainText}
        text=${part.content ?? ""} sought=${sought} /></div>`;
  }
  return html`<div class="part"><span class="tag">${oneLine(kind)}</span><${Json} value=${part} sought=${sought} /></div>`;
}

/** Two conversations side by side: figures, findings and costs by cause, and the first request that differs. */
import { html, useState } from "../html.js";
import { get } from "../api.js";
import { Dialog } from "../dialog.js";
import { dateTime, dollars, duration, number, oneLine, percent, plural } from "../format.js";
import { Icon } from "../icons.js";
import { chatUrl, compareUrl, inspectUrl, navigate } from "../route.js";
import { InspectorHeader } from "./inspector_header.js";
import { toValue } from "./diff.js";
import { ConversationSearch } from "./request_picker.js";
import { useLoad } from "./use_load.js";
import { EmptyState, LoadError, Skeleton } from "./placeholders.js";

const KINDS = {
  system: "System prompt", tool: "Tool definition", result: "Results of", history: "History", reasoning: "Earlier reasoning",
  media: "Media", overhead: "Added by the provider", answer: "Answers", answer_reasoning: "Reasoning",
};
const MOST = 30;
const factor = (value) => (value == null ? "–" : value.toFixed(2));

/** Rows of the table of figures: label, field, text, and whether less is better. */
const FIGURES = [
  ["Requests", "requests", number], ["Not answered", "failed", number], ["Tokens in", "input", number], ["Tokens out", "output", number],
  ["Reasoning tokens", "reasoning", number], ["Read from cache", "cache_read", number], ["Share from cache", "cache_share", percent],
  ["Rewrite factor", "rewrite_factor", factor], ["Cost", "cost", dollars],
];

/** Link that starts a comparison of a conversation with another one. */
export const CompareLink = ({ name }) => html`<a class="button has-icon" href=${compareUrl(name)} data-testid="compare-runs"><${Icon}
    name="swap" /><span class="button-word">Compare</span></a>`;

/** @param {{name: string, other: string}} props the two conversations */
export function Compare({ name, other }) {
  const [changing, setChanging] = useState("");
  const isWhole = Boolean(name && other);
  const key = isWhole ? `compare ${JSON.stringify([name, other])}` : null;
  const { data, error, reload } = useLoad(key, (signal) => get("compare", { a: name, b: other }, { signal }));
  const choose = (chosen) => {
    setChanging("");
    navigate(changing === "a" ? compareUrl(chosen, other) : compareUrl(name, chosen), { replace: isWhole });
  };
  return html`<div class="inspect compare" data-testid="compare">
    <${InspectorHeader} title="Compare two runs" reload=${isWhole ? reload : undefined}>
      ${isWhole && html`<button type="button" class="button" onClick=${() => navigate(compareUrl(other, name), { replace: true })}>Swap</button>`}
    <//>
    <div class="inspect-body compare-body">
      ${!isWhole && html`<section class="compare-choose" aria-label="Second conversation">
        <p>Compare <b dir="auto">${oneLine(name, 80)}</b> with:</p><${ConversationSearch} choose=${(each) => navigate(compareUrl(name, each), { replace: true })} without=${name} />
      </section>`}
      ${error && html`<${LoadError} error=${error} reload=${reload} />`}
      ${isWhole && !data && !error && html`<${Skeleton} lines=${10} label="Comparing" />`}
      ${isWhole && data && html`<${Compared} data=${data} change=${setChanging} />`}
    </div>
    ${changing && html`<${Dialog} title="Choose a conversation" onClose=${() => setChanging("")} class="picker">
      <div class="body picker-body"><${ConversationSearch} choose=${choose} without=${changing === "a" ? other : name} /></div><//>`}
  </div>`;
}

function Compared({ data, change }) {
  const { a, b, causes, costs, first } = data;
  if (!a.requests && !b.requests) return html`<${EmptyState} title="No requests"><p>Neither conversation has a request.</p><//>`;
  return html`
    <section class="compare-first" aria-label="First difference" data-testid="first-difference"><${First} first=${first} a=${a} b=${b} /></section>
    <${Table} label="Figures" a=${a} b=${b} change=${change} first="Figure"
      rows=${[
        ...FIGURES.map(([label, field, text]) => ({ label, a: a[field], b: b[field], text })),
        { label: "Duration", a: a.ended - a.began, b: b.ended - b.began, text: duration },
      ]}>
      <tr><th scope="row">Models</th><td>${a.models.map((each) => oneLine(each, 60)).join(", ")}</td>
        <td>${b.models.map((each) => oneLine(each, 60)).join(", ")}</td><td></td></tr>
      <tr><th scope="row">Began</th><td>${dateTime(a.began)}</td><td>${dateTime(b.began)}</td><td></td></tr>
    <//>
    ${causes.length > 0 && html`<${Table} label="Findings by cause" a=${a} b=${b} first="Cause"
      rows=${causes.slice(0, MOST).map((each) => ({
        label: oneLine(each.title, 120), a: each.a.cost, b: each.b.cost, text: (value, side) => findings(side ? each.b : each.a),
      }))} />`}
    ${costs.length > 0 && html`<${Table} label="Cost by cause" a=${a} b=${b} first="Cause"
      rows=${costs.slice(0, MOST).map((each) => ({
        label: `${KINDS[each.kind] ?? each.kind}${each.name ? ` ${oneLine(each.name, 40)}` : ""}`, a: each.cost_a, b: each.cost_b,
        text: (value, side) => `${number(side ? each.tokens_b : each.tokens_a)} tokens${value == null ? "" : `, ${dollars(value)}`}`,
      }))} />`}
    ${Math.max(costs.length, causes.length) > MOST && html`<p class="soft">The ${MOST} most expensive rows are shown.</p>`}`;
}

const findings = ({ count, cost }) => (count ? `${number(count)}${cost == null ? "" : ` (${dollars(cost)})`}` : "–");

function First({ first, a, b }) {
  if (!first) return html`<p><span class="tag good">✓ equal</span> All ${plural(a.requests, "request")} of both have the same content.</p>`;
  const before = first.position - 1;
  const same = before ? `The first ${plural(before, "request")} are the same.` : "The first requests differ.";
  if (!first.a || !first.b) {
    const longer = first.a ? a : b;
    return html`<p>${same} Only <b dir="auto">${oneLine(longer.conversation, 60)}</b> has further requests.</p>`;
  }
  const link = inspectUrl(first.b.conversation, first.b.channel, first.b.request, { tab: "diff", to: toValue(first.b.conversation, first.a) });
  return html`<p>${before ? same : ""} Request ${number(first.position)} differs: <b>${oneLine(first.reason || "its content", 300)}</b></p>
    <p><a class="button" href=${link}>Show the difference</a></p>`;
}

/** A table with a column per conversation, and their difference. `text` gets a value and whether it is of the second. */
function Table({ label, a, b, rows, first, change, children }) {
  const head = (run, side) => html`<th scope="col"><a dir="auto" href=${chatUrl(run.conversation)}>${oneLine(run.conversation, 48)}</a>
    ${change && html` <button type="button" class="button quiet" onClick=${() => change(side)} aria-label=${`Change ${oneLine(run.conversation, 40)}`}>Change</button>`}</th>`;
  return html`<section class="compare-table"><h2>${label}</h2><div class="compare-scroll" tabindex="0" role="group" aria-label=${label}><table>
    <thead><tr><th scope="col">${first}</th>${head(a, "a")}${head(b, "b")}<th scope="col">Difference</th></tr></thead>
    <tbody>${rows.map((row, index) => html`<tr key=${index}><th scope="row">${row.label}</th><td>${row.text(row.a, 0)}</td>
      <td>${row.text(row.b, 1)}</td><td>${difference(row.a, row.b)}</td></tr>`)}${children}</tbody>
  </table></div></section>`;
}

/** Return the second value relative to the first: +20%. */
function difference(one, other) {
  if (one == null || other == null) return "–";
  if (one === other) return "=";
  if (!one) return "new";
  const share = (other - one) / Math.abs(one);
  return `${share > 0 ? "+" : "−"}${percent(Math.abs(share))}`;
}

/** Two conversations side by side: figures, findings and costs by cause, and the first request that differs, or what is equal. */
import { html, useState } from "../html.js";
import { get } from "../api.js";
import { Dialog } from "../dialog.js";
import { NO_TIME, costText, dateTime, dollars, duration, inputText, number, oneLine, outputText, percent, plural } from "../format.js";
import { Icon } from "../icons.js";
import { chatUrl, compareUrl, inspectUrl, navigate } from "../route.js";
import { InspectorHeader } from "./inspector_header.js";
import { causeLabel } from "./causes.js";
import { toValue } from "./diff.js";
import { ConversationSearch } from "./request_picker.js";
import { useLoad } from "../use_load.js";
import { EmptyState, LoadError, Skeleton } from "./placeholders.js";

const MOST = 30;
const factor = (value) => (value == null ? "–" : value.toFixed(2));

/** Rows of the table of figures: label, field, text, and what it means. */
const FIGURES = [
  ["Requests", "requests", number], ["Failed", "failed", number],
  ["Reasoning tokens", "reasoning", number], ["Read from cache", "cache_read", number], ["Share from cache", "cache_share", percent],
  ["Rewrite factor", "rewrite_factor", factor, "Tokens written to the cache (uncached ones, if none were written), divided by the largest request. 1.0 means that everything was paid in full once."],
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
    <${InspectorHeader} title="Compare conversations" reload=${isWhole ? reload : undefined}>
      ${isWhole && html`<button type="button" class="button" onClick=${() => navigate(compareUrl(other, name), { replace: true })}>Swap</button>`}
    <//>
    <div class="inspect-body compare-body">
      ${!isWhole && html`<section class="compare-choose" aria-label="Second conversation">
        <p>Compare <b dir="auto">${oneLine(name, 80)}</b> with:</p><${ConversationSearch} choose=${(each) => navigate(compareUrl(name, each), { replace: true })} without=${name} />
      </section>`}
      ${error && html`<${LoadError} error=${error} reload=${reload} />`}
      ${isWhole && !data && !error && html`<${Skeleton} lines=${10} label="Comparing" />`}
      ${isWhole && html`<div class="compare-which" role="group" aria-label="Conversations">
        <${Which} side="First" name=${name} change=${() => setChanging("a")} /><${Which} side="Second" name=${other} change=${() => setChanging("b")} />
      </div>`}
      ${isWhole && data && html`<${Compared} data=${data} />`}
    </div>
    ${changing && html`<${Dialog} title="Choose a conversation" onClose=${() => setChanging("")} class="picker">
      <div class="body picker-body"><${ConversationSearch} choose=${choose} without=${changing === "a" ? other : name} /></div><//>`}
  </div>`;
}

/** The button that replaces one of the conversations. */
const Which = ({ side, name, change }) => html`<button type="button" class="button" onClick=${change} aria-haspopup="dialog"
    title="Choose another conversation">${side}: <b dir="auto">${oneLine(name, 48)}</b> <${Icon} name="chevron" size=${12} /></button>`;

function Compared({ data }) {
  const { a, b, causes, costs, first, costliest } = data;
  if (!a.requests && !b.requests) return html`<${EmptyState} title="No requests"><p>Neither conversation has a request.</p><//>`;
  return html`
    <section class="compare-first" aria-label="First difference" data-testid="first-difference">
      ${costliest && html`<${Costliest} cause=${costliest} a=${a} b=${b} />`}
      <${First} first=${first} a=${a} b=${b} /></section>
    <${Table} label="Figures" a=${a} b=${b} first="Figure"
      rows=${[
        { label: "Cost", a: a.cost, b: b.cost, text: (value, side) => costText(side ? b : a), distance: dollars },
        { label: "Tokens in", a: a.input + a.estimated, b: b.input + b.estimated, text: (value, side) => inputText(side ? b : a, number) },
        { label: "Tokens out", a: a.output, b: b.output, text: (value, side) => outputText(side ? b : a, number) },
        ...FIGURES.map(([label, field, text, about]) => ({ label, a: a[field], b: b[field], text, about, isShare: text === percent })),
        { label: "Duration", a: a.began ? a.ended - a.began : null, b: b.began ? b.ended - b.began : null, text: duration },
      ]}>
      <tr><th scope="row">Models</th><td>${a.models.map((each) => oneLine(each, 60)).join(", ")}</td>
        <td>${b.models.map((each) => oneLine(each, 60)).join(", ")}</td><td></td></tr>
      <tr><th scope="row">Began</th><td>${dateTime(a.began) || NO_TIME}</td><td>${dateTime(b.began) || NO_TIME}</td><td></td></tr>
    <//>
    ${causes.length > 0 && html`<${Table} label="Findings by cause" a=${a} b=${b} first="Cause"
      rows=${causes.slice(0, MOST).map((each) => ({
        label: oneLine(each.title, 120), a: each.a.cost, b: each.b.cost, counts: [each.a.count, each.b.count], text: (value, side) => findings(side ? each.b : each.a),
      }))} />`}
    ${costs.length > 0 && html`<${Table} label="Cost by cause" a=${a} b=${b} first="Cause"
      rows=${costs.slice(0, MOST).map((each) => ({
        label: `${causeLabel(each.kind)}${each.name ? ` ${oneLine(each.name, 40)}` : ""}`, a: each.cost_a, b: each.cost_b,
        counts: [each.tokens_a, each.tokens_b], text: (value, side) => spent(side ? each.tokens_b : each.tokens_a, value),
      }))} />`}
    ${Math.max(costs.length, causes.length) > MOST && html`<p class="soft">The ${MOST} most expensive rows are shown.</p>`}`;
}

const spent = (tokens, cost) => (tokens ? `${number(tokens)} tokens${cost == null ? "" : `, ${dollars(cost)}`}` : "–");
const findings = (sums) => (sums.count ? `${number(sums.count)}${sums.cost == null ? "" : ` (${costText(sums)})`}` : "–");

/** The cause whose cost differs most. */
function Costliest({ cause, a, b }) {
  const { title, cost_a: one, cost_b: other, cost_is_lower_bound: isLowerBound } = cause;
  const inRun = ({ conversation }, cost) => html`${cost ? costText({ cost, cost_is_lower_bound: isLowerBound }) : "nothing"} in <span
      dir="auto">${oneLine(conversation, 60)}</span>`;
  return html`<p data-testid="costliest">What costs most: <b>${oneLine(title, 300)}</b>: ${one > other ? inRun(a, one) : inRun(b, other)},
    ${" "}${one > other ? inRun(b, other) : inRun(a, one)}.</p>`;
}

function First({ first, a, b }) {
  if (!first) return html`<p><span class="tag good">✓ equal</span> All ${plural(a.requests, "request")} of both have the same content.</p>`;
  const before = first.position - 1;
  const same = before ? `The first ${plural(before, "request")} are the same.` : "The first requests differ.";
  if (!first.a || !first.b) {
    const longer = first.a ? a : b;
    return html`<p>${same} Only <b dir="auto">${oneLine(longer.conversation, 60)}</b> has further requests.</p>`;
  }
  const link = inspectUrl(first.b.conversation, first.b.channel, first.b.request, { tab: "diff", to: toValue(first.b.conversation, first.a) });
  const equal = first.equal ? `${plural(first.equal, "part")} (${plural(first.equal_tokens, "token")})` : "";
  return html`${first.related
    ? html`<p>${before ? same : ""} Request ${number(first.position)} differs first: ${oneLine(first.reason || "its content", 300)}</p>`
    : html`<p><b>These are different conversations.</b> ${equal
      ? `Equal at the beginning: ${equal}. First difference: ${oneLine(first.reason || "the content", 300)}` : "Nothing at the beginning is equal."}</p>`}
    <p><a class="button" href=${link}>${first.related ? "Show the difference" : "Compare the first requests"}</a></p>`;
}

/** A table with a column per conversation, and their difference. `text` gets a value and whether it is of the second. */
function Table({ label, a, b, rows, first, children }) {
  const head = ({ conversation }) => html`<th scope="col"><a dir="auto" href=${chatUrl(conversation)}>${oneLine(conversation, 48)}</a></th>`;
  return html`<section class="compare-table"><h2>${label}</h2><div class="compare-scroll" tabindex="0" role="group" aria-label=${label}><table>
    <thead><tr><th scope="col">${first}</th>${head(a)}${head(b)}<th scope="col">Difference</th></tr></thead>
    <tbody>${rows.map((row, index) => html`<tr key=${index}><th scope="row" title=${row.about}>${row.label}</th><td>${row.text(row.a, 0)}</td>
      <td>${row.text(row.b, 1)}</td><td>${difference(row)}</td></tr>`)}${children}</tbody>
  </table></div></section>`;
}

/**
 * Return the second value relative to the first: +20%. Of shares, it is their distance. What only one of them has is new or
 * gone. `counts` decide that, and are compared if a value is unknown. With `distance`, it is also in their unit: as saved,
 * or as more.
 */
function difference({ a, b, counts = [a, b], isShare, distance }) {
  const sign = (value) => (value > 0 ? "+" : "−");
  const [one, other] = a != null && b != null ? [a, b] : counts;
  if (one == null || other == null) return "–";
  if (one === other) return "=";
  if (isShare) return `${sign(other - one)}${Math.max(1, Math.round(100 * Math.abs(other - one)))} points`;
  if (!counts[0] || !one) return "new";
  if (!counts[1] || !other) return "gone";
  const change = Math.max(1, Math.round((100 * Math.abs(other - one)) / one));
  const share = `${sign(other - one)}${number(other < one ? Math.min(99, change) : change)}%`;
  if (!distance) return share;
  return other < one ? `${distance(one - other)} saved (${share})` : `+${distance(other - one)} (${share})`;
}

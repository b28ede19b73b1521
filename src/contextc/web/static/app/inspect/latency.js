/** How long the replies took: one column per step, until the first part of the reply and until its end. */
import { html, useMemo } from "../html.js";
import { duration, number } from "../format.js";
import { StackedPlot, SIZES } from "./stacked_plot.js";
import { StepChart } from "./step_chart.js";
import { requestNumber } from "./timeline_layout.js";

const SERIES = [["wait", "until the first part of the reply"], ["receive", "until its end"], ["took", "until its end; the first part is not known"]];
const NAMES = { chart: "latency", slider: "Step by latency", zoom: "Latency zoom" };
const look = (name) => ({ class: `series-${name}` });

/** @param {{steps: object[], current: number, choose: (index: number) => void, move: (by: number) => void}} props */
export function Latency({ steps, current, choose, move }) {
  const rows = useMemo(() => steps.map(rowOf), [steps]);
  if (!rows.some((row) => row.total)) {
    return html`<p class="panel-note" data-testid="no-latency">It is not known how long these requests took.</p>`;
  }
  const used = SERIES.filter((_, place) => rows.some((row) => row.values[place]));
  const legend = html`<ul class="timeline-legend" aria-label="Legend">${used.map(([name, label]) => html`<li key=${name}><span
      class=${`swatch series-${name}`} aria-hidden="true"></span>${label}</li>`)}</ul>
    <p class="soft" data-testid="latency-figures">${spread(steps)}</p>`;
  return html`<${StepChart} steps=${rows} current=${current} choose=${choose} move=${move} sizes=${SIZES} names=${NAMES} look="over-time"
    legend=${legend} valueText=${(index) => summary(rows[index])}
    plot=${(view) => html`<${StackedPlot} rows=${rows} series=${SERIES.map(([name]) => name)} label=${duration} look=${look} ...${view} />`}
    figures=${(index) => html`<${Figures} row=${rows[index]} />`} />`;
}

function rowOf(step) {
  const { latency: total, first_chunk: first } = step;
  if (total == null) return { step, values: [0, 0, 0], total: 0 };
  return { step, values: first == null ? [0, 0, total] : [first, Math.max(0, total - first), 0], total };
}

const summary = ({ step, total, values }) =>
  `request ${number(requestNumber(step))}: ${total ? duration(total) : "not known"}${values[0] ? `, first part after ${duration(values[0])}` : ""}`;

function Figures({ row: { step, total, values } }) {
  return html`<div class="step-figures">
    <p><b>request ${number(requestNumber(step))}</b></p>
    <table><tbody>
      ${SERIES.slice(0, 2).map(([name, label], place) => values[place] > 0 && html`<tr key=${name}><th scope="row"><span
          class=${`swatch series-${name}`}></span>${label}</th><td>${duration(values[place])}</td></tr>`)}
      <tr class="sum"><th scope="row">latency</th><td>${total ? duration(total) : "–"}</td></tr>
    </tbody></table></div>`;
}

/** Return the median and the 95th percentile of the known times, as text. */
function spread(steps) {
  const at = (values, share) => duration(values[Math.min(values.length - 1, Math.floor(values.length * share))]);
  const text = (label, values) => (values.length ? `${label}: median ${at(values, 0.5)}, 95 % within ${at(values, 0.95)}` : "");
  const known = (field) => steps.map((step) => step[field]).filter((value) => value != null).sort((one, other) => one - other);
  return [text("Latency", known("latency")), text("First part", known("first_chunk"))].filter(Boolean).join(" · ");
}

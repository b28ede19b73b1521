/** Input tokens by cause over all requests: one column per step, stacked. Neighbours share a column if there are too many. */
import { html, useMemo } from "../html.js";
import { conversationPath, get } from "../api.js";
import { number, percent, tokens } from "../format.js";
import { causeLabel } from "./causes.js";
import { LoadError, Skeleton } from "./placeholders.js";
import { StackedPlot, SIZES } from "./stacked_plot.js";
import { StepChart } from "./step_chart.js";
import { useLoad } from "../use_load.js";

const NAMES = { chart: "composition-over-time", slider: "Step by composition", zoom: "Composition zoom" };

const keyOf = (channel, request) => `${channel} ${request}`;

/**
 * @param {{name: string, steps: object[], current: number, choose: (index: number) => void, move: (by: number) => void}} props
 */
export function CompositionOverTime({ name, steps, current, choose, move }) {
  const path = conversationPath(name, "composition");
  const version = `${path} ${steps.length} ${steps[steps.length - 1]?.time}`;
  const { data, error, reload } = useLoad(version, (signal) => get(path, {}, { signal }));
  const rows = useMemo(() => data && rowsOf(data, steps), [data, steps]);
  if (error) return html`<${LoadError} error=${error} reload=${reload} />`;
  if (!rows) return html`<div class="timeline"><${Skeleton} lines=${5} label="Loading the composition" /></div>`;
  return html`<${Chart} rows=${rows} causes=${data.causes} current=${current} choose=${choose} move=${move} />`;
}

/** Return the composition of each step, in their order. A step that is not stored has none. */
function rowsOf(data, steps) {
  const known = new Map(data.requests.map((each) => [keyOf(each.channel, each.number), each]));
  return steps.map((step) => {
    const found = known.get(keyOf(step.channel, step.request));
    const own = found?.tokens ?? data.causes.map(() => 0);
    return { step, values: own, total: own.reduce((sum, each) => sum + each, 0), estimated: !found || Boolean(found.estimated) };
  });
}

const look = (cause) => ({ fill: `url(#over-time-${cause})` });

function Chart({ rows, causes, current, choose, move }) {
  const patterns = html`<${Patterns} causes=${causes} />`;
  const used = causes.map((cause, index) => [cause, index]).filter(([, index]) => rows.some((row) => row.values[index]));
  const legend = html`<ul class="timeline-legend" aria-label="Legend">${used.map(([cause]) => html`<li key=${cause}><span
      class=${`swatch cause-${cause}`} aria-hidden="true"></span>${causeLabel(cause)}</li>`)}</ul>`;
  return html`<${StepChart} steps=${rows} current=${current} choose=${choose} move=${move} sizes=${SIZES} names=${NAMES} look="over-time"
    legend=${legend} valueText=${(index) => summary(rows[index], used)}
    plot=${(view) => html`<${StackedPlot} rows=${rows} series=${causes} label=${tokens} look=${look} defs=${patterns} ...${view} />`}
    figures=${(index) => html`<${RowFigures} row=${rows[index]} used=${used} />`} />`;
}

const about = (row) => (value) => (row.estimated && value ? `≈ ${number(value)}` : number(value));

function summary(row, used) {
  const figure = about(row);
  const parts = used.filter(([, index]) => row.values[index]).map(([cause, index]) => `${causeLabel(cause)} ${number(row.values[index])}`);
  return `request ${number(row.step.wouldBe ?? row.step.request)}; ${figure(row.total)} tokens in: ${parts.join(", ")}`;
}

function RowFigures({ row, used }) {
  const figure = about(row);
  return html`<div class="step-figures">
    <p><b>request ${number(row.step.wouldBe ?? row.step.request)}</b></p>
    <table><tbody>
      ${used.filter(([, index]) => row.values[index]).map(([cause, index]) => html`<tr key=${cause}><th scope="row"><span class=${`swatch cause-${cause}`}></span>${causeLabel(cause)}</th>
        <td>≈ ${number(row.values[index])}</td><td class="muted">${percent(row.values[index] / (row.total || 1))}</td></tr>`)}
      <tr class="sum"><th scope="row">input</th><td>${figure(row.total)}</td><td></td></tr>
    </tbody></table></div>`;
}

/** Strokes of the patterns: which causes have one, and its angle. */
const STROKES = { tool: true, history: true, reasoning: true, media: true, overhead: true };
const ANGLES = { tool: 45, history: 90, reasoning: -45, media: 20, overhead: 0 };

function Patterns({ causes }) {
  return causes.map((cause) => html`<pattern key=${cause} id=${`over-time-${cause}`} width="6" height="6" patternUnits="userSpaceOnUse"
      patternTransform=${`rotate(${ANGLES[cause] ?? 0})`}><rect class=${`ground-${cause}`} width="6" height="6" />${STROKES[cause] && html`<line
      class="over-time-stroke" x1="0" y1="0" x2="0" y2="6" />`}</pattern>`);
}

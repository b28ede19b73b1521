/** Input tokens by cause over all requests: one column per step, stacked. Neighbours share a column if there are too many. */
import { html, useMemo } from "../html.js";
import { conversationPath, get } from "../api.js";
import { number, percent, tokens } from "../format.js";
import { causeLabel } from "./causes.js";
import { LoadError, Skeleton } from "./placeholders.js";
import { StepChart } from "./step_chart.js";
import { numberedSteps, ticks } from "./timeline_layout.js";
import { useLoad } from "./use_load.js";

/** Sizes in pixels. */
const SIZES = { left: 46, right: 12, top: 10, plot: 132, foot: 18 };
const LOW_PLOT = 84;
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
    return { step, tokens: own, total: own.reduce((sum, each) => sum + each, 0), estimated: !found || Boolean(found.estimated) };
  });
}

function Chart({ rows, causes, current, choose, move }) {
  const used = causes.map((cause, index) => [cause, index]).filter(([, index]) => rows.some((row) => row.tokens[index]));
  const legend = html`<ul class="timeline-legend" aria-label="Legend">${used.map(([cause]) => html`<li key=${cause}><span
      class=${`swatch cause-${cause}`} aria-hidden="true"></span>${causeLabel(cause)}</li>`)}</ul>`;
  return html`<${StepChart} steps=${rows} current=${current} choose=${choose} move=${move} sizes=${SIZES} names=${NAMES} look="over-time"
    legend=${legend} valueText=${(index) => summary(rows[index], used)}
    plot=${(view) => html`<${Plot} rows=${rows} causes=${causes} ...${view} />`}
    figures=${(index) => html`<${RowFigures} row=${rows[index]} used=${used} />`} />`;
}

const about = (row) => (value) => (row.estimated && value ? `≈ ${number(value)}` : number(value));

function summary(row, used) {
  const figure = about(row);
  const parts = used.filter(([, index]) => row.tokens[index]).map(([cause, index]) => `${causeLabel(cause)} ${number(row.tokens[index])}`);
  return `request ${number(row.step.wouldBe ?? row.step.request)}; ${figure(row.total)} tokens in: ${parts.join(", ")}`;
}

function RowFigures({ row, used }) {
  const figure = about(row);
  return html`<div class="step-figures">
    <p><b>request ${number(row.step.wouldBe ?? row.step.request)}</b></p>
    <table><tbody>
      ${used.filter(([, index]) => row.tokens[index]).map(([cause, index]) => html`<tr key=${cause}><th scope="row"><span class=${`swatch cause-${cause}`}></span>${causeLabel(cause)}</th>
        <td>≈ ${number(row.tokens[index])}</td><td class="muted">${percent(row.tokens[index] / (row.total || 1))}</td></tr>`)}
      <tr class="sum"><th scope="row">input</th><td>${figure(row.total)}</td><td></td></tr>
    </tbody></table></div>`;
}

function Plot({ rows, causes, shape, room, inner, left, current, hover, isShort }) {
  const plot = isShort ? LOW_PLOT : SIZES.plot;
  const base = SIZES.top + plot;
  const scale = useMemo(() => {
    const marks = ticks(rows.reduce((most, row) => Math.max(most, row.total), 1), plot < SIZES.plot ? 2 : 4);
    return { marks, y: (figure) => base - (figure / marks[marks.length - 1]) * plot };
  }, [rows, plot]);
  const x = (index) => SIZES.left + index * shape.each - left;
  const columns = useMemo(() => drawn(rows, causes, scale, shape, left, inner), [rows, scale, shape.each, shape.together, left, inner]);
  const picked = (at, name) => at !== null && at >= 0 && html`<rect class=${`picked ${name}`} x=${x(at) - Math.max(0, 3 - shape.each) / 2} y="2"
      width=${Math.max(3, shape.each)} height=${base + 2} rx="3" />`;
  return html`<svg class="plot" width=${room} height=${base + SIZES.foot} viewBox=${`0 0 ${room} ${base + SIZES.foot}`} aria-hidden="true" focusable="false">
    <defs>
      <clipPath id="over-time-clip"><rect x=${SIZES.left - 1} y="0" width=${inner + 2} height=${base + SIZES.foot} /></clipPath>
      ${causes.map((cause) => html`<pattern key=${cause} id=${`over-time-${cause}`} width="6" height="6" patternUnits="userSpaceOnUse"
          patternTransform=${`rotate(${ANGLES[cause] ?? 0})`}><rect class=${`ground-${cause}`} width="6" height="6" />${STROKES[cause] && html`<line
          class="over-time-stroke" x1="0" y1="0" x2="0" y2="6" />`}</pattern>`)}
    </defs>
    <g class="axis">${scale.marks.map((mark) => html`<g key=${mark}><line x1=${SIZES.left} x2=${SIZES.left + inner} y1=${scale.y(mark)} y2=${scale.y(mark)} />
      <text x=${SIZES.left - 6} y=${scale.y(mark) + 3.5} text-anchor="end">${tokens(mark)}</text></g>`)}</g>
    <g clip-path="url(#over-time-clip)">
      ${picked(hover, "hover")}${picked(current, "current")}${columns}
      <g class="numbers">${numberedSteps(rows.length, shape, left, inner).map((index) => html`<text key=${index} x=${x(index) + shape.each / 2} y=${base + 13}
          text-anchor="middle">${index + 1}</text>`)}</g>
    </g>
  </svg>`;
}

/** Strokes of the patterns: which causes have one, and its angle. */
const STROKES = { tool: true, history: true, reasoning: true, media: true, overhead: true };
const ANGLES = { tool: 45, history: 90, reasoning: -45, media: 20, overhead: 0 };

/** Draw the columns in view. A column of several steps shows their mean. */
function drawn(rows, causes, scale, shape, left, inner) {
  const wide = shape.each * shape.together;
  const gap = wide > 14 ? 4 : wide > 7 ? 2 : wide > 4 ? 1 : 0.4;
  const width = Math.min(96, wide - gap);
  const first = Math.max(0, Math.floor(left / wide) - 1);
  const end = Math.min(shape.columns - 1, Math.ceil((left + inner) / wide) + 1);
  const found = [];
  for (let index = first; index <= end; index += 1) {
    const own = rows.slice(index * shape.together, (index + 1) * shape.together);
    const start = SIZES.left + index * wide - left + (wide - width) / 2;
    let below = 0;
    const parts = causes.map((cause, place) => {
      const mean = own.reduce((sum, row) => sum + row.tokens[place], 0) / Math.max(1, own.length);
      const [foot, head] = [scale.y(below), scale.y(below + mean)];
      below += mean;
      return mean > 0 && html`<rect key=${cause} fill=${`url(#over-time-${cause})`} data-cause=${cause} x=${start} y=${head} width=${width}
          height=${Math.max(0.5, foot - head)} />`;
    });
    found.push(html`<g key=${index} class="column">${parts}</g>`);
  }
  return found;
}

/** The plot of a chart of steps: one column per step, stacked. Neighbours share a column, with their mean, if there are too many. */
import { html, useMemo } from "../html.js";
import { numberedSteps, ticks } from "./timeline_layout.js";

/** Sizes in pixels. */
export const SIZES = { left: 46, right: 12, top: 10, plot: 132, foot: 18 };
const LOW_PLOT = 84;

/**
 * @param {{rows: {values: number[], total: number}[], series: string[], label: (value: number) => string,
 *   look: (name: string) => object, defs?: any, shape: object, room: number, inner: number, left: number, current: number,
 *   hover: number|null, isShort: boolean}} props `rows` have a value of each of the `series`. `label` is the text of a tick,
 *   and `look` the attributes of a part.
 */
export function StackedPlot({ rows, series, label, look, defs, shape, room, inner, left, current, hover, isShort }) {
  const plot = isShort ? LOW_PLOT : SIZES.plot;
  const base = SIZES.top + plot;
  const scale = useMemo(() => {
    const marks = ticks(rows.reduce((most, row) => Math.max(most, row.total), 1), plot < SIZES.plot ? 2 : 4);
    return { marks, y: (figure) => base - (figure / marks[marks.length - 1]) * plot };
  }, [rows, plot]);
  const x = (index) => SIZES.left + index * shape.each - left;
  const columns = useMemo(() => drawn(rows, series, look, scale, shape, left, inner), [rows, scale, shape.each, shape.together, left, inner]);
  const picked = (at, name) => at !== null && at >= 0 && html`<rect class=${`picked ${name}`} x=${x(at) - Math.max(0, 3 - shape.each) / 2} y="2"
      width=${Math.max(3, shape.each)} height=${base + 2} rx="3" />`;
  return html`<svg class="plot" width=${room} height=${base + SIZES.foot} viewBox=${`0 0 ${room} ${base + SIZES.foot}`} aria-hidden="true" focusable="false">
    <defs>
      <clipPath id="over-time-clip"><rect x=${SIZES.left - 1} y="0" width=${inner + 2} height=${base + SIZES.foot} /></clipPath>
      ${defs}
    </defs>
    <g class="axis">${scale.marks.map((mark) => html`<g key=${mark}><line x1=${SIZES.left} x2=${SIZES.left + inner} y1=${scale.y(mark)} y2=${scale.y(mark)} />
      <text x=${SIZES.left - 6} y=${scale.y(mark) + 3.5} text-anchor="end">${label(mark)}</text></g>`)}</g>
    <g clip-path="url(#over-time-clip)">
      ${picked(hover, "hover")}${picked(current, "current")}${columns}
      <g class="numbers">${numberedSteps(rows.length, shape, left, inner).map((index) => html`<text key=${index} x=${x(index) + shape.each / 2} y=${base + 13}
          text-anchor="middle">${index + 1}</text>`)}</g>
    </g>
  </svg>`;
}

/** Draw the columns in view. A column of several steps shows their mean. */
function drawn(rows, series, look, scale, shape, left, inner) {
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
    const parts = series.map((name, place) => {
      const mean = own.reduce((sum, row) => sum + row.values[place], 0) / Math.max(1, own.length);
      const [foot, head] = [scale.y(below), scale.y(below + mean)];
      below += mean;
      return mean > 0 && html`<rect key=${name} ...${look(name)} data-cause=${name} x=${start} y=${head} width=${width}
          height=${Math.max(0.5, foot - head)} />`;
    });
    found.push(html`<g key=${index} class="column">${parts}</g>`);
  }
  return found;
}

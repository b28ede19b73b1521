/**
 * Input tokens by cause over all requests: one column per step, stacked. Neighbours share a column if there are too many.
 * Only visible columns are rendered. For screen readers and the keyboard it is a slider over steps.
 */
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { number, percent, tokens } from "../format.js";
import { causeLabel } from "./causes.js";
import { LoadError, Skeleton } from "./placeholders.js";
import { columnLayout, ticks } from "./timeline_layout.js";
import { useLoad } from "./use_load.js";

/** Sizes in pixels. */
const SIZES = { left: 46, right: 12, top: 10, plot: 132, foot: 18 };
const LOW_PLOT = 84;
const short = matchMedia("(max-height: 54rem)");

/** Key → number of steps to move. */
const MOVES = {
  ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity,
};

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
  const scroller = useRef(null);
  const [room, setRoom] = useState(0);
  const [zoom, setZoom] = useState(1);
  const [left, setLeft] = useState(0);
  const [hover, setHover] = useState(null);
  const [focused, setFocused] = useState(false);
  const inner = Math.max(60, room - SIZES.left - SIZES.right);
  const shape = columnLayout(rows, inner, zoom);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setRoom(scroller.current?.clientWidth ?? 0));
    observer.observe(scroller.current);
    setRoom(scroller.current.clientWidth);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const element = scroller.current;
    const at = current * shape.each;
    const seen = element.scrollLeft;
    if (at < seen + shape.each || at > seen + inner - 2 * shape.each) element.scrollLeft = at - inner / 2;
    setLeft(element.scrollLeft);
  }, [current, zoom, shape.each, inner]);
  const indexAt = (event) => {
    const x = event.clientX - scroller.current.getBoundingClientRect().left - SIZES.left + left;
    const index = Math.floor(x / shape.each);
    return index >= 0 && index < rows.length && event.clientX ? index : null;
  };
  const onKeyDown = (event) => {
    const by = MOVES[event.key];
    if (by === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    setFocused(true);
    move(by);
  };
  const used = causes.map((cause, index) => [cause, index]).filter(([, index]) => rows.some((row) => row.tokens[index]));
  const seen = hover ?? (focused ? current : null);
  return html`<figure class="timeline over-time" data-testid="composition-over-time">
    <figcaption class="timeline-caption">
      <ul class="timeline-legend" aria-label="Legend">${used.map(([cause]) => html`<li key=${cause}><span class=${`swatch cause-${cause}`}
          aria-hidden="true"></span>${causeLabel(cause)}</li>`)}</ul>
      <div class="timeline-zoom" role="group" aria-label="Composition zoom">
        ${shape.together > 1 && html`<span class="muted">one column is the mean of ${shape.together} steps</span>`}
        <button type="button" class="icon-button" aria-label="Zoom out" disabled=${!shape.canShrink} onClick=${() => setZoom(Math.max(1, zoom / 2))}>−</button>
        <button type="button" class="icon-button" aria-label="Zoom in" disabled=${!shape.canGrow} onClick=${() => setZoom(zoom * 2)}>+</button>
        <button type="button" class="icon-button fit" disabled=${!shape.canShrink} onClick=${() => setZoom(1)}>Fit</button>
      </div>
    </figcaption>
    <div class="timeline-scroll" ref=${scroller} onScroll=${(event) => setLeft(event.currentTarget.scrollLeft)} role="slider" tabindex="0"
        aria-label="Step by composition" aria-orientation="horizontal" aria-valuemin="1" aria-valuemax=${rows.length} aria-valuenow=${current + 1}
        aria-valuetext=${rows[current] ? summary(rows[current], used) : "none"} onKeyDown=${onKeyDown}
        onPointerMove=${(event) => setHover(indexAt(event))} onPointerLeave=${() => setHover(null)}
        onFocus=${(event) => setFocused(event.currentTarget.matches(":focus-visible"))} onBlur=${() => setFocused(false)}
        onClick=${(event) => { const index = indexAt(event); if (index !== null) choose(index); }}>
      <div class="timeline-length" style=${{ width: `${shape.length + SIZES.left + SIZES.right}px` }}>
        ${room > 0 && html`<${Plot} rows=${rows} causes=${causes} shape=${shape} room=${room} inner=${inner} left=${left} current=${current} hover=${hover} />`}
      </div>
    </div>
    ${seen !== null && rows[seen] && html`<${Bubble} row=${rows[seen]} used=${used} at=${SIZES.left + (seen + 0.5) * shape.each - left} room=${room} />`}
  </figure>`;
}

const about = (row) => (value) => (row.estimated && value ? `≈ ${number(value)}` : number(value));

function summary(row, used) {
  const figure = about(row);
  const parts = used.filter(([, index]) => row.tokens[index]).map(([cause, index]) => `${causeLabel(cause)} ${number(row.tokens[index])}`);
  return `request ${number(row.step.wouldBe ?? row.step.request)}; ${figure(row.total)} tokens in: ${parts.join(", ")}`;
}

function Bubble({ row, used, at, room }) {
  const place = at > room / 2 ? { right: `${Math.max(4, room - at + 14)}px` } : { left: `${at + 14}px` };
  const figure = about(row);
  return html`<div class="timeline-bubble" style=${place} aria-hidden="true"><div class="step-figures">
    <p><b>request ${number(row.step.wouldBe ?? row.step.request)}</b></p>
    <table><tbody>
      ${used.filter(([, index]) => row.tokens[index]).map(([cause, index]) => html`<tr key=${cause}><th scope="row"><span class=${`swatch cause-${cause}`}></span>${causeLabel(cause)}</th>
        <td>≈ ${number(row.tokens[index])}</td><td class="muted">${percent(row.tokens[index] / (row.total || 1))}</td></tr>`)}
      <tr class="sum"><th scope="row">input</th><td>${figure(row.total)}</td><td></td></tr>
    </tbody></table></div></div>`;
}

function Plot({ rows, causes, shape, room, inner, left, current, hover }) {
  const plot = short.matches ? LOW_PLOT : SIZES.plot;
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
      <g class="numbers">${numbered(rows, shape, left, inner).map((index) => html`<text key=${index} x=${x(index) + shape.each / 2} y=${base + 13}
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

/** Return the steps whose number is written below the chart, as many as fit. */
function numbered(rows, shape, left, inner) {
  const every = Math.max(1, Math.ceil(34 / shape.each));
  const apart = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 5000].find((each) => each >= every) ?? every;
  const found = apart > 4 && left < shape.each ? [0] : [];
  const first = Math.max(1, Math.floor(left / shape.each / apart)) * apart - 1;
  for (let index = first; index < rows.length && index * shape.each - left < inner - 12; index += apart) found.push(index);
  return found;
}

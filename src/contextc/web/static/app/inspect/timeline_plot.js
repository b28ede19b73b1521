/** The SVG of the timeline. It draws only the columns in view. */
import { html, useMemo } from "../html.js";
import { oneLine, percent, tokens } from "../format.js";
import { stepLabel } from "../reasons.js";
import { modelName } from "./channel_names.js";
import { failureText } from "./step_figures.js";
import { EVENTS, column, epochKeys, eventKind, groupRuns, isFailed, numberedSteps, splitTokens, ticks } from "./timeline_layout.js";

/** Sizes in pixels. From top to bottom: epoch bands, columns, cost, models. */
export const SIZES = { left: 46, right: 40, band: 22, top: 30, lane: 15 };
const TALL = { plot: 124, cost: 26 };
const SHORT = { plot: 72, cost: 16 };
const LETTER = 6.6;
/** Epochs narrower than this are marks only, and marks closer than CLUSTER are merged. */
const CROWDED = 10;
const CLUSTER = 46;
/** The greatest width of a column. */
const BROADEST = 96;

/** Return the heights. The chart is lower in a low window, and has no cost row without prices. */
function heights(steps, isShort) {
  const { plot, cost: most } = isShort ? SHORT : TALL;
  const cost = steps.some((step) => step.cost) ? most : 0;
  const base = SIZES.top + plot;
  const costTop = base + (cost ? 8 : 0);
  const lane = costTop + cost + 5;
  return { plot, cost, base, costTop, lane, height: lane + SIZES.lane + 16 };
}

export function TimelinePlot({ steps, channels, shape, room, left, current, hover, isShort }) {
  const high = useMemo(() => heights(steps, isShort), [steps, isShort]);
  const scale = useMemo(() => scales(steps, high), [steps, high]);
  const bands = useMemo(() => {
    const keys = epochKeys(steps);
    return groupRuns(steps, (step, index) => keys[index]).map((band, number) => ({ ...band, number }));
  }, [steps]);
  const failed = useMemo(() => steps.flatMap((step, index) => (isFailed(step) ? [index] : [])), [steps]);
  const lanes = useMemo(() => groupRuns(steps, (step) => step.channel), [steps]);
  const view = { shape, left, high, inner: Math.max(0, room - SIZES.left - SIZES.right) };
  const x = (index) => SIZES.left + index * shape.each - left;
  const isSeen = (span) => x(span.to + 1) > SIZES.left - 40 && x(span.from) < SIZES.left + view.inner + 40;
  const seen = bands.filter(isSeen);
  const isCrowded = seen.length > 1 && view.inner / seen.length < CROWDED;
  return html`<svg class="plot" width=${room} height=${high.height} viewBox=${`0 0 ${room} ${high.height}`} aria-hidden="true"
      focusable="false">
    <defs>
      <clipPath id="plot-clip"><rect x=${SIZES.left - 1} y="0" width=${view.inner + 2} height=${high.height} /></clipPath>
      <pattern id="plot-hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect class="hatch-ground" width="5" height="5" /><line class="hatch-line" x1="0" y1="0" x2="0" y2="5" />
      </pattern>
      <pattern id="plot-hollow" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect class="hollow-ground" width="4" height="4" /><line class="hollow-line" x1="0" y1="0" x2="0" y2="4" />
      </pattern>
    </defs>
    <${Axis} scale=${scale} room=${room} high=${high} />
    <g clip-path="url(#plot-clip)">
      ${!isCrowded && seen.map((band) => html`<${Band} key=${band.from} band=${band} x=${x} view=${view}
          odd=${band.number % 2} />`)}
      <${Picked} x=${x} at=${hover} each=${shape.each} high=${high} name="hover" />
      <${Picked} x=${x} at=${current} each=${shape.each} high=${high} name="current" />
      <${Columns} steps=${steps} scale=${scale} view=${view} />
      ${lanes.filter(isSeen).map((lane) => html`<${Lane} key=${lane.from} lane=${lane} x=${x} view=${view}
          channel=${channels.get(lane.key)} />`)}
      <${Numbers} steps=${steps} view=${view} x=${x} />
      ${clustered(seen, x).map((cluster) => html`<${Mark} key=${cluster.from} cluster=${cluster} />`)}
      ${hollows(failed, steps, x, view).map((each) => html`<${Hollow} key=${each.at} hollow=${each} high=${high} />`)}
    </g>
  </svg>`;
}

function scales(steps, high) {
  let [most, dear, room] = [1, 0, 0];
  for (const step of steps) {
    most = Math.max(most, splitTokens(step).input + (step.output ?? 0));
    dear = Math.max(dear, step.cost ?? 0);
    room = Math.max(room, step.window ?? 0);
  }
  const top = ticks(room && room < most * 1.7 ? Math.max(room, most) : most, high.plot < TALL.plot ? 2 : 4);
  const largest = top[top.length - 1];
  return {
    ticks: top,
    largest,
    y: (figure) => high.base - (figure / largest) * high.plot,
    cost: (sum) => (dear ? (sum / dear) * high.cost : 0),
    high,
  };
}

function Axis({ scale, room, high }) {
  const right = room - SIZES.right;
  return html`<g class="axis">
    ${scale.ticks.map((tick) => html`<g key=${tick}>
      <line x1=${SIZES.left} x2=${right} y1=${scale.y(tick)} y2=${scale.y(tick)} />
      <text x=${SIZES.left - 6} y=${scale.y(tick) + 3.5} text-anchor="end">${tokens(tick)}</text>
    </g>`)}
    ${[0, 0.5, 1].map((share) => html`<text key=${share} class="share-label" x=${right + 6}
        y=${high.base - share * high.plot + 3.5}>${percent(share)}</text>`)}
    ${high.cost > 0 && html`<text x=${SIZES.left - 6} y=${high.costTop + high.cost / 2 + 4} text-anchor="end">cost</text>
      <line x1=${SIZES.left} x2=${right} y1=${high.costTop + high.cost} y2=${high.costTop + high.cost} />`}
  </g>`;
}

/** The columns in view with the lines for cache share and context window. Rendered again only if they move. */
function Columns({ steps, scale, view }) {
  const { shape, left, inner } = view;
  return useMemo(() => drawn(steps, scale, shape, left, inner), [steps, scale, shape.each, shape.together, left, inner]);
}

function drawn(steps, scale, shape, left, inner) {
  const wide = shape.each * shape.together;
  const x = (index) => SIZES.left + index * shape.each - left;
  const first = Math.max(0, Math.floor(left / wide) - 1);
  const last = Math.min(shape.columns - 1, Math.ceil((left + inner) / wide) + 1);
  const gap = wide > BROADEST + 4 ? wide - BROADEST : wide > 14 ? 4 : wide > 7 ? 2 : wide > 4 ? 1 : 0.4;
  const columns = [];
  for (let index = first; index <= last; index += 1) {
    const from = index * shape.together;
    columns.push(column(steps, from, Math.min(steps.length - 1, from + shape.together - 1)));
  }
  const middle = (each) => x(each.first) + wide / 2;
  const height = (each) => scale.high.base - each.share * scale.high.plot;
  const known = columns.filter((each) => each.share !== null);
  const shares = groupRuns(known, (each) => steps[each.first].channel).map(({ from, to }) => ({
    from,
    points: known.slice(from, to + 1).map((each) => `${middle(each)},${height(each)}`).join(" "),
  }));
  const windows = columns
    .map((each) => ({ at: x(each.first), size: steps[each.first].window }))
    .filter(({ size }) => size && size <= scale.largest);
  return html`<g>
    ${columns.map((each) => html`<g key=${each.first}
        class="column">${stacked(each, scale, x(each.first) + gap / 2, wide - gap)}</g>`)}
    ${windows.map(({ at, size }) => html`<line key=${at} class="room-line" x1=${at} x2=${at + wide} y1=${scale.y(size)}
        y2=${scale.y(size)} />`)}
    ${shares.map(({ from, points }) => html`<g key=${from}><polyline class="share-halo" points=${points} /><polyline
        class="share-line" points=${points} /></g>`)}
    ${wide > 12 && known.map((each) => html`<circle key=${each.first} class="share-dot" cx=${middle(each)} cy=${height(each)}
        r="2.6" />`)}
  </g>`;
}

function stacked(each, scale, from, wide) {
  let below = 0;
  const parts = ["read", "write", "fresh", "output"].map((name) => {
    const figure = each[name];
    const [foot, head] = [scale.y(below), scale.y(below + figure)];
    below += figure;
    return figure > 0 && html`<rect key=${name} class=${`series-${name}`} x=${from} y=${head} width=${wide}
        height=${Math.max(0.6, foot - head)} />`;
  });
  const dear = scale.cost(each.cost);
  return [...parts, dear > 0 && html`<rect key="cost" class="series-cost" x=${from} y=${scale.high.costTop + scale.high.cost - dear}
      width=${wide} height=${dear} />`];
}

function Picked({ x, at, each, high, name }) {
  if (at === null || at === undefined || at < 0) return null;
  const wide = Math.max(each, 3);
  return html`<rect class=${`picked ${name}`} x=${x(at) - (wide - each) / 2} y=${SIZES.band} width=${wide}
      height=${high.lane + SIZES.lane - SIZES.band} rx="3" />`;
}

/** A cache epoch: a tint behind its columns, and the longest label that fits. */
function Band({ band, x, view, odd }) {
  const [from, to] = [x(band.from), x(band.to + 1)];
  const seen = Math.max(from, SIZES.left);
  const room = Math.min(to, SIZES.left + view.inner) - seen - 20;
  const { epoch, why } = band.item;
  const labels = epoch == null ? [] : [why ? oneLine(stepLabel(band.item), 80) : "", `epoch ${epoch}`, `${epoch}`];
  const label = labels.find((text) => text && text.length * LETTER < room);
  return html`<g class=${`band ${odd ? "odd" : ""}`}>
    <rect x=${from} y="0" width=${to - from} height=${view.high.base} />
    <line x1=${from} x2=${from} y1="2" y2=${view.high.lane + SIZES.lane} />
    ${label && html`<text x=${seen + (why && seen === from ? 21 : 6)} y="15">${label}</text>`}
  </g>`;
}

/** Marks of cache resets: one sign each, or a sign and a count if they are close. */
function clustered(bands, x) {
  const found = [];
  for (const band of bands) {
    const kind = eventKind(band.item.why);
    if (!kind) continue;
    const at = x(band.from);
    const last = found[found.length - 1];
    const isNear = last && at - last.end < 17;
    if (isNear && at - last.at < CLUSTER) {
      last.count += 1;
      last.end = at;
      if (last.kind === "start") last.kind = kind;
    } else found.push({ from: band.from, at: isNear ? Math.max(at, last.at + CLUSTER) : at, end: at, kind, count: 1 });
  }
  return found;
}

function Mark({ cluster }) {
  const { kind, at, count } = cluster;
  const label = count > 1 ? `${EVENTS[kind].sign} ${count}` : EVENTS[kind].sign;
  const wide = count > 1 ? 10 + label.length * 5.6 : 14;
  return html`<g class=${`mark mark-${kind}`} transform=${`translate(${at + 3} 4)`}>
    <rect width=${wide} height="14" rx="7" /><text x=${wide / 2} y="10.4" text-anchor="middle">${label}</text>
  </g>`;
}

/** Marks of requests without a complete answer, on their columns; close ones are merged. */
function hollows(failed, steps, x, view) {
  const found = [];
  for (const at of failed) {
    const place = x(at + 0.5);
    const last = found[found.length - 1];
    if (last && place - last.x < 24) last.said.push(failureText(steps[at]));
    else found.push({ at, x: place, said: [failureText(steps[at])] });
  }
  return found.filter((each) => each.x >= SIZES.left - 1 && each.x <= SIZES.left + view.inner + 1);
}

function Hollow({ hollow, high }) {
  const { said } = hollow;
  const label = said.length > 1 ? `⊘ ${said.length}` : "⊘";
  const wide = said.length > 1 ? 12 + label.length * 5.6 : 15;
  const x = Math.max(hollow.x, SIZES.left + wide / 2);
  return html`<g class="hollow" data-count=${said.length}>
    <title>${said.length > 1 ? `${said.length} failed: ${said[0]}` : said[0]}</title>
    <line x1=${x} x2=${x} y1=${SIZES.top} y2=${high.base} />
    <rect x=${x - wide / 2} y=${high.base - 17} width=${wide} height="15" rx="4" />
    <text x=${x} y=${high.base - 6} text-anchor="middle">${label}</text>
  </g>`;
}

function Lane({ lane, x, view, channel }) {
  const [from, to] = [x(lane.from), x(lane.to + 1)];
  const seen = Math.max(from, SIZES.left);
  const room = Math.min(to, SIZES.left + view.inner) - seen - 8;
  const name = channel ? modelName(channel) : "";
  const { letter = "?", agent = "", model = "" } = channel ?? {};
  const labels = [`${letter} · ${oneLine(agent, 40)} · ${name}`, `${letter} · ${name}`, `${letter} ${oneLine(model, 60)}`, letter];
  const label = labels.find((text) => text.length * LETTER < room);
  return html`<g class=${`lane hue-${channel?.hue ?? 0}`}>
    <rect x=${from + 0.5} y=${view.high.lane} width=${Math.max(1, to - from - 1)} height=${SIZES.lane} rx="3" />
    ${label && html`<text x=${seen + 5} y=${view.high.lane + 11}>${label}</text>`}
  </g>`;
}

/** Step numbers below the chart, as many as fit. */
function Numbers({ steps, view, x }) {
  const { shape, left, inner } = view;
  return html`<g class="numbers">
    ${numberedSteps(steps.length, shape, left, inner).map((index) => html`<text key=${index} x=${x(index) + shape.each / 2}
        y=${view.high.height - 4} text-anchor="middle">${index + 1}</text>`)}
  </g>`;
}

/**
 * The timeline in one line: a bar for each request, as high as its input, with the part from the cache below. Requests
 * without a complete answer are crossed, those with costly findings have a dot. For the keyboard it is a slider.
 */
import { html, memo, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { stepSummary } from "./step_figures.js";
import { isFailed, splitTokens } from "./timeline_layout.js";

const HEIGHT = 28;
const TOP = 5;
const NARROWEST = 3;
const WIDEST = 16;
/** The tooltip where no request is under the pointer. */
const LEGEND = "A bar per request: its input tokens. The dark part was read from the cache. Crossed: failed or stopped. Dot: costly findings.";
/** Key → number of steps to move. */
export const MOVES = {
  ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity,
};

/**
 * @param {{steps: object[], channels: Map<string, object>, current: number, choose: (index: number) => void,
 *   move: (by: number) => void, marked: Set<string>}} props `marked` are the requests with costly findings
 */
export function MiniTimeline({ steps, channels, current, choose, move, marked }) {
  const box = useRef(null);
  const [room, setRoom] = useState(0);
  const [hover, setHover] = useState(null);
  useLayoutEffect(() => {
    const measure = () => setRoom(box.current?.clientWidth ?? 0);
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    measure();
    return () => observer.disconnect();
  }, []);
  const each = Math.min(WIDEST, room / Math.max(steps.length, 1));
  const indexAt = (event) => {
    const index = Math.floor((event.clientX - box.current.getBoundingClientRect().left) / each);
    return index >= 0 && index < steps.length ? index : null;
  };
  const onKeyDown = (event) => {
    const by = MOVES[event.key];
    if (by === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    move(by);
  };
  const onClick = (event) => {
    const index = indexAt(event);
    if (index !== null) choose(index);
  };
  const summary = (index) => (steps[index] ? stepSummary(steps[index], channels.get(steps[index].channel)) : undefined);
  const wide = Math.max(each, NARROWEST);
  return html`<div class="mini-timeline" ref=${box} role="slider" tabindex="0" aria-label="Request" aria-orientation="horizontal"
      aria-valuemin="1" aria-valuemax=${steps.length} aria-valuenow=${current + 1} aria-valuetext=${summary(current) ?? "none"}
      title=${hover === null ? LEGEND : summary(hover)} data-testid="mini-timeline" onKeyDown=${onKeyDown} onClick=${onClick}
      onPointerMove=${(event) => setHover(indexAt(event))} onPointerLeave=${() => setHover(null)}>
    ${room > 0 && html`<svg class="mini-plot" width=${room} height=${HEIGHT} viewBox=${`0 0 ${room} ${HEIGHT}`} aria-hidden="true"
        focusable="false">
      <${Bars} steps=${steps} each=${each} marked=${marked} />
      ${current >= 0 && html`<rect class="mini-current" x=${Math.min(current * each, room - wide)} y="0.75" width=${wide}
          height=${HEIGHT - 1.5} rx="2" />`}
    </svg>`}
  </div>`;
}

/** The bars. Neighbours share one if there is too little room; it has the largest of them. */
const Bars = memo(({ steps, each, marked }) => {
  const bars = useMemo(() => barsOf(steps, each, marked), [steps, each, marked]);
  const largest = Math.max(1, ...bars.map((bar) => bar.input));
  const high = (tokens) => (tokens / largest) * (HEIGHT - TOP - 1);
  return html`<g>${bars.map((bar) => {
    const [wide, at] = [Math.max(1.5, bar.wide - (bar.wide > 5 ? 2 : bar.wide > 3 ? 1 : 0.5)), bar.at + 0.5];
    const [all, read] = [Math.max(2, high(bar.input)), high(bar.read)];
    const [left, right] = [at, at + wide];
    return html`<g key=${bar.first} class=${`mini-bar ${bar.isFailed ? "is-failed" : ""}`} data-step=${bar.first + 1}>
      <rect class="mini-slot" x=${bar.at} y="0" width=${bar.wide} height=${HEIGHT} />
      ${bar.input > 0 && html`<rect class="mini-fresh" x=${at} y=${HEIGHT - all} width=${wide} height=${all} />`}
      ${read > 0 && html`<rect class="mini-read" x=${at} y=${HEIGHT - read} width=${wide} height=${read} />`}
      ${bar.isFailed && html`<path class="mini-cross" d=${`M${left} ${TOP}L${right} ${HEIGHT}M${right} ${TOP}L${left} ${HEIGHT}`} />`}
      ${bar.isMarked && html`<circle class="mini-dot" cx=${at + wide / 2} cy="2.5" r="2" />`}
    </g>`;
  })}</g>`;
});

function barsOf(steps, each, marked) {
  const together = each >= NARROWEST ? 1 : Math.ceil(NARROWEST / Math.max(each, 0.001));
  const found = [];
  for (let first = 0; first < steps.length; first += together) {
    const own = steps.slice(first, first + together);
    const top = own.map(splitTokens).reduce((one, other) => (other.input > one.input ? other : one));
    found.push({
      first, at: first * each, wide: own.length * each, input: top.input, read: top.read, isFailed: own.some(isFailed),
      isMarked: own.some((step) => marked.has(`${step.channel} ${step.request}`)),
    });
  }
  return found;
}

/**
 * Timeline of a conversation: one column per step, stacked by cache state; below it the cost. The cache share is a line,
 * cache epochs are bands with the reason for each reset, and models are a lane at the bottom.
 *
 * Only visible columns are rendered. For screen readers and the keyboard it is a slider over steps.
 */
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { GlyphLegend } from "./glyph_legend.js";
import { columnLayout, eventKind, EVENTS, isFailed } from "./timeline_layout.js";
import { TimelinePlot, SIZES } from "./timeline_plot.js";
import { StepFigures, stepSummary } from "./step_figures.js";

/** Key → number of steps to move. */
const MOVES = {
  ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity,
};

/** Low windows have a lower chart, so that messages are visible below it. */
const short = matchMedia("(max-height: 54rem)");

/**
 * @param {{steps: object[], channels: Map<string, object>, current: number,
 *   choose: (index: number) => void, move: (by: number) => void}} props
 */
export function Timeline({ steps, channels, current, choose, move }) {
  const scroller = useRef(null);
  const [room, setRoom] = useState(0);
  const [zoom, setZoom] = useState(1);
  const [left, setLeft] = useState(0);
  const [hover, setHover] = useState(null);
  const [focused, setFocused] = useState(false);
  const [isShort, setShort] = useState(short.matches);
  useEffect(() => {
    const onChange = () => setShort(short.matches);
    short.addEventListener("change", onChange);
    return () => short.removeEventListener("change", onChange);
  }, []);
  const inner = Math.max(60, room - SIZES.left - SIZES.right);
  const shape = columnLayout(steps, inner, zoom);

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
    return index >= 0 && index < steps.length && event.clientX ? index : null;
  };
  const onKeyDown = (event) => {
    const by = MOVES[event.key];
    if (by === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    setFocused(true);
    move(by);
  };
  const seen = hover ?? (focused ? current : null);
  const step = steps[current];
  return html`<figure class="timeline" data-testid="timeline">
    <figcaption class="timeline-caption">
      <${Legend} steps=${steps} />
      <div class="timeline-zoom" role="group" aria-label="Timeline zoom">
        ${shape.together > 1 && html`<span class="muted">one column is the mean of ${shape.together} steps</span>`}
        <button type="button" class="icon-button" aria-label="Zoom out" disabled=${!shape.canShrink}
          onClick=${() => setZoom(Math.max(1, zoom / 2))}>−</button>
        <button type="button" class="icon-button" aria-label="Zoom in" disabled=${!shape.canGrow}
          onClick=${() => setZoom(zoom * 2)}>+</button>
        <button type="button" class="icon-button fit" disabled=${!shape.canShrink} onClick=${() => setZoom(1)}>Fit</button>
      </div>
    </figcaption>
    <div class="timeline-scroll" ref=${scroller} onScroll=${(event) => setLeft(event.currentTarget.scrollLeft)}
      role="slider" tabindex="0" aria-label="Step" aria-orientation="horizontal" aria-valuemin="1"
      aria-valuemax=${steps.length} aria-valuenow=${current + 1}
      aria-valuetext=${step ? stepSummary(step, channels.get(step.channel)) : "none"}
      onKeyDown=${onKeyDown} onPointerMove=${(event) => setHover(indexAt(event))} onPointerLeave=${() => setHover(null)}
      onFocus=${(event) => setFocused(event.currentTarget.matches(":focus-visible"))} onBlur=${() => setFocused(false)}
      onClick=${(event) => { const index = indexAt(event); if (index !== null) choose(index); }}>
      <div class="timeline-length" style=${{ width: `${shape.length + SIZES.left + SIZES.right}px` }}>
        ${room > 0 && html`<${TimelinePlot} steps=${steps} channels=${channels} shape=${shape} room=${room} left=${left}
          current=${current} hover=${hover} isShort=${isShort} />`}
      </div>
    </div>
    ${seen !== null && steps[seen] && html`<${Bubble} at=${SIZES.left + (seen + 0.5) * shape.each - left} room=${room}>
      <${StepFigures} step=${steps[seen]} channel=${channels.get(steps[seen].channel)} />
    <//>`}
  </figure>`;
}

function Bubble({ at, room, children }) {
  const onLeft = at > room / 2;
  const place = onLeft ? { right: `${Math.max(4, room - at + 14)}px` } : { left: `${at + 14}px` };
  return html`<div class="timeline-bubble" style=${place} aria-hidden="true">${children}</div>`;
}

const SERIES = [
  ["read", "from cache"], ["write", "written to cache"], ["fresh", "uncached"], ["output", "output"],
  ["share", "cache share"], ["window", "context window"], ["cost", "cost"],
];

function Legend({ steps }) {
  const kinds = useMemo(() => new Set(steps.map((step) => eventKind(step.why))), [steps]);
  const signs = Object.entries(EVENTS).filter(([kind]) => kinds.has(kind)).map(([, { sign, word }]) => [sign, word]);
  return html`<ul class="timeline-legend" aria-label="Legend">
    ${SERIES.map(([name, label]) => html`<li key=${name}><span class=${`swatch series-${name}`}
        aria-hidden="true"></span>${label}</li>`)}
  </ul>
  <${GlyphLegend} signs=${steps.some(isFailed) ? [...signs, ["⊘", "no complete answer"]] : signs} />`;
}

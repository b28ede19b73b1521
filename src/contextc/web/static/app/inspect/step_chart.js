/**
 * A chart with one column per step, which scrolls and zooms; the figures of a step are in a bubble. For screen readers and
 * the keyboard it is a slider over steps. What a column looks like is up to the caller.
 */
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { MOVES } from "./mini_timeline.js";
import { columnLayout } from "./timeline_layout.js";

/** Low windows have a lower chart, so that messages are visible below it. */
const short = matchMedia("(max-height: 54rem)");

function useShortWindow() {
  const [isShort, setShort] = useState(short.matches);
  useEffect(() => {
    const onChange = () => setShort(short.matches);
    short.addEventListener("change", onChange);
    return () => short.removeEventListener("change", onChange);
  }, []);
  return isShort;
}

/**
 * @param {{steps: object[], current: number, choose: (index: number) => void, move: (by: number) => void,
 *   sizes: {left: number, right: number}, names: {chart: string, slider: string, zoom: string}, look?: string, legend: any,
 *   valueText: (index: number) => string, plot: (view: object) => any, figures: (index: number) => any}} props
 *   `sizes` are the margins in pixels. `plot` draws the columns: `view` has the layout, the visible part and the marked
 *   steps. `figures` is the content of the bubble of a step.
 */
export function StepChart({ steps, current, choose, move, sizes, names, look = "", legend, valueText, plot, figures }) {
  const scroller = useRef(null);
  const [room, setRoom] = useState(0);
  const [zoom, setZoom] = useState(1);
  const [left, setLeft] = useState(0);
  const [hover, setHover] = useState(null);
  const [focused, setFocused] = useState(false);
  const isShort = useShortWindow();
  const inner = Math.max(60, room - sizes.left - sizes.right);
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
    const x = event.clientX - scroller.current.getBoundingClientRect().left - sizes.left + left;
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
  return html`<figure class=${`timeline ${look}`} data-testid=${names.chart}>
    <figcaption class="timeline-caption">
      ${legend}
      <div class="timeline-zoom" role="group" aria-label=${names.zoom}>
        ${shape.together > 1 && html`<span class="muted">one column is the mean of ${shape.together} steps</span>`}
        <button type="button" class="icon-button" aria-label="Zoom out" disabled=${!shape.canShrink}
          onClick=${() => setZoom(Math.max(1, zoom / 2))}>−</button>
        <button type="button" class="icon-button" aria-label="Zoom in" disabled=${!shape.canGrow}
          onClick=${() => setZoom(zoom * 2)}>+</button>
        <button type="button" class="icon-button fit" disabled=${!shape.canShrink} onClick=${() => setZoom(1)}>Fit</button>
      </div>
    </figcaption>
    <div class="timeline-scroll" ref=${scroller} onScroll=${(event) => setLeft(event.currentTarget.scrollLeft)}
      role="slider" tabindex="0" aria-label=${names.slider} aria-orientation="horizontal" aria-valuemin="1"
      aria-valuemax=${steps.length} aria-valuenow=${current + 1} aria-valuetext=${steps[current] ? valueText(current) : "none"}
      onKeyDown=${onKeyDown} onPointerMove=${(event) => setHover(indexAt(event))} onPointerLeave=${() => setHover(null)}
      onFocus=${(event) => setFocused(event.currentTarget.matches(":focus-visible"))} onBlur=${() => setFocused(false)}
      onClick=${(event) => { const index = indexAt(event); if (index !== null) choose(index); }}>
      <div class="timeline-length" style=${{ width: `${shape.length + sizes.left + sizes.right}px` }}>
        ${room > 0 && plot({ shape, room, inner, left, current, hover, isShort })}
      </div>
    </div>
    ${seen !== null && steps[seen] && html`<${Bubble} at=${sizes.left + (seen + 0.5) * shape.each - left} room=${room}>${figures(seen)}<//>`}
  </figure>`;
}

function Bubble({ at, room, children }) {
  const place = at > room / 2 ? { right: `${Math.max(4, room - at + 14)}px` } : { left: `${at + 14}px` };
  return html`<div class="timeline-bubble" style=${place} aria-hidden="true">${children}</div>`;
}

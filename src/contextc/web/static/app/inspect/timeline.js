/**
 * The whole conversation at a glance: a column a step, stacked by where its tokens came from; the cost beneath, the share
 * of the cache as a line, epochs as bands with the reason for each, channels as a lane at the foot.
 *
 * Only the columns that are seen are drawn, so three thousand steps take as long as thirty. For a screen reader and the
 * keyboard it is a slider over steps, whose value is the step in words.
 */
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { dollars, number, percent } from "../format.js";
import { layout } from "./scale.js";
import { Plot, SIZES } from "./plot.js";
import { StepFigures, inWords } from "./figures.js";

/** How far a key goes. */
const MOVES = {
  ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity,
};

/** Windows in which the chart is lower, so that something of the messages is seen. */
const short = matchMedia("(max-height: 54rem)");

/**
 * @param {{steps: object[], lost: object[], channels: Map<string, object>, current: number,
 *   choose: (index: number) => void, move: (by: number) => void}} props `lost` is what was not answered, in its places
 */
export function Timeline({ steps, lost, channels, current, choose, move }) {
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
  const shape = layout(steps, inner, zoom);

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
      <${Legend} hasLost=${lost.length > 0} />
      <div class="timeline-zoom" role="group" aria-label="Zoom of the timeline">
        ${shape.together > 1 && html`<span class="muted">a column is ${shape.together} steps, their mean</span>`}
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
      aria-valuetext=${step ? inWords(step, channels.get(step.channel)) : "none"}
      onKeyDown=${onKeyDown} onPointerMove=${(event) => setHover(indexAt(event))} onPointerLeave=${() => setHover(null)}
      onFocus=${(event) => setFocused(event.currentTarget.matches(":focus-visible"))} onBlur=${() => setFocused(false)}
      onClick=${(event) => { const index = indexAt(event); if (index !== null) choose(index); }}>
      <div class="timeline-length" style=${{ width: `${shape.length + SIZES.left + SIZES.right}px` }}>
        ${room > 0 && html`<${Plot} steps=${steps} lost=${lost} channels=${channels} shape=${shape} room=${room} left=${left}
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
  ["read", "from cache"], ["write", "written to cache"], ["fresh", "fresh"], ["output", "output"],
  ["share", "cache share"], ["window", "window"], ["cost", "cost"],
];

function Legend({ hasLost }) {
  const series = hasLost ? [...SERIES, ["lost", "not answered"]] : SERIES;
  return html`<ul class="timeline-legend" aria-label="What the columns show">
    ${series.map(([name, label]) => html`<li key=${name}><span class=${`swatch series-${name}`}
        aria-hidden="true"></span>${label}</li>`)}
  </ul>`;
}

/** What it came to in all. @param {{totals: object, shown: object[]}} props */
export function Totals({ totals }) {
  const share = totals.input ? (totals.cache_read ?? 0) / totals.input : null;
  const facts = [
    [totals.requests === 1 ? "request" : "requests", number(totals.requests)], ["tokens in", number(totals.input)],
    ["tokens out", number(totals.output)], ["from cache", percent(share)], ["cost", dollars(totals.cost)],
    [totals.epochs === 1 ? "epoch" : "epochs", number(totals.epochs)],
  ];
  if (totals.unanswered) facts.push(["not answered", number(totals.unanswered)]);
  return html`<dl class="totals" data-testid="totals">
    ${facts.map(([name, figure]) => html`<div key=${name}><dt>${name}</dt><dd>${figure}</dd></div>`)}
  </dl>`;
}

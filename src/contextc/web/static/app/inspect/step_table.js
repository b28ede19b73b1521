/** The timeline as a table. */
import { html, useEffect, useRef } from "../html.js";
import { costText, number, oneLine, percent } from "../format.js";
import { stepLabel } from "../reasons.js";
import { VirtualList } from "../virtual_list.js";
import { channelName } from "./channel_names.js";
import { failureText } from "./step_figures.js";
import { isFailed, requestNumber } from "./timeline_layout.js";

/** What a cache epoch is. */
export const EPOCH = "Requests that each begin like the one before. A cache reset begins the next epoch.";
const COLUMNS = [
  "#", "request, model", "cache epoch", "tokens in", "from cache", "written", "share", "out", "cost", "left out", "status, cache reset",
];

/**
 * @param {{steps: object[], channels: Map<string, object>, current: number,
 *   choose: (index: number) => void, move: (by: number) => void}} props
 */
export function StepTable({ steps, channels, current, choose, move }) {
  const list = useRef(null);
  useEffect(() => {
    const row = list.current?.element.querySelector(`[data-index="${current}"]`);
    if (row) row.scrollIntoView({ block: "nearest" });
    else list.current?.scrollTo(current, "center");
    if (!list.current?.element.contains(document.activeElement)) return undefined;
    const timer = setTimeout(() => list.current?.element.querySelector(".step-pick[tabindex='0']")?.focus(), 30);
    return () => clearTimeout(timer);
  }, [current]);
  const row = (index) => {
    const step = steps[index];
    const channel = channels.get(step.channel);
    return html`<span role="rowheader"><button type="button" class="step-pick" tabindex=${index === current ? 0 : -1}
        aria-label=${`Step ${index + 1}, request ${requestNumber(step)}${isFailed(step) ? ", failed or stopped" : ""}`}
            onClick=${() => choose(index)}>${isFailed(step) && html`<span aria-hidden="true">⊘ </span>`}${number(index + 1)}</button></span>
      <span role="cell" title=${channel && channelName(channel)}><span
          class=${`channel-letter hue-${channel?.hue ?? 0}`}>${channel?.letter ?? "?"}</span>
        <span class="step-request"><b>${number(requestNumber(step))}</b> ${channel ? oneLine(channel.model, 28) : ""}</span></span>
      <span role="cell">${step.epoch ?? ""}</span>
      <span role="cell">${number(step.input ?? step.used)}</span>
      <span role="cell">${number(step.cache_read)}</span>
      <span role="cell">${number(step.cache_write)}</span>
      <span role="cell">${percent(step.cache_share)}</span>
      <span role="cell">${number(step.output)}</span>
      <span role="cell">${costText(step)}</span>
      <span role="cell">${step.left ? number(step.left) : ""}</span>
      <span role="cell" class="step-why" title=${oneLine(step.ended || step.observed?.error || step.why, 400)}>${stepRemark(step)}</span>`;
  };
  const onKeyDown = (event) => {
    const by = { ArrowUp: -1, ArrowDown: 1, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    move(by);
  };
  return html`<div class="step-table" role="table" aria-label="Steps" aria-rowcount=${steps.length + 1}
      data-testid="step-table" onKeyDown=${onKeyDown}>
    <div role="row" class="step-row step-columns" aria-rowindex="1">
      ${COLUMNS.map((name) => html`<span key=${name} role="columnheader" title=${name === "cache epoch" ? EPOCH : undefined}>${name}</span>`)}
    </div>
    <${VirtualList} count=${steps.length} row=${row} estimate=${30} handle=${list} class="step-rows" role="rowgroup"
        aria-label="Steps, oldest first"
      attributes=${(index) => ({
        role: "row", "aria-rowindex": index + 2, "aria-current": index === current ? "step" : undefined,
        class: `virtual-row step-row ${index === current ? "is-current" : ""} ${isFailed(steps[index]) ? "is-unanswered" : ""}`,
        onClick: () => choose(index),
      })} />
  </div>`;
}

/** Return how a request failed, and why the cache was reset. */
const stepRemark = (step) => [failureText(step), oneLine(stepLabel(step), 90)].filter(Boolean).join("; ");

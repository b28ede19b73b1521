/** The timeline as a table. */
import { html, useEffect, useMemo, useRef } from "../html.js";
import { dollars, number, oneLine, percent } from "../format.js";
import { failureLabel } from "../observed.js";
import { resetReason } from "../reasons.js";
import { VirtualList } from "../virtual_list.js";
import { channelName } from "./channel_names.js";

const COLUMNS = [
  "#", "request, model", "cache epoch", "tokens in", "from cache", "written", "share", "out", "cost", "left out", "cache reset because",
];

/** Merge steps, as indices, and unanswered requests, as objects, in order. */
function together(steps, lost) {
  const rows = [];
  let next = 0;
  for (const each of lost) {
    while (next < each.at) rows.push((next += 1) - 1);
    rows.push(each);
  }
  while (next < steps.length) rows.push((next += 1) - 1);
  return rows;
}

/**
 * @param {{steps: object[], lost: object[], channels: Map<string, object>, current: number,
 *   choose: (index: number) => void, move: (by: number) => void}} props
 */
export function StepTable({ steps, lost, channels, current, choose, move }) {
  const list = useRef(null);
  const rows = useMemo(() => together(steps, lost), [steps, lost]);
  const at = rows.indexOf(current);
  useEffect(() => {
    const row = list.current?.element.querySelector(`[data-index="${at}"]`);
    if (row) row.scrollIntoView({ block: "nearest" });
    else list.current?.scrollTo(at, "center");
    if (!list.current?.element.contains(document.activeElement)) return undefined;
    const timer = setTimeout(() => list.current?.element.querySelector(".step-pick[tabindex='0']")?.focus(), 30);
    return () => clearTimeout(timer);
  }, [at]);
  const row = (place) => {
    const index = rows[place];
    if (typeof index === "object") return html`<${NotAnswered} each=${index} channel=${channels.get(index.channel)} />`;
    const step = steps[index];
    const channel = channels.get(step.channel);
    return html`<span role="rowheader"><button type="button" class="step-pick" tabindex=${index === current ? 0 : -1}
        aria-label=${`Step ${index + 1}, request ${step.request}`}
            onClick=${() => choose(index)}>${number(index + 1)}</button></span>
      <span role="cell" title=${channel && channelName(channel)}><span
          class=${`channel-letter hue-${channel?.hue ?? 0}`}>${channel?.letter ?? "?"}</span>
        <span class="step-request"><b>${number(step.request)}</b> ${channel ? oneLine(channel.model, 28) : ""}</span></span>
      <span role="cell">${step.epoch}</span>
      <span role="cell">${number(step.input ?? step.used)}</span>
      <span role="cell">${number(step.cache_read)}</span>
      <span role="cell">${number(step.cache_write)}</span>
      <span role="cell">${percent(step.cache_share)}</span>
      <span role="cell">${number(step.output)}</span>
      <span role="cell">${dollars(step.cost)}</span>
      <span role="cell">${step.left ? number(step.left) : ""}</span>
      <span role="cell" class="step-why" title=${oneLine(step.observed?.error || step.why, 400)}>${stepRemark(step)}</span>`;
  };
  const onKeyDown = (event) => {
    const by = { ArrowUp: -1, ArrowDown: 1, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    move(by);
  };
  return html`<div class="step-table" role="table" aria-label="Steps" aria-rowcount=${rows.length + 1}
      data-testid="step-table" onKeyDown=${onKeyDown}>
    <div role="row" class="step-row step-columns" aria-rowindex="1">
      ${COLUMNS.map((name) => html`<span key=${name} role="columnheader">${name}</span>`)}
    </div>
    <${VirtualList} count=${rows.length} row=${row} estimate=${30} handle=${list} class="step-rows" role="rowgroup"
        aria-label="Steps, oldest first"
      attributes=${(place) => ({
        role: "row", "aria-rowindex": place + 2, "aria-current": place === at ? "step" : undefined,
        class: `virtual-row step-row ${place === at ? "is-current" : ""} ${isStep(rows[place]) ? "" : "is-unanswered"}`,
        onClick: () => isStep(rows[place]) && choose(rows[place]),
      })} />
  </div>`;
}

/** Return why the cache was reset, and how an observed request failed. */
function stepRemark(step) {
  const failure = failureLabel(step.observed);
  const said = failure && step.observed.error ? `${failure}: ${oneLine(step.observed.error, 60)}` : failure;
  return [said, oneLine(resetReason(step.why), 90)].filter(Boolean).join("; ");
}

const isStep = (row) => typeof row === "number";

/** Row of an unanswered request, which is not a step. */
function NotAnswered({ each, channel }) {
  const { usage } = each;
  return html`<span role="rowheader"><span aria-hidden="true">⊘</span><span class="off-screen">not answered</span></span>
    <span role="cell" title=${channel && channelName(channel)}><span
        class=${`channel-letter hue-${channel?.hue ?? 0}`}>${channel?.letter ?? "?"}</span>
      <span class="step-request">(${number(each.request)}) ${channel ? oneLine(channel.model, 28) : ""}</span></span>
    <span role="cell"></span>
    <span role="cell">${number(usage?.input)}</span>
    <span role="cell">${number(usage?.cache_read)}</span>
    <span role="cell">${number(usage?.cache_write)}</span>
    <span role="cell"></span>
    <span role="cell">${number(usage?.output)}</span>
    <span role="cell">${dollars(each.cost)}</span>
    <span role="cell"></span>
    <span role="cell" class="step-why" title=${oneLine(each.why, 400)}>not answered: ${oneLine(each.why, 90)}</span>`;
}

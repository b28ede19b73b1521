/** The timeline as a table, which sorts by each column and filters. */
import { html, useEffect, useMemo, useRef } from "../html.js";
import { costText, duration, number, oneLine, percent } from "../format.js";
import { stepLabel } from "../reasons.js";
import { route, setQuery } from "../route.js";
import { VirtualList } from "../virtual_list.js";
import { channelName } from "./channel_names.js";
import { failureText } from "./step_figures.js";
import { isFailed, requestNumber } from "./timeline_layout.js";

/** What a cache epoch is. */
export const EPOCH = "Requests that each begin like the one before. A cache reset begins the next epoch.";
/** The columns: name, the value that it is sorted by, and what a cell shows, if that is not the value as a number. */
const COLUMNS = [
  ["#", (step, index) => index], ["request, model", (step) => step.model], ["epoch", (step) => step.epoch, (step) => step.epoch ?? ""],
  ["tokens in", (step) => step.input ?? step.used, (step) => `${step.input == null && step.used ? "≈ " : ""}${number(step.input ?? step.used)}`], ["from cache", (step) => step.cache_read], ["written", (step) => step.cache_write],
  ["share", (step) => step.cache_share, (step) => percent(step.cache_share)], ["out", (step) => step.output],
  ["cost", (step) => step.cost, costText], ["first part", (step) => step.first_chunk, (step) => tookText(step.first_chunk)],
  ["latency", (step) => step.latency, (step) => tookText(step.latency)],
  ["left out", (step) => step.left, (step) => (step.left ? number(step.left) : "")],
  ["status, cache reset", (step) => stepRemark(step)],
];
const FIRST_FIGURE = 2;
const REMARK = COLUMNS.length - 1;

const tookText = (milliseconds) => (milliseconds == null ? "–" : duration(milliseconds));

/** What the table can be reduced to: name, label, and whether a step belongs to it. */
const FILTERS = [
  ["failed", "Failed", isFailed], ["reset", "Cache reset", (step) => !step.retry_of && step.why !== "first request" && Boolean(stepLabel(step))], ["left", "Left out", (step) => step.left > 0],
];

/** Return the order and the filters of the table, from the URL. */
function wanted() {
  const { sort = "", steps: filter = "", tool = "" } = route.value.query;
  const [, down, name] = /^(-?)(.*)$/.exec(sort);
  const column = Math.max(0, COLUMNS.findIndex((each) => each[0] === name));
  return { column, isDown: Boolean(down), filter: FILTERS.find((each) => each[0] === filter), tool };
}

/** Return the indexes of the steps to show, in order. Unknown values come last. */
function arranged(steps, { column, isDown, filter, tool }) {
  const found = steps.map((_, index) => index)
    .filter((index) => (!filter || filter[2](steps[index])) && (!tool || steps[index].tools?.includes(tool)));
  if (!column) return isDown ? found.reverse() : found;
  const values = new Map(found.map((index) => [index, COLUMNS[column][1](steps[index], index) ?? ""]));
  const compare = (one, other) => {
    const [a, b] = [values.get(one), values.get(other)];
    if (a === b || a === "" || b === "") return a === b ? one - other : a === "" ? 1 : -1;
    return (typeof a === "string" ? a.localeCompare(b) : a - b) * (isDown ? -1 : 1);
  };
  return found.sort(compare);
}

/** Return the index of the most expensive step; of the latest one if no cost is known. */
const costliest = (steps, shown) => shown.reduce((best, index) => ((steps[index].cost ?? 0) >= (steps[best].cost ?? 0) ? index : best));

/**
 * @param {{steps: object[], channels: Map<string, object>, current: number,
 *   choose: (index: number) => void, move: (by: number) => void}} props
 */
export function StepTable({ steps, channels, current, choose }) {
  const list = useRef(null);
  const order = wanted();
  const shown = useMemo(() => arranged(steps, order), [steps, order.column, order.isDown, order.filter, order.tool]);
  const place = shown.indexOf(current);
  /** A filter that leaves out the selected step selects the most expensive one of the others. One of the URL leaves the step that the URL names. */
  const reduced = useRef(`${order.filter?.[0]} ${order.tool}`);
  useEffect(() => {
    const before = reduced.current;
    reduced.current = `${order.filter?.[0]} ${order.tool}`;
    if (before !== reduced.current && place < 0 && shown.length) choose(costliest(steps, shown));
  }, [order.filter, order.tool]);
  useEffect(() => {
    if (place < 0) return undefined;
    const row = list.current?.element.querySelector(`[data-index="${place}"]`);
    if (row) row.scrollIntoView({ block: "nearest" });
    else list.current?.scrollTo(place, "center");
    if (!list.current?.element.contains(document.activeElement)) return undefined;
    const timer = setTimeout(() => list.current?.element.querySelector(".step-pick[tabindex='0']")?.focus(), 30);
    return () => clearTimeout(timer);
  }, [place]);
  const row = (at) => {
    const index = shown[at];
    const step = steps[index];
    const channel = channels.get(step.channel);
    return html`<span role="rowheader"><button type="button" class="step-pick" tabindex=${at === Math.max(0, place) ? 0 : -1}
        aria-label=${`Step ${index + 1}, request ${requestNumber(step)}${isFailed(step) ? ", failed or stopped" : ""}`}
            onClick=${() => choose(index)}>${isFailed(step) && html`<span aria-hidden="true">⊘ </span>`}${number(index + 1)}</button></span>
      <span role="cell" title=${channel && channelName(channel)}><span
          class=${`channel-letter hue-${channel?.hue ?? 0}`}>${channel?.letter ?? "?"}</span>
        <span class="step-request"><b>${number(requestNumber(step))}</b> ${channel ? oneLine(channel.model, 28) : ""}</span></span>
      ${COLUMNS.slice(FIRST_FIGURE, REMARK).map(([name, value, text]) => html`<span key=${name} role="cell">${text ? text(step) : number(value(step))}</span>`)}
      <span role="cell" class="step-why" title=${oneLine(step.ended || step.observed?.error || step.why, 400)}>${stepRemark(step)}</span>`;
  };
  const onKeyDown = (event) => {
    const by = { ArrowUp: -1, ArrowDown: 1, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    const to = shown[Math.max(0, Math.min(shown.length - 1, place + by))];
    if (to !== undefined) choose(to);
  };
  return html`<${StepFilters} steps=${steps} order=${order} found=${shown.length} isHidden=${place < 0} />
  <div class="step-table" role="table" aria-label="Steps" aria-rowcount=${shown.length + 1}
      data-testid="step-table" onKeyDown=${onKeyDown}>
    <div role="row" class="step-row step-columns" aria-rowindex="1">
      ${COLUMNS.map(([name], index) => html`<${ColumnHead} key=${name} name=${name} index=${index} order=${order} />`)}
    </div>
    <${VirtualList} count=${shown.length} row=${row} estimate=${30} handle=${list} class="step-rows" role="rowgroup"
        aria-label="Steps"
      attributes=${(at) => ({
        role: "row", "aria-rowindex": at + 2, "aria-current": at === place ? "step" : undefined,
        class: `virtual-row step-row ${at === place ? "is-current" : ""} ${isFailed(steps[shown[at]]) ? "is-unanswered" : ""}`,
        onClick: () => choose(shown[at]),
      })} />
  </div>`;
}

/** A column header that sorts: first the greatest values, then the smallest. The number of the step ends sorting. */
function ColumnHead({ name, index, order: { column, isDown } }) {
  const isSorted = index === column;
  const sort = () => setQuery({ sort: index === 0 ? (isSorted && !isDown ? "-#" : "") : isSorted && isDown ? name : `-${name}` });
  return html`<span role="columnheader" title=${name === "epoch" ? EPOCH : undefined}
      aria-sort=${isSorted ? (isDown ? "descending" : "ascending") : undefined}>
    <button type="button" onClick=${sort}>${name}${isSorted && (index || isDown) ? (isDown ? " ↓" : " ↑") : ""}</button></span>`;
}

/** Filters of the table, each with the number of its steps. */
function StepFilters({ steps, order: { filter, tool }, found, isHidden }) {
  const counts = useMemo(() => FILTERS.map((each) => steps.filter(each[2]).length), [steps]);
  const tools = useMemo(() => [...new Set(steps.flatMap((step) => step.tools ?? []))].sort(), [steps]);
  return html`<div class="step-filters" role="group" aria-label="Filter steps" data-testid="step-filters">
    ${FILTERS.map(([name, label], index) => html`<button key=${name} type="button" class="button" disabled=${!counts[index] && filter?.[0] !== name}
        aria-pressed=${String(filter?.[0] === name)} onClick=${() => setQuery({ steps: filter?.[0] === name ? "" : name })}>${label}
      <span class="choice-count">${number(counts[index])}</span></button>`)}
    ${tools.length > 0 && html`<label><span class="off-screen">Tool that was called</span>
      <select class="field" value=${tool} onChange=${(event) => setQuery({ tool: event.currentTarget.value })} data-testid="step-tool">
        <option value="" selected=${!tool}>Any tool</option>
        ${tools.map((name) => html`<option key=${name} value=${name} selected=${name === tool}>${oneLine(name, 40)}</option>`)}
      </select></label>`}
    ${(filter || tool) && html`<span class="soft" role="status">${number(found)} of ${number(steps.length)} steps${isHidden && ", without the selected one"}</span>`}
  </div>`;
}

/** Return how a request failed, and why the cache was reset. */
const stepRemark = (step) => [failureText(step), oneLine(stepLabel(step), 90)].filter(Boolean).join("; ");

/** Controls above a list of lines: filters with the number of lines per value, order, search with its hits, active filters. */
import { html } from "../html.js";
import { number, oneLine, percent, plural } from "../format.js";
import { Icon } from "../icons.js";

const STATES = [
  ["", "All"], ["unchanged", "Unchanged"], ["paid_again", "Paid again"], ["new", "New"], ["again", "Sent again"], ["shortened", "Shortened"], ["left", "Left out"],
];
/** States that are offered only if there are such lines. */
const RARE = new Set(["paid_again", "again"]);
/** States that lines have besides one of the others. */
const ADDITIONAL = new Set(["paid_again", "shortened", "changed"]);

export const CAUSES = {
  system: "System prompt", tool: "Tool definitions", result: "Tool results", history: "History", reasoning: "Earlier reasoning", media: "Media",
};
const NAMES = { state: "State", role: "Role", tool: "Tool", cause: "Cause", error: "Errors", sort: "Order" };
/** Names of the filters in the URL. */
export const FILTER_NAMES = ["state", "role", "tool", "cause", "error"];

/** Return the filter that a query names. `state=error` is the same as `error=1`. */
export function filterOf({ state = "", role = "", tool = "", cause = "", error = "", sort = "" }) {
  return {
    state: state === "error" || !STATES.some(([each]) => each === state) ? "" : state, role, tool, cause: cause in CAUSES ? cause : "",
    error: Boolean(error) || state === "error", sort: sort === "size" ? sort : "",
  };
}

/** A change of the query that removes all filters. */
export const NO_FILTER = Object.fromEntries(FILTER_NAMES.map((name) => [name, ""]));

/**
 * @param {{filter: object, selection: object|null, isAlone: boolean, choose: (change: object) => void}} props `choose` changes the query
 */
export function LineFilters({ filter, selection, isAlone, choose }) {
  const { states = {}, roles = {}, tools = {}, causes = {}, errors = 0 } = selection ?? {};
  const all = Object.entries(states).reduce((sum, [state, count]) => sum + (ADDITIONAL.has(state) ? 0 : count), 0);
  const shown = isAlone ? STATES.slice(0, 1) : STATES.filter(([value]) => !RARE.has(value) || states[value] || filter.state === value);
  return html`
    <div class="choice" role="group" aria-label="Filter messages">
      ${shown.map(([value, label]) => html`<button key=${value} type="button" aria-pressed=${String(filter.state === value)}
          onClick=${() => choose({ state: value })}>${label}${selection && html`<span
          class="choice-count">${number(value ? states[value] ?? 0 : all)}</span>`}</button>`)}
    </div>
    <div class="line-choices">
      <${Choice} name="role" value=${filter.role} counts=${roles} choose=${choose} />
      <${Choice} name="tool" value=${filter.tool} counts=${tools} choose=${choose} />
      <${Choice} name="cause" value=${filter.cause} counts=${causes} labels=${CAUSES} choose=${choose} />
      ${(errors > 0 || filter.error) && html`<button type="button" class="button quiet error-choice" aria-pressed=${String(filter.error)}
          onClick=${() => choose({ error: filter.error ? "" : "1", ...(filter.error ? { state: filter.state } : {}) })}><span
          aria-hidden="true">✕</span> Errors <span class="choice-count">${number(errors)}</span></button>`}
      <select class="field" aria-label="Order" value=${filter.sort} onChange=${(event) => choose({ sort: event.currentTarget.value })}>
        <option value="" selected=${!filter.sort}>As sent</option>
        <option value="size" selected=${filter.sort === "size"}>Largest first</option>
      </select>
    </div>`;
}

/** Return what precedes the messages of a selection of all rows; "" if nothing does. */
export function aboveText({ head, causes: { system = 0 } }) {
  const prompts = Math.min(system, head);
  const parts = [head > prompts && plural(head - prompts, "tool definition"), prompts > 0 && (prompts === 1 ? "the system prompt" : `${number(prompts)} parts of the system prompt`)];
  return parts.filter(Boolean).join(", ");
}

/** Return what all rows are. The number at the tab is that of the messages. */
export function rowsText(selection) {
  const { total, head, states: { left = 0 } } = selection;
  const messages = `${plural(total - head, "message")}${left ? `, of which ${number(left)} ${left === 1 ? "was" : "were"} left out` : ""}`;
  return `${plural(total, "row")}: ${[aboveText(selection), messages].filter(Boolean).join(", ")}`;
}

/** Selection of one value. It is not offered if there is nothing to choose. */
function Choice({ name, value, counts, labels = {}, choose }) {
  const values = Object.keys(counts).filter(Boolean);
  if (value && !values.includes(value)) values.push(value);
  if (values.length < 2 && !value) return null;
  const label = (each) => `${labels[each] ?? oneLine(each, 60)} (${number(counts[each] ?? 0)})`;
  return html`<select class="field" aria-label=${NAMES[name]} value=${value}
      onChange=${(event) => choose({ [name]: event.currentTarget.value })}>
    <option value="" selected=${!value}>Any ${NAMES[name].toLowerCase()}</option>
    ${values.map((each) => html`<option key=${each} value=${each} selected=${each === value}>${label(each)}</option>`)}
  </select>`;
}

/** Filters that are active, each with a button that removes it, and how much they leave. */
export function ActiveFilters({ filter, selection, choose }) {
  const chips = FILTER_NAMES.filter((name) => filter[name]).map((name) => [name, chipLabel(name, filter[name])]);
  if (!chips.length) return null;
  const { indexes = [], total = 0, tokens = 0, input = 0 } = selection ?? {};
  return html`<div class="active-filters" data-testid="active-filters">
    <ul aria-label="Active filters">${chips.map(([name, label]) => html`<li key=${name}><button type="button" class="filter-chip"
        aria-label=${`Remove filter: ${label}`} onClick=${() => choose({ [name]: "", ...(name === "error" ? { state: filter.state } : {}) })}>${label}
        <span aria-hidden="true">✕</span></button></li>`)}</ul>
    ${chips.length > 1 && html`<button type="button" class="inline-link" onClick=${() => choose(NO_FILTER)}>Remove all</button>`}
    ${selection && html`<span class="soft" role="status">${number(indexes.length)} of ${plural(total, "row")},
      ${" "}${plural(tokens, "token")}${input > 0 && ` (${percent(tokens / input)})`}</span>`}
  </div>`;
}

function chipLabel(name, value) {
  if (name === "error") return "Errors only";
  const label = name === "state" ? STATES.find(([each]) => each === value)?.[1] : name === "cause" ? CAUSES[value] : oneLine(value, 60);
  return `${NAMES[name]}: ${label}`;
}

/**
 * Search field with the number of hits and buttons that go from one to the next.
 * @param {{value: string, hits: number[]|null, current: number, isSearching: boolean, change: (text: string) => void, go: (by: number) => void}} props
 *   `current` is the place of the current hit, -1 if there is none
 */
export function LineSearch({ value, hits, current, isSearching, change, go }) {
  const onKeyDown = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    go(event.shiftKey ? -1 : 1);
  };
  const count = hits?.length ?? 0;
  const text = isSearching ? "Searching…" : !count ? "No message matches." : current < 0 ? `${number(count)} found` : `${number(current + 1)} of ${number(count)}`;
  return html`<div class="line-search" role="search" aria-label="Messages of this request">
    <input class="field search-field" type="search" placeholder="Search messages" aria-label="Search messages" data-search value=${value}
        onInput=${(event) => change(event.currentTarget.value)} onKeyDown=${onKeyDown} />
    ${value.trim() && html`<span class="soft hit-count" role="status" data-testid="hit-count">${text}</span>
      <button type="button" class="icon-button small is-up" aria-label="Previous hit" title="Previous hit (Shift and Enter)" disabled=${!count}
          onClick=${() => go(-1)}><${Icon} name="left" /></button>
      <button type="button" class="icon-button small is-down" aria-label="Next hit" title="Next hit (Enter)" disabled=${!count}
          onClick=${() => go(1)}><${Icon} name="right" /></button>`}
  </div>`;
}

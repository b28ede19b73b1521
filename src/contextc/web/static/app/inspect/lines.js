/**
 * Every message of a request in order, in or out: who, what, why, how much. What is the same as in the request before
 * hangs together on a rail at the left; where that ends, a mark says what broke it.
 *
 * Ten thousand lines are a list of which only what is seen is in the page, and only what is near is asked for.
 */
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { number } from "../format.js";
import { VirtualList } from "../virtual.js";
import { Pages } from "./pages.js";
import { Line } from "./line.js";
import { useLoad } from "./load.js";
import { event } from "./scale.js";
import { Problem } from "./states.js";

const FILTERS = [["all", "All"], ["in", "In"], ["out", "Left out"], ["new", "New"]];
/** Of a request that stands alone nothing is new, and nothing was left out. */
const ALONE = ["all"];
export const ONLY = { in: "shown", out: "left" };
/** Of a text, as much as a folded row shows: what is opened is asked for by itself. */
export const WIDTH = 400;
/** How long to wait before searching, and how many hits are enough. */
const PAUSE = 180;
const MOST_FOUND = 5000;

/**
 * @param {{name: string, step: object, facts: object, knownUpTo: number}} props `facts` is the request as the server tells
 *   of it; up to the message `knownUpTo` the request before had seen the conversation
 */
export function Lines({ name, step, facts, knownUpTo, showPath }) {
  const path = conversationPath(name, "requests", step.channel, step.request, "lines");
  const from = (query, signal) => get(path, query, { signal });
  const ask = (filter) => (after, limit, signal) =>
    from({ after, limit, only: ONLY[filter], width: WIDTH }, signal).then((found) => found.lines);
  return html`<${LineList} key=${path} identity=${path} counts=${facts.counts} shared=${facts.shared} why=${facts.why}
    knownUpTo=${facts.why && event(facts.why) !== "edit" ? knownUpTo : 0} ask=${ask} find=${finder(from)}
    detail=${detailed(from)} showPath=${showPath} />`;
}

/** All lines that have some words in what the model read. @param {(query: object, signal: AbortSignal) => Promise<object>} from */
export const finder = (from) => async (filter, search, signal) => {
  const lines = [];
  for (let after = 0, more = true; more && lines.length < MOST_FOUND;) {
    const found = await from({ after, limit: 1000, only: ONLY[filter], search, width: WIDTH }, signal);
    lines.push(...found.lines);
    ({ more, next: after } = found);
  }
  return lines;
};

/** One line in full, in its parts. @param {(query: object, signal: AbortSignal) => Promise<object>} from */
export const detailed = (from) => (index, signal) =>
  from({ after: index, limit: 1, parts: true }, signal).then((found) => found.lines[0]);

/**
 * Lines from anywhere: of a request, of what would be sent next, of a file.
 * @param {{identity: string, isAlone?: boolean, counts: {lines: number, shown: number, left: number, reduced?: number},
 *   shared?: object, why?: string, knownUpTo?: number, showPath?: (path: string) => void,
 *   ask: (filter: string) => (after: number, limit: number, signal: AbortSignal) => Promise<object[]>,
 *   find: (filter: string, words: string, signal: AbortSignal) => Promise<object[]>,
 *   detail?: (index: number, signal: AbortSignal) => Promise<object>}} props `find` searches in whole texts, of which the
 *   lines have the beginning; `detail` gives one line with its parts
 */
export function LineList({ identity, isAlone = false, counts, shared, why = "", knownUpTo = 0, ask, find, detail, showPath }) {
  const [filter, setFilter] = useState("all");
  const [sought, setSought] = useState("");
  const [open, setOpen] = useState(() => new Set());
  const [active, setActive] = useState(0);
  const [, redraw] = useState(0);
  const list = useRef(null);
  const field = useRef(null);
  const base = filter === "new" ? "in" : filter;
  const total = amounts(counts)[base];
  const pages = useMemo(() => new Pages(total, ask(base), () => redraw((each) => each + 1)), [identity, base, total]);
  useEffect(() => () => pages.close(), [pages]);

  const made = useMemo(() => new Map(), [pages, knownUpTo]);
  const wanted = sought.trim() ? JSON.stringify([identity, base, sought]) : null;
  const hits = useLoad(wanted, (signal) => find(base, sought, signal), { delay: PAUSE });
  const isSearching = wanted !== null && hits.of !== wanted;
  const wantsNew = filter === "new" && wanted === null;
  useEffect(() => {
    if (wantsNew) pages.all();
  }, [pages, wantsNew]);
  const some = wanted !== null ? (isSearching ? [] : hits.data ?? []) : wantsNew ? pages.items.filter(Boolean) : null;
  const chosen = some && (filter === "new" ? some.filter((line) => stateOf(line, knownUpTo) === "new") : some);
  const count = chosen ? chosen.length : total;
  const lineAt = (index) => (chosen ? chosen[index] : pages.get(index));

  const focus = (index) => {
    const wanted = Math.max(0, Math.min(count - 1, index));
    setActive(wanted);
    const button = () => list.current?.element.querySelector(`[data-index="${wanted}"] .line-button`);
    if (button()) button().focus();
    else {
      list.current?.scrollTo(wanted, "center");
      setTimeout(() => button()?.focus(), 60);
    }
  };
  const onKeyDown = (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || isTyping(event.target)) return;
    const next = { j: active + 1, k: active - 1, ArrowDown: active + 1, ArrowUp: active - 1, Home: 0, End: count - 1 }[event.key];
    if (next === undefined) return;
    if (event.key.length > 1 && !event.target.closest(".line-button")) return;
    event.preventDefault();
    event.stopPropagation();
    focus(event.target.closest(".line-button") ? next : active);
  };
  const toNew = async () => {
    const index = await firstNew(pages, counts.shown);
    list.current?.scrollTo(Math.max(0, index - 2));
    setActive(index);
    setTimeout(() => focus(index), 60);
  };
  const toggle = (number) => setOpen((before) => {
    const after = new Set(before);
    if (!after.delete(number)) after.add(number);
    return after;
  });
  /** Rows that have not changed are the same objects again, and are not looked at: that is what makes scrolling light. */
  const row = (index) => {
    const line = lineAt(index);
    const before = index ? lineAt(index - 1) : null;
    const isOpen = Boolean(line && open.has(line.index));
    const same = [line, before, isOpen, index === active, sought, filter, shared];
    const kept = made.get(index);
    if (kept && kept.same.every((each, place) => each === same[place])) return kept.vnode;
    const vnode = drawn(index, line, before, isOpen);
    made.set(index, { same, vnode });
    return vnode;
  };
  const drawn = (index, line, before, isOpen) => html`
      ${shared && filter !== "out" && !sought && html`
        ${index === 0 && html`<${Prefix} shared=${shared} first=${line?.state} />`}
        ${line?.state === "new" && (index === 0 || before?.state === "shared") && html`<${Break} shared=${shared} why=${why}
            showPath=${showPath} />`}`}
      ${filter === "all" && line?.state === "left" && before?.state !== "left" && html`<p
          class="left-head">Left out of this request</p>`}
      <${Line} line=${line} state=${stateOf(line, knownUpTo)} detail=${detail} open=${isOpen} toggle=${() => line && toggle(line.index)}
        isActive=${index === active} onFocus=${() => setActive(index)} sought=${sought} />`;
  return html`<div class="lines" data-testid="lines" onKeyDown=${onKeyDown}>
    <div class="panel-bar">
      <div class="choice" role="group" aria-label="Which messages">
        ${FILTERS.filter(([value]) => !isAlone || counts.left || ALONE.includes(value)).map(
          ([value, label]) => html`<button key=${value} type="button" aria-pressed=${String(filter === value)}
            onClick=${() => { setFilter(value); setActive(0); }}>${label}${amount(value, counts)}</button>`,
        )}
      </div>
      <input class="field search-field" type="search" ref=${field} placeholder="Search in these messages"
          aria-label="Search in these messages"
        data-search value=${sought} onInput=${(event) => { setSought(event.currentTarget.value); setActive(0); }} />
      ${!chosen && shared?.tokens > 0 && base !== "out" && html`<button type="button" class="button quiet"
          onClick=${toNew}>To what is new</button>`}
      ${chosen && html`<span class="soft" role="status">${isSearching ? "Searching…" : `${number(count)} found`}</span>`}
    </div>
    ${pages.error && html`<${Problem} error=${pages.error} again=${() => pages.want(0, 0)} />`}
    ${wanted !== null && !isSearching && hits.error && html`<${Problem} error=${hits.error} again=${hits.again} />`}
    ${count === 0
      ? !isSearching && html`<p class="nothing">${nothing(filter, sought)}</p>`
      : html`<${VirtualList} count=${count} row=${row} estimate=${36} identity=${`${identity} ${filter} ${sought}`} handle=${list}
          onRange=${(first, last) => !chosen && pages.want(first, last)} class="line-list" role="list"
              aria-label="Messages of this request"
          attributes=${() => ({ role: "listitem" })} />`}
  </div>`;
}

/** What is new stands at the end of what is shown: look from there backwards, as far as needed. */
async function firstNew(pages, shown) {
  let index = shown;
  while (index > 0) {
    if (pages.get(index - 1) === undefined) await pages.load(index - 1);
    if (pages.get(index - 1)?.state !== "new") break;
    index -= 1;
  }
  return Math.min(index, shown - 1);
}

const isTyping = (element) => /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName);

/** What was left out is what is not there at all, and what is there as a stub or shortened. */
const amounts = (counts) => ({ all: counts.lines, in: counts.shown, out: counts.left + (counts.reduced ?? 0) });

function amount(filter, counts) {
  const figure = amounts(counts)[filter];
  return figure === undefined ? "" : html`<span class="choice-count">${number(figure)}</span>`;
}

/** Behind a break, what the model has seen before is sent again: it is new to no one but the cache. */
function stateOf(line, knownUpTo) {
  return line?.state === "new" && line.seq && line.seq <= knownUpTo ? "again" : line?.state;
}

/** Those of some lines that have some words, where their whole texts are at hand. */
export function having(lines, words) {
  const low = words.toLowerCase();
  return lines.filter((line) => `${line.text}\n${line.why}\n${line.role}\n${line.kind}\n${line.seq}`.toLowerCase().includes(low));
}

function nothing(filter, sought) {
  if (sought) return "No message says that.";
  const said = { out: "Nothing was left out of this request, and nothing was shortened.", new: "Nothing is new in this request." };
  return said[filter] ?? "This request has no messages.";
}

/** What is shared; `first` is the state of the first line, once that is known. */
function Prefix({ shared, first }) {
  if (!shared.tokens) return null;
  const hasShared = first === "shared";
  const messages = shared.bytes
    ? `, ${number(shared.bytes)} of ${number(shared.of_bytes)} bytes of messages`
    : ": system prompt, tools, and how the first message begins";
  const of = first === undefined ? "" : hasShared ? messages : ": system prompt and tools";
  return html`<p class="prefix ${hasShared ? "" : "is-head-only"}" data-testid="prefix"><span class="rail-cap"
      aria-hidden="true"></span>
    <span>Same as the request before: <b>${number(shared.tokens)} tokens</b>${of}</span></p>`;
}

function Break({ shared, why, showPath }) {
  const { where, path, why: reason } = shared.broke ?? {};
  if (!where) {
    const said = reason || (shared.tokens ? "New from here on. Nothing before it has changed." : "Everything here is new.");
    return html`<p class="prefix-end" data-testid="prefix-end"><span class="rail-end"
        aria-hidden="true">▾</span><span>${said}</span></p>`;
  }
  const place = path && showPath
    ? html`<button type="button" class="inline-link" onClick=${() => showPath(path)}
        title="Show it in the request"><code>${path}</code></button>`
    : where;
  return html`<p class="prefix-end is-broken" data-testid="prefix-break"><span class="rail-end" aria-hidden="true">⚡</span>
    <span><b>The prefix broke here</b>, in ${place}. ${reason || why}</span></p>`;
}

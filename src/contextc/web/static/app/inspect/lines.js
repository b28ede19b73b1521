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
import { event } from "./scale.js";
import { Problem } from "./states.js";

const FILTERS = [["all", "All"], ["in", "In"], ["out", "Left out"], ["new", "New"]];
/** Of a request that stands alone nothing is new, and nothing was left out. */
const ALONE = ["all"];
const ONLY = { in: "shown", out: "left" };

/**
 * @param {{name: string, step: object, facts: object, knownUpTo: number}} props `facts` is the request as the server tells
 *   of it; up to the message `knownUpTo` the request before had seen the conversation
 */
export function Lines({ name, step, facts, knownUpTo, showPath }) {
  const path = conversationPath(name, "requests", step.channel, step.request, "lines");
  const ask = (filter) => (after, limit, signal) =>
    get(path, { after, limit, only: ONLY[filter] }, { signal }).then((found) => found.lines);
  return html`<${LineList} key=${path} identity=${path} name=${name} counts=${facts.counts} shared=${facts.shared} why=${facts.why}
    knownUpTo=${facts.why && event(facts.why) !== "edit" ? knownUpTo : 0} ask=${ask} showPath=${showPath} />`;
}

/**
 * Lines from anywhere: of a request, of what would be sent next, of a file.
 * @param {{identity: string, name?: string, isAlone?: boolean, counts: {lines: number, shown: number, left: number}, shared?: object, why?: string,
 *   knownUpTo?: number, showPath?: (path: string) => void,
 *   ask: (filter: string) => (after: number, limit: number, signal: AbortSignal) => Promise<object[]>}} props
 */
export function LineList({ identity, name = "", isAlone = false, counts, shared, why = "", knownUpTo = 0, ask, showPath }) {
  const [filter, setFilter] = useState("all");
  const [sought, setSought] = useState("");
  const [open, setOpen] = useState(() => new Set());
  const [active, setActive] = useState(0);
  const [, redraw] = useState(0);
  const list = useRef(null);
  const field = useRef(null);
  const base = filter === "new" ? "in" : filter;
  const total = { all: counts.lines, in: counts.shown, out: counts.left }[base];
  const pages = useMemo(() => new Pages(total, ask(base), () => redraw((each) => each + 1)), [identity, base, total]);
  useEffect(() => () => pages.close(), [pages]);

  const made = useMemo(() => new Map(), [pages, knownUpTo]);
  const wantsAll = filter === "new" || sought !== "";
  useEffect(() => {
    if (wantsAll) pages.all();
  }, [pages, wantsAll]);
  const chosen = wantsAll ? matching(pages, filter, sought, knownUpTo) : null;
  const count = chosen ? chosen.length : total;
  const at = (index) => (chosen ? chosen[index] : index);

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
    const line = pages.get(at(index));
    const before = index ? pages.get(at(index - 1)) : null;
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
      <${Line} line=${line} state=${stateOf(line, knownUpTo)} name=${name} open=${isOpen} toggle=${() => line && toggle(line.index)}
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
      ${wantsAll && html`<span class="soft" role="status">${number(count)} found</span>`}
    </div>
    ${pages.error && html`<${Problem} error=${pages.error} again=${() => pages.want(0, 0)} />`}
    ${count === 0
      ? html`<p class="nothing">${nothing(filter, sought)}</p>`
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

function amount(filter, counts) {
  const figure = { all: counts.lines, in: counts.shown, out: counts.left }[filter];
  return figure === undefined ? "" : html`<span class="choice-count">${number(figure)}</span>`;
}

/** Behind a break, what the model has seen before is sent again: it is new to no one but the cache. */
function stateOf(line, knownUpTo) {
  return line?.state === "new" && line.seq && line.seq <= knownUpTo ? "again" : line?.state;
}

function matching(pages, filter, sought, knownUpTo) {
  const words = sought.toLowerCase();
  const found = [];
  pages.items.forEach((line, index) => {
    if (filter === "new" && stateOf(line, knownUpTo) !== "new") return;
    if (words && !`${line.text}\n${line.why}\n${line.role}\n${line.kind}\n${line.seq}`.toLowerCase().includes(words)) return;
    found.push(index);
  });
  return found;
}

function nothing(filter, sought) {
  if (sought) return "No message says that.";
  const said = { out: "Nothing was left out of this request.", new: "Nothing is new in this request." };
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

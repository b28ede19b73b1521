/**
 * All messages of a request in order, sent or left out: role, text, reason and tokens. A rail at the left marks the prefix
 * that is shared with the previous request; at its end, a mark shows what broke it.
 *
 * The list is virtual: only visible lines are rendered, and only lines near them are fetched.
 */
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { number } from "../format.js";
import { resetReason } from "../reasons.js";
import { VirtualList } from "../virtual_list.js";
import { PageLoader } from "./page_loader.js";
import { GlyphLegend } from "./glyph_legend.js";
import { ManifestLine, SIGNS } from "./manifest_line.js";
import { useLoad } from "./use_load.js";
import { eventKind } from "./timeline_layout.js";
import { LoadError } from "./placeholders.js";

const FILTERS = [["all", "All"], ["in", "Sent"], ["out", "Left out"], ["new", "New"]];
/** Filters of a request without a previous one. */
const ALONE = ["all"];
export const ONLY = { in: "shown", out: "left" };
/** Characters of a collapsed line. The full text is fetched when a line is expanded. */
export const WIDTH = 400;
/** Milliseconds before a search starts, and the most results. */
const PAUSE = 180;
const MOST_FOUND = 5000;

/** Signs of the lines, for the legend. */
const LEGEND = [...["shared", "new", "again", "left"].map((state) => SIGNS[state]), ["⚡", "cached prefix ends"]];

/**
 * @param {{name: string, step: object, facts: object, knownUpTo: number}} props `facts` is the request from the
 *   server; the previous request had the conversation up to message `knownUpTo`
 */
export function ManifestLines({ name, step, facts, knownUpTo, showPath }) {
  const path = conversationPath(name, "requests", step.channel, step.request, "lines");
  const from = (query, signal) => get(path, query, { signal });
  const ask = (filter) => (after, limit, signal) =>
    from({ after, limit, only: ONLY[filter], width: WIDTH }, signal).then((found) => found.lines);
  return html`<${LineList} key=${path} identity=${path} counts=${facts.counts} shared=${facts.shared} why=${facts.why}
    knownUpTo=${facts.why && eventKind(facts.why) !== "edit" ? knownUpTo : 0} ask=${ask} find=${lineSearch(from)}
    detail=${lineDetail(from)} showPath=${showPath} />`;
}

/** Return a function that finds all lines with a text. @param {(query: object, signal: AbortSignal) => Promise<object>} from */
export const lineSearch = (from) => async (filter, search, signal) => {
  const lines = [];
  for (let after = 0, more = true; more && lines.length < MOST_FOUND;) {
    const found = await from({ after, limit: 1000, only: ONLY[filter], search, width: WIDTH }, signal);
    lines.push(...found.lines);
    ({ more, next: after } = found);
  }
  return lines;
};

/** Return a function that fetches one line with its parts. @param {(query: object, signal: AbortSignal) => Promise<object>} from */
export const lineDetail = (from) => (index, signal) =>
  from({ after: index, limit: 1, parts: true }, signal).then((found) => found.lines[0]);

/**
 * List of manifest lines: of a request, of the next request, or of an opened file.
 * @param {{identity: string, isAlone?: boolean, counts: {lines: number, shown: number, left: number, reduced?: number},
 *   shared?: object, why?: string, knownUpTo?: number, showPath?: (path: string) => void,
 *   ask: (filter: string) => (after: number, limit: number, signal: AbortSignal) => Promise<object[]>,
 *   find: (filter: string, words: string, signal: AbortSignal) => Promise<object[]>,
 *   detail?: (index: number, signal: AbortSignal) => Promise<object>}} props `find` searches in full texts;
 *   `detail` returns one line with its parts
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
  const pages = useMemo(() => new PageLoader(total, ask(base), () => redraw((each) => each + 1)), [identity, base, total]);
  useEffect(() => () => pages.close(), [pages]);

  const made = useMemo(() => new Map(), [pages, knownUpTo]);
  const wanted = sought.trim() ? JSON.stringify([identity, base, sought]) : null;
  const hits = useLoad(wanted, (signal) => find(base, sought, signal), { delay: PAUSE });
  const isSearching = wanted !== null && hits.of !== wanted;
  const wantsNew = filter === "new" && wanted === null;
  useEffect(() => {
    if (wantsNew) pages.loadAll();
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
  /** Reuse the vnodes of unchanged rows, which makes scrolling fast. */
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
      <${ManifestLine} line=${line} state=${stateOf(line, knownUpTo)} detail=${detail} open=${isOpen} toggle=${() => line && toggle(line.index)}
        isActive=${index === active} onFocus=${() => setActive(index)} sought=${sought} />`;
  return html`<div class="lines" data-testid="lines" onKeyDown=${onKeyDown}>
    <div class="panel-bar">
      <div class="choice" role="group" aria-label="Filter messages">
        ${FILTERS.filter(([value]) => !isAlone || counts.left || ALONE.includes(value)).map(
          ([value, label]) => html`<button key=${value} type="button" aria-pressed=${String(filter === value)}
            onClick=${() => { setFilter(value); setActive(0); }}>${label}${amount(value, counts)}</button>`,
        )}
      </div>
      <input class="field search-field" type="search" ref=${field} placeholder="Search messages"
          aria-label="Search messages"
        data-search value=${sought} onInput=${(event) => { setSought(event.currentTarget.value); setActive(0); }} />
      ${!chosen && shared?.tokens > 0 && base !== "out" && html`<button type="button" class="button quiet"
          onClick=${toNew}>Go to new messages</button>`}
      ${chosen && html`<span class="soft" role="status">${isSearching ? "Searching…" : `${number(count)} found`}</span>`}
    </div>
    ${!isAlone && html`<${GlyphLegend} signs=${LEGEND} />`}
    ${pages.error && html`<${LoadError} error=${pages.error} reload=${() => pages.ensure(0, 0)} />`}
    ${wanted !== null && !isSearching && hits.error && html`<${LoadError} error=${hits.error} reload=${hits.reload} />`}
    ${count === 0
      ? !isSearching && html`<p class="nothing">${emptyText(filter, sought)}</p>`
      : html`<${VirtualList} count=${count} row=${row} estimate=${36} identity=${`${identity} ${filter} ${sought}`} handle=${list}
          onRange=${(first, last) => !chosen && pages.ensure(first, last)} class="line-list" role="list"
              aria-label="Messages of this request"
          attributes=${() => ({ role: "listitem" })} />`}
  </div>`;
}

/** Return the index of the first new line. New lines are at the end of the sent ones, so search backwards. */
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

/** Lines per filter. "Left out" includes lines that are sent as a stub or shortened. */
const amounts = (counts) => ({ all: counts.lines, in: counts.shown, out: counts.left + (counts.reduced ?? 0) });

function amount(filter, counts) {
  const figure = amounts(counts)[filter];
  return figure === undefined ? "" : html`<span class="choice-count">${number(figure)}</span>`;
}

/** Return the state of a line. After a break, messages that were sent before are sent again: new only to the cache. */
function stateOf(line, knownUpTo) {
  return line?.state === "new" && line.seq && line.seq <= knownUpTo ? "again" : line?.state;
}

/** Return the lines that contain a text. Requires full texts. */
export function linesMatching(lines, words) {
  const low = words.toLowerCase();
  return lines.filter((line) => `${line.text}\n${line.why}\n${line.role}\n${line.kind}\n${line.seq}`.toLowerCase().includes(low));
}

function emptyText(filter, sought) {
  if (sought) return "No message matches.";
  const texts = { out: "No message was left out or shortened in this request.", new: "No message is new in this request." };
  return texts[filter] ?? "This request has no messages.";
}

/** The shared prefix; `first` is the state of the first line, once it is loaded. */
function Prefix({ shared, first }) {
  if (!shared.tokens) return null;
  const hasShared = first === "shared";
  const messages = shared.bytes
    ? `, ${number(shared.bytes)} of ${number(shared.of_bytes)} bytes of messages`
    : ": system prompt, tools, and the start of the first message";
  const of = first === undefined ? "" : hasShared ? messages : ": system prompt and tools";
  return html`<p class="prefix ${hasShared ? "" : "is-head-only"}" data-testid="prefix"><span class="rail-cap"
      aria-hidden="true"></span>
    <span>Same as in the previous request: <b>${number(shared.tokens)} tokens</b>${of}</span></p>`;
}

function Break({ shared, why, showPath }) {
  const { where, path, why: reason } = shared.broke ?? {};
  if (!where) {
    const said = reason || (shared.tokens ? "New from here on. Nothing before has changed." : "Everything is new.");
    return html`<p class="prefix-end" data-testid="prefix-end"><span class="rail-end"
        aria-hidden="true">▾</span><span>${said}</span></p>`;
  }
  const place = path && showPath
    ? html`<button type="button" class="inline-link" onClick=${() => showPath(path)}
        title="Show in the request"><code>${path}</code></button>`
    : where;
  return html`<p class="prefix-end is-broken" data-testid="prefix-break"><span class="rail-end" aria-hidden="true">⚡</span>
    <span><b>The cached prefix ends here</b>: ${place} changed. ${reason || resetReason(why)}</span></p>`;
}

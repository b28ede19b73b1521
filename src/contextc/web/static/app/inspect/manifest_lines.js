/**
 * All rows of a request in order: the system prompt, each tool, and all messages, sent or left out: role, text, reason and
 * tokens. A rail at the left marks the prefix that is shared with the previous request; at its end, a mark shows what broke
 * it.
 *
 * The server filters, sorts and searches, and returns the indexes of the selected rows. The list is virtual: only visible
 * rows are rendered, and only rows near them are fetched. The URL names the filters, the search and the open row.
 */
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { number, plural } from "../format.js";
import { resetReason } from "../reasons.js";
import { route, setQuery } from "../route.js";
import { VirtualList } from "../virtual_list.js";
import { PageLoader } from "./page_loader.js";
import { GlyphLegend } from "./glyph_legend.js";
import { aboveText, ActiveFilters, FILTER_NAMES, filterOf, LineFilters, LineSearch, NO_FILTER, rowsText } from "./line_filters.js";
import { serverLines } from "./line_source.js";
import { ManifestLine, SIGNS, stateOf } from "./manifest_line.js";
import { useLoad } from "../use_load.js";
import { LoadError, Skeleton } from "./placeholders.js";

/** Milliseconds before a search starts. */
const PAUSE = 180;
/** Rows that stay visible above one that is gone to. */
const ABOVE = 2;

/** Return the signs of the rows, for the legend: those that occur. */
function signsOf({ states }) {
  const { unchanged = 0, paid_again: paid = 0, changed = 0 } = states;
  const counts = { shared: unchanged - paid, paid, new: (states.new ?? 0) - changed, changed, again: states.again, left: states.left };
  return Object.keys(counts).filter((state) => counts[state]).map((state) => SIGNS[state]);
}

/** @param {{name: string, step: object, facts: object, showPath: (path: string) => void}} props `facts` is the request from the server */
export function ManifestLines({ name, step, facts, showPath }) {
  const path = conversationPath(name, "requests", step.channel, step.request, "lines");
  const source = useMemo(() => serverLines((query, signal) => get(path, query, { signal })), [path]);
  return html`<${LineList} key=${path} identity=${path} source=${source} shown=${facts.counts.shown} shared=${facts.shared}
      why=${facts.why} showPath=${showPath} isInUrl=${true} />`;
}

/** Return filters, search and open row, and a function that changes them: of the URL, or of this component. */
function useLineQuery(isInUrl) {
  const [own, setOwn] = useState({});
  if (isInUrl) return [route.value.query, setQuery];
  return [own, (change) => setOwn((before) => ({ ...before, ...change }))];
}

/**
 * List of rows: of a request, of the next request, or of an opened file.
 * @param {{identity: string, source: import("./line_source.js").LineSource, shown: number, isAlone?: boolean, isInUrl?: boolean,
 *   shared?: object, why?: string, showPath?: (path: string) => void}} props `shown` is the number of messages that were sent
 */
export function LineList({ identity, source, shown, isAlone = false, isInUrl = false, shared, why = "", showPath }) {
  const [query, change] = useLineQuery(isInUrl);
  const filter = filterOf(query);
  const key = JSON.stringify([identity, filter]);
  const selected = useLoad(key, (signal) => source.select(filter, signal));
  const selection = selected.data;
  const isCurrent = selected.of === key && selection !== null;
  const indexes = selection?.indexes ?? [];
  const count = indexes.length;
  const places = useMemo(() => new Map(indexes.map((index, place) => [index, place])), [selection]);

  const [, redraw] = useState(0);
  const pages = useMemo(() => new PageLoader(count, (after, limit, signal) => source.lines(indexes.slice(after, after + limit), signal),
    () => redraw((each) => each + 1)), [selection]);
  useEffect(() => () => pages.close(), [pages]);

  const sought = query.q ?? "";
  const words = sought.trim();
  const searchKey = words ? `${key} ${words}` : null;
  const found = useLoad(searchKey, (signal) => source.select({ ...filter, search: words }, signal), { delay: PAUSE });
  const isSearching = searchKey !== null && found.of !== searchKey;
  const hits = searchKey !== null && !isSearching ? found.data?.indexes ?? [] : null;
  const hitSet = useMemo(() => new Set(hits ?? []), [found.data, searchKey, isSearching]);

  const line = /^-?\d+$/.test(query.line ?? "") ? Number(query.line) : null;
  const [open, setOpen] = useState(() => new Set());
  const [showsFilters, setShowsFilters] = useState(false);
  const [active, setActive] = useState(0);
  const list = useRef(null);
  /** The row that was scrolled to last: a row that a person opens does not move. */
  const arrived = useRef(null);
  const [jumps, setJumps] = useState(0);
  useEffect(() => {
    if (line === null) arrived.current = null;
    if (line === null || !isCurrent || arrived.current === line || !places.has(line)) return;
    arrived.current = line;
    const place = places.get(line);
    setOpen((before) => new Set(before).add(line));
    setActive(place);
    list.current?.scrollTo(Math.max(0, place - ABOVE));
    list.current?.element.scrollIntoView({ block: "nearest" });  // the panel may be below the window
  }, [line, isCurrent, places, jumps]);

  /** Open a row and scroll to it. Filters that hide it are removed. */
  const goTo = (index) => {
    arrived.current = null;
    change({ ...(places.has(index) ? {} : NO_FILTER), line: `${index}` });
    setJumps((each) => each + 1);
  };
  const current = hits && line !== null ? hits.indexOf(line) : -1;
  const goToHit = (by) => {
    if (!hits?.length) return;
    goTo(hits[current < 0 ? (by > 0 ? 0 : hits.length - 1) : (current + by + hits.length) % hits.length]);
  };
  useEffect(() => {
    if (hits?.length && line === null) goTo(hits[0]);
  }, [found.data, searchKey, isSearching]);

  const choose = (wanted) => {
    setActive(0);
    change({ ...wanted, line: "" });
  };
  const toggle = (index) => {
    const isOpening = !open.has(index);
    setOpen((before) => {
      const after = new Set(before);
      if (!after.delete(index)) after.add(index);
      return after;
    });
    arrived.current = isOpening ? index : null;
    if (isOpening || line === index) change({ line: isOpening ? `${index}` : "" });
  };
  const focus = (place) => {
    const wanted = Math.max(0, Math.min(count - 1, place));
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

  const isOrdered = !filter.sort;
  const prefixEnd = shared ? selection?.prefix_end ?? null : null;
  const breakPlace = prefixEnd === null || !isOrdered ? -1 : indexes.findIndex((each) => each >= prefixEnd && each < shown);
  const isFiltered = FILTER_NAMES.some((each) => filter[each]);
  const made = useMemo(() => new Map(), [pages]);
  const actions = useRef(null);
  actions.current = { toggle, goTo };
  /** Reuse the vnodes of unchanged rows, which makes scrolling fast. */
  const row = (place) => {
    const index = indexes[place];
    const loaded = pages.get(place);
    const isHit = hitSet.has(index);
    const same = [loaded, open.has(index), place === active, isHit ? words : "", index === line, breakPlace === place, shared];
    const kept = made.get(place);
    if (kept && kept.same.every((each, at) => each === same[at])) return kept.vnode;
    const vnode = drawn(place, index, loaded, isHit);
    made.set(place, { same, vnode });
    return vnode;
  };
  const drawn = (place, index, loaded, isHit) => html`
      ${shared && isOrdered && !isFiltered && place === 0 && html`<${Prefix} shared=${shared} selection=${selection} sent=${shown} />`}
      ${breakPlace === place && html`<${Break} shared=${shared} why=${why} showPath=${showPath} />`}
      ${isOrdered && !filter.state && index >= shown && !(indexes[place - 1] >= shown) && html`<p
          class="left-head">Left out of this request</p>`}
      <${ManifestLine} line=${loaded} state=${stateOf(loaded)} detail=${source.detail} open=${open.has(index)} input=${selection.input}
        isActive=${place === active} isHit=${isHit} isBreak=${!isOrdered && index === prefixEnd && Boolean(shared?.broke?.where)}
        isTarget=${index === line} sought=${isHit ? words : ""} toggle=${() => actions.current.toggle(index)}
        goTo=${(wanted) => actions.current.goTo(wanted)} onFocus=${() => setActive(place)} />`;
  return html`<div class="lines" data-testid="lines" onKeyDown=${onKeyDown}>
    <div class=${`panel-bar line-bar ${showsFilters ? "shows-filters" : ""}`}>
      <button type="button" class="button quiet filters-button" aria-expanded=${String(showsFilters)}
          onClick=${() => setShowsFilters(!showsFilters)}>Filters <span aria-hidden="true">${showsFilters ? "▴" : "▾"}</span></button>
      <${LineFilters} filter=${filter} selection=${selection} isAlone=${isAlone} choose=${choose} />
      <${LineSearch} value=${sought} hits=${hits} current=${current} isSearching=${isSearching} go=${goToHit}
          change=${(text) => change({ q: text, line: "" })} />
      ${prefixEnd !== null && (shared.broke?.where || shared.tokens > 0) && html`<button type="button" class="button quiet"
          data-testid="go-to-change" onClick=${() => goTo(prefixEnd)}>${shared.broke?.where ? "Go to the change" : "Go to new messages"}</button>`}
      ${isCurrent && count > 0 && !isFiltered && html`<p class="soft row-counts" data-testid="row-counts">${rowsText(selection)}</p>`}
      ${!isAlone && selection && html`<${GlyphLegend} signs=${signsOf(selection)} />`}
    </div>
    <${ActiveFilters} filter=${filter} selection=${isCurrent ? selection : null} choose=${choose} />
    ${selected.error && html`<${LoadError} error=${selected.error} reload=${selected.reload} />`}
    ${pages.error && html`<${LoadError} error=${pages.error} reload=${() => pages.ensure(0, 0)} />`}
    ${searchKey !== null && !isSearching && found.error && html`<${LoadError} error=${found.error} reload=${found.reload} />`}
    ${!selection && !selected.error && html`<${Skeleton} lines=${8} label="Loading the messages" />`}
    ${selection && count === 0 && html`<p class="nothing">${isFiltered ? "No message matches the filters." : "This request has no messages."}</p>`}
    ${count > 0 && html`<${VirtualList} count=${count} row=${row} estimate=${36} identity=${selection} handle=${list}
        onRange=${(first, last) => pages.ensure(first, last)} class="line-list" role="list" aria-label="Messages of this request"
        aria-busy=${isCurrent ? undefined : "true"} attributes=${() => ({ role: "listitem" })} />`}
  </div>`;
}

const isTyping = (element) => /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName);

/** The shared prefix, above the first row. `sent` is the number of messages that were sent. */
function Prefix({ shared, selection, sent }) {
  if (!shared.tokens) return null;
  const { prefix_end: end, head } = selection;
  const messages = end === null ? sent : Math.max(0, end);
  const above = end !== null && end < 0 ? `the first ${number(head + end)} of ${plural(head, "row")}` : aboveText(selection);
  const what = [above, messages > 0 && (messages === sent ? `all ${plural(sent, "message")}` : `the first ${number(messages)} of ${plural(sent, "message")}`)];
  return html`<p class="prefix ${messages || head ? "" : "is-head-only"}" data-testid="prefix"><span class="rail-cap"
      aria-hidden="true"></span>
    <span>Same as in the previous request: <b>${number(shared.tokens)} tokens</b>${what.some(Boolean) && `: ${what.filter(Boolean).join(", ")}`}${listedTokens(shared)}${paidAgain(shared)}</span></p>`;
}

/** Return why the rows of an unchanged prefix have more tokens than it; "" if they have not. */
function listedTokens({ tokens, listed }) {
  if (!(listed > tokens)) return "";
  return `. In the rows they are ${number(listed)}: estimated shares of this request. The whole previous request had ${number(tokens)}`;
}

/** Return what of an unchanged prefix was not read from the cache; "" if all of it was, or if that is unknown. */
function paidAgain({ tokens, read }) {
  if (read == null || read >= tokens) return "";
  if (!read) return ". The provider read nothing of it from its cache: all of it was paid again";
  return `. The provider read only ${number(read)} tokens of it from its cache: the rest was paid again`;
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
    <span><b>The cached prefix ends here</b> (${place}): ${reason || resetReason(why)}</span></p>`;
}

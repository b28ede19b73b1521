/** JSON viewer with highlighting, folding and search. Only visible rows are rendered, so megabytes stay fast. */
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { number, plural, visible } from "../format.js";
import { VirtualList } from "../virtual_list.js";
import { initialFolds, rowOfPath, rowsOf, search, visibleRows } from "./json_rows.js";
import { Highlighted } from "./manifest_line.js";
import { findMarked, markOfRow } from "./marked_words.js";

const LETTER = 7.3;
/** Strings with more characters show their length. */
const LONG = 1000;
const KINDS = { string: "t-string", more: "t-string", number: "t-number", word: "t-constant" };

/**
 * @param {{text: string, label: string, goTo?: {path: string, near?: string, mark?: string}|null,
 *   onPick?: (path: string, mark: string) => void, query?: string, onSearch?: (text: string) => void, children?: any}} props
 *   `goTo`: a path to show, and words of its value to mark; `onPick` gets the path of a row that is clicked or
 *   found, and its place in a long text; `query` is searched for at first
 */
export function JsonView({ text, label, goTo = null, onPick, query = "", onSearch, children }) {
  const box = useRef(null);
  const list = useRef(null);
  const [wide, setWide] = useState(100);
  const { rows } = useMemo(() => rowsOf(text, wide), [text, wide]);
  const atFirst = useMemo(() => initialFolds(rows), [rows]);
  const [chosen, setChosen] = useState({ rows, set: atFirst });
  const folded = chosen.rows === rows ? chosen.set : atFirst;
  const setFolded = (set) => setChosen({ rows, set });
  const [active, setActive] = useState(0);
  const [sought, setSought] = useState(query);
  useEffect(() => setSought(query), [query]);
  const hits = useMemo(() => search(rows, sought), [rows, sought]);
  const seen = useMemo(() => visibleRows(rows, folded), [rows, folded]);

  useLayoutEffect(() => {
    const measure = () => setWide(Math.max(24, Math.floor(((box.current?.clientWidth ?? 800) - 60) / LETTER / 4) * 4));
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    measure();
    return () => observer.disconnect();
  }, []);

  const show = (index) => {
    const open = new Set(folded);
    for (let outer = rows[index].parent; outer >= 0; outer = rows[outer].parent) open.delete(outer);
    setFolded(open);
    setActive(index);
    setTimeout(() => {
      list.current?.scrollTo(visibleRows(rows, open).indexOf(index), "center");
      list.current?.element.scrollIntoView({ block: "nearest" });  // the end of the list may be below the window
    }, 0);
  };
  const place = useMemo(() => (goTo ? rowOfPath(rows, goTo.path) : -1), [goTo, rows]);
  const marked = useMemo(() => findMarked(rows, place, goTo?.near ?? "", goTo?.mark ?? ""), [goTo, rows, place]);
  const picked = useRef(null);
  useEffect(() => {
    if (place >= 0 && picked.current !== goTo.path) show(marked.keys().next().value ?? place);
  }, [place, marked]);

  const isUntouched = useRef(true);
  useEffect(() => {
    if (!goTo && isUntouched.current && hits.length) show(hits[0]);
  }, [rows]);

  const pick = (index) => {
    if (!getSelection().isCollapsed) return;
    setActive(index);
    choose(index);
  };
  const choose = (index) => {
    picked.current = rows[index].path;
    onPick?.(rows[index].path, markOfRow(rows, index));
  };
  const toggle = (index, fold) => {
    const after = new Set(folded);
    if (fold) after.add(index);
    else after.delete(index);
    setFolded(after);
    setActive(index);
  };
  const step = (from) => {
    if (!hits.length) return;
    const now = hits.indexOf(active);
    const to = hits[(now < 0 ? hits.findIndex((hit) => hit > active) : now + from + hits.length) % hits.length] ?? hits[0];
    show(to);
    choose(to);
  };
  const onKeyDown = (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const place = seen.indexOf(active);
    const row = rows[active];
    const moves = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: seen.length - 1 };
    if (event.key in moves) {
      const next = seen[Math.max(0, Math.min(seen.length - 1, moves[event.key]))];
      setActive(next);
      const drawn = list.current.element.querySelector(`[data-index="${seen.indexOf(next)}"]`);
      if (drawn) drawn.scrollIntoView({ block: "nearest" });
      else list.current.scrollTo(seen.indexOf(next), "center");
    } else if (event.key === "ArrowRight" && row?.kind === "open") toggle(active, false);
    else if (event.key === "ArrowLeft" && row?.kind === "open" && !folded.has(active)) toggle(active, true);
    else if (event.key === "ArrowLeft" && row?.parent >= 0) show(row.parent);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<div class="json" ref=${box} data-testid="json">
    <div class="panel-bar">
      <input class="field search-field" type="search" data-search placeholder="Search in the request"
          aria-label="Search in the request" value=${sought}
        onInput=${(event) => { isUntouched.current = false; setSought(event.currentTarget.value); onSearch?.(event.currentTarget.value); }}
        onKeyDown=${(event) => { if (event.key === "Enter") { event.preventDefault(); step(event.shiftKey ? -1 : 1); } }} />
      ${sought && html`<span class="soft"
          role="status">${hits.length ? `${number(Math.max(0, hits.indexOf(active)) + 1)} of ${number(hits.length)}` : "not found"}</span>`}
      <div class="button-row">
        <button type="button" class="button quiet" onClick=${() => setFolded(new Set())}>Unfold all</button>
        <button type="button" class="button quiet" onClick=${() => setFolded(initialFolds(rows, 0, 2))}>Fold</button>
        ${children}
      </div>
    </div>
    <${VirtualList} count=${seen.length} estimate=${20} identity=${`${text.length} ${wide}`} handle=${list} class="json-rows"
        role="tree" aria-label=${label}
      aria-activedescendant=${`json-${active}`} onKeyDown=${onKeyDown}
      attributes=${(index) => ({ ...attributes(rows, seen[index], folded, active), onClick: () => pick(seen[index]) })}
      row=${(index) => html`<${JsonRow} row=${rows[seen[index]]} isFolded=${folded.has(seen[index])} sought=${sought}
        marked=${marked.get(seen[index])} toggle=${() => toggle(seen[index], !folded.has(seen[index]))} />`} />
  </div>`;
}

function attributes(rows, index, folded, active) {
  const row = rows[index];
  if (!row) return {};
  const isOpen = row.kind === "open";
  return {
    id: `json-${index}`, role: "treeitem", "aria-level": row.depth + 1, "aria-selected": String(index === active),
    "aria-expanded": isOpen ? String(!folded.has(index)) : undefined, "data-path": row.path || undefined,
    "aria-label": row.key || row.text.trim() ? undefined : "blank line",
    class: `virtual-row json-row ${index === active ? "is-active" : ""}`,
  };
}

function JsonRow({ row, isFolded, toggle, sought, marked }) {
  if (!row) return null;
  const indent = { paddingLeft: `${row.depth * 2 + (row.kind === "more" ? 3 : 0)}ch` };
  const key = row.key && html`<span class="t-key"><${Highlighted} text=${visible(row.key)} sought=${sought} /></span>: `;
  if (row.kind === "open") {
    return html`<span class="json-line" style=${indent}>
      <button type="button" class="fold" tabindex="-1" aria-label=${isFolded ? "Unfold" : "Fold"} onClick=${toggle}>${isFolded ? "▸" : "▾"}</button>
      ${key}${row.text}${isFolded && html`<${Folded} row=${row} toggle=${toggle} />`}
    </span>`;
  }
  const comma = row.comma ? "," : "";
  const value = row.kind in KINDS ? html`<${Value} row=${row} sought=${sought} marked=${marked} />` : row.text;
  return html`<span class="json-line" style=${indent}><span class="fold"></span>${key}${value}${comma}</span>`;
}

/** Start and size of a folded value. */
function Folded({ row, toggle }) {
  const hint = visible(row.hint.slice(1).replace(/\s+/g, " "));
  return html`<button type="button" class="json-hint" tabindex="-1" onClick=${toggle}>${hint}…</button>${row.text === "{" ? "}" : "]"}
    <span class="json-size">${plural(row.size, row.text === "{" ? "field" : "item")}</span>`;
}

/** A value, or a piece of a long string. Line ends are visible. `marked` are the start and end of changed words. */
function Value({ row, sought, marked }) {
  const text = row.text.replace(/\n$/, "");
  const [start, end] = marked ?? [text.length, text.length];
  const [said, changed, rest] = [text.slice(0, start), text.slice(start, end), text.slice(end)].map(visible);
  const isLong = row.kind === "string" && row.size > LONG;
  return html`<span class=${KINDS[row.kind]}>${row.kind === "string" && '"'}<${Highlighted} text=${said} sought=${sought} />${
    changed && html`<mark class="changed-words" data-testid="changed-words">${changed}</mark>`}<${Highlighted} text=${rest} sought=${sought} />
    ${row.text.endsWith("\n") && html`<span class="line-end" aria-hidden="true">↵</span>`}${row.isLast && '"'}</span>
    ${isLong && html`<span class="json-size">${number(row.size)} characters</span>`}`;
}

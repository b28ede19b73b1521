/**
 * Differences between a request and the previous one, or any other that the user picks. They are in the order in which a
 * provider caches a request; the one that breaks the prefix comes first.
 */
import { html, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { costText, number, oneLine, plural, visible } from "../format.js";
import { Icon } from "../icons.js";
import { compareUrl, inspectUrl, route, setQuery } from "../route.js";
import { isOverlayOpen, isTextField, KEYS } from "../shortcuts.js";
import { VirtualList } from "../virtual_list.js";
import { RequestPicker } from "./request_picker.js";
import { markOfSegments } from "./marked_words.js";
import { useLoad } from "../use_load.js";
import { EmptyState, LoadError, Skeleton } from "./placeholders.js";

KEYS.push(["Changes", [[["N"], "Next difference"], [["P"], "Previous difference"]]]);

const SHAPES = [["", "Inline"], ["side", "Side by side"]];
const SIGNS = { added: ["+", "Added"], removed: ["−", "Removed"], changed: ["±", "Changed"], reordered: ["⇅", "Another order"], moved: ["↷", "Moved"] };
const TYPES = {
  tool: "tool", tool_call: "tool call", tool_result: "tool result", reasoning: "reasoning", media: "media",
  compaction: "summary", setting: "setting", reminder: "reminder",
};
/** What each segment is called for a screen reader, and the element that shows it. */
const ELEMENTS = { removed: "del", added: "ins", same: "span" };

/** Return the request that the URL names to compare with; null for the previous one. */
export function otherRequest(to) {
  const parts = (to ?? "").split("/");
  const request = Number(parts.pop());
  const channel = parts.pop();
  if (!channel || !Number.isInteger(request) || request < 1) return null;
  return { conversation: parts.join("/"), channel, request };
}

/** Return the `to` of a URL for a request, as seen from a conversation. */
export const toValue = (name, { conversation, channel, request }) =>
  (conversation && conversation !== name ? [conversation, channel, request] : [channel, request]).join("/");

/** @param {{name: string, step: object}} props */
export function Diff({ name, step }) {
  const { to, view = "" } = route.value.query;
  const [isPicking, setPicking] = useState(false);
  const other = otherRequest(to);
  const query = other
    ? { to_conversation: other.conversation, to_channel: other.channel, to_request: other.request } : {};
  const path = conversationPath(name, "requests", step.channel, step.request, "comparison");
  const key = `${path} ${other ? to : ""}`;
  const { data, error, loading, reload } = useLoad(key, (signal) => get(path, query, { signal }));
  const pick = (chosen) => {
    setPicking(false);
    if (chosen !== undefined) setQuery({ to: chosen ? toValue(name, chosen) : "" });
  };
  return html`<div class="panel compare-panel" aria-busy=${loading ? "true" : undefined} data-testid="diff">
    <div class="panel-bar">
      <button type="button" class="button" onClick=${() => setPicking(true)} aria-haspopup="dialog" data-testid="pick-request">
        Compared with <b>${other || data?.before ? requestLabel(name, other ?? { ...data.before, conversation: "" }) : "nothing"}</b>
        <${Icon} name="chevron" size=${12} />
      </button>
      ${other && html`<button type="button" class="button quiet" onClick=${() => pick(null)}>Previous request</button>`}
      ${!other && step.retry_of && data?.before && data.before.request !== step.retry_of && html`<button type="button" class="button quiet"
          onClick=${() => pick({ channel: step.channel, request: step.retry_of })}>Compare with the refused request ${number(step.retry_of)}</button>`}
      ${other?.conversation && other.conversation !== name && html`<a class="button quiet"
          href=${compareUrl(other.conversation, name)}>Compare the conversations</a>`}
      <div class="choice" role="group" aria-label="View of the differences">
        ${SHAPES.map(([each, label]) => html`<button key=${each} type="button" aria-pressed=${String(view === each)}
            onClick=${() => setQuery({ view: each })}>${label}</button>`)}
      </div>
    </div>
    ${error && html`<${LoadError} error=${error} reload=${reload} />`}
    ${!data && !error && html`<${Skeleton} lines=${10} label="Comparing" />`}
    ${data && (data.before === null
      ? html`<${EmptyState} title="Nothing to compare with"><p>This is the first request to this model. Pick another request
          to compare it with.</p><//>`
      : html`<${Comparison} key=${key} name=${name} step=${step} data=${data} isSide=${view === "side"} />`)}
    ${isPicking && html`<${RequestPicker} name=${name} current=${step} pick=${pick} />`}
  </div>`;
}

const requestLabel = (name, { conversation, request }) =>
  `request ${number(request)}${conversation && conversation !== name ? ` of ${oneLine(conversation, 40)}` : ""}`;

function Comparison({ name, step, data, isSide }) {
  const rows = useMemo(() => rowsOf(data), [data]);
  const places = useMemo(() => rows.flatMap((row, index) => (row.difference ? [index] : [])), [rows]);
  const list = useRef(null);
  const [current, setCurrent] = useState(-1);
  const move = (by) => {
    if (!places.length) return;
    const next = current < 0 ? (by > 0 ? 0 : places.length - 1) : (current + by + places.length) % places.length;
    setCurrent(next);
    list.current?.scrollTo(places[next]);
  };
  const moving = useRef(move);
  moving.current = move;
  useLayoutEffect(() => {
    const onKeyDown = (event) => {
      const by = { n: 1, p: -1 }[event.key];
      if (!by || event.ctrlKey || event.metaKey || event.altKey || isTextField(event.target) || isOverlayOpen()) return;
      event.preventDefault();
      moving.current(by);
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
  const count = data.differences.length + data.omitted;
  return html`
    <div class="panel-bar compare-summary">
      <${Summary} data=${data} />
      ${places.length > 0 && html`<div class="compare-move" role="group" aria-label="Differences">
        <button type="button" class="icon-button small" aria-label="Previous difference" title="Previous difference (P)"
            onClick=${() => move(-1)}><${Icon} name="left" /></button>
        <span class="soft" role="status" data-testid="difference-place">${current < 0 ? plural(count, "difference")
          : `${number(current + 1)} of ${plural(count, "difference")}`}</span>
        <button type="button" class="icon-button small" aria-label="Next difference" title="Next difference (N)"
            onClick=${() => move(1)}><${Icon} name="right" /></button>
      </div>`}
    </div>
    ${rows.length === 0
      ? html`<p class="nothing">The requests are identical.</p>`
      : html`<${VirtualList} count=${rows.length} estimate=${90} handle=${list} class="compare-rows" role="list"
          aria-label="Differences" attributes=${() => ({ role: "listitem" })}
          row=${(index) => html`<${Row} row=${rows[index]} name=${name} step=${step} isSide=${isSide}
              isCurrent=${current >= 0 && places[current] === index} isLowerBound=${data.cost_is_lower_bound} />`} />`}`;
}

/** What the comparison means for the cache. */
function Summary({ data }) {
  const { break_index: at, shares_cache: shares, readable, lost, cost, cost_is_lower_bound: isLowerBound, reason, fix, as_messages: asMessages } = data;
  if (!data.differences.length) return html`<p>All ${plural(data.unchanged, "part")} are equal.</p>`;
  const where = asMessages
    ? " The formats differ, so the messages are compared." : shares ? "" : " Different models share no cache.";
  const loss = lost > 0 && html` <b>${number(lost)} tokens</b> that both have were not read from the cache${cost
    ? ` (${costText({ cost, cost_is_lower_bound: isLowerBound })})` : ""}${readable > 0 ? `; ${number(readable)} could be read` : ""}.`;
  const added = addedText(data);
  if (at === null) {
    return html`<p data-testid="comparison-summary"><span class="tag good">✓ prefix kept</span> ${number(data.unchanged)} parts
      (${number(data.unchanged_tokens)} tokens) are equal.${loss}${added}${where}</p>`;
  }
  return html`<p data-testid="comparison-summary"><span class="tag new">${loss ? "! prefix broken" : "first difference"}</span>
    ${" "}<b>${oneLine(reason, 300)}</b>${loss}
    ${shares && lost === 0 && " Nothing was lost: what both have was read from the cache, or is too short for it."}${added}${where}
    ${loss && fix && html` <span class="soft">Fix: ${oneLine(fix, 300)}</span>`}</p>`;
}

/** What the added parts cost in this request, and the one that costs most; "" if that is unknown, or not complete. */
function addedText({ differences, omitted, cost_is_lower_bound: isLowerBound }) {
  const added = differences.filter((each) => each.kind === "added" && each.cost > 0);
  if (!added.length || omitted) return "";
  const text = (cost) => costText({ cost, cost_is_lower_bound: isLowerBound });
  const most = added.reduce((one, other) => (other.cost > one.cost ? other : one));
  const what = `${label(most)} (${plural(most.tokens, "token")}, ${text(most.cost)})`;
  if (added.length === 1) return ` Added: ${what}.`;
  return ` ${number(added.length)} parts were added (${text(added.reduce((sum, each) => sum + each.cost, 0))}), the most expensive: ${what}.`;
}

/** Return the rows: the break first, then all others in order, with a fold for unchanged parts between them. */
function rowsOf({ differences, break_index: at, unchanged, omitted, cut }) {
  const rows = [];
  if (at !== null) rows.push({ difference: differences[at] });
  let equal = 0;
  differences.forEach((each, index) => {
    equal += each.unchanged;
    if (each.unchanged) rows.push({ fold: each.unchanged, tokens: each.unchanged_tokens });
    if (index === at) {
      if (index > 0 || differences.length > 1) rows.push({ above: each });
    } else rows.push({ difference: each });
  });
  if (differences.length && unchanged > equal) rows.push({ fold: unchanged - equal, isRest: true });
  if (omitted) rows.push({ text: `${plural(omitted, "more difference")} not shown.` });
  else if (cut) rows.push({ text: "Long texts are truncated." });
  return rows;
}

function Row({ row, name, step, isSide, isCurrent, isLowerBound }) {
  if (row.fold) {
    return html`<div class="compare-fold"><span aria-hidden="true">=</span> ${plural(row.fold, "part")} unchanged${row.tokens
      ? `, ${plural(row.tokens, "token")}` : ""}</div>`;
  }
  if (row.above) return html`<div class="compare-fold"><span aria-hidden="true">↑</span> ${label(row.above)}: shown above</div>`;
  if (row.text) return html`<div class="compare-fold">${row.text}</div>`;
  const each = row.difference;
  const [sign, kind] = SIGNS[each.kind];
  const shown = each.kind === "moved" ? `${each.before} → ${each.after}` : each.after || each.before;
  return html`<article class=${`compare-item is-${each.kind} ${each.is_break ? "is-break" : ""}`}
      aria-current=${isCurrent ? "true" : undefined} data-testid="difference">
    <header class="compare-head">
      <span class="compare-sign" aria-hidden="true">${sign}</span>
      <b>${kind}</b> <span>${label(each)}</span>
      ${each.is_break && html`<span class="tag new">breaks the prefix</span>`}
      ${each.note && html`<span class="soft">${oneLine(each.note, 120)}</span>`}
      <span class="compare-path">${each.after && each.section !== "settings"
        ? html`<a href=${inspectUrl(name, step.channel, step.request, { tab: "request", path: each.after, ...markOfSegments(each.segments) })}
            title="Show in the request"><code>${oneLine(shown, 80)}</code></a>`
        : html`<code>${oneLine(shown, 80)}</code>`}${each.tokens > 0 && html` <span class="faint">${plural(each.tokens, "token")}${each.cost > 0
          ? `, ${costText({ cost: each.cost, cost_is_lower_bound: isLowerBound })}` : ""}</span>`}</span>
    </header>
    ${each.segments.length > 0 && ((isSide || each.kind === "reordered") && each.kind !== "added" && each.kind !== "removed"
      ? html`<div class="compare-sides">
          <div><h3>Before</h3><${Words} segments=${each.segments} without="added" /></div>
          <div><h3>After</h3><${Words} segments=${each.segments} without="removed" /></div>
        </div>`
      : html`<${Words} segments=${each.segments} />`)}
  </article>`;
}

function label({ section, type, role, name }) {
  if (section === "tools") return name ? `tool ${oneLine(name, 60)}` : "tools";
  if (section === "system") return "system prompt";
  if (section === "settings") return `setting ${oneLine(name, 60)}`;
  const what = TYPES[type] ?? `${role} message`.trim();
  return name ? `${what} ${oneLine(name, 60)}` : what;
}

/** A text with its changes. */
function Words({ segments, without = "" }) {
  return html`<pre class="compare-words" dir="auto" tabindex="0">${segments.filter((each) => each.kind !== without).map((each, index) => {
    if (each.kind === "folded") return html`<span key=${index} class="compare-gap">… ${plural(each.count, "character")} unchanged …</span>`;
    if (each.kind === "cut") return html`<span key=${index} class="compare-gap">… ${plural(each.count, "more character")} …</span>`;
    const Element = ELEMENTS[each.kind];
    return html`<${Element} key=${index}>${shownText(each)}<//>`;
  })}</pre>`;
}

/** Return the text of a segment. White space that was added or removed is made visible. */
function shownText({ kind, text }) {
  const shown = visible(text ?? "");
  if (kind === "same" || /\S/.test(shown)) return shown;
  return shown.replace(/ /g, "·").replace(/\t/g, "→").replace(/\n/g, "↵\n");
}

/** The messages of a conversation, drawn where they are looked at; behind them what is on its way and what waits. */
import { html, useCallback, useEffect, useMemo } from "../html.js";
import { isCovered, writing } from "../keys.js";
import { inspectAddress } from "../route.js";
import { VirtualList } from "../virtual.js";
import { Approval } from "./approval.js";
import { waysOf } from "./branches.js";
import { Notice } from "./notices.js";
import { isShownAbove, resultsOf } from "./pairs.js";
import { Placeholder, Row, WHO } from "./row.js";
import { Ending, Queued, Working } from "./tail.js";

const NONE = [];
const EMPTY = new Map();
const ESTIMATE = 140;

export function Messages({ session, state, list, onEnd, model }) {
  const { length, messages, live, sending, notices, tools, running, view } = state;
  const timeline = session.timeline.value;
  const branches = session.branches.value;
  const ways = useMemo(() => waysOf(branches), [branches]);
  const noted = useMemo(() => placedNotices(notices, messages), [notices, messages]);
  const pinned = useMemo(() => new Set(view.pinned), [view.pinned]);
  const onRange = useCallback((first, last) => session.need(first + 1, last + 1), [session]);
  useEffect(() => {
    const onKey = (event) => walk(event, list.current);
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const busy = Boolean(running);
  const all = tailOf(state, session, model);
  const isStored = ({ seq }) => seq > 0 && seq <= length;
  const tail = all.filter((each) => !isStored(each));
  /** What is stored and not fetched yet, where it belongs: as it was when it came. */
  const coming = new Map(all.filter(isStored).map((each) => [each.seq, each]));
  const isHidden = (message) => isShownAbove(messages, message);
  const row = (index) => {
    if (index >= length) return tail[index - length].draw();
    const message = messages.get(index + 1);
    if (!message) return coming.get(index + 1)?.draw() ?? html`<${Placeholder} />`;
    const { seq } = message;
    const request = timeline?.get(message.uid);
    return html`
      <${Row} message=${message} results=${resultsFor(messages, message)} tools=${message.role === "assistant" ? tools : EMPTY}
        notices=${noted.get(seq) ?? NONE} way=${ways.get(seq)} request=${request} inspect=${inspectOf(session, state, message, request)}
        cleared=${view.edge > 0 && view.edge === seq} pinned=${pinned.has(seq)} busy=${busy} session=${session} model=${model}
        hidden=${isHidden(message)} last=${seq === length} />`;
  };
  const keyOf = (index) => {
    if (index >= length) return tail[index - length].key;
    return messages.get(index + 1)?.uid ?? coming.get(index + 1)?.key ?? `m${index}`;
  };
  const attributes = (index) => {
    const message = index < length ? messages.get(index + 1) : null;
    const isEmpty = index < length ? !message || (isHidden(message) && !noted.has(message.seq)) : !tail[index - length].label;
    if (isEmpty) return {};
    const label = message ? `${WHO[message.role]}, message ${message.seq}` : tail[index - length].label;
    return { role: "article", "aria-label": label, "aria-posinset": index + 1, "aria-setsize": message ? length : -1, tabindex: -1 };
  };
  if (!length && !live.length && !sending.length && !running) {
    return html`
      <div class="empty messages-empty">
        <h2>Nothing was said yet</h2><p>Write below. Every request that leaves is kept, and can be looked at.</p>
      </div>`;
  }
  return html`
    <${VirtualList} class="messages" role="feed" aria-label="Messages" count=${length + tail.length} row=${row} keyOf=${keyOf}
      attributes=${attributes} estimate=${ESTIMATE} start="end" follow=${busy} handle=${list} onRange=${onRange} onEnd=${onEnd}
      identity=${`${session.name}.${state.branch}`} data-testid="messages" />`;
}

/** What stands behind the last message, in order: `{key, label, draw}`. */
function tailOf(state, session, model) {
  const { length, messages, live, sending, queued, approvals, notices, tools, running } = state;
  const speaks = live.some((each) => !each.seq);
  const shared = { notices: NONE, results: EMPTY, session };
  const rows = sending.map((message) => ({
    key: message.uid, seq: message.seq, label: WHO.user, draw: () => html`<${Row} ...${shared} message=${message} tools=${EMPTY} />`,
  }));
  for (const notice of notices.filter((each) => Math.max(1, each.after) > length)) {
    rows.push({ key: notice.key, label: "Notice", draw: () => html`<div class="column"><${Notice} notice=${notice} /></div>` });
  }
  for (const each of live) {
    const draw = () => html`<${Row} ...${shared} message=${liveMessage(each)} live=${!each.seq} tools=${tools} />`;
    rows.push({ key: each.uid, seq: each.seq, label: WHO.assistant, draw });
  }
  approvals.forEach((approval, index) => {
    const draw = () => html`<div class="column"><${Approval} approval=${approval} session=${session} first=${index === 0} /></div>`;
    rows.push({ key: `a${approval.id}`, label: "Approval", draw });
  });
  if (running && !speaks && !approvals.length) {
    rows.push({ key: "working", label: "Working", draw: () => html`<${Working} state=${state} />` });
  }
  for (const each of queued) rows.push({ key: `q${each.number}`, label: "Waiting input", draw: () => html`<${Queued} queued=${each} session=${session} />` });
  const label = !running && messages.has(length) ? "How it ended" : "";
  rows.push({ key: "end", label, draw: () => html`<${Ending} state=${state} session=${session} model=${model} />` });
  return rows;
}

/** Notices by the message after which they happened, without those of a message that stood there before. */
function placedNotices(notices, messages) {
  const isHere = ({ uid, after }) => !uid || !messages.has(after) || messages.get(after).uid === uid;
  return Map.groupBy(notices.filter(isHere), (each) => Math.max(1, each.after));
}

/** Where the request is looked at that a reply answers; empty where that is not known. */
function inspectOf(session, state, message, request) {
  if (message.role !== "assistant") return "";
  if (request) return request.request ? inspectAddress(session.name, request.channel, request.request) : "";
  if (message.status === "cancelled" || message.status === "error") return ""; // its number is that of the try after it
  const step = state.steps.get(`${message.turn}.${message.step}`);
  const channel = step && channelOf(state, step);
  return channel ? inspectAddress(session.name, channel, step.request) : "";
}

/** The channel that a step went over. */
function channelOf(state, { provider, model, agent }) {
  const isIt = (each) => each.provider === provider && each.model === model && (!agent || each.agent === agent);
  return state.view.channels.findLast(isIt)?.id;
}

const resultCache = new WeakMap();

/** The results of a message's calls; the same map as long as nothing is loaded. */
function resultsFor(messages, message) {
  const calls = message.parts?.filter((part) => part.type === "tool_call") ?? NONE;
  if (!calls.length) return EMPTY;
  const kept = resultCache.get(message);
  if (kept?.messages === messages) return kept.results;
  const found = resultsOf(messages, message.seq, calls);
  const results = kept?.results.size === found.size ? kept.results : found;
  resultCache.set(message, { messages, results });
  return results;
}

const liveCache = new WeakMap();

/** A reply that is on its way as a message; the same object as long as nothing is added. */
function liveMessage(live) {
  const { uid, parts, turn, step } = live;
  if (!liveCache.has(live)) liveCache.set(live, { uid, role: "assistant", parts, turn, step });
  return liveCache.get(live);
}

/**
 * J and K from message to message, G to the end, wherever one is but in a field; Home and End inside the feed. They lead
 * to where they say, however heights change on the way.
 */
function walk(event, list) {
  if (!list || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (writing(event.target) || isCovered()) return;
  const feed = list.element;
  const key = event.key.toLowerCase();
  const isInside = feed.contains(event.target) || event.target === document.body;
  if (key === "g" || (key === "end" && isInside)) list.toEnd();
  else if (key === "home" && isInside) list.scrollTo(0);
  else if (key === "j" || key === "k") {
    const all = [...feed.querySelectorAll("[role=article]")];
    const here = all.indexOf(event.target.closest("[role=article]"));
    const top = feed.getBoundingClientRect().top;
    const seen = all.findIndex((each) => each.getBoundingClientRect().bottom > top + 8);
    const to = here < 0 ? seen : here + (key === "j" ? 1 : -1);
    all[Math.max(0, Math.min(to, all.length - 1))]?.focus();
  } else return;
  event.preventDefault();
}

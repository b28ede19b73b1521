/** The messages of a conversation in a virtual list, followed by streaming replies, approvals and queued input. */
import { html, useCallback, useEffect, useMemo } from "../html.js";
import { isOverlayOpen, isTextField } from "../shortcuts.js";
import { inspectUrl } from "../route.js";
import { VirtualList } from "../virtual_list.js";
import { Approval } from "./approval.js";
import { Question } from "./question.js";
import { failedRequests } from "./failed_requests.js";
import { versionsOf } from "./versions.js";
import { Notice } from "./notices.js";
import { isShownWithCall, resultsOf } from "./tool_results.js";
import { Placeholder, MessageRow, ROLE_NAMES } from "./message_row.js";
import { Ending, Queued, Working } from "./turn_status.js";

const NONE = [];
const EMPTY = new Map();
const ESTIMATE = 140;

export function MessageList({ client, state, list, onEnd, model, hit }) {
  const { length, messages, live, sending, notices, tools, running, view } = state;
  const timeline = client.timeline.value;
  const branches = client.branches.value;
  const versions = useMemo(() => versionsOf(branches), [branches]);
  const failed = useMemo(() => failedRequests(timeline?.requests ?? NONE, branches, state.branch), [timeline, branches, state.branch]);
  const noted = useMemo(() => placedNotices([...notices, ...failed], messages), [notices, failed, messages]);
  const pinned = useMemo(() => new Set(view.pinned), [view.pinned]);
  const onRange = useCallback((first, last) => client.need(first + 1, last + 1), [client]);
  useEffect(() => {
    const onKey = (event) => walk(event, list.current);
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  const busy = Boolean(running);
  const all = tailOf(state, client, model);
  const isStored = ({ seq }) => seq > 0 && seq <= length;
  const tail = all.filter((each) => !isStored(each));
  /** Messages that are stored but not fetched yet, rendered from their events. */
  const coming = new Map(all.filter(isStored).map((each) => [each.seq, each]));
  const isHidden = (message) => isShownWithCall(messages, message);
  const hitSeq = hit ? rowOf(messages, hit.seq, isHidden) : 0;
  const row = (index) => {
    if (index >= length) return tail[index - length].draw();
    const message = messages.get(index + 1);
    if (!message) return coming.get(index + 1)?.draw() ?? html`<${Placeholder} />`;
    const { seq } = message;
    const request = timeline?.get(message.uid);
    return html`
      <${MessageRow} message=${message} results=${resultsFor(messages, message)} tools=${message.role === "assistant" ? tools : EMPTY}
        notices=${noted.get(seq) ?? NONE} version=${versions.get(seq)} request=${request} inspect=${inspectOf(client, state, message, request)}
        cleared=${view.edge > 0 && view.edge === seq} pinned=${pinned.has(seq)} busy=${busy} client=${client} model=${model}
        hidden=${isHidden(message)} last=${seq === length} hit=${seq === hitSeq ? hit : null} />`;
  };
  const keyOf = (index) => {
    if (index >= length) return tail[index - length].key;
    return messages.get(index + 1)?.uid ?? coming.get(index + 1)?.key ?? `m${index}`;
  };
  const attributes = (index) => {
    const message = index < length ? messages.get(index + 1) : null;
    const isEmpty = index < length ? !message || (isHidden(message) && !noted.has(message.seq)) : !tail[index - length].label;
    if (isEmpty) return {};
    const label = message ? `${ROLE_NAMES[message.role]}, message ${message.seq}` : tail[index - length].label;
    return { role: "article", "aria-label": label, "aria-posinset": index + 1, "aria-setsize": message ? length : -1, tabindex: -1 };
  };
  if (!length && !live.length && !sending.length && !running) {
    return html`
      <div class="empty messages-empty">
        <h2>No messages yet</h2><p>Write below. Every request is recorded and can be inspected.</p>
      </div>`;
  }
  return html`
    <${VirtualList} class="messages" role="feed" aria-label="Messages" count=${length + tail.length} row=${row} keyOf=${keyOf}
      attributes=${attributes} estimate=${ESTIMATE} start="end" follow=${busy} handle=${list} onRange=${onRange} onEnd=${onEnd}
      identity=${`${client.name}.${state.branch}`} data-testid="messages" />`;
}

/** Return the message that shows a message: for a result that is shown with its call, the one with the call. */
function rowOf(messages, seq, isHidden) {
  let at = seq;
  while (at > 1 && messages.has(at) && isHidden(messages.get(at))) at -= 1;
  return at;
}

/** Return the rows after the last message, in order: `{key, label, draw}`. */
function tailOf(state, client, model) {
  const { length, messages, live, sending, queued, approvals, notices, tools, running } = state;
  const speaks = live.some((each) => !each.seq);
  const shared = { notices: NONE, results: EMPTY, client };
  const sent = sending.map((message) => ({
    key: message.uid, seq: message.seq, label: ROLE_NAMES.user, draw: () => html`<${MessageRow} ...${shared} message=${message} tools=${EMPTY} />`,
  }));
  const replies = live.map((each) => ({
    key: each.uid, seq: each.seq, label: ROLE_NAMES.assistant,
    draw: () => html`<${MessageRow} ...${shared} message=${liveMessage(each)} live=${!each.seq} tools=${tools} />`,
  }));
  const isStored = ({ seq }) => Boolean(seq); // and not fetched yet
  const rows = [...sent, ...replies].filter(isStored).sort((one, other) => one.seq - other.seq);
  rows.push(...sent.filter((row) => !isStored(row)));
  for (const notice of notices.filter((each) => Math.max(1, each.after) > length)) {
    rows.push({ key: notice.key, label: "Notice", draw: () => html`<div class="column"><${Notice} notice=${notice} client=${client} /></div>` });
  }
  rows.push(...replies.filter((row) => !isStored(row)));
  approvals.forEach((approval, index) => {
    const Asked = approval.question ? Question : Approval;
    const draw = () => html`<div class="column"><${Asked} approval=${approval} client=${client} first=${index === 0} /></div>`;
    rows.push({ key: `a${approval.id}`, label: approval.question ? "Question" : "Approval", draw });
  });
  if (running && !speaks && !approvals.length) {
    rows.push({ key: "working", label: "Working", draw: () => html`<${Working} state=${state} />` });
  }
  for (const each of queued) rows.push({ key: `q${each.number}`, label: "Queued message", draw: () => html`<${Queued} queued=${each} client=${client} />` });
  const label = !running && messages.has(length) ? "Turn status" : "";
  rows.push({ key: "end", label, draw: () => html`<${Ending} state=${state} client=${client} model=${model} />` });
  return rows;
}

/** Group notices by the message that they follow, without those of messages on other branches. */
function placedNotices(notices, messages) {
  const isHere = ({ uid, after }) => !uid || !messages.has(after) || messages.get(after).uid === uid;
  return Map.groupBy(notices.filter(isHere), (each) => Math.max(1, each.after));
}

/** Return the inspector URL of the request that a reply answers; "" if it is not known. */
function inspectOf(client, state, message, request) {
  if (message.role !== "assistant") return "";
  if (request) return request.request ? inspectUrl(client.name, request.channel, request.request) : "";
  if (message.status === "cancelled" || message.status === "error") return ""; // its number belongs to the next attempt
  const step = state.steps.get(`${message.turn}.${message.step}`);
  const channel = step && channelOf(state, step);
  return channel ? inspectUrl(client.name, channel, step.request) : "";
}

/** Return the channel of a step. */
function channelOf(state, { provider, model, agent }) {
  const isIt = (each) => each.provider === provider && each.model === model && (!agent || each.agent === agent);
  return state.view.channels.findLast(isIt)?.id;
}

const resultCache = new WeakMap();

/** Return the results of a message's calls: the same map until more messages are loaded. */
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

/** Return a streaming reply as a message: the same object until text is added. */
function liveMessage(live) {
  const { uid, parts, turn, step } = live;
  if (!liveCache.has(live)) liveCache.set(live, { uid, role: "assistant", parts, turn, step });
  return liveCache.get(live);
}

/** Handle keys outside of text fields: J and K move between messages, G goes to the end; Home and End work inside the feed. */
function walk(event, list) {
  if (!list || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (isTextField(event.target) || isOverlayOpen()) return;
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

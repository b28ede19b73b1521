/**
 * State of an open conversation, reduced from the server's view, pages of messages, and events.
 *
 * Pure functions: state and action give a new state. Stored messages replace streamed ones: a live reply has the `uid` of
 * the message that it becomes, and is removed when that is loaded. An event counts once, by its number, because a resumed
 * stream may repeat events. `known` is the length of the conversation according to events; the client fetches messages up
 * to it.
 *
 * @typedef {{uid: string, parts: object[], turn: number, step: number, seq: number, started: number}} Live
 * @typedef {{key: string, number: number, after: number, uid: string, kind: string, time: number, [more: string]: any}} Notice
 * @typedef {ReturnType<typeof initialState>} State
 */

/** The most notices that are kept; older ones are dropped. */
export const NOTICES = 400;

export function initialState() {
  return {
    view: null,
    branch: 0,
    length: 0,
    known: 0,
    messages: new Map(),
    /** uid → seq of loaded messages */
    uids: new Map(),
    /** @type {Live[]} streaming replies */
    live: [],
    /** sent messages that are not stored yet */
    sending: [],
    /** call id → {state, started, milliseconds, text, progress} */
    tools: new Map(),
    queued: [],
    approvals: [],
    /** @type {Notice[]} */
    notices: [],
    /** "turn.step" → fields of its step-start and step-finish */
    steps: new Map(),
    running: null,
    /** how the last turn ended */
    ended: null,
    /** use of the context window: `{used, available, window, parts, cost, usage}`; `isOld` if it is of another branch or model */
    gauge: null,
    last: 0,
    /** events before the conversation was opened: up to `until`, and how far they are read */
    past: { until: 0, read: 0 },
    /** incremented if the view must be fetched again */
    stale: 0,
    /** incremented if everything must be fetched again */
    broken: 0,
  };
}

/** Return true if the turn waits for an approval. @param {State} state */
export const isWaiting = ({ running, approvals }) => Boolean(running) && approvals.length > 0;

/** @param {State} state */
export function reduce(state, action) {
  switch (action.type) {
    case "view": return viewed(state, action.view);
    case "renamed": return { ...state, view: { ...state.view, title: action.title } };
    case "page": return paged(state, action.page);
    case "notices": return recalled(state, action.notices);
    case "event": return applied(state, action.event);
    case "events": return action.events.reduce(applied, state);
    case "sending": return { ...state, sending: [...state.sending, action.message] };
    case "not-sent": return { ...state, sending: state.sending.filter((each) => each.uid !== action.uid) };
    case "withdrawn": return { ...state, queued: state.queued.filter((each) => each.number !== action.number) };
    case "answered": return answeredApproval(state, action.id);
    case "estimating": return state.gauge ? { ...state, gauge: { ...state.gauge, isOld: true } } : state;
    case "estimated": return { ...state, gauge: { ...state.gauge, ...action.gauge, isOld: false } };
    default: return state;
  }
}

/** Return true if the known messages are still those of a view: it has the same branch and revision. */
export function isContinued(state, view) {
  return Boolean(state.view) && state.branch === view.branch && view.length >= state.length && state.view.revision === view.revision;
}

/** Apply the response of GET conversations/NAME. On another branch or revision, the old state is dropped, but for notices. */
function viewed(state, view) {
  const same = isContinued(state, view);
  const { last, stale, broken, steps } = state;
  const notices = state.branch === view.branch ? state.notices.filter(({ after }) => after <= view.length) : [];
  const base = same ? state : { ...initialState(), last, stale, broken, steps, notices };
  const length = Math.max(same ? state.length : 0, view.length);
  const fresh = !state.view || !same;
  const { turn = 0, step = 0 } = view.running ?? {};
  const pending = view.pending ? [{ ...view.pending, turn, step, seq: 0, started: 0 }] : [];
  // a view that is ahead of the events says nothing of what these have begun: they will end it, or store it
  const ahead = !fresh && view.last_event > state.last;
  const live = fresh ? pending : view.running || ahead ? state.live : state.live.filter((each) => each.seq);
  const newer = view.last_event >= state.last;
  return withoutStored({
    ...base,
    view,
    branch: view.branch,
    length,
    known: Math.max(base.known, length),
    live,
    sending: view.running || ahead || !newer ? state.sending : state.sending.filter((each) => each.seq),
    queued: newer && !ahead ? view.queued : state.queued,
    approvals: newer ? view.approvals : state.approvals,
    tools: newer ? calledFor(view.called_agents, waitingFor(view.approvals, base.tools)) : base.tools,
    running: newer ? view.running : state.running,
    gauge: gaugeOf(state.gauge, view.gauge, { isOther: Boolean(state.view) && !same }),
    last: Math.max(state.last, fresh ? view.last_event : 0),
    past: state.view ? state.past : { until: view.last_event, read: 0 },
  });
}

/** Return the known calls, with those that wait for an approval: their events may be older than the view. */
function waitingFor(approvals, tools) {
  const waiting = approvals.map(({ call, name }) => [call, { ...tools.get(call), state: "waiting", name }]);
  return waiting.length ? new Map([...tools, ...waiting]) : tools;
}

/** Return the known calls, with the agents that work on some of them. */
function calledFor(agents = [], tools) {
  const called = agents.map((agent) => [agent.call, { state: "running", ...tools.get(agent.call), agent }]);
  return called.length ? new Map([...tools, ...called]) : tools;
}

/** Return the context use of the last request. It counts until the next request is estimated. */
function gaugeOf(gauge, viewed, { isOther }) {
  if (!gauge) return viewed && { ...viewed };
  const known = viewed ? { cost: viewed.cost, cost_is_lower_bound: viewed.cost_is_lower_bound, window: viewed.window } : {};
  return { ...gauge, ...known, ...(isOther ? { usage: null, isOld: true } : {}) };
}

/** Apply a page of messages `{messages, length, branch}`. */
function paged(state, page) {
  if (state.branch && page.branch !== state.branch) return { ...state, broken: state.broken + 1 };
  const messages = new Map(state.messages);
  const uids = new Map(state.uids);
  for (const message of page.messages) {
    const before = messages.get(message.seq);
    if (before && before.uid !== message.uid) uids.delete(before.uid);
    messages.set(message.seq, message);
    uids.set(message.uid, message.seq);
  }
  const length = Math.max(state.length, page.length);
  return withoutStored({ ...state, messages, uids, branch: page.branch, length, known: Math.max(state.known, length) });
}

/** Remove live replies and sent messages that are stored now. */
function withoutStored(state) {
  const live = state.live.filter((each) => !state.uids.has(each.uid) && !state.messages.has(each.seq));
  const sending = state.sending.filter((each) => !state.messages.has(each.seq));
  if (live.length === state.live.length && sending.length === state.sending.length) return state;
  return { ...state, live, sending };
}

/** @param {State} state */
function applied(state, event) {
  if (event.number && event.number <= state.past.until) return remembered(state, event);
  if (event.number && event.number <= state.last) return state;
  const handle = HANDLERS[event.type];
  const next = handle ? handle(state, event) : state;
  return event.number ? { ...next, last: event.number } : next;
}

/** Apply an old event: only what neither messages nor notices contain, such as tool times and turn ends. */
function remembered(state, event) {
  if (event.number <= state.past.read) return state;
  const { type, turn, step } = event;
  const next = { ...state, past: { ...state.past, read: event.number } };
  if (type === "step-start") {
    const { used, available } = event;
    const gauge = state.running?.turn === turn ? { ...state.gauge, used, available, isOld: false } : state.gauge;
    return { ...next, steps: new Map(state.steps).set(`${turn}.${step}`, event), gauge };
  }
  if (type === "tool-start" || type === "tool-result" || type === "tool-error") {
    const { id, name, time, text = "", milliseconds } = event;
    return worked(next, id, { state: WORK[type], name, started: time, text, milliseconds });
  }
  if (type === "turn-start") return { ...next, ended: null };
  if (type === "turn-finish") return { ...next, ended: event };
  if (type === "interrupted") return { ...next, ended: { turn, finish: "interrupted" } };
  return next;
}

const WORK = { "tool-start": "running", "tool-result": "done", "tool-error": "error" };

const HANDLERS = {
  "turn-start"(state, { turn, seq = 0, time, resumed }) {
    const cut = !resumed && seq && seq <= state.length - 1 && state.messages.has(seq + 1);
    return {
      ...state,
      running: resumed && state.running?.turn === turn ? state.running : { turn, step: 0, started: time, model: state.running?.model ?? "" },
      ended: null,
      known: Math.max(state.known, seq),
      sending: state.sending.map((each) => (each.seq ? each : { ...each, seq })),
      broken: state.broken + (cut ? 1 : 0),
    };
  },
  "turn-finish"(state, { turn, step, type, number, ...rest }) {
    return { ...state, running: null, ended: { turn, ...rest }, approvals: [], stale: state.stale + 1 };
  },
  interrupted(state, event) {
    return { ...state, running: null, ended: { turn: event.turn, finish: "interrupted" }, approvals: [], stale: state.stale + 1 };
  },
  "step-start"(state, event) {
    const { turn, step = 0, provider, model, used, available, time } = event;
    return {
      ...state,
      running: { ...(state.running ?? { turn, started: time }), step, model: `${provider}:${model}` },
      steps: new Map(state.steps).set(`${turn}.${step}`, event),
      gauge: { ...state.gauge, used, available, isOld: false },
    };
  },
  "step-finish"(state, { turn, step, seq = 0, usage, milliseconds, finish }) {
    const key = `${turn}.${step}`;
    return withoutStored({
      ...state,
      known: Math.max(state.known, seq),
      live: state.live.map((each) => (each.turn === turn && each.step === step ? { ...each, seq } : each)),
      steps: new Map(state.steps).set(key, { ...state.steps.get(key), usage, milliseconds, finish }),
    });
  },
  "text-delta": (state, { uid, text }) => spoken(state, uid, (parts) => added(parts, "text", text)),
  "reasoning-delta": (state, { uid, text }) => spoken(state, uid, (parts) => added(parts, "reasoning", text)),
  "tool-call-delta": (state, { uid, id, name, arguments: piece }) =>
    spoken(state, uid, (parts) => {
      const at = parts.findIndex((part) => part.type === "tool_call" && part.id === id);
      if (at < 0) return [...parts, { type: "tool_call", id, name, arguments: {}, raw: piece ?? "", partial: true }];
      return parts.with(at, { ...parts[at], name: name || parts[at].name, raw: parts[at].raw + (piece ?? "") });
    }),
  "tool-start": (state, { id, name, time }) => worked(decided(state, id), id, { state: "running", name, started: time }),
  "agent-call-start"(state, { id, name, called, conversation, time }) {
    const agent = { call: id, agent: called, conversation, state: "running" };
    return worked(decided(state, id), id, { state: "running", name, started: time, agent });
  },
  "tool-progress": (state, { id, text }) => worked(state, id, { progress: text }),
  "tool-result": (state, event) => answered(state, event, "done"),
  "tool-error": (state, event) => answered(state, event, "error"),
  "approval-request"(state, { id: call, name, arguments: given = {}, approval: id = "", client = false, question = "" }) {
    const waits = { id, call, name, arguments: given, what: question, lines: null, hash: "", client }; // the view has the preview
    const approvals = state.approvals.some((each) => each.id === id) ? state.approvals : [...decided(state, call).approvals, waits];
    return worked({ ...state, approvals, stale: state.stale + 1 }, call, { state: "waiting", name });
  },
  "approval-answer": (state, { approval }) => answeredApproval(state, approval),
  "system-message-created": (state, { seq }) => ({ ...state, known: Math.max(state.known, seq) }),
  "system-hint": noted,
  "queued-input"(state, { queued, kind, text = "" }) {
    return { ...state, queued: [...state.queued.filter((each) => each.number !== queued), { number: queued, kind, text }] };
  },
  /** Queued input has become a message. It is shown with the text that waited until it is fetched, so no answer precedes it. */
  "input-taken"(state, { queued: number, seq }) {
    const taken = state.messages.has(seq) ? [] : state.queued.filter((each) => each.number === number);
    const sending = taken.map(({ text }) => ({ role: "user", parts: [{ type: "text", text }], uid: `sending-q${number}`, seq }));
    return {
      ...state,
      queued: state.queued.filter((each) => each.number !== number),
      sending: [...state.sending, ...sending],
      known: Math.max(state.known, seq),
    };
  },
  compaction: noted,
  usage(state, { usage, used = state.gauge?.used, available = state.gauge?.available }) {
    return { ...state, gauge: { ...state.gauge, usage, used, available, isOld: false } };
  },
  retry(state, event) {
    const live = state.live.filter((each) => each.seq || each.turn !== event.turn);
    return noted({ ...state, live }, event);
  },
  error: (state, event) => noted(event.turn ? state : { ...state, stale: state.stale + 1 }, event), // without a turn, it was parked
};

/** Event type of a notice → its fields. */
const NOTICE_FIELDS = {
  "system-hint": ({ text, trigger = "" }) => ({ text, trigger }),
  compaction: ({ upto, before, after: became, fallback = "", undone = false, score = null, missing = 0 }) =>
    ({ upto, before, became, fallback, undone, score, missing }),
  retry: ({ error, seconds, attempt, kind: errorKind, failure, dropped_betas: dropped = [] }) =>
    ({ error, seconds, attempt, errorKind, failure, dropped }),
  error: ({ error, kind: errorKind, failure }) => ({ error, errorKind, failure }),
};

/** Add an event as a notice at the end of the conversation. */
function noted(state, event) {
  return withNotices(state, [noticeOf(event, Math.max(state.known, state.length), "")]);
}

/** Add stored notices `[{event, after, uid}]`. Notices after the end belong to another branch and are skipped. */
function recalled(state, found) {
  const isHere = ({ after }) => after > 0 && after <= state.known;
  return withNotices(state, found.filter(isHere).map(({ event, after, uid }) => noticeOf(event, after, uid)));
}

/** @returns {Notice} */
function noticeOf(event, after, uid) {
  const { number, type: kind, time = 0 } = event;
  return { ...NOTICE_FIELDS[kind](event), key: `e${number}`, number, kind, time, after, uid };
}

/** Add notices in order, without duplicates, and keep the last ones. */
function withNotices(state, more) {
  const known = new Set(state.notices.map((each) => each.key));
  const all = [...state.notices, ...more.filter((each) => !known.has(each.key))];
  const notices = all.sort((one, other) => one.number - other.number).slice(-NOTICES);
  return { ...state, notices: notices.some((each) => each.kind === "compaction") ? withUndoable(notices) : notices };
}

/** Mark the compactions that are still in use; the latest of them can be undone. */
function withUndoable(notices) {
  const used = [];
  for (const each of notices) {
    if (each.kind === "compaction" && !each.undone) used.push(each.key);
    else if (each.kind === "compaction") used.pop();
  }
  return notices.map((each) => (each.kind === "compaction" ? { ...each, canUndo: each.key === used.at(-1) } : each));
}

/** Remove an approval. Its call is answered, and runs when a process continues the turn. */
function answeredApproval(state, id) {
  const found = state.approvals.find((each) => each.id === id);
  const next = { ...state, approvals: state.approvals.filter((each) => each.id !== id) };
  return found && state.tools.get(found.call)?.state === "waiting" ? worked(next, found.call, { state: "answered" }) : next;
}

/** Remove the pending approvals of a call. */
const decided = (state, call) => ({ ...state, approvals: state.approvals.filter((each) => each.call !== call) });

function worked(state, id, change) {
  return { ...state, tools: new Map(state.tools).set(id, { ...state.tools.get(id), ...change }) };
}

function answered(state, { id, name, seq = 0, text = "", milliseconds }, how) {
  const next = worked(state, id, { state: how, name, text, milliseconds, progress: "" });
  return { ...decided(next, id), known: Math.max(state.known, seq) };
}

/** Apply a delta to a live reply. Deltas of stored messages are ignored. */
function spoken(state, uid, change) {
  if (state.uids.has(uid)) return state;
  const at = state.live.findIndex((each) => each.uid === uid);
  const { turn = 0, step = 0, started = 0 } = state.running ?? {};
  const before = at < 0 ? { uid, parts: [], turn, step, seq: 0, started } : state.live[at];
  const after = { ...before, parts: change(before.parts) };
  return { ...state, live: at < 0 ? [...state.live, after] : state.live.with(at, after) };
}

function added(parts, type, text) {
  const last = parts.at(-1);
  if (last?.type === type) return parts.with(-1, { ...last, text: last.text + text });
  return [...parts, { type, text }];
}

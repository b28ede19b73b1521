/**
 * Client of one open conversation: its state as a signal, kept current by the event stream, and its actions.
 *
 * Events are applied once per frame. Messages are fetched in pages as they come into view. The end of the conversation is
 * fetched when events, or the change feed of the store, report that it has grown.
 */
import { effect, signal } from "@preact/signals";
import { conversationPath, followEvents, get, post, remove } from "../api.js";
import { onConversationChange } from "../change_feed.js";
import { attempt } from "../dialog.js";
import { conversations, updateConversation } from "../state.js";
import { createDecoder } from "./agui_decoder.js";
import { initialState, isContinued, NOTICES, reduce } from "./conversation_state.js";

const PAGE = 100;
const FIRST = 60;
const MANY_REQUESTS = 3_000;
/** Milliseconds without a change before the next request is estimated. */
const PAUSE = 200;
/** Milliseconds before a lost connection is shown. */
const AWAY = 1_000;
/** Events that are read again on opening, for details of the last turns that neither messages nor notices contain. */
const REMEMBERED = 500;

/** Context use by error kind, where there are no numbers: full. */
const NO_ROOM = { ContextOverflow: { used: 1, available: 1, window: 0 } };

/** Return the context use of a request: its whole input, and the parts of it that stay the same during a turn. */
function gaugeOfBudget(budget) {
  if (!budget) return null;
  const { input, room, window, limit, system, tools, reserve, margin } = budget;
  return { used: input, available: room, window, parts: { whole: limit ?? window, system, tools, reserve, margin } };
}

const isEqual = (one, other) => JSON.stringify(one) === JSON.stringify(other);

export class ConversationClient {
  constructor(name) {
    this.name = name;
    this.state = signal(initialState());
    /** "loading", "ready", or the error that prevented opening */
    this.status = signal("loading");
    /** State of the event stream: "open", "waiting" for the server, or "gone" */
    this.connection = signal("open");
    this.timeline = signal(null);
    this.branches = signal([]);
    this._loading = new Set();
    /** the first message on the screen */
    this._first = Infinity;
    this._events = [];
    this._seen = { stale: 0, broken: 0 };
    this._frame = 0;
    this._closed = false;
  }

  path(...rest) {
    return conversationPath(this.name, ...rest);
  }

  dispatch(action) {
    this.state.value = reduce(this.state.value, action);
  }

  async open() {
    this._unsubscribe ??= onConversationChange(this.name, () => this._onStoreChange());
    try {
      const view = await get(this.path());
      if (this._closed) return;
      this.dispatch({ type: "view", view });
      if (view.length) this.dispatch({ type: "page", page: await get(this.path("messages"), { last: FIRST }) });
      if (this._closed) return;
      this.status.value = "ready";
      updateConversation(this.name, { running: Boolean(view.running), title: view.title });
      this._titles ??= effect(() => this._takeTitle(conversations.value.items));
      const read = createDecoder();
      this._stream = followEvents(this.name, Math.max(0, view.last_event - REMEMBERED), (frame) => this._take(read(frame)), {
        onState: (state) => this._setConnection(state),
      });
      this.loadNotices();
      this.loadBranches();
      setTimeout(() => this.loadTimeline(), 300);
    } catch (error) {
      if (!this._closed) this.status.value = error;
    }
  }

  /** Set the connection state. A short interruption is not shown. */
  _setConnection(state) {
    clearTimeout(this._away);
    if (state === "waiting") this._away = setTimeout(() => { this.connection.value = state; }, AWAY);
    else this.connection.value = state;
  }

  close() {
    this._closed = true;
    this._unsubscribe?.();
    this._titles?.();
    clearTimeout(this._away);
    this._stream?.close();
    this._estimate?.abort();
    cancelAnimationFrame(this._frame);
    clearTimeout(this._timer);
    clearTimeout(this._estimateTimer);
  }

  // ── incoming events ─────────────────────────────────────────────────────────────────────────────────────────────────

  /** Fetch what another process has written without events, such as requests of other software. */
  async _onStoreChange() {
    if (this.status.value.status === 404) {
      this.status.value = "loading";
      await this.open();
    } else if (this.status.value === "ready" && !this.state.value.running) await this.refresh();
  }

  /** Take the title from the list of conversations, which the person or the change feed has updated. */
  _takeTitle(items) {
    const entry = items?.find((each) => each.name === this.name);
    const view = this.state.peek().view;
    if (entry && view && entry.title !== view.title) this.state.value = reduce(this.state.peek(), { type: "renamed", title: entry.title });
  }

  _take(event) {
    if (!event) return;
    this._events.push(event);
    if (this._events.length > 1) return;
    if (document.visibilityState === "hidden") this._timer = setTimeout(() => this._fold(), 250);
    else this._frame = requestAnimationFrame(() => this._fold());
  }

  _fold() {
    const events = this._events;
    this._events = [];
    if (this._closed || !events.length) return;
    const { until } = this.state.value.past;
    this.dispatch({ type: "events", events });
    this._tellList(events.filter(({ number }) => !number || number > until));
    this._follow();
  }

  /** Update the entry in the list of conversations. Old events, which are read on opening, do not move it. */
  _tellList(events) {
    for (const { type, time } of events) {
      if (type === "turn-start") updateConversation(this.name, { running: true, spoken: time });
      if (type === "turn-finish" || type === "interrupted") updateConversation(this.name, { running: false, spoken: time });
    }
  }

  /** Fetch what events have announced. */
  _follow() {
    const { known, length, messages, stale, broken } = this.state.value;
    if (broken !== this._seen.broken) this.reload();
    else if (stale !== this._seen.stale) this.refresh();
    if (known > length || (length && !messages.has(length))) this._fetchTail();
    this._seen = { stale, broken };
  }

  async _fetchTail() {
    if (this._fetching) return;
    this._fetching = true;
    try {
      const { messages, length } = this.state.value;
      let after = length;
      while (after > 0 && !messages.has(after) && length - after < PAGE) after -= 1;
      const page = await get(this.path("messages"), { after, limit: PAGE });
      if (!this._closed) this.dispatch({ type: "page", page });
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 1_000));
    }
    this._fetching = false;
    const { known, length, messages } = this.state.value;
    const isMissing = known > length || (length > 0 && !messages.has(length));
    if (!this._closed && isMissing) this._fetchTail();
  }

  async refresh() {
    const found = await get(this.path()).catch(() => null);
    if (!found || this._closed) return;
    const pages = isContinued(this.state.value, found) ? [] : await this._fetchShown(found).catch(() => []);
    if (this._closed) return;
    const { last, view: before } = this.state.value;
    const view = isEqual(found, before) ? before : found;  // an unchanged one causes no new estimate
    this.dispatch({ type: "view", view });
    for (const page of pages) this.dispatch({ type: "page", page });
    if (pages.length || this.state.value.last > last) this.loadNotices();  // events up to `last` are not applied any more
    if (!view.running) {
      this.loadBranches();
      this.loadTimeline({ again: true });
      updateConversation(this.name, { title: view.title, running: false, length: view.length });
    }
    if (view.length && !this.state.value.messages.has(view.length)) this._fetchTail();
  }

  /** Fetch the messages on the screen and the last ones before the old ones are dropped, so that rows keep their elements. */
  async _fetchShown({ length }) {
    const wanted = length ? [{ last: FIRST }] : [];
    if (this._first <= length - FIRST) wanted.push({ after: this._first - 1, limit: PAGE });
    return Promise.all(wanted.map((range) => get(this.path("messages"), range)));
  }

  /** Load everything again: the branch has changed. */
  async reload() {
    const view = await attempt(() => get(this.path()));
    if (!view || this._closed) return;
    const pages = (await attempt(() => this._fetchShown(view))) ?? [];
    this.state.value = { ...this.state.value, view: null };
    this.dispatch({ type: "view", view });
    for (const page of pages) this.dispatch({ type: "page", page });
    this._loading.clear();
    this.loadNotices();
    this.loadBranches();
    this.loadTimeline({ again: true });
  }

  async loadBranches() {
    if (this.state.value.view?.branches > 1 || this.branches.value.length > 1) {
      this.branches.value = await get(this.path("branches")).catch(() => this.branches.value);
    }
  }

  /** Load the stored notices. The stream delivers new ones. */
  async loadNotices() {
    const { last } = this.state.value;
    if (this._closed || !last) return;
    try {
      const notices = await get(this.path("notices"), { before: last + 1, limit: NOTICES });
      if (!this._closed) this.dispatch({ type: "notices", notices });
    } catch (error) {
      if (error.status === 0) setTimeout(() => this.loadNotices(), 1_500);
    }
  }

  /** Load the request behind each message, by uid because seqs differ between branches. Long timelines are not reloaded. */
  async loadTimeline({ again = false } = {}) {
    if (this._closed || (again && (this.timeline.value?.size ?? 0) > MANY_REQUESTS)) return;
    const found = await get(this.path("timeline")).catch(() => null);
    if (!found || this._closed) return;
    const byUid = new Map();
    const epochs = new Map();
    for (const request of found.requests) {
      const before = epochs.get(request.channel);
      epochs.set(request.channel, request.epoch);
      request.begins = before !== undefined && before !== request.epoch;
      for (const uid of request.uids) if (uid && !byUid.has(uid)) byUid.set(uid, request);
    }
    for (const { uid, channel, number, model, cost, cost_is_lower_bound } of found.unanswered) {
      if (uid) byUid.set(uid, { channel, request: number, model, cost, cost_is_lower_bound, uids: [uid] });
    }
    byUid.requests = found.requests;
    this.timeline.value = byUid;
  }

  /**
   * Estimate how much of the model's context window the next request would use. The server compiles it after a pause
   * without changes. During a turn, events have the numbers.
   *
   * @param {string} model the model; empty: the one used last
   */
  estimate(model) {
    clearTimeout(this._estimateTimer);
    this._estimate?.abort();
    const { view, running, last, length } = this.state.value;
    if (this._closed || running || !length || view.last_event < last) return;
    const stopped = (this._estimate = new AbortController());
    this._estimateTimer = setTimeout(async () => {
      const found = await get(this.path("next"), { model, limit: 1 }, { signal: stopped.signal }).catch((error) => error);
      if (stopped.signal.aborted) return;
      const full = NO_ROOM[found.kind];
      const { used, available, window, parts = null } =
        gaugeOfBudget(found.budget) ?? full ?? (!model || model === view.model ? view.gauge : null) ?? {};
      this.dispatch({ type: "estimated", gauge: { used, available, window, parts, why: full ? found.message : "" } });
    }, PAUSE);
  }

  /** Fetch the messages from `first` to `last` that are missing. */
  need(first, last) {
    this._first = Math.max(1, first);
    const { messages, length } = this.state.value;
    const pages = new Set();
    for (let seq = Math.max(1, first); seq <= Math.min(last, length); seq += 1) {
      if (!messages.has(seq)) pages.add(Math.floor((seq - 1) / PAGE));
    }
    for (const page of pages) this._loadPage(page);
  }

  async _loadPage(number) {
    if (this._loading.has(number)) return;
    this._loading.add(number);
    let isGone = false;
    try {
      const page = await get(this.path("messages"), { after: number * PAGE, limit: PAGE });
      if (!this._closed) this.dispatch({ type: "page", page });
    } catch (error) {
      isGone = error.status === 0;
      await new Promise((resolve) => setTimeout(resolve, 1_500));
    }
    this._loading.delete(number);
    if (isGone && !this._closed) this._loadPage(number);
  }

  // ── actions ──────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Send a message and start a turn. @param {string | object} input text, or a message with media */
  async send(input, model) {
    const message = typeof input === "string" ? { role: "user", parts: [{ type: "text", text: input }] } : input;
    const uid = `sending-${Date.now()}`;
    this.dispatch({ type: "sending", message: { ...message, uid, time: Date.now() } });
    try {
      await post(this.path("turns"), { input, ...(model ? { model } : {}) });
      return true;
    } catch (error) {
      this.dispatch({ type: "not-sent", uid });
      throw error;
    }
  }

  /** Resume an interrupted turn, or answer the last message. */
  async resumeTurn(model, { resume = true } = {}) {
    await post(this.path("turns"), { ...(resume ? { resume } : {}), ...(model ? { model } : {}) });
  }

  cancel() {
    return post(this.path("cancel"));
  }

  /** Resume or cancel a turn that workers gave up on. */
  async endParking(agent, action) {
    await post(this.path("parked"), { agent, action });
    await this.refresh();
  }

  steer(text) {
    return post(this.path("steer"), { text });
  }

  followUp(text) {
    return post(this.path("follow-up"), { text });
  }

  /** Remove queued input. */
  async withdraw(number) {
    await remove(this.path("queue", number));
    this.dispatch({ type: "withdrawn", number });
  }

  /** Allow or deny a tool call as previewed, or answer a question: `more` has its `content`, or `cancel`. An expired approval disappears; a changed one is shown again. */
  async answer({ id, hash }, approve, why, more = {}) {
    try {
      await post(this.path("approvals"), { id, hash, approve, ...(why ? { why } : {}), ...more });
    } catch (error) {
      if (error.status === 409) await this.refresh();
      if (error.kind === "UnknownApproval") this.dispatch({ type: "answered", id });
      throw error;
    }
    this.dispatch({ type: "answered", id });
  }

  async edit(seq, text, model) {
    await post(this.path("edit"), { seq, text });
    await this.reload();
    await this.resumeTurn(model, { resume: false });
  }

  async rewind(to) {
    await post(this.path("rewind"), { to });
    await this.reload();
  }

  /** Regenerate an answer: rewind to its question and start a turn. */
  async regenerate(seq, model) {
    const { messages } = this.state.value;
    let question = seq - 1;
    while (question > 1 && messages.get(question) && messages.get(question).role !== "user") question -= 1;
    await this.rewind(question);
    await this.resumeTurn(model, { resume: false });
  }

  async switchTo(branch) {
    await post(this.path("switch"), { branch });
    await this.reload();
  }

  async pin(seq, wanted) {
    await post(this.path(wanted ? "pin" : "unpin"), { seq });
    await this.refresh();
  }

  async compact(model, instructions) {
    const done = await post(this.path("compact"), { ...(model ? { model } : {}), instructions });
    await this.refresh();
    return done;
  }

  async previewCompaction(model) {
    return (await post(this.path("compact", "preview"), model ? { model } : {})).preview;
  }

  async undoCompaction() {
    const done = await post(this.path("compact", "undo"), {});
    await this.refresh();
    return done;
  }
}

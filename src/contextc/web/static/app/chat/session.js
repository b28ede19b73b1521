/**
 * One conversation that is open: its state as a signal, kept up by the stream, and what can be done in it.
 *
 * Events are folded in once a frame. Messages are fetched by pages, as they come into view; the end of the conversation
 * is fetched as events say that it has grown.
 */
import { signal } from "@preact/signals";
import { conversationPath, follow, get, post, remove } from "../api.js";
import { attempt } from "../dialog.js";
import { noteConversation } from "../state.js";
import { translator } from "./agui.js";
import { empty, NOTICES, reduce } from "./reduce.js";

const PAGE = 100;
const FIRST = 60;
const MANY_REQUESTS = 3_000;
/** How long nothing may change before the next request is weighed. */
const PAUSE = 200;
/** How long the line is away before that is said. */
const AWAY = 1_000;
/** How many events before the last one are told again, for what neither messages nor notices say of the last turns. */
const REMEMBERED = 500;

/** What is as full as can be, in place of figures that there are none of. */
const NO_ROOM = { ContextOverflow: { used: 1, available: 1, window: 0 } };

export class Session {
  constructor(name) {
    this.name = name;
    this.state = signal(empty());
    /** "loading", "ready", or the error that it could not be opened for */
    this.status = signal("loading");
    /** "open", "waiting" for the server to come back, or "gone" */
    this.line = signal("open");
    this.timeline = signal(null);
    this.branches = signal([]);
    this._loading = new Set();
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
    try {
      const view = await get(this.path());
      if (this._closed) return;
      this.dispatch({ type: "view", view });
      if (view.length) this.dispatch({ type: "page", page: await get(this.path("messages"), { last: FIRST }) });
      if (this._closed) return;
      this.status.value = "ready";
      noteConversation(this.name, { running: Boolean(view.running), title: view.title });
      const read = translator();
      this._stream = follow(this.name, Math.max(0, view.last_event - REMEMBERED), (frame) => this._take(read(frame)), {
        onState: (state) => this._lineIs(state),
      });
      this.loadNotices();
      this.loadBranches();
      setTimeout(() => this.loadTimeline(), 300);
    } catch (error) {
      if (!this._closed) this.status.value = error;
    }
  }

  /** A line that is back within a moment was never away. */
  _lineIs(state) {
    clearTimeout(this._away);
    if (state === "waiting") this._away = setTimeout(() => { this.line.value = state; }, AWAY);
    else this.line.value = state;
  }

  close() {
    this._closed = true;
    clearTimeout(this._away);
    this._stream?.close();
    this._weighed?.abort();
    cancelAnimationFrame(this._frame);
    clearTimeout(this._timer);
    clearTimeout(this._weighing);
  }

  // ── what comes in ──────────────────────────────────────────────────────────────────────────────────────────────────

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
    this.dispatch({ type: "events", events });
    this._tellList(events);
    this._follow();
  }

  /** The list of conversations knows what this one knows. */
  _tellList(events) {
    for (const { type, time } of events) {
      if (type === "turn-start") noteConversation(this.name, { running: true, spoken: time });
      if (type === "turn-finish" || type === "interrupted") noteConversation(this.name, { running: false, spoken: time });
    }
  }

  /** Fetch what events have told of. */
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
    const view = await get(this.path()).catch(() => null);
    if (!view || this._closed) return;
    const { notices } = this.state.value;
    this.dispatch({ type: "view", view });
    if (notices.length && !this.state.value.notices.length) this.loadNotices();
    if (!view.running) {
      this.loadBranches();
      this.loadTimeline({ again: true });
      noteConversation(this.name, { title: view.title, running: false, length: view.length });
    }
    if (view.length && !this.state.value.messages.has(view.length)) this._fetchTail();
  }

  /** All anew: the line is another one. */
  async reload() {
    const view = await attempt(() => get(this.path()));
    if (!view || this._closed) return;
    const page = view.length ? await attempt(() => get(this.path("messages"), { last: FIRST })) : null;
    this.state.value = { ...this.state.value, view: null };
    this.dispatch({ type: "view", view });
    if (page) this.dispatch({ type: "page", page });
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

  /** What was told for people so far, and where that was. What is told from now on, the stream brings. */
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

  /** Which request a message came from (by uid: a seq is another message on another branch), what it cost, and where epochs begin. Not again and again where it is long. */
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
    for (const { uid, channel, number, model, cost } of found.unanswered) {
      if (uid) byUid.set(uid, { channel, request: number, model, cost, uids: [uid] });
    }
    byUid.requests = found.requests;
    this.timeline.value = byUid;
  }

  /**
   * What the conversation would take of the window of whoever is asked next, on the line it is on: compiled by the
   * server when nothing has changed for a moment, and never while a turn runs, which tells it by itself.
   *
   * @param {string} model whom; whoever was asked last, if empty
   */
  weigh(model) {
    clearTimeout(this._weighing);
    this._weighed?.abort();
    const { view, running, last, length } = this.state.value;
    if (this._closed || running || !length || view.last_event < last) return;
    const stopped = (this._weighed = new AbortController());
    this._weighing = setTimeout(async () => {
      const found = await get(this.path("next"), { model, limit: 1 }, { signal: stopped.signal }).catch((error) => error);
      if (stopped.signal.aborted) return;
      const full = NO_ROOM[found.kind];
      const next = found.budget && { used: found.budget.input, available: found.budget.room, window: found.budget.window };
      const { used, available, window } = next ?? full ?? (!model || model === view.model ? view.gauge : null) ?? {};
      this.dispatch({ type: "weighed", gauge: { used, available, window, why: full ? found.message : "" } });
    }, PAUSE);
  }

  /** See to it that messages from `first` to `last` are here. */
  need(first, last) {
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

  // ── what can be done ───────────────────────────────────────────────────────────────────────────────────────────────

  /** Say something and have it answered. @param {string | object} input text, or a message with pictures */
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

  /** Go on where a turn has broken off, or answer what was said last. */
  async goOn(model, { resume = true } = {}) {
    await post(this.path("turns"), { ...(resume ? { resume } : {}), ...(model ? { model } : {}) });
  }

  cancel() {
    return post(this.path("cancel"));
  }

  steer(text) {
    return post(this.path("steer"), { text });
  }

  followUp(text) {
    return post(this.path("follow-up"), { text });
  }

  /** Take back what waits. */
  async withdraw(number) {
    await remove(this.path("queue", number));
    this.dispatch({ type: "withdrawn", number });
  }

  /** Yes or no to exactly what was shown. One that is over is gone; one that would do something else by now is shown anew. */
  async answer({ id, hash }, approve, why) {
    try {
      await post(this.path("approvals"), { id, hash, approve, ...(why ? { why } : {}) });
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
    await this.goOn(model, { resume: false });
  }

  async rewind(to) {
    await post(this.path("rewind"), { to });
    await this.reload();
  }

  /** The answer once more: back to what was asked, and asked again. */
  async again(seq, model) {
    const { messages } = this.state.value;
    let asked = seq - 1;
    while (asked > 1 && messages.get(asked) && messages.get(asked).role !== "user") asked -= 1;
    await this.rewind(asked);
    await this.goOn(model, { resume: false });
  }

  async switchTo(branch) {
    await post(this.path("switch"), { branch });
    await this.reload();
  }

  async pin(seq, wanted) {
    await post(this.path(wanted ? "pin" : "unpin"), { seq });
    await this.refresh();
  }

  async compact(model) {
    const done = await post(this.path("compact"), model ? { model } : {});
    await this.refresh();
    return done;
  }
}

/** Search over all conversations: messages, tool calls, results and notes. Hits appear while the search goes on. */
import { html, useEffect, useRef, useState } from "../html.js";
import { get } from "../api.js";
import { DrawerButton } from "../chat/conversation_header.js";
import { attempt } from "../dialog.js";
import { ago, dateTime, number, oneLine, plural, titleLine, visible } from "../format.js";
import { LoadError } from "../inspect/placeholders.js";
import { MarkedText } from "../marked_text.js";
import { sourceLabel } from "../observed.js";
import { chatUrl, inspectUrl, route, setQuery } from "../route.js";
import { tagFilter } from "../state.js";

const PAUSE = 350;
/** Hits that are loaded at once on demand. */
const MORE_HITS = 20;
/** Conversations with hits after which the search waits for the user. */
const ENOUGH = 40;
const ROLES = { user: "User", assistant: "Assistant", system: "System", tool: "Tool" };
const NOTHING = { found: [], messages: 0, conversations: 0, next: "", isDone: false, isRunning: false, error: null };

/** Add a page to the found conversations. One that is on several pages is listed once, with all its hits. */
export function merged(found, page) {
  const byName = new Map(found.map((each) => [each.conversation.name, each]));
  for (const each of page) {
    const before = byName.get(each.conversation.name);
    byName.set(each.conversation.name, before
      ? { ...before, hits: joined(before.hits, each.hits), count: before.count + each.count, more: before.more || each.more } : each);
  }
  return [...byName.values()];
}

/** Join two lists of hits, newest first, each of them once. */
function joined(some, others) {
  const seqs = new Set(some.map((hit) => hit.seq));
  return [...some, ...others.filter((hit) => !seqs.has(hit.seq))].sort((one, other) => other.seq - one.seq);
}

/** Search page by page until there is enough to show. @param {string} text @param {string} only the conversation to search, or "" */
function useSearch(text, only) {
  const [state, setState] = useState(NOTHING);
  const stop = useRef(null);
  const search = async (from) => {
    stop.current?.abort();
    const task = (stop.current = new AbortController());
    let now = { ...from, isRunning: true, error: null };
    const goal = now.found.length + ENOUGH;
    setState(now);
    try {
      do {
        const page = await get("search", { text, tag: tagFilter.value, before: now.next }, { signal: task.signal });
        if (task.signal.aborted) return;
        now = {
          ...now, found: merged(now.found, page.found.filter((each) => !only || each.conversation.name === only)), messages: now.messages + page.messages,
          conversations: now.conversations + page.conversations, next: page.next, isDone: !page.more,
        };
        setState(now);
      } while (!now.isDone && now.found.length < goal);
      setState({ ...now, isRunning: false });
    } catch (error) {
      if (!task.signal.aborted) setState({ ...now, isRunning: false, error });
    }
  };
  useEffect(() => {
    setState(NOTHING);
    if (text) search(NOTHING);
    return () => stop.current?.abort();
  }, [text, only, tagFilter.value]);
  const halt = () => {
    stop.current?.abort();
    setState((before) => ({ ...before, isRunning: false }));
  };
  /** Load older hits of one conversation. */
  const loadMore = async ({ conversation, more }) => {
    const task = stop.current;
    const page = await attempt(() => get("search", { text, before: more, limit: 1, hits: MORE_HITS }));
    if (!page || stop.current !== task) return;
    const older = page.found.find((each) => each.conversation.name === conversation.name);
    const add = (each) => (each.conversation.name !== conversation.name ? each
      : { ...each, hits: joined(each.hits, older?.hits ?? []), more: older?.more ?? "" });
    setState((before) => ({ ...before, found: before.found.map(add) }));
  };
  return { ...state, halt, loadMore, goOn: () => search(state) };
}

export function StoreSearch() {
  const text = (route.value.query.q ?? "").trim();
  const only = route.value.query.in ?? "";
  const [typed, setTyped] = useState(text);
  const timer = useRef(0);
  const field = useRef(null);
  const result = useSearch(text, only);
  useEffect(() => setTyped((before) => (before.trim() === text ? before : text)), [text]);
  useEffect(() => {
    field.current?.focus();
    return () => clearTimeout(timer.current);
  }, []);
  const choose = (value) => {
    clearTimeout(timer.current);
    setQuery({ q: value.trim() });
  };
  const onInput = (event) => {
    const { value } = event.currentTarget;
    setTyped(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => choose(value), PAUSE);
  };
  return html`<div class="store-search" data-testid="store-search">
    <header class="view-head"><${DrawerButton} /><div class="head-title"><h1>Search in all messages</h1></div></header>
    <div class="overview-body">
      <form class="overview-filters" role="search" aria-label="The whole store" onSubmit=${(event) => { event.preventDefault(); choose(typed); }}>
        <label class="overview-choice grow wide"><span>Text in messages, tool calls, results and notes</span>
          <input class="field" type="search" ref=${field} value=${typed} onInput=${onInput} autocomplete="off" spellcheck="false" /></label>
      </form>
      ${tagFilter.value && html`<p class="overview-note">Only conversations with the tag ${oneLine(tagFilter.value, 50)}.</p>`}
      ${only && html`<p class="overview-note" data-testid="search-only">Only hits in ${oneLine(only, 60)}.
        ${" "}<button type="button" class="inline-link" onClick=${() => setQuery({ in: "" })}>Show those of all conversations</button></p>`}
      <p class="overview-note">System prompts and tool definitions are not searched here. The search of the inspector covers those of a request.</p>
      ${text && html`<${SearchStatus} result=${result} />`}
      ${result.error && html`<${LoadError} error=${result.error} reload=${result.goOn} />`}
      <ul class="search-hits">${result.found.map((each) => html`<${Hits} key=${each.conversation.name} found=${each} text=${text}
          loadMore=${() => result.loadMore(each)} />`)}</ul>
    </div>
  </div>`;
}

/** What has been searched, and what can be done next. */
function SearchStatus({ result }) {
  const { found, messages, conversations, isDone, isRunning, error } = result;
  const searched = `Searched ${plural(messages, "message")} of ${plural(conversations, "conversation")}`;
  const hits = found.reduce((sum, each) => sum + each.count, 0);
  return html`<div class="overview-progress" role="status" data-testid="searched">
    <span>${isRunning ? `${searched}…` : `${searched}${isDone ? "." : " so far."}`}
      ${found.length ? ` ${plural(hits, "hit")} in ${plural(found.length, "conversation")}.` : isDone ? " No results." : ""}</span>
    ${isRunning && html`<button type="button" class="button" onClick=${result.halt}>Stop</button>`}
    ${!isRunning && !isDone && !error && html`<button type="button" class="button" onClick=${result.goOn}>Search on</button>`}
  </div>`;
}

function Hits({ found, text, loadMore }) {
  const { conversation, hits, count, more } = found;
  const { name, title, spoken, created, observed } = conversation;
  const time = spoken || created;
  return html`<li data-testid="search-conversation">
    <h2 dir="auto"><a href=${chatUrl(name)} title=${visible(name)}><${MarkedText} text=${titleLine(conversation, 90)} wanted=${text} /></a></h2>
    <p class="search-place">${title && html`<${MarkedText} text=${oneLine(name, 60)} wanted=${text} /> · `}${
      observed && `${sourceLabel(observed)} · `}<time title=${dateTime(time)}>${ago(time)}</time></p>
    <ol>${hits.map((hit) => html`<li key=${hit.seq} class="search-hit" data-testid="search-hit">
      <a href=${chatUrl(name, hit.seq, text)} dir="auto"><${MarkedText} text=${oneLine(hit.excerpt, 260)} wanted=${text} /></a>
      <span class="search-place">${placeOf(hit)}${hit.seq > 0 && html`${" · "}<a href=${inspectUrl(name, "", 0, { message: hit.seq, q: text })}
        aria-label=${`Inspect message ${hit.seq}`}>Inspect</a>`}</span>
    </li>`)}</ol>
    ${count > hits.length && html`<p class="search-place" data-testid="hits-shown">${number(hits.length)} of ${plural(count, "hit")}
      ${more && html`${" · "}<button type="button" class="inline-link" onClick=${loadMore}
          aria-label=${`Show more hits in ${titleLine(conversation, 60)}`}>Show more</button>`}</p>`}
  </li>`;
}

/** Return where a hit is: "Call of read_file, message 12", or "Note". */
function placeOf({ part, tool, role, seq }) {
  if (part === "note") return "Note";
  const where = { call: `Call of ${oneLine(tool, 40)}`, result: `Result of ${oneLine(tool, 40)}` }[part] ?? ROLES[role] ?? oneLine(role, 20);
  return `${where}, message ${number(seq)}`;
}

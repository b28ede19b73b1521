/** The list of conversations with search and actions, newest first. On narrow screens it is a drawer. */
import { html, useEffect, useRef } from "./html.js";
import { apiUrl, conversationPath } from "./api.js";
import { restoreFocus } from "./dialog.js";
import { Icon, IconButton, Mark } from "./icons.js";
import { Menu } from "./menu.js";
import { ago, clock, dateTime, oneLine, titleLine, visible } from "./format.js";
import { MarkedText } from "./marked_text.js";
import { isLive, sourceLabel } from "./observed.js";
import { ProxyStatus } from "./proxy_status.js";
import { newConversation } from "./shortcuts.js";
import { copyName } from "./conversation_name.js";
import { OpenedFileBox } from "./opened_file.js";
import { chatUrl, isPossible, navigate, openedFile, openFileUrl, overviewUrl, route, searchUrl } from "./route.js";
import {
  conversations, deleteConversation, drawer, forkConversation, loadConversations, loadMore, renameConversation, search, shortcutsShown, tagFilter, theme,
} from "./state.js";
import { editTags, foundTags, notesOf, TagFilter, TagHits, Tags } from "./tags_and_notes.js";
import { isUnread } from "./unread.js";

const PAUSE = 220;
const DAY = 86_400_000;
const THEMES = [["system", "System", "system"], ["light", "Light", "sun"], ["dark", "Dark", "moon"]];

export function Sidebar() {
  const list = useRef(null);
  const side = useRef(null);
  const timer = useRef(0);
  const isOpen = drawer.value;
  useEffect(() => {
    if (!isOpen || side.current.contains(document.activeElement)) return undefined;
    const before = document.activeElement;
    const opened = side.current;
    opened.querySelector("a").focus();
    return () => restoreFocus(before, opened);
  }, [isOpen]);
  const leave = (event) => {
    if (event.key === "Escape" && !event.defaultPrevented) drawer.value = false;
  };
  const typed = (event) => {
    search.value = event.target.value;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => loadConversations(), PAUSE);
  };
  const fromSearch = (event) => {
    if (event.key === "ArrowDown") list.current?.querySelector("a")?.focus();
    else if (event.key === "Enter") list.current?.querySelector("a")?.click();
    else if (event.key === "Escape" && search.value) {
      search.value = "";
      loadConversations();
    } else if (event.key === "Escape") drawer.value = false;
    else return;
    event.preventDefault();
  };
  return html`
    <nav class="sidebar" aria-label="Conversations" ref=${side} onKeyDown=${leave}>
      <div class="sidebar-head">
        <a class="brand" href="#/"><${Mark} /><span>contextc</span></a>
        <${IconButton} icon="close" label="Close conversations" class="only-narrow" onClick=${() => (drawer.value = false)} />
      </div>
      <div class="sidebar-tools">
        ${openedFile ? html`<${OpenedFileBox} />` : html`<button type="button" class="button new-conversation" onClick=${newConversation} data-testid="new-conversation">
          <${Icon} name="plus" /> New conversation
        </button>`}
        <div class="search" role="search" aria-label="Conversations">
          <${Icon} name="search" size=${14} />
          <input id="search" type="search" class="field" placeholder="Search" aria-label="Search conversations" autocomplete="off"
            spellcheck="false" value=${search.value} onInput=${typed} onKeyDown=${fromSearch} aria-controls="conversations" />
        </div>
        <${TagFilter} />
        <${TagHits} />
      </div>
      <a class="button quiet overview-link" href=${overviewUrl()} aria-current=${route.value.view === "overview" ? "page" : undefined}
        data-testid="overview-link"><${Icon} name="chart" /> Overview: cost, cache, findings</a>
      ${search.value.trim() && html`<a class="button quiet overview-link" href=${searchUrl(search.value.trim())} data-testid="all-hits">
        <${Icon} name="search" /> All hits in all messages</a>`}
      <div id="conversations" class="conversations" ref=${list} onKeyDown=${withArrows}><${Entries} /></div>
      <${ProxyStatus} />
      <div class="sidebar-foot">
        <a class="button quiet" href=${openFileUrl()} aria-current=${route.value.view === "open" ? "page" : undefined}>
          <${Icon} name="file" /> Open a file
        </a>
        <span class="grow"></span>
        <${IconButton} icon="help" label="Keyboard shortcuts" onClick=${() => (shortcutsShown.value = true)} />
        <${Menu} label="Theme" icon=${themeIcon()} items=${themes} data-testid="theme" />
      </div>
    </nav>`;
}

const themeIcon = () => THEMES.find(([value]) => value === theme.value)?.[2] ?? "system";
const themes = () =>
  THEMES.map(([value, label, icon]) => ({ label, icon, checked: theme.value === value, act: () => (theme.value = value) }));

/** Move through the conversations with the arrow keys. */
function withArrows(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || !event.target.matches("a")) return;
  const all = [...event.currentTarget.querySelectorAll("a")];
  const at = all.indexOf(event.target) + step;
  event.preventDefault();
  if (at < 0) document.getElementById("search").focus();
  else all[Math.min(at, all.length - 1)].focus();
}

function Entries() {
  const { items, more, loading, error } = conversations.value;
  const end = useRef(null);
  useEffect(() => {
    if (!end.current) return undefined;
    const seen = new IntersectionObserver((entries) => entries.some((each) => each.isIntersecting) && loadMore(), { rootMargin: "200px" });
    seen.observe(end.current);
    return () => seen.disconnect();
  }, [items, more]);
  if (error && !items) {
    return html`
      <div class="side-note">
        <p>${error.message}</p><button type="button" class="button" onClick=${() => loadConversations()}>Retry</button>
      </div>`;
  }
  if (!items) {
    const bones = [70, 90, 55, 80, 65].map((width) => html`<div class=${`skeleton w${width}`}></div>`);
    return html`<div role="status" aria-label="Loading" class="side-skeletons">${bones}</div>`;
  }
  if (!items.length && !more) return html`<p class="side-note">${nothingText()}</p>`;
  return html`
    ${grouped(items).map(([title, entries]) => html`
      <section key=${title} aria-label=${title}>
        ${!search.value.trim() && html`<h2>${title}</h2>`}
        <ul>${entries.map((entry) => html`<${Entry} key=${entry.name} entry=${entry} />`)}</ul>
      </section>`)}
    ${more && html`
      <button type="button" ref=${end} class="button quiet show-more" onClick=${loadMore} disabled=${loading}>
        ${!loading ? "Show more" : search.value.trim() ? "Searching…" : "Loading…"}
      </button>`}`;
}

/** Return why the list is empty. */
function nothingText() {
  if (foundTags().length) return "No name, title, note or message has this text, only the tags above.";
  return search.value.trim() || tagFilter.value ? "No results." : "No conversations yet.";
}

function grouped(items) {
  if (search.value.trim()) return [["Found", items]];
  const midnight = new Date().setHours(0, 0, 0, 0);
  const since = [["Today", 0], ["Yesterday", DAY], ["Last 7 days", 7 * DAY], ["Earlier", Infinity]];
  const when = (time) => since.find(([, before]) => time >= midnight - before)[0];
  const groups = new Map();
  for (const entry of items) {
    const title = when(entry.spoken || entry.created);
    groups.set(title, [...(groups.get(title) ?? []), entry]);
  }
  return [...groups];
}

function Entry({ entry }) {
  const { name, title, excerpt, hit = 0, spoken, created, observed } = entry;
  const here = route.value.name === name;
  const time = spoken || created;
  const whole = [visible(title), visible(name), dateTime(time)].filter(Boolean).join("\n");
  const items = () => [
    ...(hit > 0 && search.value.trim() ? [{ label: "All hits here", icon: "search", act: () => navigate(searchUrl(search.value.trim(), name)) }] : []),
    { label: "Rename", icon: "edit", changes: true, act: () => renameConversation(entry) },
    { label: "Tags", icon: "pin", changes: true, act: () => editTags(entry) },
    { label: "Notes", icon: "file", act: () => (notesOf.value = { name, request: "" }) },
    { label: "Copy name", icon: "copy", act: () => copyName(name) },
    { label: "Fork", icon: "fork", changes: true, act: () => forkConversation(name) },
    { label: "Export", icon: "download", act: () => location.assign(apiUrl(conversationPath(name, "export"))) },
    { label: "Delete", icon: "trash", danger: true, changes: true, act: () => deleteConversation(entry) },
  ].filter(isPossible);
  return html`
    <li class="entry ${here ? "here" : ""}" data-testid="conversation">
      <a href=${chatUrl(name, hit, search.value.trim())} aria-current=${here ? "page" : undefined} title=${whole}>
        <span class="entry-title" dir="auto">${titleLine(entry)}</span>
        <span class="entry-side"><${EntryState} entry=${entry} /></span>
        ${entry.needs_approval && html`<span class="entry-approval" data-testid="needs-approval">
          <${Icon} name="warning" size=${12} /> needs approval</span>`}
        ${entry.parked && html`<span class="entry-approval" data-testid="parked" title=${visible(entry.parked)}>
          <${Icon} name="warning" size=${12} /> parked: ${oneLine(entry.parked, 60)}</span>`}
        <${Tags} tags=${entry.tags} asText />
        ${observed && sourceLabel(observed) !== "observed" && html`<span class="entry-excerpt" data-testid="source">${sourceLabel(observed)}</span>`}
        ${excerpt && html`<span class="entry-excerpt" dir="auto"><${MarkedText} text=${oneLine(excerpt, 160)} wanted=${search.value} /></span>`}
      </a>
      <${Menu} label=${`Actions for ${titleLine(entry, 40)}`} items=${items} class="icon-button small entry-menu" />
    </li>`;
}

/** What happens in a conversation now: a turn runs, requests arrive, or there is something new. Else when it was active. */
function EntryState({ entry }) {
  const { running, spoken, created, observed } = entry;
  const time = spoken || created;
  if (running) return html`<span class="dot running"></span><span class="off-screen">running</span>`;
  const state = isLive(entry) ? "live" : isUnread(entry) ? "unread" : "";
  return html`
    ${sourceLabel(observed) === "observed" && html`<span class="entry-observed" title="Recorded from another program"><${Icon} name="eye" size=${12} />
      <span class="off-screen">observed, </span></span>`}
    ${state === "live" && html`<span class="entry-live" data-testid="live"><span class="dot running"></span> live</span>`}
    ${state === "unread" && html`<span class="dot unread" data-testid="unread" title="New messages"></span><span class="off-screen">new messages, </span>`}
    ${state !== "live" && html`<time title=${dateTime(time)}>${isYesterday(time) && !search.value.trim() ? clock(time) : ago(time)}</time>`}`;
}

/** Return true if a time is in the group Yesterday, whose heading is its date. */
function isYesterday(time) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  return time < midnight && time >= midnight - DAY && Date.now() - time >= 3_600_000;
}

/** Shared state of the web UI: theme, server info, and the list of conversations. */
import { batch, effect, signal } from "@preact/signals";
import { conversationPath, get, LONG_WAIT, patch, post, reachable, recordingEnded, remove } from "./api.js";
import { promptForText, attempt, confirmAction, notify } from "./dialog.js";
import { chatUrl, navigate, route } from "./route.js";
import { removeDraft } from "./chat/drafts.js";

const THEME = "contextc.theme";
const PAGE = 50;
const MINUTE = 60_000;
/** The most characters of a title; the server refuses more. */
const LONGEST_TITLE = 200;

/** @type {{value: "system"|"light"|"dark"}} */
export const theme = signal(localStorage.getItem(THEME) ?? "system");
effect(() => {
  const root = document.documentElement;
  if (theme.value === "system") delete root.dataset.theme;
  else root.dataset.theme = theme.value;
  localStorage.setItem(THEME, theme.value);
});

/** The response of GET /info, or null. */
export const info = signal(null);
export const drawer = signal(false);

/** Return true if the sidebar is a drawer. The style sheet has the same limit. */
export const isNarrow = () => matchMedia("(max-width: 52rem)").matches;
export const shortcutsShown = signal(false);

/** The search term, and the loaded conversations. */
export const search = signal("");
/** The tag that the list is filtered by, or "", and all tags of the store. */
export const tagFilter = signal("");
export const allTags = signal([]);
export const conversations = signal({ items: null, more: false, next: "", loading: false, error: null });

/** Load the tags of the store. Without them, the list has no filter. */
export const loadTags = () => get("tags").then((found) => (allTags.value = found), () => {});

let asking = 0;
let isAsking = false;
let hasMissed = false;
/** The changes since the list was asked for: the response may be older than they are. */
let missed = [];

/** Reload the list. With `quietly`, the old list stays until the response arrives. */
export async function loadConversations({ quietly = false } = {}) {
  const mine = (asking += 1);
  const before = conversations.value;
  isAsking = true;
  missed = [];
  if (!quietly) conversations.value = { ...before, loading: true, error: null };
  try {
    const limit = quietly ? Math.min(200, Math.max(PAGE, before.items?.length ?? 0)) : PAGE;
    const found = await get("conversations", { search: search.value.trim(), tag: tagFilter.value, limit });
    if (mine !== asking) return;
    const { more, next } = found;
    const kept = quietly && before.items?.length > limit ? without(before.items.slice(limit), found.conversations) : null;
    if (kept) conversations.value = { ...before, items: [...found.conversations, ...kept], loading: false, error: null };
    else conversations.value = { items: found.conversations, more, next, loading: false, error: null };
    missed.forEach(merge);  // otherwise entries would move, and be clicked by mistake, until the list is loaded again
  } catch (error) {
    if (mine === asking && !quietly) conversations.value = { ...conversations.value, loading: false, error };
  } finally {
    if (mine === asking) isAsking = false;
    if (mine === asking && hasMissed) {
      hasMissed = false;
      loadConversations({ quietly: true });
    }
  }
}

/** Reload the list quietly, after a load that is under way. A search result stays as it is. */
export function refreshConversations() {
  if (isAsking) hasMissed = true;
  else if (!search.value.trim()) loadConversations({ quietly: true });
}


const timeOf = (entry) => entry.spoken || entry.created;

/** Merge changed entries into the list, and remove deleted ones. A search result stays as it is. */
export function mergeConversations(change) {
  if (isAsking) {
    hasMissed = true;
    missed.push(change);
  }
  if (tagFilter.value && !search.value.trim()) loadConversations({ quietly: true });
  else merge(change);
}

function merge({ conversations: changed, removed }) {
  const { items, more } = conversations.value;
  if (!items || search.value.trim() || tagFilter.value) return;
  const names = new Set([...changed.map((each) => each.name), ...removed]);
  const listed = new Set(items.map((each) => each.name));
  const merged = items.filter((each) => !names.has(each.name));
  for (const entry of [...changed].reverse()) {
    const at = merged.findIndex((each) => timeOf(each) <= timeOf(entry));
    if (at >= 0) merged.splice(at, 0, entry);
    else if (!more || listed.has(entry.name)) merged.push(entry);
  }
  conversations.value = { ...conversations.value, items: merged };
}

const without = (items, others) => {
  const names = new Set(others.map((each) => each.name));
  return items.filter((each) => !names.has(each.name));
};

export async function loadMore() {
  const { items, more, next, loading } = conversations.value;
  if (!more || loading || !items) return;
  const mine = asking;
  conversations.value = { ...conversations.value, loading: true };
  const found = await attempt(() => get("conversations", { search: search.value.trim(), tag: tagFilter.value, before: next, limit: PAGE }));
  if (mine !== asking) return;
  const added = found ? { items: [...items, ...without(found.conversations, items)], more: found.more, next: found.next } : {};
  conversations.value = { ...conversations.value, ...added, loading: false };
}

/** Update one entry of the list, for example when its turn starts or ends. It moves only as far as its time is newer. */
export function updateConversation(name, change) {
  const { items } = conversations.value;
  const at = items?.findIndex((each) => each.name === name) ?? -1;
  if (at < 0) return;
  const changed = { ...items[at], ...change, spoken: Math.max(items[at].spoken, change.spoken ?? 0) };
  const others = items.filter((each) => each.name !== name);
  const to = timeOf(changed) > timeOf(items[at]) ? others.findIndex((each) => timeOf(each) <= timeOf(changed)) : at;
  others.splice(to < 0 || to > at ? at : to, 0, changed);
  conversations.value = { ...conversations.value, items: others };
}

/** Create an empty conversation. @returns {Promise<string>} its name */
export async function createConversation(title = "") {
  const entry = { ...(await post("conversations", {})), title, running: true };
  conversations.value = { ...conversations.value, items: [entry, ...(conversations.value.items ?? [])] };
  return entry.name;
}

/** Names of conversations that are being deleted. Views of them load nothing any more. */
export const deleting = new Set();

export async function deleteConversation(entry) {
  const sure = await confirmAction({
    title: "Delete this conversation?",
    body: `“${entry.title || entry.name}” is deleted with all its branches and recorded requests. This cannot be undone.`,
    action: "Delete",
  });
  if (!sure) return;
  deleting.add(entry.name);
  const deleted = await attempt(() => remove(conversationPath(entry.name)));
  deleting.delete(entry.name);
  if (!deleted) return;
  if (deleted.pending_erasure) notify("Deleted. Its content is erased from the store's files when another program stops reading them.");
  removeDraft(entry.name);
  batch(() => {
    leaveOut(entry.name);
    if (route.value.name === entry.name) navigate("#/", { replace: true });
  });
}

/** Remove a conversation from the list. */
function leaveOut(name) {
  const items = conversations.value.items?.filter((each) => each.name !== name) ?? null;
  conversations.value = { ...conversations.value, items };
}

/** Delete a new conversation, whose first message was refused. If that fails, it stays, empty. */
export async function dropConversation(name) {
  await remove(conversationPath(name)).then(() => leaveOut(name), () => {});
}

/** Ask for a new title of a conversation. @returns {Promise<void>} */
export async function renameConversation({ name, title }) {
  const wanted = await promptForText({
    title: "Rename this conversation",
    body: "Leave the title empty to use the first message.",
    label: "Title",
    value: title,
    action: "Rename",
    optional: true,
    limit: LONGEST_TITLE,
  });
  if (wanted === null || wanted === title) return;
  const entry = await attempt(() => patch(conversationPath(name), { title: wanted }));
  if (entry) updateConversation(name, { title: entry.title });
}

/** Fork a conversation, up to message `at` if given. */
export async function forkConversation(name, at) {
  const wanted = await promptForText({
    title: at === undefined ? "Fork this conversation" : `Fork after message ${at}`,
    label: "Name of the new conversation",
    value: `${name}-fork`,
    action: "Fork",
  });
  if (!wanted) return;
  const entry = await attempt(() => post(conversationPath(name, "fork"), at === undefined ? { name: wanted } : { name: wanted, at }));
  if (!entry) return;
  notify(`Forked as “${entry.name}”.`);
  loadConversations({ quietly: true });
  navigate(chatUrl(entry.name));
}

export async function loadInfo() {
  info.value = await get("info").catch(() => info.value);
}

/** Refresh the list when the tab becomes visible, and reconnect when the server is back. The change feed does the rest. */
export function startAutoRefresh() {
  const isVisible = () => document.visibilityState === "visible";
  setInterval(() => isVisible() && (conversations.value = { ...conversations.value }), MINUTE);  // times are relative
  document.addEventListener("visibilitychange", () => isVisible() && refreshConversations());
  let waiting = null;
  effect(() => {
    clearInterval(waiting);
    if (reachable.value) return;
    const pause = recordingEnded.value ? LONG_WAIT : 3_000;
    waiting = setInterval(() => loadInfo().then(() => reachable.value && loadConversations({ quietly: true })), pause);
  });
}

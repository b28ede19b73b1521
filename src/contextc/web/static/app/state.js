/** What the whole page shares: the theme, what the server is, and the list of conversations. */
import { batch, effect, signal } from "@preact/signals";
import { conversationPath, get, post, reachable, remove } from "./api.js";
import { asked, attempt, confirmed, say } from "./dialog.js";
import { chatAddress, go, route } from "./route.js";

const THEME = "contextc.theme";
const PAGE = 50;
const AGAIN = 15_000;

/** @type {{value: "system"|"light"|"dark"}} */
export const theme = signal(localStorage.getItem(THEME) ?? "system");
effect(() => {
  const root = document.documentElement;
  if (theme.value === "system") delete root.dataset.theme;
  else root.dataset.theme = theme.value;
  localStorage.setItem(THEME, theme.value);
});

/** What GET /info said, or null. */
export const info = signal(null);
export const drawer = signal(false);

/** Whether the conversations are a drawer, as the style sheet has it. */
export const isNarrow = () => matchMedia("(max-width: 52rem)").matches;
export const shortcutsShown = signal(false);

/** Conversations: `items` as far as they are loaded, whether there are `more`, what is searched for. */
export const search = signal("");
export const conversations = signal({ items: null, more: false, next: "", loading: false, error: null });

let asking = 0;

/** Load the list anew; `quietly` keeps what is there until the answer has come. */
export async function loadConversations({ quietly = false } = {}) {
  const mine = (asking += 1);
  const before = conversations.value;
  if (!quietly) conversations.value = { ...before, loading: true, error: null };
  try {
    const limit = quietly ? Math.min(200, Math.max(PAGE, before.items?.length ?? 0)) : PAGE;
    const found = await get("conversations", { search: search.value.trim(), limit });
    if (mine !== asking) return;
    const { more, next } = found;
    const kept = quietly && before.items?.length > limit ? without(before.items.slice(limit), found.conversations) : null;
    if (kept) conversations.value = { ...before, items: [...found.conversations, ...kept], loading: false, error: null };
    else conversations.value = { items: found.conversations, more, next, loading: false, error: null };
  } catch (error) {
    if (mine === asking && !quietly) conversations.value = { ...conversations.value, loading: false, error };
  }
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
  const found = await attempt(() => get("conversations", { search: search.value.trim(), before: next, limit: PAGE }));
  if (mine !== asking) return;
  const added = found ? { items: [...items, ...without(found.conversations, items)], more: found.more, next: found.next } : {};
  conversations.value = { ...conversations.value, ...added, loading: false };
}

/** What is known better here than in the list: that it runs, that it was spoken in. */
export function noteConversation(name, change) {
  const { items } = conversations.value;
  const at = items?.findIndex((each) => each.name === name) ?? -1;
  if (at < 0) return;
  const changed = { ...items[at], ...change };
  const rest = items.filter((each) => each.name !== name);
  const order = change.spoken > items[at].spoken ? [changed, ...rest] : items.map((each) => (each.name === name ? changed : each));
  conversations.value = { ...conversations.value, items: order };
}

/** Another conversation, empty. @returns {Promise<string>} its name */
export async function createConversation(title = "") {
  const entry = { ...(await post("conversations", {})), title, running: true };
  conversations.value = { ...conversations.value, items: [entry, ...(conversations.value.items ?? [])] };
  return entry.name;
}

export async function deleteConversation(entry) {
  const sure = await confirmed({
    title: "Delete this conversation?",
    body: `“${entry.title || entry.name}” goes with all its branches and everything that was sent to models. This cannot be undone.`,
    action: "Delete",
  });
  const deleted = sure && (await attempt(() => remove(conversationPath(entry.name))));
  if (!deleted) return;
  if (deleted.pending_erasure) say("Deleted. Its content leaves the store's files when another program stops reading them.");
  batch(() => {
    const items = conversations.value.items?.filter((each) => each.name !== entry.name) ?? null;
    conversations.value = { ...conversations.value, items };
    if (route.value.name === entry.name) go("#/", { replace: true });
  });
}

/** A conversation of its own that begins as this one, up to a message where `at` names one. */
export async function forkConversation(name, at) {
  const wanted = await asked({
    title: at === undefined ? "Fork this conversation" : `Fork after message ${at}`,
    label: "Name of the new conversation",
    value: `${name}-fork`,
    action: "Fork",
  });
  if (!wanted) return;
  const entry = await attempt(() => post(conversationPath(name, "fork"), at === undefined ? { name: wanted } : { name: wanted, at }));
  if (!entry) return;
  say(`Forked as “${entry.name}”.`);
  loadConversations({ quietly: true });
  go(chatAddress(entry.name));
}

export async function loadInfo() {
  info.value = await get("info").catch(() => info.value);
}

/** Keep the list fresh while somebody looks, and come back by itself when the server does. */
export function keepFresh() {
  const fresh = () => document.visibilityState === "visible" && !search.value.trim() && loadConversations({ quietly: true });
  setInterval(fresh, AGAIN);
  document.addEventListener("visibilitychange", fresh);
  let waiting = null;
  effect(() => {
    clearInterval(waiting);
    if (reachable.value) return;
    waiting = setInterval(() => loadInfo().then(() => reachable.value && loadConversations({ quietly: true })), 3_000);
  });
}

/** Conversations with messages that this browser has not shown yet. An open conversation is read. */
import { effect, signal } from "@preact/signals";
import { route } from "./route.js";
import { conversations } from "./state.js";

const SEEN = "contextc.seen";
const MAX_NAMES = 500;

/** `since` is the first visit: older messages are not new. `times` are the times of the last messages seen, by name. */
const seen = signal(stored());

function stored() {
  try {
    const { since, times } = JSON.parse(localStorage.getItem(SEEN)) ?? {};
    if (Number.isFinite(since) && times && typeof times === "object") return { since, times };
  } catch {
    // not ours, or damaged
  }
  return { since: Date.now(), times: {} };
}

/** Return true if a conversation has messages that were never shown. @param {{name: string, spoken: number}} entry */
export function isUnread({ name, spoken }) {
  const { since, times } = seen.value;
  return route.value.name !== name && spoken > (Object.hasOwn(times, name) ? times[name] : since);
}

function see(name, time) {
  const { since, times } = seen.peek();
  if (Object.hasOwn(times, name) && times[name] >= time) return;
  const newest = Object.entries({ ...times, [name]: time }).sort((one, other) => other[1] - one[1]).slice(0, MAX_NAMES);
  seen.value = { since, times: Object.fromEntries(newest) };
  try {
    localStorage.setItem(SEEN, JSON.stringify(seen.peek()));
  } catch {
    // the storage is full: this is only a mark
  }
}

/** Record what is shown, in this tab and in others. */
export function watchUnread() {
  try {
    localStorage.setItem(SEEN, JSON.stringify(seen.peek()));
  } catch {
    // see above
  }
  addEventListener("storage", (event) => {
    if (event.key === SEEN) seen.value = stored();
  });
  effect(() => {
    const { name, view } = route.value;
    const entry = name && (view === "chat" || view === "inspect") ? conversations.value.items?.find((each) => each.name === name) : null;
    if (entry?.spoken && document.visibilityState === "visible") see(name, entry.spoken);
  });
}

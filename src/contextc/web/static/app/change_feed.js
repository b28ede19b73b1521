/**
 * Changes of the store, whichever process makes them, pushed by the server. One tab is connected and passes events on to
 * the others, because browsers allow few connections to a server.
 */
import { signal } from "@preact/signals";
import { apiUrl, followStream, recordingEnded } from "./api.js";
import { deleting, loadInfo, mergeConversations, refreshConversations } from "./state.js";

const NAME = "contextc.changes";
/** Milliseconds between two refreshes of a view, at least. */
const REST = 200;

/** The running proxies that record to the store. */
export const proxies = signal([]);

const listeners = new Set();

const isHidden = () => document.visibilityState === "hidden";
const shown = () => new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));

/**
 * Call `act` when a conversation has changed, any if `name` is null, in a hidden tab when it is shown again. It is not called again before it has
 * finished and rested twice as long as it took.
 *
 * @param {string|null} name
 * @param {() => Promise<void>} act
 * @returns {() => void} stops it
 */
export function onConversationChange(name, act) {
  let isBusy = false;
  let isWanted = false;
  let isOver = false;
  const work = async () => {
    isWanted = true;
    if (isBusy) return;
    isBusy = true;
    while (isWanted && !isOver && !deleting.has(name)) {
      while (isHidden()) await shown();
      if (isOver) return;
      isWanted = false;
      const began = performance.now();
      await Promise.resolve(act()).catch(() => {});
      await new Promise((resolve) => setTimeout(resolve, Math.max(REST, 2 * (performance.now() - began))));
    }
    isBusy = false;
  };
  const listener = (names, removed) => {
    if (name !== null && removed.has(name)) isWanted = false;  // there is nothing to load any more
    else if (names === null || name === null || names.has(name)) work();
  };
  listeners.add(listener);
  return () => {
    isOver = true;
    listeners.delete(listener);
  };
}

const HANDLERS = {
  /** Events may be missing: load everything again. */
  reset() {
    recordingEnded.value = false;
    refreshConversations();
    listeners.forEach((each) => each(null, new Set()));
  },
  conversations(data) {
    mergeConversations(data);
    const names = new Set(data.conversations.map((each) => each.name));
    const removed = new Set(data.removed);
    listeners.forEach((each) => each(names, removed));
  },
  proxies(data) {
    proxies.value = data.proxies;
  },
  ended() {
    recordingEnded.value = true;
  },
  /** The connection of another tab is lost: ask for ourselves. */
  lost() {
    if (!recordingEnded.value) loadInfo();
  },
};

const apply = ({ type, data }) => HANDLERS[type]?.(data);

/** Follow the changes, for this tab or for all. Without locks, which need a secure context, each tab has a connection. */
export function startChangeFeed() {
  const url = () => apiUrl("changes");
  if (!navigator.locks || !window.BroadcastChannel) {
    followStream(url, "", apply);
    return;
  }
  const channel = new BroadcastChannel(NAME);
  let isConnected = false;
  const pass = (event) => channel.postMessage({ type: event.type, data: event.data });
  channel.addEventListener("message", ({ data }) => {
    if (data.type !== "joined") apply(data);
    else if (isConnected) pass({ type: "proxies", data: { proxies: proxies.value } });
  });
  channel.postMessage({ type: "joined" });
  navigator.locks.request(NAME, () => {
    isConnected = true;
    followStream(url, "", (event) => {
      apply(event);
      pass(event);
    }, (state) => state === "waiting" && pass({ type: "lost", data: null }));
    return new Promise(() => {});  // until the tab is closed
  });
}

/** Routing by the URL fragment. Each part is percent-encoded, because names may contain any character. */
import { signal } from "@preact/signals";

/**
 * @typedef {{view: "home"|"chat"|"inspect"|"open"|"live", name: string, channel: string, request: number|null, message: number,
 *   since: number}} Route
 * `message` is where a conversation is opened; 0 is its end. `since` is when the program was started that `live` waits for.
 */

/** @returns {Route} */
export function parse(hash) {
  const parts = hash.replace(/^#?\/?/, "").split("/").map(decoded);
  const [view, name = "", sub, channel = "", request] = parts;
  const found = { view: "home", name: "", channel: "", request: null, message: 0, since: 0 };
  if (view === "open") return { ...found, view: "open" };
  if (view === "live") return { ...found, view: "live", since: Number(name) || 0 };
  if (view !== "c" || !name) return found;
  if (sub !== "inspect") return { ...found, view: "chat", name, message: (sub === "m" && Number(channel)) || 0 };
  return { ...found, view: "inspect", name, channel, request: request ? Number(request) : null };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const encoded = (...parts) => `#/${parts.map((each) => encodeURIComponent(each)).join("/")}`;

export const chatUrl = (name, message = 0) => (message ? encoded("c", name, "m", message) : encoded("c", name));
export const inspectUrl = (name, channel, request) =>
  channel === undefined || channel === "" ? encoded("c", name, "inspect") : encoded("c", name, "inspect", channel, request);
export const openFileUrl = () => encoded("open");

export const route = signal(parse(location.hash));
addEventListener("hashchange", () => {
  route.value = parse(location.hash);
});

/** Navigate to a URL; `replace` adds no history entry. */
export function navigate(address, { replace = false } = {}) {
  if (replace) {
    history.replaceState(null, "", address);
    route.value = parse(address);
  } else location.hash = address;
}

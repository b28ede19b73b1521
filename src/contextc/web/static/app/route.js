/**
 * Routing by the URL fragment. Each part is percent-encoded, because names may contain any character.
 *
 * `#/file/ID/…` is the same for an opened file, whose conversations are in a store of its own. A page belongs to one store:
 * it is loaded again when the fragment leads to another one.
 */
import { signal } from "@preact/signals";

/**
 * @typedef {{view: "home"|"chat"|"inspect"|"open"|"live"|"compare"|"overview"|"search", name: string, channel: string, request: number|null, message: number,
 *   since: number, other: string, query: Record<string, string>}} Route
 * `message` is where a conversation is opened; 0 is its end. `since` is when the program was started that `live` waits for.
 * `other` is the conversation that `name` is compared with. `query` is what a view shows: its tab, filters, a line.
 */

/** Return the id of the opened file that a fragment is about; "" if none. */
const fileIn = (hash) => /^#?\/?file\/([^/?]+)/.exec(hash)?.[1] ?? "";

/** The id of the opened file that this page shows; "" for the store of the server. */
export const openedFile = fileIn(location.hash);

/** Return false for an action that `changes` a conversation of an opened file. */
export const isPossible = ({ changes }) => !(changes && openedFile);

/** @returns {Route} */
export function parse(hash) {
  const [path, ...search] = hash.replace(/^#?\/?(file\/[^/?]+\/?)?/, "").split("?");
  const [view, name = "", sub, channel = "", request] = path.split("/").map(decoded);
  const query = Object.fromEntries(new URLSearchParams(search.join("?")));
  const found = { view: "home", name: "", channel: "", request: null, message: 0, since: 0, other: "", query };
  if (view === "open" || view === "overview" || view === "search") return { ...found, view };
  if (view === "live") return { ...found, view: "live", since: Number(name) || 0 };
  if (view === "compare") return { ...found, view: "compare", name, other: sub ?? "" };
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

const encoded = (...parts) => `#/${[...(openedFile ? ["file", openedFile] : []), ...parts.map((each) => encodeURIComponent(each))].join("/")}`;

const search = (query) => {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

/** URL of the chat: at a message, whose words `text` are marked; or at its end. */
export const chatUrl = (name, message = 0, text = "") =>
  (message ? `${encoded("c", name, "m", message)}${search({ q: text })}` : encoded("c", name));
/** URL of the inspector. `query` selects a tab and what it shows; empty values are left out. */
export const inspectUrl = (name, channel = "", request = 0, query = {}) =>
  `${channel === "" ? encoded("c", name, "inspect") : encoded("c", name, "inspect", channel, request)}${search(query)}`;
/** URL of the comparison of two conversations; without the second, it is chosen there. */
export const compareUrl = (name, other = "") => encoded("compare", name, ...(other ? [other] : []));
export const openFileUrl = () => "#/open";
/** URL of an opened file: of its only conversation, or of the overview. */
export const openedUrl = ({ id, conversations }) =>
  `#/file/${id}/${conversations.length === 1 ? `c/${encodeURIComponent(conversations[0])}/inspect` : "overview"}`;
export const overviewUrl = (query = {}) => `${encoded("overview")}${search(query)}`;
/** URL of the search over all conversations; with `only`, hits of others are not shown. */
export const searchUrl = (text = "", only = "") => `${encoded("search")}${search({ q: text, in: only })}`;

export const route = signal(parse(location.hash));
addEventListener("hashchange", () => {
  if (fileIn(location.hash) !== openedFile) location.reload();
  else route.value = parse(location.hash);
});

/** Navigate to a URL; `replace` adds no history entry. */
export function navigate(address, { replace = false } = {}) {
  if (replace) {
    history.replaceState(null, "", address);
    route.value = parse(address);
  } else location.hash = address;
}

/** Change what the current view shows. Empty values are removed. It adds no history entry. */
export function setQuery(change) {
  const { query } = route.value;
  navigate(`${location.hash.split("?")[0]}${search({ ...query, ...change })}`, { replace: true });
}

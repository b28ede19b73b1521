/**
 * Unsent drafts by conversation. Their texts are kept in the browser, so that they survive a reload; attached files are kept
 * only until then. The newest drafts are kept, up to a total length.
 */

const KEY = "contextc.drafts";
const MOST = 50;
const MOST_CHARACTERS = 200_000;
/** Milliseconds without a key press before a draft is stored. */
const PAUSE = 300;

/** @type {Map<string, object[]>} attached files by conversation */
const files = new Map();
/** @type {Map<string, string>} texts that are not stored yet */
const unsaved = new Map();
let timer = 0;

/** Return the stored drafts `[name, text]`, newest first. */
function stored() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((each) => Array.isArray(each) && each.every((text) => typeof text === "string")) : [];
  } catch {
    return [];
  }
}

function store() {
  clearTimeout(timer);
  if (!unsaved.size) return;
  const changed = [...unsaved].filter(([, text]) => text.trim()).reverse();
  const drafts = [...changed, ...stored().filter(([name]) => !unsaved.has(name))];
  unsaved.clear();
  let left = MOST_CHARACTERS;
  const kept = drafts.slice(0, MOST).filter(([name, text]) => {
    const fits = name.length + text.length <= left;
    if (fits) left -= name.length + text.length;
    return fits;
  });
  try {
    if (kept.length) localStorage.setItem(KEY, JSON.stringify(kept));
    else localStorage.removeItem(KEY);
  } catch { /* the storage is full or switched off: the draft is lost on reload */ }
}

addEventListener("pagehide", store);

/** Return the draft of a conversation. @returns {{text: string, media: object[]}} */
export function loadDraft(name) {
  const text = unsaved.get(name) ?? stored().find(([each]) => each === name)?.[1] ?? "";
  return { text, media: files.get(name) ?? [] };
}

/** Keep the draft of a conversation. An empty one is removed at once. */
export function keepDraft(name, { text, media }) {
  if (media.length) files.set(name, media);
  else files.delete(name);
  if (text === loadDraft(name).text) return;
  unsaved.delete(name);  // the newest one is the last
  unsaved.set(name, text);
  clearTimeout(timer);
  if (text.trim()) timer = setTimeout(store, PAUSE);
  else store();
}

/** Remove the draft of a conversation. */
export const removeDraft = (name) => keepDraft(name, { text: "", media: [] });

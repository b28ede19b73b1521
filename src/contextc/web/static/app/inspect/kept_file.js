/**
 * The opened file of this tab, kept in the browser so that it survives a reload. It is forgotten when it is closed, when
 * newer files of other tabs take its place, and after a day.
 */
const DATABASE = "contextc";
const FILES = "opened-files";
/** What this tab keeps itself, at once: the id of its file, and what was chosen for it. */
const TAB = "contextc.opened-file";
/** Characters; longer texts are not kept. */
const MAX_LENGTH = 50_000_000;
const MAX_FILES = 4;
const DAY = 86_400_000;

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

async function files(mode, act) {
  const opening = indexedDB.open(DATABASE, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(FILES);
  const database = await done(opening);
  try {
    return await act(database.transaction(FILES, mode).objectStore(FILES));
  } finally {
    database.close();
  }
}

/** Run an action on the storage. Failures are ignored: some browsers store nothing in private windows. */
const quietly = (work) => work().catch(() => undefined);

/** Return the id of this tab's file and what was chosen for it, or null. @returns {{id: string, more: object}|null} */
function inTab() {
  try {
    return JSON.parse(sessionStorage.getItem(TAB));
  } catch {
    return null;
  }
}

/**
 * Keep a file. @param {{name: string, text: string, more: object}} file with what was chosen in `more`
 * @returns {Promise<boolean>} false if it is not kept
 */
export async function keepFile(file) {
  if (file.text.length > MAX_LENGTH) {
    await forgetFile();
    return false;
  }
  const kept = await quietly(async () => {
    const { name, text, more } = file;
    const id = inTab()?.id ?? crypto.randomUUID?.() ?? String(Math.random());
    sessionStorage.setItem(TAB, JSON.stringify({ id, more }));
    if (lastKept.id === id && lastKept.text === text) return true;
    await files("readwrite", async (store) => {
      await done(store.put({ name, text, time: Date.now() }, id));
      lastKept = { id, text };
      await forgetOld(store);
    });
    return true;
  });
  return kept === true;
}

let lastKept = { id: "", text: "" };

async function forgetOld(store) {
  const [keys, values] = [await done(store.getAllKeys()), await done(store.getAll())];
  const order = keys.map((key, index) => ({ key, time: values[index].time })).sort((one, other) => other.time - one.time);
  for (const { key } of order.filter((each, index) => index >= MAX_FILES || each.time < Date.now() - DAY)) await done(store.delete(key));
}

/** Return the kept file of this tab, or null. */
export async function keptFile() {
  const tab = inTab();
  if (!tab) return null;
  const found = await quietly(() => files("readonly", (store) => done(store.get(tab.id))));
  return found && found.time > Date.now() - DAY ? { ...found, more: tab.more } : null;
}

/** Return true if this tab has kept a file. */
export const hasKeptFile = () => inTab() !== null;

export async function forgetFile() {
  const id = inTab()?.id;
  sessionStorage.removeItem(TAB);
  lastKept = { id: "", text: "" };
  if (id) await quietly(() => files("readwrite", (store) => done(store.delete(id))));
}

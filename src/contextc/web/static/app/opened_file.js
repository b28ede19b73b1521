/**
 * Opening of files: a recording, a log or a transcript gets a store of its own, which the whole page then shows, until it is
 * closed or imported. A file with a single request goes to the view of requests.
 */
import { signal } from "@preact/signals";
import { html } from "./html.js";
import { files } from "./api.js";
import { attempt, Dialog, notify } from "./dialog.js";
import { bytes, number, oneLine, plural, visible } from "./format.js";
import { Icon } from "./icons.js";
import { chatUrl, navigate, openedFile, openedUrl, openFileUrl, overviewUrl } from "./route.js";

/** Milliseconds between two questions how far a file is read. */
const PAUSE = 150;
/** Where the id of a file is kept from the page that leaves it to the next one. */
const LEFT = "contextc.left-file";
/** Where an import is kept for the page that reports it. */
const IMPORTED = "contextc.imported";

/** The file that is being read `{name, size, view, error}`, or null. */
const reading = signal(null);

/** A file with a single request `{name, text}`, for the view of requests; or null. */
export const singleRequest = signal(null);

/** The opened file that this page shows, as the server describes it; null if there is none, or until it is known. */
const shownFile = signal(null);
if (openedFile) {
  files.get(openedFile).then((view) => (shownFile.value = view), (error) => (shownFile.value = { id: openedFile, name: "", notes: [], error }));
}

/** The file that the page before this one has left: it is closed now, when nothing asks for its conversations any more. */
const left = sessionStorage.getItem(LEFT);
if (left && left !== openedFile) files.close(left).catch(() => null);
sessionStorage.removeItem(LEFT);

/** What the page before this one has imported `{names, left}`: it is reported here, because the page was loaded again. */
const imported = JSON.parse(sessionStorage.getItem(IMPORTED) ?? "null");
sessionStorage.removeItem(IMPORTED);
if (imported && !openedFile) {
  const [name] = imported.names;
  const text = imported.names.length === 1 ? `Imported the conversation ${oneLine(name, 60)}.` : `Imported ${plural(imported.names.length, "conversation")}.`;
  const link = imported.names.length === 1 ? { href: chatUrl(name), label: "Open its messages" } : { href: overviewUrl(), label: "Show the overview" };
  notify(imported.left ? `${text} ${number(imported.left)} left out.` : text, { link });
}

function leave(address) {
  sessionStorage.setItem(LEFT, openedFile);
  location.hash = address;
}

const pause = () => new Promise((resolve) => setTimeout(resolve, PAUSE));

/** Open a file or a pasted text. @param {File} file */
export async function takeFile(file) {
  const mine = { name: file.name, size: file.size, view: null, error: null };
  reading.value = mine;
  try {
    let view = await files.upload(file);
    while (view.state === "reading" && reading.value?.name === mine.name) {
      reading.value = { ...mine, view };
      await pause();
      view = await files.get(view.id);
    }
    if (!reading.value) return;  // cancelled
    if (view.state === "ready") location.hash = openedUrl(view);
    else await files.close(view.id);
    if (view.state === "request") await showRequest(file);
    reading.value = view.state === "failed" ? { ...mine, view, error: view.error } : null;
  } catch (error) {
    if (reading.value) reading.value = { ...mine, error };
  }
}

/** Show a file with a single request in the view of requests. */
async function showRequest(file) {
  const given = { name: file.name, text: await file.text() };
  if (openedFile) {  // the page is loaded again
    const { keepFile } = await import("./inspect/kept_file.js");
    await keepFile({ ...given, more: {} });
  } else singleRequest.value = given;
  navigate(openFileUrl());
}

function cancel() {
  const { view } = reading.value;
  reading.value = null;
  if (view?.state === "reading") attempt(() => files.close(view.id));
}

/** How far a file is read, or why it cannot be read. */
export function ReadingDialog() {
  if (!reading.value) return null;
  const { name, size, view, error } = reading.value;
  const known = view?.done ? view.done / view.total : undefined;
  return html`
    <${Dialog} title=${error ? "The file could not be opened" : "Opening the file"} onClose=${cancel} data-testid="reading">
      <div class="body">
        <p><b>${oneLine(name, 80) || "The pasted text"}</b>, ${bytes(size)}</p>
        ${error
          ? html`<p role="alert">${visible(error.message)}</p>`
          : html`<progress value=${known} max="1" aria-label="Read"></progress>
            <p class="soft" role="status">${view?.requests ? `${plural(view.requests, "request")} read` : "Reading…"}</p>`}
      </div>
      <footer><button type="button" class="button" data-focus onClick=${cancel}>${error ? "Close" : "Cancel"}</button></footer>
    <//>`;
}

/** Take files that are dropped anywhere on the page. */
export function listenForDrops() {
  const isFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  addEventListener("dragover", (event) => isFile(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!isFile(event) || event.defaultPrevented) return;
    event.preventDefault();
    const [file, ...others] = event.dataTransfer.files;
    if (others.length) notify(`One file at a time: ${oneLine(file.name, 60)} is opened.`);
    if (file) takeFile(file);
  });
}

/** The opened file in the sidebar, with what can be done with it. */
export function OpenedFileBox() {
  const file = shownFile.value;
  if (!openedFile || !file) return null;
  const keep = async () => {
    const taken = await attempt(() => files.importInto(openedFile));
    if (!taken) return;
    const [name] = taken.conversations;
    sessionStorage.setItem(IMPORTED, JSON.stringify({ names: taken.conversations, left: taken.notes.length }));
    leave(taken.conversations.length === 1 ? `#/c/${encodeURIComponent(name)}/inspect` : "#/overview");
  };
  if (file.error) {
    return html`<section class="opened-file" aria-label="Opened file" data-testid="opened-file">
      <p role="alert">${visible(file.error.message)}</p>
      <a class="button" href=${openFileUrl()}>Open a file</a>
    </section>`;
  }
  return html`<section class="opened-file" aria-label="Opened file" data-testid="opened-file">
    <p><${Icon} name="file" /> <b title=${visible(file.name)}>${oneLine(file.name, 60)}</b></p>
    <p class="soft">${plural(file.conversations.length, "conversation")}, not stored. They are gone when the file is closed.</p>
    ${file.notes.length > 0 && html`<details><summary>${number(file.notes.length)} left out</summary>
      <ul>${file.notes.map((each, index) => html`<li key=${index}>${oneLine(each, 300)}</li>`)}</ul></details>`}
    <div class="opened-file-tools">
      <button type="button" class="button primary" onClick=${keep} title="Import the conversations into the store">Import</button>
      <button type="button" class="button" onClick=${() => leave(openFileUrl())}>Close</button>
    </div>
  </section>`;
}

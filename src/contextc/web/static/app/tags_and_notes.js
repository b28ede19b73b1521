/** Tags and notes of conversations: chips, the filter of the list, and the dialogs. Notes are text, never markup. */
import { signal } from "@preact/signals";
import { html, useState } from "./html.js";
import { conversationPath, get, post, remove } from "./api.js";
import { attempt, Dialog, promptForText } from "./dialog.js";
import { AUTHOR, authorName, dateTime, oneLine, readable } from "./format.js";
import { Icon } from "./icons.js";
import { openedFile } from "./route.js";
import { allTags, loadConversations, loadTags, search, tagFilter, updateConversation } from "./state.js";
import { useLoad } from "./use_load.js";

const MOST_TAG_HITS = 5;

/** The conversation, and the request as CHANNEL/NUMBER or "", whose notes are shown; or null. */
export const notesOf = signal(null);

/** Show only the conversations with a tag; "" shows all. */
export function filterByTag(tag) {
  tagFilter.value = tag;
  loadConversations();
}

/** Ask for the tags of a conversation. @returns {Promise<void>} */
export async function editTags({ name, tags = [] }) {
  const wanted = await promptForText({
    title: "Tags of this conversation", body: "The list can be filtered by them. No model gets them.", label: "Tags, separated by commas",
    value: tags.join(", "), action: "Save", optional: true,
  });
  if (wanted === null) return;
  const given = wanted.split(",").map((each) => each.trim()).filter(Boolean);
  const change = { add: given.filter((each) => !tags.includes(each)), remove: tags.filter((each) => !given.includes(each)) };
  const found = await attempt(() => post(conversationPath(name, "tags"), change));
  if (!found) return;
  updateConversation(name, { tags: found });
  loadTags();
}

/** The tags of a conversation. In the list, which is a link, they are no buttons. */
export const Tags = ({ tags, asText = false }) => tags?.length > 0 && html`
  <span class="tags ${asText ? "" : "only-wide"}" data-testid="tags">${tags.map((each) => (asText
    ? html`<span key=${each} class="tag">${oneLine(each, 50)}</span>`
    : html`<button key=${each} type="button" class="tag" title="Show the conversations with this tag"
        onClick=${() => filterByTag(each)}>${oneLine(each, 50)}</button>`))}</span>`;

/** The filter of the list, if there are tags. */
export function TagFilter() {
  if (!allTags.value.length && !tagFilter.value) return null;
  const options = [...new Set([...allTags.value, ...(tagFilter.value ? [tagFilter.value] : [])])];
  return html`
    <select class="field" aria-label="Only conversations with a tag" data-testid="tag-filter" onChange=${(event) => filterByTag(event.target.value)}>
      <option value="" selected=${!tagFilter.value}>All tags</option>
      ${options.map((each) => html`<option key=${each} value=${each} selected=${each === tagFilter.value}>${oneLine(each, 50)}</option>`)}
    </select>`;
}

/** Return the tags that contain the text of the search. */
export function foundTags() {
  const wanted = search.value.trim().toLowerCase();
  return wanted ? allTags.value.filter((each) => each.toLowerCase().includes(wanted)) : [];
}

/** The tags that contain the text of the search, which finds only names, titles, notes and messages. */
export function TagHits() {
  const found = foundTags();
  const show = (tag) => {
    search.value = "";
    filterByTag(tag);
  };
  return found.length > 0 && html`<p class="tags" data-testid="tag-hits">${found.slice(0, MOST_TAG_HITS).map((each) => html`
    <button key=${each} type="button" class="tag" onClick=${() => show(each)}>Tag: ${oneLine(each, 50)}</button>`)}</p>`;
}

export function NotesDialog() {
  return notesOf.value ? html`<${Notes} key=${notesOf.value.name} ...${notesOf.value} />` : null;
}

function Notes({ name, request }) {
  const { data, error, reload } = useLoad(`notes ${name}`, (signal) => get(conversationPath(name, "notes"), {}, { signal }));
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const save = async (event) => {
    event.preventDefault();
    setBusy(true);
    if (await attempt(() => post(conversationPath(name, "notes"), { text, request, who: AUTHOR }))) setText("");
    setBusy(false);
    await reload();
  };
  const drop = (number) => attempt(() => remove(conversationPath(name, "notes", number))).then(reload);
  return html`
    <${Dialog} title=${request ? "Notes: this request and its conversation" : "Notes of this conversation"} onClose=${() => (notesOf.value = null)} data-testid="notes">
      <div class="body">
        ${error && html`<p>${error.message}</p>`}
        ${data && !data.length && html`<p class="soft">No notes. No model gets them.</p>`}
        <ul class="note-list">${data?.map((note) => html`
          <li key=${note.number}>
            <p class="faint">${[
              dateTime(note.time), note.who && authorName(note.who), note.request && `request ${oneLine(note.request, 60)}`].filter(Boolean).join(" · ")}</p>
            <p class="note-text" dir="auto" data-testid="note">${readable(note.text)}</p>
            ${!openedFile && html`<button type="button" class="icon-button small" aria-label="Delete this note" onClick=${() => drop(note.number)}><${Icon}
                name="trash" size=${14} /></button>`}
          </li>`)}</ul>
        ${!openedFile && html`
          <form onSubmit=${save}>
            <label class="labelled"><span>${request ? `New note about request ${oneLine(request, 60)}` : "New note"}</span>
              <textarea class="field" rows="3" maxlength="10000" value=${text} data-focus onInput=${(event) => setText(event.target.value)}></textarea></label>
            <button type="submit" class="button primary" disabled=${busy || !text.trim()}>Add</button>
          </form>`}
      </div>
    <//>`;
}

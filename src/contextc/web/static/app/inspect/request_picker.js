/** A dialog that picks a request to compare with: of this conversation, or of any other, which is found by search. */
import { html, useMemo, useRef, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { Dialog } from "../dialog.js";
import { ago, costText, dateTime, number, oneLine, tokens } from "../format.js";
import { VirtualList } from "../virtual_list.js";
import { useLoad } from "../use_load.js";
import { LoadError, Skeleton } from "./placeholders.js";

const PAUSE = 200;

/**
 * @param {{name: string, current: {channel: string, request: number}, pick: (chosen?: object|null) => void}} props
 * `pick` gets `{conversation, channel, request}`, or nothing if the dialog was closed
 */
export function RequestPicker({ name, current, pick }) {
  const [conversation, setConversation] = useState(name);
  const [isSearching, setSearching] = useState(false);
  return html`<${Dialog} title="Compare with" onClose=${() => pick()} class="picker" data-testid="request-picker">
    <div class="body picker-body">
      <div class="picker-place">
        <span>Conversation <b dir="auto">${oneLine(conversation, 60)}</b></span>
        ${!isSearching && html`<button type="button" class="button" onClick=${() => setSearching(true)}>Other conversation</button>`}
        ${conversation !== name && html`<button type="button" class="button quiet" onClick=${() => setConversation(name)}>This conversation</button>`}
      </div>
      ${isSearching
        ? html`<${ConversationSearch} choose=${(each) => { setConversation(each); setSearching(false); }} />`
        : html`<${RequestList} key=${conversation} conversation=${conversation} current=${conversation === name ? current : null}
            choose=${(step) => pick({ conversation, channel: step.channel, request: step.request })} />`}
    </div>
  <//>`;
}

/** Search of conversations by name, title and text. @param {{choose: (name: string) => void, without?: string}} props */
export function ConversationSearch({ choose, without = "" }) {
  const [text, setText] = useState("");
  const timer = useRef(0);
  const [wanted, setWanted] = useState("");
  const { data, error, reload } = useLoad(`conversations ${wanted}`, (signal) => get("conversations", { search: wanted, limit: 50 }, { signal }));
  const onInput = (event) => {
    const typed = event.currentTarget.value;
    setText(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setWanted(typed.trim()), PAUSE);
  };
  const found = (data?.conversations ?? []).filter((each) => each.name !== without);
  return html`
    <label class="labelled"><span>Search conversations</span>
      <input class="field" type="search" value=${text} onInput=${onInput} data-focus spellcheck="false" data-testid="picker-search" /></label>
    ${error && html`<${LoadError} error=${error} reload=${reload} />`}
    ${!data && !error && html`<${Skeleton} lines=${4} />`}
    ${data && html`<ul class="picker-list" aria-label="Conversations">${found.map((each) => html`<li key=${each.name}>
        <button type="button" class="picker-row" onClick=${() => choose(each.name)}>
          <span dir="auto">${oneLine(each.title || each.name, 80)}</span>
          <span class="faint">${oneLine(each.name, 40)} · ${ago(each.spoken || each.created)}</span>
        </button></li>`)}</ul>
      ${found.length === 0 && html`<p class="soft">No conversation found.</p>`}`}`;
}

function RequestList({ conversation, current, choose }) {
  const path = conversationPath(conversation, "timeline");
  const { data, error, reload } = useLoad(path, (signal) => get(path, {}, { signal }));
  const steps = useMemo(() => [...(data?.requests ?? [])].reverse(), [data]);
  if (error) return html`<${LoadError} error=${error} reload=${reload} />`;
  if (!data) return html`<${Skeleton} lines=${6} />`;
  if (!steps.length) return html`<p class="soft">This conversation has no requests.</p>`;
  const isCurrent = (step) => current && step.channel === current.channel && step.request === current.request;
  return html`<${VirtualList} count=${steps.length} estimate=${36} class="picker-list" role="list" aria-label="Requests"
    attributes=${() => ({ role: "listitem" })}
    row=${(index) => {
      const step = steps[index];
      return html`<button type="button" class="picker-row" disabled=${Boolean(isCurrent(step))} onClick=${() => choose(step)}>
        <span>Request ${number(step.request)}${isCurrent(step) ? " (this one)" : ""} <span class="faint">${oneLine(step.model, 50)}</span></span>
        <span class="faint" title=${dateTime(step.time)}>${tokens(step.input ?? step.used)} in${step.cost != null
          ? ` · ${costText(step)}` : ""}${step.time > 0 && ` · ${ago(step.time)}`}</span>
      </button>`;
    }} />`;
}

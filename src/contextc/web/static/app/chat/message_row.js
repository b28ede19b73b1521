/** A row of the message list: a message, its actions, and the notices after it. */
import { html, memo, useRef, useState } from "../html.js";
import { copyText } from "../code_block.js";
import { attempt, confirmAction, notify } from "../dialog.js";
import { Icon, IconButton } from "../icons.js";
import { Menu } from "../menu.js";
import { clock, costText, dateTime, number, oneLine, percent, tokens } from "../format.js";
import { inspectUrl, isPossible, openedFile } from "../route.js";
import { forkConversation } from "../state.js";
import { ModelPicker } from "./model_picker.js";
import { AssistantMessage, OrphanResult, SystemMessage, textOf, UserMessage } from "./message.js";
import { Cleared, Epoch, Notice } from "./notices.js";
import { HitContext, useMarkedHit } from "./search_hit.js";

/** Role → accessible name. */
export const ROLE_NAMES = { user: "You", assistant: "Assistant", system: "System", tool: "Tool result" };
const SMALL = { class: "small", size: 14 };

/**
 * @param {object} props
 * @param {object} props.message the stored message; `live` is true while it streams
 * @param {{at: number, branches: number[]}|undefined} props.version the versions of this message, if there are several
 * @param {object|undefined} props.request the request that produced it, from the timeline
 * @param {string} props.inspect the inspector URL of that request
 * @param {object|null} props.hit the search hit in this message
 */
export const MessageRow = memo(function MessageRow(props) {
  const { message, results, tools, live, notices, request, inspect, cleared, client, model, hidden, hit } = props;
  const [editing, setEditing] = useState(false);
  const element = useRef(null);
  useMarkedHit(element, hit ?? null, results);
  if (hidden) return notices.map((notice) => html`<div class="column"><${Notice} key=${notice.key} notice=${notice} client=${client} /></div>`);
  const shared = { message, client, model };
  const body = {
    user: () => html`<${UserMessage} ...${shared} editing=${editing} onDone=${() => setEditing(false)} />`,
    assistant: () => html`<${AssistantMessage} ...${shared} results=${results} tools=${tools} live=${live} notices=${notices} />`,
    system: () => html`<${SystemMessage} message=${message} />`,
    tool: () => html`<${OrphanResult} message=${message} />`,
  }[message.role];
  const isStep = message.role === "assistant" && message.parts?.some((part) => part.type === "tool_call");
  return html`
    <div class="column row from-${message.role} ${isStep ? "is-step" : ""} ${hit ? "is-hit" : ""}" data-seq=${message.seq} ref=${element}>
      <h2 class="off-screen">${ROLE_NAMES[message.role]}</h2>
      ${request?.begins && html`<${Epoch} request=${request} href=${inspectUrl(client.name, request.channel, request.request, { tab: "diff" })} />`}
      <${HitContext.Provider} value=${hit ?? null}>
        ${message.redacted ? html`<p class="state-note">Content was removed.</p>` : body()}
      <//>
      ${!editing && !live && message.seq && html`
        <${Foot} ...${props} onEdit=${() => setEditing(true)} />`}
      ${notices.map((notice) => html`<${Notice} key=${notice.key} notice=${notice} client=${client} />`)}
      ${cleared && html`<${Cleared} />`}
    </div>`;
});

function Foot({ message, version, request, inspect, pinned, busy: isRunning, client, model, last, onEdit }) {
  const busy = isRunning || Boolean(openedFile);
  const { role, seq, time } = message;
  const text = textOf(message);
  const speaks = role === "user" || role === "assistant";
  const copy = async () => {
    await copyText(text);
    notify("Copied.");
  };
  const regenerate = (spec) => attempt(() => client.regenerate(seq, spec));
  const items = () => [
    { label: pinned ? "Unpin" : "Pin: always keep in context", icon: "pin", changes: true, act: () => attempt(() => client.pin(seq, !pinned)) },
    { label: "Fork as a new conversation", icon: "fork", changes: true, act: () => forkConversation(client.name, seq) },
    { label: "Rewind to here", icon: "back", disabled: busy, changes: true, act: () => rewind(client, seq) },
    ...(inspect ? [{ label: "Inspect the request", icon: "eye", act: () => { location.hash = inspect; } }] : []),
  ].filter(isPossible);
  return html`
    <div class="foot ${version || pinned ? "stays" : ""} ${last ? "last" : ""}">
      ${version && html`<${Versions} version=${version} client=${client} busy=${busy} />`}
      ${pinned && html`<span class="tag accent"><${Icon} name="pin" size=${12} /> pinned</span>`}
      <span class="foot-actions">
        ${text && speaks && html`<${IconButton} ...${SMALL} icon="copy" label="Copy message" onClick=${copy} />`}
        ${role === "user" && html`
          <${IconButton} ...${SMALL} class="small edit-button" icon="edit" label="Edit message" disabled=${busy} onClick=${onEdit} />`}
        ${role === "assistant" && html`
          <${IconButton} ...${SMALL} icon="retry" label="Regenerate" disabled=${busy} onClick=${() => regenerate(model)} />
          <${ModelPicker} icon="swap" label="Regenerate with another model" value=${model ?? client.state.peek().view.model} disabled=${busy}
            onChange=${regenerate} data-testid="again-with" />`}
        ${(inspect || !openedFile) && html`<${Menu} label=${`Actions for message ${seq}`} items=${items} align="start" class="icon-button small" />`}
      </span>
      <${Figures} message=${message} request=${request} inspect=${inspect} />
      ${speaks && html`<time class="foot-time" title=${dateTime(time)}>${clock(time)}</time>`}
    </div>`;
}

async function rewind(client, seq) {
  const sure = await confirmAction({
    title: `Rewind to message ${number(seq)}?`,
    body: "The conversation continues from there. Later messages are kept on their own branch.",
    action: "Rewind",
    danger: false,
  });
  if (sure) attempt(() => client.rewind(seq));
}

/** Tokens, cost and model of the request behind a message, with a link to the inspector. */
function Figures({ message, request, inspect }) {
  const usage = message.usage;
  if (message.role !== "assistant" || (!usage && !inspect)) return null;
  const spent = usage && (usage.input || usage.output);
  const share = usage?.input ? (usage.cache_read ?? 0) / usage.input : 0;
  const model = request?.model ? oneLine(request.model, 40) : "";
  const figures = [
    model,
    spent && `${tokens(usage.input ?? 0)} in${share ? ` (${percent(share)} cached)` : ""}`,
    spent && `${tokens(usage.output ?? 0)} out`,
    request?.cost ? costText(request) : "",
  ].filter(Boolean).join(" · ");
  if (!inspect) return html`<span class="figures">${figures}</span>`;
  return html`
    <a class="figures" href=${inspect} title="Inspect this request" data-testid="inspect-link">
      <${Icon} name="eye" size=${13} /> ${figures || "inspect"}
    </a>`;
}

function Versions({ version, client, busy }) {
  const { at, branches } = version;
  const to = (index) => attempt(() => client.switchTo(branches[index]));
  return html`
    <span class="ways" role="group" aria-label="Versions" data-testid="ways">
      <${IconButton} ...${SMALL} icon="left" label="Previous version" disabled=${busy || at <= 0} onClick=${() => to(at - 1)} />
      <span>${at + 1}/${branches.length}</span>
      <${IconButton} ...${SMALL} icon="right" label="Next version" disabled=${busy || at >= branches.length - 1} onClick=${() => to(at + 1)} />
    </span>`;
}

/** Placeholder of a message that is not loaded yet. */
export function Placeholder() {
  return html`<div class="column row placeholder" aria-hidden="true"><div class="skeleton"></div><div class="skeleton short"></div></div>`;
}

/** A row of the conversation: a message, what can be done at it, and what happened after it. */
import { html, memo, useState } from "../html.js";
import { copied } from "../code.js";
import { attempt, confirmed, say } from "../dialog.js";
import { Icon, IconButton } from "../icons.js";
import { Menu } from "../menu.js";
import { dateTime, clock, dollars, number, oneLine, percent, tokens } from "../format.js";
import { forkConversation } from "../state.js";
import { AgainWith } from "./again.js";
import { AssistantMessage, LooseResult, SystemMessage, textOf, UserMessage } from "./message.js";
import { Cleared, Epoch, Notice } from "./notices.js";

/** Whose a message is, as it is read out. */
export const WHO = { user: "You", assistant: "Assistant", system: "System", tool: "Tool result" };
const SMALL = { class: "small", size: 14 };

/**
 * @param {object} props
 * @param {object} props.message as it is stored; `live` says that it still comes
 * @param {{at: number, branches: number[]}|undefined} props.way where the conversation went several ways here
 * @param {object|undefined} props.request the request that it answers, from the timeline
 * @param {string} props.inspect where that request is looked at
 */
export const Row = memo(function Row(props) {
  const { message, results, tools, live, notices, request, inspect, cleared, session, model, hidden } = props;
  const [editing, setEditing] = useState(false);
  if (hidden) return notices.map((notice) => html`<div class="column"><${Notice} key=${notice.key} notice=${notice} /></div>`);
  const shared = { message, session, model };
  const body = {
    user: () => html`<${UserMessage} ...${shared} editing=${editing} onDone=${() => setEditing(false)} />`,
    assistant: () => html`<${AssistantMessage} ...${shared} results=${results} tools=${tools} live=${live} />`,
    system: () => html`<${SystemMessage} message=${message} />`,
    tool: () => html`<${LooseResult} message=${message} />`,
  }[message.role];
  const isStep = message.role === "assistant" && message.parts?.some((part) => part.type === "tool_call");
  return html`
    <div class="column row from-${message.role} ${isStep ? "is-step" : ""}" data-seq=${message.seq}>
      <h2 class="off-screen">${WHO[message.role]}</h2>
      ${request?.begins && html`<${Epoch} request=${request} href=${inspect} />`}
      ${message.redacted ? html`<p class="state-note">Taken out of the record.</p>` : body()}
      ${!editing && !live && message.seq && html`
        <${Foot} ...${props} onEdit=${() => setEditing(true)} />`}
      ${notices.map((notice) => html`<${Notice} key=${notice.key} notice=${notice} />`)}
      ${cleared && html`<${Cleared} />`}
    </div>`;
});

function Foot({ message, way, request, inspect, pinned, busy, session, model, last, onEdit }) {
  const { role, seq, time } = message;
  const text = textOf(message);
  const speaks = role === "user" || role === "assistant";
  const copy = async () => {
    await copied(text);
    say("Copied.");
  };
  const again = () => attempt(() => session.again(seq, model));
  const [choosing, setChoosing] = useState(false);
  const asked = model ?? session.state.value.view.model;
  const items = () => [
    ...(role === "assistant"
      ? [{ label: "Answer again with another model…", icon: "retry", disabled: busy, act: () => setChoosing(true) }] : []),
    { label: pinned ? "Unpin" : "Pin: never cut away", icon: "pin", act: () => attempt(() => session.pin(seq, !pinned)) },
    { label: "Fork as a new conversation", icon: "fork", act: () => forkConversation(session.name, seq) },
    { label: "Rewind to here", icon: "back", disabled: busy, act: () => rewind(session, seq) },
    ...(inspect ? [{ label: "Inspect the request", icon: "eye", act: () => { location.hash = inspect; } }] : []),
  ];
  return html`
    <div class="foot ${way || pinned ? "stays" : ""} ${last ? "last" : ""}">
      ${way && html`<${Ways} way=${way} session=${session} busy=${busy} />`}
      ${pinned && html`<span class="tag accent"><${Icon} name="pin" size=${12} /> pinned</span>`}
      <span class="foot-actions">
        ${text && speaks && html`<${IconButton} ...${SMALL} icon="copy" label="Copy message" onClick=${copy} />`}
        ${role === "user" && html`
          <${IconButton} ...${SMALL} class="small edit-button" icon="edit" label="Edit message" disabled=${busy} onClick=${onEdit} />`}
        ${role === "assistant" && html`<${IconButton} ...${SMALL} icon="retry" label="Answer again" disabled=${busy} onClick=${again} />`}
        <${Menu} label=${`Actions for message ${seq}`} items=${items} align="start" class="icon-button small" />
      </span>
      <${Figures} message=${message} request=${request} inspect=${inspect} />
      ${choosing && html`<${AgainWith} session=${session} seq=${seq} current=${asked} onClose=${() => setChoosing(false)} />`}
      ${speaks && html`<time class="foot-time" title=${dateTime(time)}>${clock(time)}</time>`}
    </div>`;
}

async function rewind(session, seq) {
  const sure = await confirmed({
    title: `Go back to message ${number(seq)}?`,
    body: "The conversation goes on from there. What came after it stays on its own branch.",
    action: "Rewind",
    danger: false,
  });
  if (sure) attempt(() => session.rewind(seq));
}

/** Tokens, cost and model of the step that a message came from; leads to the inspector. */
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
    request?.cost ? dollars(request.cost) : "",
  ].filter(Boolean).join(" · ");
  if (!inspect) return html`<span class="figures">${figures}</span>`;
  return html`
    <a class="figures" href=${inspect} title="Inspect the request of this step" data-testid="inspect-link">
      <${Icon} name="eye" size=${13} /> ${figures || "inspect"}
    </a>`;
}

function Ways({ way, session, busy }) {
  const { at, branches } = way;
  const to = (index) => attempt(() => session.switchTo(branches[index]));
  return html`
    <span class="ways" role="group" aria-label="Other ways this went" data-testid="ways">
      <${IconButton} ...${SMALL} icon="left" label="Way before" disabled=${busy || at <= 0} onClick=${() => to(at - 1)} />
      <span>${at + 1}/${branches.length}</span>
      <${IconButton} ...${SMALL} icon="right" label="Next way" disabled=${busy || at >= branches.length - 1} onClick=${() => to(at + 1)} />
    </span>`;
}

/** What stands where a message is not loaded yet. */
export function Placeholder() {
  return html`<div class="column row placeholder" aria-hidden="true"><div class="skeleton"></div><div class="skeleton short"></div></div>`;
}

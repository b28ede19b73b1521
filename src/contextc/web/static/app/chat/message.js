/** One message, by role. Streaming and stored replies are rendered by the same code. */
import { html, useState } from "../html.js";
import { Code } from "../code_block.js";
import { Icon } from "../icons.js";
import { Markdown } from "../markdown.js";
import { number, oneLine, plural, readable, visible } from "../format.js";
import { ClientContext, splitClientContext } from "./client_context.js";
import { resultText, ToolCalls, ToolResult } from "./tool_calls.js";
import { MessageEditor } from "./message_editor.js";
import { failureText } from "./provider_errors.js";
import { Media } from "./media.js";
import { Trigger } from "./notices.js";
import { useHasHit, useOpen } from "./search_hit.js";

const LONG = 2_400;

/** Return the text of a message. */
export const textOf = (message) => (message.parts ?? []).filter((part) => part.type === "text").map((part) => part.text).join("\n\n");

export function UserMessage({ message, editing, onDone, client, model }) {
  const media = message.parts.filter((part) => part.type === "media");
  const text = textOf(message);
  if (editing) return html`<${MessageEditor} message=${message} text=${text} onDone=${onDone} client=${client} model=${model} />`;
  const { own, before, after } = splitClientContext(text);
  return html`
    <div class="user ${message.uid.startsWith("sending-") ? "sending" : ""}">
      ${message.author && message.author !== "user" && html`<p class="author">${oneLine(message.author, 40)}</p>`}
      ${media.length > 0 && html`<div class="media">${media.map((part) => html`<${Media} part=${part} />`)}</div>`}
      <${ClientContext} blocks=${before} />
      ${own && html`<${Folded} text=${own} />`}
      <${ClientContext} blocks=${after} />
    </div>`;
}

/** Typed text, shortened at first if it is very long. */
function Folded({ text }) {
  const [all, setAll] = useOpen(useHasHit(text));
  const cut = !all && text.length > LONG * 1.25;
  return html`
    <div class="typed" dir="auto">${readable(cut ? text.slice(0, LONG) : text)}${cut && "…"}</div>
    ${cut && html`
      <button type="button" class="link-button" onClick=${() => setAll(true)} aria-expanded="false">
        Show all ${number(text.length)} characters
      </button>`}`;
}

export function AssistantMessage({ message, results, tools, live, notices }) {
  const groups = grouped(message.parts ?? []);
  const last = groups.length - 1;
  return html`
    <div class="assistant ${live ? "live" : ""}">
      ${groups.map((group, at) => html`
        <${Group} key=${at} group=${group} results=${results} tools=${tools} seq=${live ? 0 : message.seq} thinks=${live && at === last} />`)}
      <${IncompleteNote} message=${message} notices=${notices} />
    </div>`;
}

/** Note on a reply that is incomplete. The notice of the same error has its details. */
function IncompleteNote({ message: { status, error, finish }, notices }) {
  const failed = () => failureText(notices.find((each) => each.kind === "error" && each.error === error) ?? { error });
  const [icon, tone, note] =
    status === "cancelled" ? ["stop", "", "Stopped. Not sent to the model."]
    : status === "error" ? ["warning", "bad", `Failed${error ? `: ${failed()}` : "."} Not sent to the model.`]
    : finish === "length" ? ["warning", "", "Truncated: the answer reached its maximum length."]
    : ["content_filter", "refusal"].includes(finish) ? ["warning", "", `Ended by the provider: ${finish}.`]
    : [];
  return icon ? html`<p class=${`state-note ${tone}`}><${Icon} name=${icon} size=${14} /> ${note}</p>` : null;
}

/** Group adjacent parts of one kind: the calls of a step are one group. */
function grouped(parts) {
  const groups = [];
  for (const part of parts) {
    const kind = part.type === "tool_call" ? "calls" : part.type === "tool_result" ? "results" : part.type;
    if (groups.at(-1)?.kind === kind && kind !== "media") groups.at(-1).parts.push(part);
    else groups.push({ kind, parts: [part] });
  }
  return groups;
}

function Group({ group, results, tools, seq, thinks }) {
  const { kind, parts } = group;
  if (kind === "text") return html`<${Markdown} text=${parts.map((part) => part.text).join("")} />`;
  if (kind === "reasoning") return html`<${Reasoning} parts=${parts} thinks=${thinks} />`;
  if (kind === "calls") return html`<${ToolCalls} calls=${parts} results=${results} tools=${tools} seq=${seq} />`;
  if (kind === "media") return html`<div class="media">${parts.map((part) => html`<${Media} part=${part} />`)}</div>`;
  if (kind === "hint") {
    return parts.map((part) => html`<p class="hint" dir="auto"><${Icon} name="info" size=${14} /> ${readable(part.text)}</p>`);
  }
  if (kind === "results") return null;
  return parts.map((part) => html`<${Native} part=${part} />`);
}

function Reasoning({ parts, thinks }) {
  const text = parts.map((part) => part.text ?? "").join("\n\n");
  const [open, setOpen] = useOpen(useHasHit(text));
  const hidden = !text.trim();
  if (hidden && !thinks) {
    return html`<p class="reasoning-line faint"><${Icon} name="think" size=${14} /> Encrypted reasoning</p>`;
  }
  return html`
    <div class="reasoning ${thinks ? "thinks" : ""}" data-testid="reasoning">
      <button type="button" class="reasoning-line" aria-expanded=${open} onClick=${() => setOpen(!open)}>
        <${Icon} name="think" size=${14} />
        <span>${thinks ? "Thinking" : "Thought"}</span>
        <span class="reasoning-peek">${open ? "" : oneLine(thinks ? text.slice(-160) : text, 120)}</span>
        <${Icon} name="chevron" size=${14} />
      </button>
      ${open && html`<div class="reasoning-text"><${Markdown} text=${text} /></div>`}
    </div>`;
}

function Native({ part }) {
  const [open, setOpen] = useState(false);
  return html`
    <div class="native">
      <button type="button" class="reasoning-line" aria-expanded=${open} onClick=${() => setOpen(!open)}>
        <${Icon} name="file" size=${14} /><span>Provider block: ${visible(part.provider ?? "")}</span><${Icon} name="chevron" size=${14} />
      </button>
      ${open && html`<${Code} text=${JSON.stringify(part.data, null, 2)} language="json" limit=${8_000} />`}
    </div>`;
}

/** A system message, with the trigger that created it. */
export function SystemMessage({ message }) {
  const text = textOf(message);
  const [open, setOpen] = useOpen(useHasHit(text));
  const long = text.length > 320 || text.split("\n").length > 4;
  return html`
    <div class="system" data-testid="system-message">
      <div class="system-head">
        <${Icon} name="info" size=${14} /><span>System</span>
        <${Trigger} name=${message.meta?.trigger} />
        ${message.audience && html`<span class="faint">to ${oneLine(message.audience, 30)}</span>`}
      </div>
      <div class="typed ${long && !open ? "clamped" : ""}" dir="auto">${readable(text)}</div>
      ${long && html`
        <button type="button" class="link-button" aria-expanded=${open} onClick=${() => setOpen(!open)}>
          ${open ? "Show less" : "Show all"}
        </button>`}
    </div>`;
}

/** A tool result whose call is not loaded or does not exist. */
export function OrphanResult({ message }) {
  const parts = message.parts.filter((part) => part.type === "tool_result");
  const [open, setOpen] = useOpen(useHasHit(...parts.map(resultText)));
  return html`
    <div class="calls">
      <button type="button" class="call-line" aria-expanded=${open} onClick=${() => setOpen(!open)}>
        <span class="call-state"><${Icon} name="tool" size=${14} /></span>
        <span class="call-name">${plural(parts.length, "result")}</span>
        <span class="call-arguments">${oneLine(parts.map((part) => part.name).join(", "), 100)}</span>
        <${Icon} name="chevron" size=${14} />
      </button>
      ${open && html`<div class="call-body">${parts.map((part) => html`<${ToolResult} result=${part} />`)}</div>`}
    </div>`;
}

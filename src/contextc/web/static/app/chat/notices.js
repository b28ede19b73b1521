/** Notices between messages: hints, compactions, retries and errors; and markers of cache resets. */
import { signal } from "@preact/signals";
import { conversationPath, get } from "../api.js";
import { attempt } from "../dialog.js";
import { html } from "../html.js";
import { Icon } from "../icons.js";
import { failureLabel } from "../observed.js";
import { resetLabel } from "../reasons.js";
import { inspectUrl } from "../route.js";
import { clock, dateTime, duration, number, percent, readable, tokens, visible } from "../format.js";
import { Failure, failureText } from "./provider_errors.js";

const ENDS = {
  stop: "",
  cancelled: "",
  error: "",
  interrupted: "The process that ran this turn has ended.",
  max_steps: "The turn reached its step limit.",
  max_tool_calls: "The turn reached its tool call limit.",
  max_cost: "The turn reached its cost limit.",
  max_seconds: "The turn reached its time limit.",
  superseded: "The conversation continued elsewhere.",
  length: "The answer was truncated: it reached its maximum length.",
};

/** Return how a turn ended, as text; "" if it ended normally. */
export const turnEndText = (finish) => (Object.hasOwn(ENDS, finish) ? ENDS[finish] : finish ? `The turn ended: ${visible(finish)}.` : "");

/** @param {{notice: object, client: object}} props `client` is that of the conversation */
export function Notice({ notice, client }) {
  const [icon, tone, content] = describe(notice, client.name);
  const undo = () => attempt(() => client.undoCompaction());
  return html`
    <div class="notice-line ${tone}" data-testid=${`notice-${notice.kind}`}>
      <${Icon} name=${icon} size=${14} />
      <div>${content}</div>
      ${notice.canUndo && html`<button type="button" class="button quiet small" onClick=${undo}>Undo</button>`}
      ${notice.time > 0 && html`<time title=${dateTime(notice.time)}>${clock(notice.time)}</time>`}
    </div>`;
}

function describe(notice, name) {
  const { kind } = notice;
  if (kind === "system-hint") {
    return ["info", "", html`<span dir="auto">${visible(notice.text)}</span> <${Trigger} name=${notice.trigger} />`];
  }
  if (kind === "compaction" && notice.undone) return ["branch", "", compactionText(notice)];
  if (kind === "compaction") {
    const text = compactionText(notice);
    const isWhole = notice.score === null || notice.missing === 0;
    return ["branch", "accent", isWhole ? text : html`${text} <${Lost} notice=${notice} name=${name} />`];
  }
  if (kind === "retry") return ["retry", "warn", html`Retried ${retryText(notice)}: ${failureText(notice)}`];
  if (kind === "error") return ["warning", "bad", html`<${Failure} notice=${notice} />`];
  if (kind === "failed-request") return ["warning", "bad", html`<${FailedRequest} notice=${notice} name=${name} />`];
  return ["info", "", visible(notice.text ?? kind)];
}

/** Return the first sentence of a compaction's notice. */
export function compactionText({ undone, upto, before, became, fallback }) {
  if (undone) return `Compaction up to message ${number(upto)} undone.`;
  const text = `Conversation compacted: ${tokens(before)} → ${tokens(became)} tokens, up to message ${number(upto)}.`;
  return fallback ? `${text} (${visible(fallback)})` : text;
}

const retryText = ({ seconds, dropped }) =>
  (dropped.length ? `without the beta flag ${visible(dropped.join(", "))}` : `after ${duration(seconds * 1_000)}`);

/** What compactions lost, by conversation and event. It outlives a notice, which leaves the page when it is scrolled away. */
const lostFacts = signal(new Map());

/** What a compaction lost: the share that it kept, and the lost names and sentences on demand. */
function Lost({ notice, name }) {
  const id = `${name} ${notice.key}`;
  const lost = lostFacts.value.get(id) ?? null;
  const load = () => attempt(async () => {
    const found = (await get(conversationPath(name, "compactions"))).find((each) => each.upto === notice.upto);
    lostFacts.value = new Map(lostFacts.value).set(id, found?.receipt?.lost ?? []);
  });
  return html`<span>${percent(notice.score)} of the facts and words of people are kept, ${number(notice.missing)} are lost.
    ${lost === null
    ? html` <button type="button" class="button quiet small" onClick=${load}>Show what was lost</button>`
    : html`<ul class="soft" data-testid="lost-facts">${lost.map((each) => html`<li dir="auto">${visible(each)}</li>`)}</ul>`}</span>`;
}

/** A request of other software that failed: its HTTP status, the provider's own text, and a link to it. */
function FailedRequest({ notice, name }) {
  const { channel, request, until, error, isElsewhere } = notice;
  const which = request === until ? `Request ${number(request)}` : `Requests ${number(request)} to ${number(until)}`;
  return html`<span class="failure"><strong>${which}: ${failureLabel(notice)}</strong>
    ${error && html` <span class="wrap">${readable(error)}</span>`}
    ${isElsewhere && html` <span class="soft">Its messages are on another branch.</span>`}
    ${" "}<a href=${inspectUrl(name, channel, request, { tab: "reply" })}>Inspect</a></span>`;
}

/** The name of the trigger that created a message. */
export function Trigger({ name }) {
  return name ? html`<span class="tag" title="Created by this trigger">${visible(name)}</span>` : null;
}

/** Marker of a cache reset: from here on, requests have another prefix. */
export function Epoch({ request, href }) {
  return html`
    <div class="marker" role="note" aria-label=${resetLabel(request.why)}>
      <span>${visible(resetLabel(request.why))}</span>
      <a href=${href}>Show changes</a>
    </div>`;
}

export function Cleared() {
  return html`
    <div class="marker" role="separator" aria-label="Context cleared"><span>Context cleared: messages above are no longer sent</span></div>`;
}

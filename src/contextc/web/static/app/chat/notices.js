/** What happened besides messages, where it happened: quiet lines with what they are about. */
import { html } from "../html.js";
import { Icon } from "../icons.js";
import { clock, dateTime, duration, number, tokens, visible } from "../format.js";
import { Failure, inWords } from "./failures.js";

const ENDS = {
  stop: "",
  cancelled: "",
  error: "",
  interrupted: "The process that ran this turn ended.",
  max_steps: "The turn reached its limit of steps.",
  max_tool_calls: "The turn reached its limit of tool calls.",
  max_cost: "The turn reached its limit of cost.",
  max_seconds: "The turn reached its limit of time.",
  superseded: "The conversation went on elsewhere.",
  length: "The answer was cut off: it reached the longest that it may have.",
};

/** How a turn has ended, in words; empty where it simply did. */
export const endOf = (finish) => (Object.hasOwn(ENDS, finish) ? ENDS[finish] : finish ? `The turn ended: ${visible(finish)}.` : "");

export function Notice({ notice }) {
  const [icon, tone, content] = told(notice);
  return html`
    <div class="notice-line ${tone}" data-testid=${`notice-${notice.kind}`}>
      <${Icon} name=${icon} size=${14} />
      <div>${content}</div>
      ${notice.time > 0 && html`<time title=${dateTime(notice.time)}>${clock(notice.time)}</time>`}
    </div>`;
}

function told(notice) {
  const { kind } = notice;
  if (kind === "system-hint") {
    return ["info", "", html`<span dir="auto">${visible(notice.text)}</span> <${Trigger} name=${notice.trigger} />`];
  }
  if (kind === "compaction") {
    const became = `${tokens(notice.before)} tokens became ${tokens(notice.became)}, up to message ${number(notice.upto)}.`;
    return ["branch", "accent", `Older messages were summed up: ${became}${notice.fallback ? ` (${visible(notice.fallback)})` : ""}`];
  }
  if (kind === "retry") return ["retry", "warn", html`Tried again after ${duration(notice.seconds * 1_000)}: ${inWords(notice.error)}`];
  if (kind === "error") return ["warning", "bad", html`<${Failure} error=${notice.error} />`];
  return ["info", "", visible(notice.text ?? kind)];
}

/** The name of what spoke. */
export function Trigger({ name }) {
  return name ? html`<span class="tag" title="The trigger that spoke">${visible(name)}</span>` : null;
}

/** Where the request was laid out anew: from here on the model is sent another beginning. */
export function Epoch({ request, href }) {
  return html`
    <div class="marker" role="separator" aria-label=${`Epoch ${request.epoch}`}>
      <span>Epoch ${number(request.epoch)}${request.why ? html` · ${visible(request.why)}` : ""}</span>
      <a href=${href}>see what changed</a>
    </div>`;
}

export function Cleared() {
  return html`
    <div class="marker" role="separator" aria-label="Context cleared"><span>Context cleared: nothing above is sent any more</span></div>`;
}

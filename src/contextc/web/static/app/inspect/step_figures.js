/** The numbers of one step: as a small table, and as a sentence for screen readers. */
import { html } from "../html.js";
import { endedWord, failureLabel, latencyLabel, modeLabel } from "../observed.js";
import { stepLabel } from "../reasons.js";
import { NO_TIME, costText, dateTime, number, oneLine, percent } from "../format.js";
import { channelName } from "./channel_names.js";
import { requestNumber, splitTokens } from "./timeline_layout.js";

/** Return how a request ended without a complete answer; "" if it has one. */
export function failureText(step) {
  if (step.ended) return endedWord(step.ended) === "stopped" ? "stopped" : `failed: ${oneLine(step.ended, 200)}`;
  const failure = failureLabel(step.observed);
  return failure && step.observed.error ? `${failure}: ${oneLine(step.observed.error, 200)}` : failure;
}

/** Return a step as a sentence. */
export function stepSummary(step, channel) {
  const { input } = splitTokens(step);
  const parts = [`request ${number(requestNumber(step))}${channel ? ` of ${channelName(channel)}` : ""}`];
  if (failureText(step)) parts.push(failureText(step));
  if (stepLabel(step)) parts.push(stepLabel(step));
  if (input) parts.push(`${number(input)} tokens in`);
  if (step.cache_share != null) parts.push(`${percent(step.cache_share)} from cache`);
  if (step.output != null) parts.push(`${number(step.output)} out`);
  if (step.cost != null) parts.push(costText(step));
  return parts.join("; ");
}

export function StepFigures({ step, channel }) {
  const { input, read, write, fresh } = splitTokens(step);
  const rows = [
    ["series-read", "from cache", read, step.cache_read], ["series-write", "written to cache", write, step.cache_write],
    ["series-fresh", "uncached", fresh, input], ["series-output", "output", step.output, step.output],
  ];
  return html`<div class="step-figures">
    <p class="step-figures-title"><span class=${`channel-letter hue-${channel?.hue ?? 0}`}>${channel?.letter ?? "?"}</span>
      <b>request ${number(requestNumber(step))}</b>${step.epoch == null ? "" : ` · cache epoch ${step.epoch}`}${step.mode === "full" ? "" : ` · ${modeLabel(step.mode)}`}</p>
    ${channel && html`<p class="muted">${channelName(channel)}</p>`}
    ${stepLabel(step) && html`<p class="why">${stepLabel(step)}</p>`}
    ${failureText(step) && html`<p class="why">${oneLine(failureText(step), 90)}</p>`}
    <table><tbody>
      ${rows.map(
        ([swatch, label, figure, known]) => html`<tr key=${label}>
          <th scope="row"><span class=${`swatch ${swatch}`}></span>${label}</th><td>${known == null ? "–" : number(figure)}</td>
        </tr>`,
      )}
      <tr class="sum"><th scope="row">input</th><td>${number(input)}</td></tr>
      <tr><th scope="row">cache share</th><td>${percent(step.cache_share)}</td></tr>
      <tr><th scope="row">cost</th><td>${costText(step)}</td></tr>
      ${latencyLabel(step.observed) && html`<tr><th scope="row">latency</th><td>${latencyLabel(step.observed)}</td></tr>`}
      ${step.left > 0 && html`<tr><th scope="row">left out</th><td>${number(step.left)}</td></tr>`}
    </tbody></table>
    ${(step.time > 0 || step.observed) && html`<p class="muted">${dateTime(step.time) || NO_TIME}</p>`}
  </div>`;
}

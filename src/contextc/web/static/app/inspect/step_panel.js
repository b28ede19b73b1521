/** The selected step: its numbers, budget, and tabs with details. */
import { html, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { dateTime, dollars, number, oneLine, percent, plural } from "../format.js";
import { Icon } from "../icons.js";
import { Budget } from "./budget.js";
import { Diff } from "./diff.js";
import { LintFindings } from "./findings.js";
import { LedgerPanel } from "./ledger.js";
import { ManifestLines } from "./manifest_lines.js";
import { failureLabel, latencyLabel, modeLabel } from "../observed.js";
import { resetLabel } from "../reasons.js";
import { useLoad } from "./use_load.js";
import { channelName } from "./channel_names.js";
import { NextRequest } from "./next_request.js";
import { RequestBody } from "./request_body.js";
import { LoadError, Skeleton } from "./placeholders.js";
import { Tabs } from "./tabs.js";

export const TABS = [
  { name: "messages", label: "Messages" }, { name: "request", label: "Request" }, { name: "diff", label: "Changes" },
  { name: "lint", label: "Rules" }, { name: "ledger", label: "Session" }, { name: "next", label: "Preview next request" },
];

/** Requests with more messages are linted only when the Rules tab is opened. */
const CHECKED = 2000;

/**
 * @param {{name: string, steps: object[], current: number, choose: (index: number) => void, channels: Map<string, object>,
 *   showStep: (channel: string, request: number) => void, tab: string,
 *   setTab: (tab: string) => void, last: object}} props `last` is the last step of all models
 */
export function StepPanel({ name, steps, current, choose, channels, showStep, tab, setTab, last }) {
  const [goTo, setGoTo] = useState(null);
  const step = steps[current];
  const channel = channels.get(step.channel);
  const path = conversationPath(name, "requests", step.channel, step.request);
  const { data, error, loading, reload } = useLoad(path, (signal) => get(path, {}, { signal }), { delay: 60 });
  const facts = data && data.channel === step.channel && data.number === step.request ? data : null;
  const lint = conversationPath(name, "requests", step.channel, step.request, "lint");
  const checked = useLoad(facts && facts.counts.shown <= CHECKED ? lint : null, (signal) => get(lint, {}, { signal }), { delay: 250 });
  const findings = checked.of === lint ? checked.data?.violations?.length : undefined;
  const showPath = (wanted) => {
    setGoTo({ path: wanted });
    setTab("request");
  };
  const chooseTab = (wanted) => {
    setGoTo(null);
    setTab(wanted);
  };
  const before = steps.slice(0, current).findLast((each) => each.channel === step.channel);
  const tabs = TABS.map((each) => ({ ...each, note: note(each.name, facts ?? data, findings) }));
  return html`<section class="step" aria-label=${`Request ${step.wouldBe ?? step.request}`} data-testid="step">
    <header class="step-top">
      <div class="step-move" role="group" aria-label="Step">
        <button type="button" class="icon-button" aria-label="Previous step" disabled=${current === 0}
            onClick=${() => choose(current - 1)}><${Icon} name="left" /></button>
        <button type="button" class="icon-button" aria-label="Next step" disabled=${current === steps.length - 1}
            onClick=${() => choose(current + 1)}><${Icon} name="right" /></button>
      </div>
      <div class="step-title">
        <h2>Request ${number(step.wouldBe ?? step.request)} <span class="faint">${step.ended ? "not answered"
            : `step ${number(current + 1)} of ${number(steps.length)}`}</span></h2>
        <p class="soft"><span class=${`channel-letter hue-${channel?.hue ?? 0}`}>${channel?.letter ?? "?"}</span>${channel ? channelName(channel) : oneLine(step.model)}</p>
      </div>
      <${Facts} step=${step} />
    </header>
    ${step.ended && html`<p class="banner" role="status" data-testid="not-answered">This request was not answered:
      ${oneLine(step.ended, 400)}</p>`}
    ${failureLabel(step.observed) && html`<p class="banner" role="status" data-testid="observed-failure">This request has no
      complete answer: ${failureLabel(step.observed)}${step.observed.error && `. ${oneLine(step.observed.error, 400)}`}</p>`}
    ${error && html`<${LoadError} error=${error} reload=${reload} />`}
    ${!data && !error && html`<${Skeleton} lines=${3} label="Loading the request" />`}
    ${data && html`<div aria-busy=${facts ? undefined : "true"}><${Budget} budget=${data.budget}><${Remarks}
        facts=${data} /><//></div>`}
    <${Tabs} tabs=${tabs} current=${tab} choose=${chooseTab} label="Request details">
      ${tab === "messages" && (facts ? html`<${ManifestLines} name=${name} step=${step} facts=${facts} knownUpTo=${before?.seq ?? 0}
          showPath=${showPath} />` : loading && html`<${Skeleton} lines=${8} />`)}
      ${tab === "request" && html`<${RequestBody} name=${name} step=${step} facts=${facts ?? data ?? {}} goTo=${goTo} />`}
      ${tab === "diff" && html`<${Diff} name=${name} step=${step} />`}
      ${tab === "lint" && html`<${LintFindings} name=${name} step=${step} show=${showPath} />`}
      ${tab === "ledger" && html`<${LedgerPanel} name=${name} channels=${channels} current=${step.channel} showStep=${showStep} />`}
      ${tab === "next" && html`<${NextRequest} key=${`${name} ${step.channel}`} name=${name} step=${step} seq=${last.seq} />`}
    <//>
  </section>`;
}

/** Return what a tab shows beside its name: "" until it is known, so that no tab moves while it is clicked. */
function note(tab, facts, findings) {
  if (tab === "messages") return facts ? number(facts.counts.lines) : "";
  if (tab === "lint") return findings ? `${findings}` : findings === 0 ? "✓" : "";
  return undefined;
}

function Facts({ step }) {
  return html`<ul class="step-facts">
    ${step.epoch != null && html`<li class="tag ${step.why ? "new" : ""}">${step.why ? resetLabel(oneLine(step.why, 60)) : `cache epoch ${step.epoch}`}</li>`}
    <li class="tag ${step.mode === "full" ? "" : "accent"}">${modeLabel(step.mode)}</li>
    ${failureLabel(step.observed) && html`<li class="tag bad">${failureLabel(step.observed)}</li>`}
    ${step.observed?.inexact && html`<li class="tag warn" title="Text was redacted before it was stored">inexact</li>`}
    ${latencyLabel(step.observed) && html`<li class="tag">${latencyLabel(step.observed)}</li>`}
    ${step.input != null && html`<li class="tag">${number(step.input)} in, ${number(step.output)} out</li>`}
    ${step.cache_share != null && html`<li class="tag">${percent(step.cache_share)} from cache</li>`}
    ${step.cost != null && html`<li class="tag">${dollars(step.cost)}</li>`}
    ${step.time > 0 && html`<li class="tag"><time datetime=${new Date(step.time).toISOString()}>${dateTime(step.time)}</time></li>`}
  </ul>`;
}

/** Session, remarks, and prompt fragments of a request. */
function Remarks({ facts }) {
  const shown = facts.fragments.filter((each) => each.shown).length;
  return html`
    <${Session} session=${oneLine(facts.session, 60)} gave=${oneLine(facts.gave, 60)} />
    ${facts.signed_lost > 0 && html`<p class="remark is-bad">Signed reasoning of ${plural(facts.signed_lost, "message")} was lost here.</p>`}
    ${facts.remarks.length > 0 && html`<details class="remark">
      <summary><span class="tag warn">! ${plural(facts.remarks.length, "remark")}</span></summary>
      <ul>${facts.remarks.map((each, index) => html`<li key=${index}>${oneLine(each, 400)}</li>`)}</ul>
    </details>`}
    ${facts.fragments.length > 0 && html`<details class="remark">
      <summary><span class="tag">${plural(facts.fragments.length, "prompt fragment")}, ${number(shown)} sent</span></summary>
      <ul>${facts.fragments.map((each) => html`<${Fragment} key=${each.id} fragment=${each} />`)}</ul>
    </details>`}
    <${Counted} facts=${facts} />`;
}

/** Difference between the estimated and the counted tokens. */
function Counted({ facts }) {
  const { input, estimated } = facts.budget;
  if (!estimated || input === estimated) return null;
  const off = `${input > estimated ? "+" : "−"}${percent(Math.abs(input - estimated) / estimated)}`;
  return html`<p class="budget-note muted" data-testid="budget-note">Estimated ${number(estimated)} tokens; provider counted
    ${" "}${number(input)} (${off}). All numbers here use the provider's count.</p>`;
}

function Session({ session, gave }) {
  if (!session && !gave) return null;
  if (!session) return html`<p class="remark">New session: <code>${gave}</code></p>`;
  return html`<p class="remark">Session <code>${session}</code>${gave && gave !== session ? html`, continued as <code>${gave}</code>` : ""}</p>`;
}

function Fragment({ fragment }) {
  const { id, lifecycle, tokens, shown } = fragment;
  return html`<li><code>${oneLine(id, 60)}</code> ${lifecycle}, ${plural(tokens, "token")}${shown ? "" : ", not sent"}</li>`;
}

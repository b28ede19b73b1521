/** The selected request: its numbers in one line, its findings, and tabs with details. */
import { signal } from "@preact/signals";
import { html, useMemo } from "../html.js";
import { conversationPath, get } from "../api.js";
import { NO_TIME, clock, costText, dateTime, duration, number, oneLine, percent, plural, readable } from "../format.js";
import { Icon } from "../icons.js";
import { Composition, CompositionPanel } from "./composition.js";
import { Diff } from "./diff.js";
import { LintFindings } from "./findings.js";
import { FindingsPanel, RequestFindings } from "./findings_panel.js";
import { LedgerPanel } from "./ledger.js";
import { ManifestLines } from "./manifest_lines.js";
import { endedWord, errorText, failureLabel, hasFailed, modeLabel } from "../observed.js";
import { stepLabel } from "../reasons.js";
import { route, setQuery } from "../route.js";
import { useLoad } from "../use_load.js";
import { channelName, modelName } from "./channel_names.js";
import { NextRequest } from "./next_request.js";
import { Reply, stopReason } from "./reply.js";
import { RequestBody } from "./request_body.js";
import { EmptyState, LoadError, Skeleton } from "./placeholders.js";
import { Tabs } from "./tabs.js";
import { requestNumber } from "./timeline_layout.js";

/** On a phone the figures above the tabs are shown on demand: they would take a third of the screen. */
export const figuresShown = signal(false);

/** The tabs in the order of their keys, 1 to 9. */
export const TABS = [
  { name: "findings", label: "Findings" }, { name: "messages", label: "Messages" }, { name: "composition", label: "Composition" },
  { name: "request", label: "Request" }, { name: "reply", label: "Reply" }, { name: "diff", label: "Changes" },
  { name: "lint", label: "Rules" }, { name: "ledger", label: "Session" }, { name: "next", label: "Preview next request" },
];

/** Requests with more messages are linted only when the Rules tab is opened. */
const CHECKED = 2000;
/** Tabs that show a stored request. */
const NEEDS_REQUEST = new Set(["messages", "composition", "request", "diff", "lint"]);

/**
 * @param {{name: string, steps: object[], current: number, choose: (index: number) => void, channels: Map<string, object>,
 *   showStep: (channel: string, request: number) => void, tab: string, findings: object,
 *   setTab: (tab: string) => void, last: object, timeline: {isShown: boolean, toggle: () => void}}} props `last` is the last step
 *   of all models
 */
export function StepPanel({ name, steps, current, choose, channels, showStep, tab, setTab, findings, last, timeline }) {
  const step = steps[current];
  const isStored = step.isStored !== false;
  const base = [name, "requests", step.channel, step.request];
  const path = isStored ? conversationPath(...base) : null;
  const { data, error, loading, reload } = useLoad(path, (signal) => get(path, {}, { signal }), { delay: 60 });
  const facts = isStored && data && data.channel === step.channel && data.number === step.request ? data : null;
  const lint = conversationPath(...base, "lint");
  const checked = useLoad(facts && facts.counts.shown <= CHECKED ? lint : null, (signal) => get(lint, {}, { signal }), { delay: 250 });
  const broken = checked.of === lint ? checked.data?.violations?.length : undefined;
  const replyPath = isStored ? conversationPath(...base, "reply") : null;
  const loaded = useLoad(replyPath, (signal) => get(replyPath, {}, { signal }), { delay: 60 });
  const reply = loaded.of === replyPath ? loaded : { ...loaded, data: null, error: null };
  const { path: place = "", near = "", mark = "", finding = "" } = route.value.query;
  const goTo = useMemo(() => (place ? { path: place, near, mark } : null), [place, near, mark]);
  const showPath = (wanted) => setQuery({ tab: "request", path: wanted, near: "", mark: "" });
  const before = steps.slice(0, current).findLast((each) => each.channel === step.channel && !each.ended);
  const tabs = TABS.map((each) => ({ ...each, note: note(each.name, facts ?? data, broken, findings) }));
  const isMissing = !isStored && NEEDS_REQUEST.has(tab);
  return html`<section class="step" aria-label=${`Request ${requestNumber(step)}`} data-testid="step">
    <${StepLine} steps=${steps} current=${current} choose=${choose} channel=${channels.get(step.channel)} isOnly=${channels.size === 1}
        reply=${reply.data} timeline=${timeline} />
    <${Failure} step=${step} hasText=${tab !== "reply"} />
    ${error && html`<${LoadError} error=${error} reload=${reload} />`}
    ${isStored && data && tab !== "next" && html`<div class="step-composition" aria-busy=${facts ? undefined : "true"}><${Composition} name=${name} step=${step} facts=${data} /></div>`}
    ${tab !== "findings" && html`<${RequestFindings} name=${name} step=${step} losses=${findings.losses} remarks=${facts?.remarks ?? []} signedLost=${facts?.signed_lost ?? 0} />`}
    <${Tabs} tabs=${tabs} current=${tab} choose=${setTab} label="Request details">
      ${isMissing && html`<${EmptyState} title="This request is not stored"><p>Its process ended before it was stored, or it was
        removed since.</p><//>`}
      ${tab === "findings" && html`<${FindingsPanel} name=${name} steps=${steps} step=${step} channels=${channels} load=${findings} focus=${finding} />`}
      ${tab === "messages" && isStored && (facts ? html`<${ManifestLines} name=${name} step=${step} facts=${facts} knownUpTo=${before?.seq ?? 0}
          showPath=${showPath} />` : loading && html`<${Skeleton} lines=${8} />`)}
      ${tab === "composition" && isStored && (data ? html`<${CompositionPanel} name=${name} step=${step}><${Remarks} facts=${data} /><//>`
          : html`<${Skeleton} lines=${6} />`)}
      ${tab === "request" && isStored && html`<${RequestBody} name=${name} step=${step} facts=${facts ?? data ?? {}} goTo=${goTo} />`}
      ${tab === "reply" && html`<${Reply} name=${name} step=${step} load=${reply} />`}
      ${tab === "diff" && isStored && html`<${Diff} name=${name} step=${step} />`}
      ${tab === "lint" && isStored && html`<${LintFindings} name=${name} step=${step} show=${showPath} />`}
      ${tab === "ledger" && html`<${LedgerPanel} name=${name} channels=${channels} current=${step.channel} showStep=${showStep} />`}
      ${tab === "next" && html`<${NextRequest} key=${`${name} ${step.channel}`} name=${name} step=${step} seq=${last.seq ?? 1} />`}
    <//>
  </section>`;
}

/** How the request failed. The Reply tab has the text of the error itself. @param {{step: object, hasText: boolean}} props */
function Failure({ step, hasText }) {
  const label = failureLabel(step.observed, true);
  if (!step.ended && !hasFailed(step.observed)) return null;
  const what = step.ended ? (endedWord(step.ended) === "stopped" ? "was stopped" : "failed") : label;
  const text = hasText ? errorText(step) : "";
  return html`<div class="banner failure" role="status" data-testid=${step.ended ? "not-answered" : "observed-failure"}>
    <p>This request ${what}.${step.ended && " It does not count as sent to the model."}</p>
    ${text && html`<p class="failure-text" dir="auto" tabindex="0">${readable(text)}</p>`}</div>`;
}

/** Return what a tab shows beside its name: "" until it is known, so that no tab moves while it is clicked. */
function note(tab, facts, broken, findings) {
  if (tab === "findings") return findings.found ? number(findings.losses.length) : "";
  if (tab === "messages") return facts ? number(facts.counts.lines) : "";
  if (tab === "lint") return broken ? `${broken}` : broken === 0 ? "✓" : "";
  return undefined;
}

/** The figures of the request, in one line where there is room. */
function StepLine({ steps, current, choose, channel, isOnly, reply, timeline }) {
  const step = steps[current];
  const own = steps.filter((each) => each.channel === step.channel && !each.ended).length;
  const isPlain = own === steps.length;
  return html`<header class="step-top" data-testid="step-line">
    <div class="step-move" role="group" aria-label="Requests">
      <button type="button" class="icon-button" aria-label="Previous request" disabled=${current === 0}
          onClick=${() => choose(current - 1)}><${Icon} name="left" /></button>
      <button type="button" class="icon-button" aria-label="Next request" disabled=${current === steps.length - 1}
          onClick=${() => choose(current + 1)}><${Icon} name="right" /></button>
    </div>
    <h2>Request ${number(requestNumber(step))} ${step.ended ? endedWord(step.ended) : html`<span class="step-of">of ${number(own)}</span>`}
      ${!isPlain && html` <span class="faint step-place">step ${number(current + 1)} of ${number(steps.length)}</span>`}</h2>
    <p class="step-model soft" title=${channel ? channelName(channel) : undefined}>${!isOnly && html`<span
        class=${`channel-letter hue-${channel?.hue ?? 0}`}>${channel?.letter ?? "?"}</span>`}${channel ? modelName(channel) : oneLine(step.model)}</p>
    <p class="step-cost" title="Cost of this request">${step.cost != null && costText(step)}</p>
    <button type="button" class="button quiet figures-button timeline-narrow" aria-expanded=${String(timeline.isShown)} aria-controls="timeline-panel"
        onClick=${timeline.toggle} data-testid="timeline-button-narrow">Timeline <span aria-hidden="true">${timeline.isShown ? "▴" : "▾"}</span></button>
    <button type="button" class="button quiet figures-button" aria-expanded=${String(figuresShown.value)} data-testid="figures-button"
        onClick=${() => { figuresShown.value = !figuresShown.value; }}>Figures <span aria-hidden="true">${figuresShown.value ? "▴" : "▾"}</span></button>
    <${Facts} step=${step} reply=${reply} />
  </header>`;
}

function Facts({ step, reply }) {
  const latency = step.observed?.latency ?? reply?.latency;
  const label = oneLine(stepLabel(step), 80);
  const reasoning = step.reasoning ? ` (${number(step.reasoning)} reasoning)` : "";
  return html`<ul class="step-facts" aria-label="Figures of this request">
    ${step.epoch != null && label && html`<li class="tag ${step.reset !== false ? "new" : ""}" title=${label}>${label}</li>`}
    ${step.mode === "resume" && html`<li class="tag accent">${modeLabel(step.mode)}</li>`}
    ${failureLabel(step.observed) && html`<li class="tag ${hasFailed(step.observed) ? "bad" : ""}">${failureLabel(step.observed)}</li>`}
    ${step.observed?.inexact && html`<li class="tag warn" title=${step.observed.redacted ? "Text was redacted before it was stored" : "The stored body is not the one that was sent"}>inexact</li>`}
    ${step.input != null && html`<li>${number(step.input)} in, ${number(step.output)} out${reasoning}</li>`}
    ${step.cache_share != null && html`<li>${percent(step.cache_share)} from cache</li>`}
    ${step.cost != null && html`<li>${costText(step)}</li>`}
    ${latency != null && html`<li>${duration(latency)}</li>`}
    ${reply?.finish && html`<li title="Stop reason">${stopReason(reply)}</li>`}
    ${step.time > 0 ? html`<li><time datetime=${new Date(step.time).toISOString()} title=${dateTime(step.time)}>${clock(step.time)}</time></li>`
      : step.observed && html`<li class="faint">${NO_TIME}</li>`}
  </ul>`;
}

/** Session and prompt fragments of a request, and how exact its figures are. */
function Remarks({ facts }) {
  const shown = facts.fragments.filter((each) => each.shown).length;
  return html`
    <${Session} session=${oneLine(facts.session, 60)} gave=${oneLine(facts.gave, 60)} />
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

/** The step that is looked at: which it is, what came of it, its budget, and the ways to look into it. */
import { html, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { dateTime, dollars, number, oneLine, percent, plural } from "../format.js";
import { Icon } from "../icons.js";
import { Budget } from "./budget.js";
import { Diff } from "./diff.js";
import { Lint } from "./findings.js";
import { Ledgers } from "./ledger.js";
import { Lines } from "./lines.js";
import { useLoad } from "./load.js";
import { channelName } from "./naming.js";
import { Next } from "./next.js";
import { RequestBody } from "./request.js";
import { Problem, Skeleton } from "./states.js";
import { Tabs } from "./tabs.js";

export const TABS = [
  { name: "messages", label: "Messages" }, { name: "request", label: "Request" }, { name: "diff", label: "Changes" },
  { name: "lint", label: "Rules" }, { name: "ledger", label: "Ledger" }, { name: "next", label: "What next?" },
];

/** Requests of more messages are held against the rules only when somebody looks. */
const CHECKED = 2000;

/**
 * @param {{name: string, steps: object[], current: number, choose: (index: number) => void, channels: Map<string, object>,
 *   showStep: (channel: string, request: number) => void, tab: string,
 *   setTab: (tab: string) => void, last: object}} props `last` is the last step of all channels
 */
export function Step({ name, steps, current, choose, channels, showStep, tab, setTab, last }) {
  const [goTo, setGoTo] = useState(null);
  const step = steps[current];
  const channel = channels.get(step.channel);
  const path = conversationPath(name, "requests", step.channel, step.request);
  const { data, error, loading, again } = useLoad(path, (signal) => get(path, {}, { signal }), { delay: 60 });
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
        <button type="button" class="icon-button" aria-label="Step before" disabled=${current === 0}
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
    ${step.ended && html`<p class="banner" role="status" data-testid="not-answered">This request was not answered to its end:
      ${oneLine(step.ended, 400)}</p>`}
    ${error && html`<${Problem} error=${error} again=${again} />`}
    ${!data && !error && html`<${Skeleton} lines=${3} label="Loading the request" />`}
    ${data && html`<div aria-busy=${facts ? undefined : "true"}><${Budget} budget=${data.budget}><${Remarks}
        facts=${data} /><//></div>`}
    <${Tabs} tabs=${tabs} current=${tab} choose=${chooseTab} label="Of this request">
      ${tab === "messages" && (facts ? html`<${Lines} name=${name} step=${step} facts=${facts} knownUpTo=${before?.seq ?? 0}
          showPath=${showPath} />` : loading && html`<${Skeleton} lines=${8} />`)}
      ${tab === "request" && html`<${RequestBody} name=${name} step=${step} facts=${facts ?? data ?? {}} goTo=${goTo} />`}
      ${tab === "diff" && html`<${Diff} name=${name} step=${step} />`}
      ${tab === "lint" && html`<${Lint} name=${name} step=${step} show=${showPath} />`}
      ${tab === "ledger" && html`<${Ledgers} name=${name} channels=${channels} current=${step.channel} showStep=${showStep} />`}
      ${tab === "next" && html`<${Next} key=${`${name} ${step.channel}`} name=${name} step=${step} seq=${last.seq} />`}
    <//>
  </section>`;
}

function note(tab, facts, findings) {
  if (tab === "messages" && facts) return number(facts.counts.lines);
  if (tab === "lint" && findings !== undefined) return findings ? `${findings}` : "✓";
  return "";
}

function Facts({ step }) {
  return html`<ul class="step-facts">
    ${step.epoch != null && html`<li class="tag ${step.why ? "new" : ""}">${step.why ? `epoch ${step.epoch} begins: ${oneLine(step.why, 60)}` : `epoch ${step.epoch}`}</li>`}
    <li class="tag ${step.mode === "resume" ? "accent" : ""}">${step.mode === "resume" ? "resumes its session" : "full context"}</li>
    ${step.input != null && html`<li class="tag">${number(step.input)} in, ${number(step.output)} out</li>`}
    ${step.cache_share != null && html`<li class="tag">${percent(step.cache_share)} from cache</li>`}
    ${step.cost != null && html`<li class="tag">${dollars(step.cost)}</li>`}
    ${step.time > 0 && html`<li class="tag"><time datetime=${new Date(step.time).toISOString()}>${dateTime(step.time)}</time></li>`}
  </ul>`;
}

/** What was noted on the way, the session, and the fragments of the prompt. */
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
      <summary><span class="tag">${plural(facts.fragments.length, "prompt fragment")}, ${number(shown)} shown</span></summary>
      <ul>${facts.fragments.map((each) => html`<${Fragment} key=${each.id} fragment=${each} />`)}</ul>
    </details>`}
    <${Counted} facts=${facts} />`;
}

/** How far the estimate was off. */
function Counted({ facts }) {
  const { input, estimated } = facts.budget;
  if (!estimated || input === estimated) return null;
  const off = `${input > estimated ? "+" : "−"}${percent(Math.abs(input - estimated) / estimated)}`;
  return html`<p class="budget-note muted" data-testid="budget-note">Estimated ${number(estimated)} tokens before it was sent; the
    provider counted ${number(input)} (${off}). All figures here are by its count.</p>`;
}

function Session({ session, gave }) {
  if (!session && !gave) return null;
  if (!session) return html`<p class="remark">A new session: <code>${gave}</code></p>`;
  return html`<p class="remark">Session <code>${session}</code>${gave && gave !== session ? html`, which goes on as <code>${gave}</code>` : ""}</p>`;
}

function Fragment({ fragment }) {
  const { id, lifecycle, tokens, shown } = fragment;
  return html`<li><code>${oneLine(id, 60)}</code> ${lifecycle}, ${plural(tokens, "token")}${shown ? "" : ", not shown here"}</li>`;
}

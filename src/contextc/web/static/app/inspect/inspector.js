/**
 * The inspector: what the model saw, and why, for any step of any conversation. The timeline above chooses a step; below
 * stand its budget and everything that can be said of it. The address names the step, so it can be passed on.
 */
import { html, useCallback, useEffect, useMemo, useRef, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { KEYS } from "../keys.js";
import { go, inspectAddress } from "../route.js";
import { conversations } from "../state.js";
import { Head } from "./head.js";
import { useLoad } from "./load.js";
import { channelName, named } from "./naming.js";
import { Next } from "./next.js";
import { Empty, Problem, Skeleton } from "./states.js";
import { Step, TABS } from "./step.js";
import { StepTable } from "./steps.js";
import { placed } from "./scale.js";
import { Timeline, Totals } from "./timeline.js";
import { Unanswered } from "./unanswered.js";

/** How often a conversation that runs is looked at again, in milliseconds. */
const AGAIN = 3_000;
/** How the timeline is shown; where it is hidden, there is more room for what is below. It is remembered. */
const SHAPES = [["chart", "Chart"], ["table", "Table"], ["hidden", "Hidden"]];
const SHAPE = "contextc.timeline";

KEYS.push(["Inspector", [
  [["←", "→"], "Step before, next step"], [["1", "–", "6"], "Messages, request, changes, rules, ledger, next"],
  [["J", "K"], "Message below, message above"], [["/"], "Search in what is shown"], [["T"], "Timeline as chart or table"],
]]);

/** @param {{name: string, channel?: string, request?: number|null}} props */
export function Inspector({ name, channel, request }) {
  return html`<${Inspected} key=${name} name=${name} channel=${channel} request=${request} />`;
}

function Inspected({ name, channel, request }) {
  const path = conversationPath(name, "timeline");
  const { data, error, again } = useLoad(path, (signal) => get(path, {}, { signal }));
  const isRunning = conversations.value.items?.some((each) => each.name === name && each.running) ?? false;
  useEffect(() => {
    const fresh = () => document.visibilityState === "visible" && again();
    document.addEventListener("visibilitychange", fresh);
    const timer = isRunning ? setInterval(fresh, AGAIN) : 0;
    return () => {
      document.removeEventListener("visibilitychange", fresh);
      clearInterval(timer);
    };
  }, [again, isRunning]);
  return html`<div class="inspect" data-testid="inspector">
    ${error && html`<${Head} title=${name} conversation=${name} /><div class="inspect-body"><${Problem} error=${error}
        again=${again} /></div>`}
    ${!data && !error && html`<${Head} title=${name} conversation=${name} /><div class="inspect-body"><${Skeleton} lines=${10}
        label="Loading the timeline" /></div>`}
    ${data && (data.requests.length
      ? html`<${Workbench} name=${name} data=${data} channel=${channel} request=${request} again=${again} />`
      : html`<${Head} title=${name} conversation=${name} again=${again} /><div class="inspect-body"><${NothingYet}
          name=${name} data=${data} channel=${channel} request=${request} /></div>`)}
  </div>`;
}

/** The unanswered request of an address, as a step; null where the address names none. */
function unansweredStep(data, channel, request) {
  const found = request && data.unanswered.find((each) => each.channel === channel && each.number === request);
  if (!found) return null;
  const { usage, number, why, time } = found;
  return {
    ...found, request: number, wouldBe: found.request, ended: why, why: "", epoch: null, mode: "full", time: time ?? 0,
    input: usage?.input ?? null, output: usage?.output ?? null, cache_read: usage?.cache_read ?? null,
    cache_share: usage?.input ? usage.cache_read / usage.input : null,
  };
}

function NothingYet({ name, data, channel, request }) {
  const [tab, setTab] = useState("messages");
  const lost = unansweredStep(data, channel, request);
  if (!data.unanswered.length) {
    return html`<${Empty} title="No request yet">
        <p>No model has answered in this conversation, so there is nothing to look back at. This is what would be sent now:</p>
      <//><${Next} name=${name} />`;
  }
  return html`<${Empty} title="No request was answered">
      <p>What was sent was stopped, or failed, so there is nothing that a model is taken to know. Below is what would be sent
        now.</p>
    <//><${Unanswered} name=${name} lost=${data.unanswered} channels=${named(data.channels)} open=${true} />
    ${lost ? html`<${Step} name=${name} steps=${[lost]} current=${0} choose=${() => {}} channels=${named(data.channels)}
        showStep=${() => {}} tab=${tab} setTab=${setTab} last=${lost} />` : html`<${Next} name=${name} />`}`;
}

function Workbench({ name, data, channel, request, again }) {
  const channels = useMemo(() => named(data.channels), [data.channels]);
  const [only, setOnly] = useState("");
  const [shape, setShape] = useState(() => SHAPES.find(([each]) => each === localStorage.getItem(SHAPE))?.[0] ?? "chart");
  useEffect(() => localStorage.setItem(SHAPE, shape), [shape]);
  const [tab, setTab] = useState("messages");
  const steps = useMemo(() => (only ? data.requests.filter((step) => step.channel === only) : data.requests), [data.requests, only]);
  const wanted = steps.findIndex((step) => step.channel === channel && step.request === request);
  const lostStep = unansweredStep(data, channel, request);
  const isMissing = Boolean(channel) && !lostStep && !data.requests.some((step) => step.channel === channel && step.request === request);
  const current = wanted >= 0 ? wanted : steps.length - 1;
  const lost = useMemo(
    () => placed(only ? data.unanswered.filter((each) => each.channel === only) : data.unanswered, steps),
    [data.unanswered, only, steps],
  );
  const totals = useMemo(() => (only ? summed(steps, lost) : data.totals), [only, steps, lost, data.totals]);

  /** Where one is, also between two drawings: keys come faster than those. */
  const at = useRef(current);
  at.current = current;
  const choose = useCallback((index) => {
    at.current = Math.max(0, Math.min(steps.length - 1, index));
    const step = steps[at.current];
    go(inspectAddress(name, step.channel, step.request), { replace: true });
  }, [steps, name]);
  const move = useCallback((by) => choose(at.current + by), [choose]);
  const showStep = (id, number) => {
    if (only && only !== id) setOnly("");
    go(inspectAddress(name, id, number), { replace: true });
  };
  useEffect(() => {
    const onKeyDown = (event) => keyed(event, { move, setTab, setShape });
    addEventListener("keydown", onKeyDown, true);
    return () => removeEventListener("keydown", onKeyDown, true);
  }, [move]);

  return html`
    <${Head} title=${name} conversation=${name} again=${again}>
      ${channels.size > 1 && html`<label class="channel-filter"><span class="off-screen">Channel</span>
        <select class="field" value=${only} onChange=${(event) => setOnly(event.currentTarget.value)} data-testid="channel-filter">
          <option value="">All ${channels.size} channels</option>
          ${[...channels.values()].filter((each) => each.requests).map((each) => html`<option key=${each.id}
              value=${each.id}>${each.letter} · ${channelName(each)}</option>`)}
        </select></label>`}
      <div class="choice" role="group" aria-label="Timeline as">
        ${SHAPES.map(([each, label]) => html`<button key=${each} type="button" aria-pressed=${String(shape === each)}
            onClick=${() => setShape(each)}>${label}</button>`)}
      </div>
    <//>
    <div class="inspect-body">
      <section class="overview" aria-label="The whole conversation">
        <${Totals} totals=${totals} />
        ${shape === "table" && html`<${StepTable} steps=${steps} lost=${lost} channels=${channels} current=${current}
            choose=${choose} move=${move} />`}
        ${shape === "chart" && html`<${Timeline} steps=${steps} lost=${lost} channels=${channels} current=${current}
            choose=${choose} move=${move} />`}
        <${Unanswered} name=${name} lost=${lost} channels=${channels} open=${Boolean(lostStep)} />
      </section>
      ${isMissing && html`<p class="banner" role="status">There is no request ${request} here; this is the last one.</p>`}
      <${Step} name=${name} steps=${lostStep ? [lostStep] : steps} current=${lostStep ? 0 : current} choose=${choose}
          channels=${channels} showStep=${showStep}
          tab=${tab} setTab=${setTab}
        last=${data.requests[data.requests.length - 1]} />
    </div>`;
}

/** The totals of some steps; the server has those of all. */
function summed(steps, lost) {
  const all = [...steps, ...lost.map((each) => ({ ...each.usage, cost: each.cost }))];
  const sum = (field) => all.reduce((total, step) => total + (step[field] ?? 0), 0);
  const isPriced = all.some((step) => step.cost != null);
  return {
    requests: steps.length, input: sum("input"), output: sum("output"), cache_read: sum("cache_read"),
    cost: isPriced ? sum("cost") : null, epochs: steps.filter((step) => step.why).length, unanswered: lost.length,
  };
}

/** Keys that work wherever nothing else wants them. */
function keyed(event, { move, setTab, setShape }) {
  const { target, key } = event;
  if (event.altKey || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
  if (target.closest?.("input, textarea, select, [contenteditable]")) {
    if (key === "Escape") target.blur();
    return;
  }
  const wantsArrows = target.closest?.("[role=tablist], [role=tree], [role=slider], summary");
  if (key === "/") document.querySelector(".tab-panel [data-search]")?.focus();
  else if (key === "ArrowLeft" && !wantsArrows) move(-1);
  else if (key === "ArrowRight" && !wantsArrows) move(1);
  else if (key === "t") setShape((before) => (before === "table" ? "chart" : "table"));
  else if (/^[1-6]$/.test(key)) setTab(TABS[Number(key) - 1].name);
  else if (/^[jk]$/.test(key) && !target.closest?.(".lines")) document.querySelector(".line-button[tabindex='0']")?.focus();
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/**
 * The inspector: what the model was sent and why, for any step of a conversation. The timeline selects a step; its budget
 * and details are below. The URL names the step, so it can be shared.
 */
import { html, useCallback, useEffect, useMemo, useRef, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { onConversationChange } from "../change_feed.js";
import { oneLine } from "../format.js";
import { sourceLabel } from "../observed.js";
import { KEYS } from "../shortcuts.js";
import { navigate, inspectUrl } from "../route.js";
import { InspectorHeader } from "./inspector_header.js";
import { useLoad } from "./use_load.js";
import { channelName, withLetters } from "./channel_names.js";
import { NextRequest } from "./next_request.js";
import { EmptyState, LoadError, Skeleton } from "./placeholders.js";
import { StepPanel, TABS } from "./step_panel.js";
import { StepTable } from "./step_table.js";
import { placeUnanswered } from "./timeline_layout.js";
import { Timeline, Totals } from "./timeline.js";
import { UnansweredRequests } from "./unanswered_requests.js";

/** Views of the timeline. The choice is stored in the browser. */
const SHAPES = [["chart", "Chart"], ["table", "Table"], ["hidden", "Hidden"]];
const SHAPE = "contextc.timeline";

KEYS.push(["Inspector", [
  [["←", "→"], "Previous step, next step"], [["1", "–", "6"], "Messages, request, changes, rules, session, preview"],
  [["J", "K"], "Next message, previous message"], [["/"], "Search in the current tab"], [["T"], "Timeline as chart or table"],
]]);

/** @param {{name: string, channel?: string, request?: number|null}} props */
export function Inspector({ name, channel, request }) {
  return html`<${Inspected} key=${name} name=${name} channel=${channel} request=${request} />`;
}

function Inspected({ name, channel, request }) {
  const path = conversationPath(name, "timeline");
  const { data, error, reload } = useLoad(path, (signal) => get(path, {}, { signal }));
  useEffect(() => {
    const fresh = () => document.visibilityState === "visible" && reload();
    document.addEventListener("visibilitychange", fresh);
    const unsubscribe = onConversationChange(name, reload);
    return () => {
      document.removeEventListener("visibilitychange", fresh);
      unsubscribe();
    };
  }, [name, reload]);
  return html`<div class="inspect" data-testid="inspector">
    ${error && html`<${InspectorHeader} title=${name} conversation=${name} /><div class="inspect-body"><${LoadError} error=${error}
        reload=${reload} /></div>`}
    ${!data && !error && html`<${InspectorHeader} title=${name} conversation=${name} /><div class="inspect-body"><${Skeleton} lines=${10}
        label="Loading the timeline" /></div>`}
    ${data && (data.requests.length
      ? html`<${Workbench} name=${name} data=${data} channel=${channel} request=${request} reload=${reload} />`
      : html`<${InspectorHeader} title=${name} conversation=${name} reload=${reload} /><div class="inspect-body"><${NothingYet}
          name=${name} data=${data} channel=${channel} request=${request} /></div>`)}
  </div>`;
}

/** Return the unanswered request that the URL names, as a step; null if it names none. */
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
    return html`<${EmptyState} title="No request yet">
        <p>No model has answered in this conversation yet. This is what would be sent now:</p>
      <//><${NextRequest} name=${name} />`;
  }
  return html`<${EmptyState} title="No request was answered">
      <p>All requests were stopped or failed. Below is what would be sent now.</p>
    <//><${UnansweredRequests} name=${name} lost=${data.unanswered} channels=${withLetters(data.channels)} open=${true} />
    ${lost ? html`<${StepPanel} name=${name} steps=${[lost]} current=${0} choose=${() => {}} channels=${withLetters(data.channels)}
        showStep=${() => {}} tab=${tab} setTab=${setTab} last=${lost} />` : html`<${NextRequest} name=${name} />`}`;
}

function Workbench({ name, data, channel, request, reload }) {
  const channels = useMemo(() => withLetters(data.channels), [data.channels]);
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
    () => placeUnanswered(only ? data.unanswered.filter((each) => each.channel === only) : data.unanswered, steps),
    [data.unanswered, only, steps],
  );
  const totals = useMemo(() => (only ? summed(steps, lost) : data.totals), [only, steps, lost, data.totals]);

  /** The current index, also between two renders: key presses can be faster. */
  const at = useRef(current);
  at.current = current;
  const choose = useCallback((index) => {
    at.current = Math.max(0, Math.min(steps.length - 1, index));
    const step = steps[at.current];
    navigate(inspectUrl(name, step.channel, step.request), { replace: true });
  }, [steps, name]);
  const move = useCallback((by) => choose(at.current + by), [choose]);
  const showStep = (id, number) => {
    if (only && only !== id) setOnly("");
    navigate(inspectUrl(name, id, number), { replace: true });
  };
  useEffect(() => {
    const onKeyDown = (event) => keyed(event, { move, setTab, setShape });
    addEventListener("keydown", onKeyDown, true);
    return () => removeEventListener("keydown", onKeyDown, true);
  }, [move]);

  return html`
    <${InspectorHeader} title=${name} conversation=${name} reload=${reload}>
      <${Source} source=${data.source} parent=${data.parent} />
      ${channels.size > 1 && html`<label class="channel-filter"><span class="off-screen">Model</span>
        <select class="field" value=${only} onChange=${(event) => setOnly(event.currentTarget.value)} data-testid="channel-filter">
          <option value="">All ${channels.size} models</option>
          ${[...channels.values()].filter((each) => each.requests).map((each) => html`<option key=${each.id}
              value=${each.id}>${each.letter} · ${channelName(each)}</option>`)}
        </select></label>`}
      <div class="choice" role="group" aria-label="Timeline view">
        ${SHAPES.map(([each, label]) => html`<button key=${each} type="button" aria-pressed=${String(shape === each)}
            onClick=${() => setShape(each)}>${label}</button>`)}
      </div>
    <//>
    <div class="inspect-body">
      <section class="overview" aria-label="Conversation overview">
        <${Totals} totals=${totals} />
        ${shape === "table" && html`<${StepTable} steps=${steps} lost=${lost} channels=${channels} current=${current}
            choose=${choose} move=${move} />`}
        ${shape === "chart" && html`<${Timeline} steps=${steps} lost=${lost} channels=${channels} current=${current}
            choose=${choose} move=${move} />`}
        <${UnansweredRequests} name=${name} lost=${lost} channels=${channels} open=${Boolean(lostStep)} />
      </section>
      ${isMissing && html`<p class="banner" role="status">Request ${request} not found. Showing the last one.</p>`}
      <${StepPanel} name=${name} steps=${lostStep ? [lostStep] : steps} current=${lostStep ? 0 : current} choose=${choose}
          channels=${channels} showStep=${showStep}
          tab=${tab} setTab=${setTab}
        last=${data.requests[data.requests.length - 1]} />
    </div>`;
}

/** The client whose requests were observed, and the request of the main conversation that a sub-agent belongs to. */
function Source({ source, parent }) {
  if (!source) return null;
  return html`<span class="tag" data-testid="source">${sourceLabel(source)}</span>
    ${parent && html`<a class="button quiet" href=${inspectUrl(parent.conversation, parent.channel, parent.request)}
        data-testid="parent-request" title=${oneLine(parent.conversation, 80)}>Parent request ${parent.request}</a>`}`;
}

/** Sum up the steps of one model. The server has the totals of all. */
function summed(steps, lost) {
  const all = [...steps, ...lost.map((each) => ({ ...each.usage, cost: each.cost }))];
  const sum = (field) => all.reduce((total, step) => total + (step[field] ?? 0), 0);
  const isPriced = all.some((step) => step.cost != null);
  return {
    requests: steps.length, input: sum("input"), output: sum("output"), cache_read: sum("cache_read"),
    cost: isPriced ? sum("cost") : null, epochs: steps.filter((step) => step.why).length, unanswered: lost.length,
    failed: steps.filter((step) => step.observed && step.observed.status !== "ok").length,
  };
}

/** Handle keys that no other element handles. */
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

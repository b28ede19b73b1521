/**
 * The inspector: what the model was sent and why, for any request of a conversation. The header has the figures of all
 * requests and selects one; its details are below. The URL names the request and what is shown of it, so it can be shared.
 */
import { html, useCallback, useEffect, useMemo, useRef, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { onConversationChange } from "../change_feed.js";
import { number, oneLine, outputText, plural } from "../format.js";
import { Icon } from "../icons.js";
import { sourceLabel } from "../observed.js";
import { KEYS } from "../shortcuts.js";
import { inspectUrl, navigate, route, setQuery } from "../route.js";
import { costlyRequests, isCostly, useFindings, withCauses } from "./findings_panel.js";
import { InspectorHeader, RunFigures } from "./inspector_header.js";
import { MiniTimeline } from "./mini_timeline.js";
import { CompareLink } from "./compare.js";
import { useLoad } from "../use_load.js";
import { channelName, withLetters } from "./channel_names.js";
import { CompositionOverTime } from "./composition_over_time.js";
import { Latency } from "./latency.js";
import { NextRequest } from "./next_request.js";
import { EmptyState, LoadError, Skeleton } from "./placeholders.js";
import { ShareButton } from "./share.js";
import { figuresShown, StepPanel, TABS } from "./step_panel.js";
import { EPOCH, StepTable } from "./step_table.js";
import { SubAgents, useSubAgents } from "./sub_agents.js";
import { isFailed, mergeSteps } from "./timeline_layout.js";
import { Timeline } from "./timeline.js";

/** Views of the large timeline. Each gets the properties of `Timeline`, `name` and `agents`. The choice is stored in the browser. */
const VIEWS = [
  { name: "chart", label: "Chart", View: Timeline },
  { name: "table", label: "Table", View: StepTable },
  { name: "composition", label: "Composition", View: CompositionOverTime },
  { name: "latency", label: "Latency", View: Latency },
  { name: "agents", label: "Sub-agents", View: SubAgents, needs: "agents" },
];
const HIDDEN = "hidden";
const STORED = "contextc.timeline.view";
/** Milliseconds to wait for the findings before the messages are shown instead. */
const PATIENCE = 5_000;

KEYS.push(["Inspector", [
  [["←", "→"], "Previous request, next request; on a tab: the tabs"],
  [["1", "–", "9"], "Findings, messages, composition, request, reply, changes, rules, session, preview"],
  [["J", "K"], "Next message, previous message"], [["/"], "Search in the current tab"], [["T"], "Show or hide the timeline"],
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
  const isEmpty = data && !data.requests.length && !data.unanswered.length;
  const isSought = useMessage(name);
  return html`<div class=${`inspect ${figuresShown.value ? "shows-figures" : ""}`} data-testid="inspector">
    ${error && html`<${InspectorHeader} title=${name} conversation=${name} /><div class="inspect-body"><${LoadError} error=${error}
        reload=${reload} /></div>`}
    ${!data && !error && html`<${InspectorHeader} title=${name} conversation=${name} /><div class="inspect-body"><${Skeleton} lines=${10}
        label="Loading the timeline" /></div>`}
    ${isEmpty && html`<${InspectorHeader} title=${name} conversation=${name} reload=${reload} /><div class="inspect-body">
        <${EmptyState} title="No request yet"><p>No model has answered in this conversation yet. This is what would be sent now:</p><//>
        <${NextRequest} name=${name} /></div>`}
    ${data && !isEmpty && !isSought && html`<${Workbench} name=${name} data=${data} channel=${channel} request=${request} reload=${reload} />`}
    ${data && !isEmpty && isSought && html`<${InspectorHeader} title=${name} conversation=${name} /><div class="inspect-body"><${Skeleton} lines=${10}
        label="Looking for the message" /></div>`}
  </div>`;
}

/**
 * Go to the request with the message that the URL names, for links that know no request. @returns {boolean} true until it
 * is there
 */
function useMessage(name) {
  const { message, q: words } = route.value.query;
  const path = message ? conversationPath(name, "messages", message, "request") : null;
  const { data, error, of } = useLoad(path, (signal) => get(path, {}, { signal }));
  useEffect(() => {
    if (!path || of !== path || (!data && !error)) return;
    const { channel = "", request = 0, line = null } = data ?? {};
    const isReply = Boolean(channel) && line === null;
    navigate(inspectUrl(name, channel, request, isReply ? { tab: "reply" } : { tab: "messages", q: words, line }), { replace: true });
  }, [path, of, data, error]);
  return Boolean(path);
}

/**
 * Return the tab that the URL names. Without one, it is Messages if the URL names a request; otherwise Findings if any of
 * them costs something.
 */
function useTab(hasRequest, findings) {
  const [first, setFirst] = useState(null);
  useEffect(() => {
    if (first === null && (findings.found || findings.error)) setFirst(isCostly(findings.losses) ? "findings" : "messages");
  }, [first, findings.found, findings.error]);
  useEffect(() => {
    const timer = setTimeout(() => setFirst((tab) => tab ?? "messages"), PATIENCE);
    return () => clearTimeout(timer);
  }, []);
  const named = TABS.find((each) => each.name === route.value.query.tab)?.name;
  return named ?? (hasRequest ? "messages" : first ?? "findings");
}

const setTab = (tab) => setQuery({ tab, finding: "", ...(tab === "request" ? {} : { path: "", near: "", mark: "" }) });

/** Return the view of the large timeline, which is hidden at first, and a function that changes and stores it. */
function useTimelineView(agents) {
  const [view, setView] = useState(() => localStorage.getItem(STORED) ?? HIDDEN);
  const views = VIEWS.filter((each) => each.needs !== "agents" || agents.length);
  const change = useCallback((wanted) => setView((before) => {
    const after = typeof wanted === "function" ? wanted(before) : wanted;
    localStorage.setItem(STORED, after);
    return after;
  }), []);
  return { views, view: view === HIDDEN ? null : views.find((each) => each.name === view) ?? VIEWS[0], setView: change };
}

/** Return the last request that can be inspected. */
function lastStored(steps) {
  const found = steps.findLastIndex((step) => step.isStored !== false);
  return found < 0 ? steps.length - 1 : found;
}

function Workbench({ name, data, channel, request, reload }) {
  const channels = useMemo(() => withLetters(data.channels), [data.channels]);
  const all = useMemo(() => mergeSteps(data.requests, data.unanswered), [data.requests, data.unanswered]);
  const only = channels.has(route.value.query.model) ? route.value.query.model : "";
  const findings = useFindings(name, all.length);
  const steps = useMemo(() => withCauses(only ? all.filter((step) => step.channel === only) : all, findings.losses),
    [all, only, findings.losses]);
  const agents = useSubAgents(name, data.source || data.agents, all.length);
  const { views, view, setView } = useTimelineView(agents);
  const tab = useTab(Boolean(channel), findings);
  const isAt = (step) => step.channel === channel && step.request === request;
  const wanted = steps.findIndex(isAt);
  const isMissing = Boolean(channel) && !all.some(isAt);
  const current = wanted >= 0 ? wanted : lastStored(steps);
  const totals = useMemo(() => (only ? summed(steps) : data.totals), [only, steps, data.totals]);
  const marked = useMemo(() => costlyRequests(findings.losses), [findings.losses]);

  /** The current index and tab, also between two renders: key presses can be faster. */
  const at = useRef(current);
  at.current = current;
  const shownTab = useRef(tab);
  shownTab.current = tab;
  const open = useCallback((id, number) => {
    const query = { ...route.value.query, tab: shownTab.current === "messages" ? "" : shownTab.current, line: "", path: "", finding: "" };
    if (query.model !== id) query.model = "";
    navigate(inspectUrl(name, id, number, query), { replace: true });
  }, [name]);
  const choose = useCallback((index) => {
    at.current = Math.max(0, Math.min(steps.length - 1, index));
    open(steps[at.current].channel, steps[at.current].request);
  }, [steps, open]);
  const move = useCallback((by) => choose(at.current + by), [choose]);
  useEffect(() => {
    const onKeyDown = (event) => keyed(event, { move, setView });
    addEventListener("keydown", onKeyDown, true);
    return () => removeEventListener("keydown", onKeyDown, true);
  }, [move]);
  const properties = { name, steps, channels, current, choose, move, agents };

  return html`
    <${InspectorHeader} title=${name} conversation=${name} reload=${reload} second=${html`
        <${RunFigures} totals=${totals} findings=${findings.found ? findings.losses.length : null} showFindings=${() => setTab("findings")} />
        <${MiniTimeline} ...${properties} marked=${marked} />
        <button type="button" class="button quiet timeline-button" aria-expanded=${String(Boolean(view))} aria-controls="timeline-panel"
            onClick=${() => setView(view ? HIDDEN : "chart")} data-testid="timeline-button">Timeline <span aria-hidden="true">${view ? "▴" : "▾"}</span></button>`}>
      <${Source} source=${data.source} parent=${data.parent} />
      ${agents.length > 1 && html`<button type="button" class="button quiet" onClick=${() => setView("agents")}
          data-testid="agents-button">${plural(agents.length - 1, "sub-agent")}</button>`}
      ${channels.size > 1 && html`<label class="channel-filter"><span class="off-screen">Model</span>
        <select class="field" value=${only} onChange=${(event) => setQuery({ model: event.currentTarget.value })} data-testid="channel-filter">
          <option value="" selected=${!only}>All ${channels.size} models</option>
          ${[...channels.values()].filter((each) => each.requests).map((each) => html`<option key=${each.id}
              value=${each.id} selected=${each.id === only}>${each.letter} · ${channelName(each)}</option>`)}
        </select></label>`}
      <${CompareLink} name=${name} />
      <${ShareButton} name=${name} channel=${steps[current].channel} request=${steps[current].request} tab=${tab} />
    <//>
    <div class="inspect-body">
      <section class="overview" aria-label="Timeline" id="timeline-panel" hidden=${!view}>
        ${view && html`<div class="overview-bar"><div class="choice" role="group" aria-label="Timeline view">
            ${views.map((each) => html`<button key=${each.name} type="button" aria-pressed=${String(view === each)}
                onClick=${() => setView(each.name)}>${each.label}</button>`)}
          </div>
          <p class="soft" data-testid="totals-more">${outputText(totals, number)} tokens out · <span
              title=${EPOCH}>${plural(totals.epochs, "cache epoch")}</span></p></div>
          <${view.View} ...${properties} />`}
      </section>
      ${isMissing && html`<p class="banner" role="status">Request ${request} not found. Showing the last one.</p>`}
      <${StepPanel} ...${properties} timeline=${{ isShown: Boolean(view), toggle: () => setView(view ? HIDDEN : "chart") }} showStep=${open} tab=${tab} setTab=${setTab} findings=${findings}
          last=${data.requests[data.requests.length - 1] ?? all[all.length - 1]} />
    </div>`;
}

/** The client whose requests were observed, and the request of the main conversation that a sub-agent belongs to. */
function Source({ source, parent }) {
  if (!source) return null;
  return html`<span class="tag" data-testid="source">${sourceLabel(source)}</span>
    ${parent && html`<a class="button quiet" href=${inspectUrl(parent.conversation, parent.channel, parent.request)}
        data-testid="parent-request" title=${oneLine(parent.conversation, 80)}><${Icon} name="branch" /> Parent request ${parent.request}</a>`}`;
}

/** Sum up the steps of one model. The server has the totals of all. */
function summed(steps) {
  const sum = (field) => steps.reduce((total, step) => total + (step[field] ?? 0), 0);
  const isPriced = steps.some((step) => step.cost != null);
  return {
    requests: steps.length, input: sum("input"), estimated: sum("estimated"), output: sum("output"), cache_read: sum("cache_read"),
    cost: isPriced ? sum("cost") : null, cost_is_lower_bound: steps.some((step) => step.cost_is_lower_bound), epochs: steps.filter((step) => step.why).length,
    failed: steps.filter(isFailed).length,
  };
}

/** Handle keys that no other element handles. */
function keyed(event, { move, setView }) {
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
  else if (key === "t") setView((before) => (before === HIDDEN ? "chart" : HIDDEN));
  else if (/^[1-9]$/.test(key) && TABS[Number(key) - 1]) setTab(TABS[Number(key) - 1].name);
  else if (/^[jk]$/.test(key) && !target.closest?.(".lines")) document.querySelector(".line-button[tabindex='0']")?.focus();
  else return;
  event.preventDefault();
  event.stopPropagation();
}

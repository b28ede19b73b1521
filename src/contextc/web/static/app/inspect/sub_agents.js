/** Sub-agents of a recorded session, or agents that were called as tools, as a tree; beside each is a bar from its first request to the end of its last reply. */
import { html, useMemo } from "../html.js";
import { conversationPath, get } from "../api.js";
import { clock, costText, dateTime, duration, inputText, number, oneLine, plural } from "../format.js";
import { agentState } from "../observed.js";
import { inspectUrl } from "../route.js";
import { useLoad } from "../use_load.js";

const KINDS = { main: "main", agent: "sub-agent", side: "side request" };

/** Load the conversations of a session. The list is empty for a conversation without sub-agents. */
export function useSubAgents(name, source, count) {
  const path = conversationPath(name, "sub-agents");
  const { data } = useLoad(source ? `${path} ${count}` : null, (signal) => get(path, {}, { signal }), { delay: 100 });
  return data && data.agents.length > 1 ? data.agents : NONE;
}

const NONE = [];

/** @param {{agents: object[], name: string}} props `name` is the conversation that is open */
export function SubAgents({ agents, name }) {
  const [from, to] = useMemo(() => {
    const known = agents.flatMap((each) => [each.began, each.ended]).filter((time) => time != null);
    return [Math.min(...known), Math.max(...known)];
  }, [agents]);
  const root = agents[0];
  const scale = { from, length: Math.max(1, to - from) };
  return html`<div class="agents" data-testid="sub-agents">
    <p class="agents-scale soft" aria-hidden="true"><span>${clock(from)}</span><span>${duration(to - from)}</span><span>${clock(to)}</span></p>
    <ul class="agents-tree" aria-label="Sub-agents"><${Agent} agent=${root} agents=${agents} name=${name} scale=${scale} depth=${0} /></ul>
  </div>`;
}

function Agent({ agent, agents, name, scale, depth }) {
  const below = agents.filter((each) => each.parent === agent.name && each !== agent);
  return html`<li>
    <${AgentRow} agent=${agent} isCurrent=${agent.name === name} scale=${scale} depth=${depth} />
    ${below.length > 0 && html`<ul>${below.map((each) => html`<${Agent} key=${each.name} agent=${each} agents=${agents} name=${name}
        scale=${scale} depth=${depth + 1} />`)}</ul>`}
  </li>`;
}

function AgentRow({ agent, isCurrent, scale, depth }) {
  const { began, ended, request } = agent;
  const isTimed = began != null && ended != null;
  const at = isTimed ? { left: `${(100 * (began - scale.from)) / scale.length}%`, width: `max(3px, ${(100 * (ended - began)) / scale.length}%)` } : null;
  const length = isTimed ? duration(ended - began) : "time unknown";
  const place = request && depth ? inspectUrl(request.conversation, request.channel, request.request) : "";
  return html`<div class="agent ${isCurrent ? "is-current" : ""}">
    <span class="agent-name" style=${{ paddingLeft: `${0.4 + depth * 1.1}rem` }}>${depth > 0 && html`<span class="faint" aria-hidden="true">└ </span>`}
      <a href=${inspectUrl(agent.name)} aria-current=${isCurrent ? "page" : undefined} title=${oneLine(agent.name, 80)}>${oneLine(agent.title || agent.name, 60)}</a>
      ${" "}<span class="tag">${KINDS[agent.kind] ?? oneLine(agent.kind, 20)}</span>
      ${agent.state && html` <span class="tag ${agent.state === "error" ? "bad" : ""}" data-testid="agent-state">${agentState(agent.state)}</span>`}</span>
    <span class="agent-figures">${plural(agent.requests, "request")}${agent.failed ? html`, <span class="is-bad">${number(agent.failed)} failed</span>` : ""},
      ${" "}${inputText(agent)} in, ${costText(agent)}, ${length}${place && html`, from <a href=${place}>request ${number(request.request)}</a>`}</span>
    <span class="agent-lane" title=${isTimed ? `${dateTime(began)} – ${dateTime(ended)}` : undefined}>${at && html`<span
        class=${`agent-bar kind-of-${agent.kind}`} style=${at}></span>`}</span>
  </div>`;
}

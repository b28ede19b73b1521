/** The tool calls of one step: one row each, which expands to arguments and result. Many calls are collapsed into one row. */
import { html, useContext } from "../html.js";
import { Code } from "../code_block.js";
import { Icon } from "../icons.js";
import { duration, oneLine, plural, visible } from "../format.js";
import { agentState } from "../observed.js";
import { chatUrl } from "../route.js";
import { CallAnswer } from "./approval_rules.js";
import { Media } from "./media.js";
import { HitContext, positionOf, useHasHit, useOpen } from "./search_hit.js";
import { outcomeOf, outcomeOfResult } from "./tool_outcome.js";

const SHOWN = 8_000;
const MANY = 4;

/** @param {{calls: object[], results: Map<string, object>, tools: Map<string, object>, seq?: number}} props */
export function ToolCalls({ calls, results, tools, seq }) {
  const rows = calls.map((call) => ({ call, ...stateOf(call, results, tools) }));
  const busy = rows.some((row) => row.state === "running" || row.state === "waiting" || row.state === "writing");
  const hasHit = useHasHit(...rows.flatMap(({ call, result }) => [argumentsText(call), resultText(result)]));
  const [open, setOpen] = useOpen(hasHit || null);
  const failed = rows.filter((row) => row.state === "error").length;
  const denied = rows.filter((row) => row.state === "denied").length;
  const waits = rows.some((row) => row.state === "waiting");
  const lines = () => rows.map((row) => html`<${Call} key=${row.call.id} seq=${seq} ...${row} />`);
  if (calls.length <= MANY) return html`<div class="calls" role="group" aria-label="Tool calls">${lines()}</div>`;
  const isOpen = open ?? busy;
  const names = [...new Set(calls.map((call) => visible(call.name)))].join(", ");
  return html`
    <div class="calls" role="group" aria-label="Tool calls">
      <button type="button" class="call-line group" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
        <${State} state=${waits ? "waiting" : busy ? "running" : failed ? "error" : denied ? "denied" : "done"} />
        <span class="call-name">${plural(calls.length, "call")}</span>
        <span class="call-arguments">${oneLine(names, 90)}</span>
        ${waits && html`<span class="tag new">needs approval</span>`}
        ${denied > 0 && html`<span class="tag">${denied} denied</span>`}
        ${failed > 0 && html`<span class="tag bad">${failed} failed</span>`}
        <${Icon} name="chevron" size=${14} />
      </button>
      ${isOpen && lines()}
    </div>`;
}

/** Return the state of a call: from its stored result, else from events. */
function stateOf(call, results, tools) {
  const result = results.get(call.id);
  const known = tools.get(call.id);
  const took = known?.milliseconds;
  const agent = known?.agent;
  if (result) return { result, ...outcomeOfResult(result), took, agent };
  if (known?.state === "error") return { known, ...outcomeOf(known.text ?? "", true), took, agent };
  if (known) return { known, state: agent?.state === "waiting" ? "waiting" : known.state, took, agent };
  return { state: call.partial ? "writing" : "open" };
}

const STATE_NAMES = { done: "ok", error: "failed", denied: "denied", skipped: "not run", running: "running", waiting: "needs approval", answered: "answered, not run yet", writing: "writing", open: "no result" };

function State({ state }) {
  if (state === "running" || state === "writing") return html`<span class="spinner" aria-hidden="true"></span>`;
  const icon = { done: "check", error: "warning", denied: "denied", skipped: "denied", waiting: "clock", answered: "clock" }[state] ?? "tool";
  return html`<span class="call-state ${state}"><${Icon} name=${icon} size=${14} /></span>`;
}

function Call({ call, seq, result, known, state, reason, took, agent }) {
  const [open, setOpen] = useOpen(useHasHit(argumentsText(call), resultText(result)));
  const argumentLimit = useLimit(argumentsText(call));
  const written = call.raw ?? "";
  const plain = state === "writing" ? written : brief(call);
  return html`
    <div class="call ${state}" data-testid="tool-call">
      <button type="button" class="call-line" aria-expanded=${open} onClick=${() => setOpen(!open)}>
        <${State} state=${state} />
        <span class="call-name">${visible(call.name) || "…"}</span>
        <span class="call-arguments">${oneLine(plain, 140)}</span>
        <span class="call-end">
          ${Number.isFinite(took) && html`<span>${duration(took)}</span>`}
          <span class=${state === "error" ? "bad-text" : ""} data-testid="call-state">${STATE_NAMES[state]}</span>
        </span>
        <${Icon} name="chevron" size=${14} />
      </button>
      ${agent && html`<p class="call-progress"><a href=${chatUrl(agent.conversation)} data-testid="called-agent"
          title=${oneLine(agent.conversation, 200)}>${oneLine(agent.agent, 60)}</a> · ${agentState(result && agent.state === "running" ? "stop" : agent.state)}</p>`}
      ${known?.progress && state === "running" && html`<p class="call-progress">${oneLine(known.progress, 200)}</p>`}
      ${reason && html`<p class="call-progress" dir="auto" data-testid="call-reason">${state === "denied" ? "Denied: " : "Not run: "}${oneLine(reason, 300)}</p>`}
      ${open && html`
        <div class="call-body">
          <${Code} title="Arguments" language="json" text=${argumentsText(call)} limit=${argumentLimit} />
          ${call.malformed && html`<p class="faint">These arguments are not a JSON object. They are shown as the model wrote them.</p>`}
          <${CallAnswer} seq=${seq} call=${call.id} />
          <${ToolResult} result=${result} known=${known} state=${state} />
        </div>`}
    </div>`;
}

/** Return the text of a stored result, without media; "" if there is none. */
export function resultText(result) {
  if (!Array.isArray(result?.content)) return result?.content ?? "";
  return result.content.map((part) => part.text ?? "").join("\n");
}

/** Return the number of characters to show at first; 0 (all) if a search hit is behind them. */
function useLimit(text) {
  const at = positionOf(useContext(HitContext), text);
  return at > SHOWN / 2 ? 0 : SHOWN;
}

export function ToolResult({ result, known, state }) {
  const limit = useLimit(resultText(result));
  if (!result && !known?.text) return null;
  const title = state === "denied" || state === "skipped" ? "Sent to the model" : result?.is_error ? "Error" : "Result";
  if (!result) return html`<${Code} title="Start of the result" text=${known.text} limit=${SHOWN} />`;
  const block = (text) => html`<${Code} title=${title} ...${withLanguage(text)} limit=${limit} />`;
  if (!Array.isArray(result.content)) return block(result.content ?? "");
  return result.content.map((part) => (part.type === "media" ? html`<${Media} part=${part} />` : block(part.text)));
}

/** Return the text and, if it is recognizable, the language of a result. */
function withLanguage(text) {
  const start = text.slice(0, 200).trimStart();
  if (/^[[{]/.test(start) && /[\]}]\s*$/.test(text.slice(-20))) return { text, language: "json" };
  if (/^(?:diff |--- |@@ )/m.test(start)) return { text, language: "diff" };
  return { text };
}

function argumentsText(call) {
  if (call.malformed || call.partial) return call.raw ?? "";
  return JSON.stringify(call.arguments ?? {}, null, 2);
}

/** Return the arguments in one line: a single argument without its name, several with their names. */
function brief(call) {
  if (call.malformed) return call.raw ?? "";
  const given = Object.entries(call.arguments ?? {});
  const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  if (given.length === 1) return shown(given[0][1]);
  return given.map(([name, value]) => `${name}: ${shown(value)}`).join(", ");
}

/** Rows after the last message: progress of the turn, queued input, and how to continue after an early end. */
import { html, useEffect, useState } from "../html.js";
import { attempt } from "../dialog.js";
import { Icon, IconButton } from "../icons.js";
import { costText, duration, oneLine, plural, tokens, visible } from "../format.js";
import { turnEndText } from "./notices.js";

/** Progress of a running turn that has produced no reply yet. */
export function Working({ state }) {
  const { running, tools, steps } = state;
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((each) => each + 1), 1_000);
    return () => clearInterval(timer);
  }, []);
  const step = steps.get(`${running.turn}.${running.step}`);
  const busy = [...tools.values()].filter((each) => each.state === "running");
  const names = [...new Set(busy.map((each) => visible(each.name)))].slice(0, 3).join(", ");
  const what = names ? `Running ${names}` : step ? "Waiting for the model" : "Preparing";
  const since = Math.max(0, Date.now() - running.started);
  return html`
    <div class="column working" data-testid="working">
      <span class="spinner" aria-hidden="true"></span><span>${what}</span>
      <span class="faint">${since > 1_500 ? duration(Math.floor(since / 1_000) * 1_000) : ""}</span>
    </div>`;
}

export function Queued({ queued, client }) {
  const withdraw = () => attempt(() => client.withdraw(queued.number));
  return html`
    <div class="column queued" data-testid="queued">
      <div class="user waiting">
        <p class="author"><${Icon} name="clock" size=${13} /> Queued for the next ${queued.kind === "steer" ? "step" : "turn"}
          <${IconButton} class="small" icon="close" size=${12} label="Remove" onClick=${withdraw} /></p>
        <div class="typed" dir="auto">${queued.text}</div>
      </div>
    </div>`;
}

/** Label of the button, by the role of the last message. An unfinished answer is not continued but generated again. */
const ACTIONS = { user: "Retry", assistant: "Regenerate" };

/** How the last turn ended, if not normally, and a button to continue. */
export function Ending({ state, client, model }) {
  const { messages, length, ended, running } = state;
  const [busy, setBusy] = useState(false);
  const last = messages.get(length);
  if (running || !last) return null;
  const { parked } = state.view;
  if (parked?.length) return parked.map((each) => html`<${Parked} key=${each.agent} parked=${each} client=${client} />`);
  const open = last.role !== "assistant" || last.status === "error" || last.status === "cancelled";
  const end = turnEndText(ended?.finish);
  const isPaused = !ended && !state.view.observed && !state.approvals.length && last.parts?.some((part) => part.type === "tool_call");
  if (!open && !end && isPaused) {
    return html`<div class="column ending" data-testid="ending">No result yet: the turn continues when its program resumes it.</div>`;
  }
  if (!open && !end) return html`<${Sum} ended=${ended} />`;
  const resume = async () => {
    setBusy(true);
    await attempt(() => client.resumeTurn(model));
    setBusy(false);
  };
  const isShown = ended?.finish === "error" || ["cancelled", "error"].includes(last.status);
  const isOfFile = Boolean(state.view.observed?.imported) && !ended;
  const unanswered = isOfFile ? "The answer was not recorded." : ["user", "system"].includes(last.role) ? "Not answered yet." : "The turn ended before an answer was complete.";
  const why = isShown ? "" : ended?.finish === "cancelled" ? "You stopped the turn before there was an answer." : end || unanswered;
  return html`
    <div class="column ending" data-testid="ending">
      ${why && html`<span>${why}</span>`}
      ${open && html`
        <button type="button" class="button" disabled=${busy} onClick=${resume}>
          <${Icon} name="retry" size=${14} /> ${ACTIONS[last.role] ?? "Continue"}
        </button>`}
    </div>`;
}

/** A turn that workers gave up on: why, and what can be done. */
export function Parked({ parked, client }) {
  const [busy, setBusy] = useState(false);
  const act = async (action) => {
    setBusy(true);
    await attempt(() => client.endParking(parked.agent, action));
    setBusy(false);
  };
  return html`
    <div class="column ending" data-testid="parked-turn">
      <span><strong>Parked:</strong> ${visible(parked.reason)}</span>
      <button type="button" class="button" disabled=${busy} onClick=${() => act("resume")}><${Icon} name="retry" size=${14} /> Resume</button>
      <button type="button" class="button" disabled=${busy} onClick=${() => act("cancel")}>Cancel</button>
    </div>`;
}

/** Totals of a turn with more than one step. */
function Sum({ ended }) {
  if (!ended || !(ended.steps > 1)) return null;
  const { steps, tool_calls: calls = 0, usage, cost } = ended;
  const spent = (usage?.input ?? 0) + (usage?.output ?? 0);
  const figures = [plural(steps, "step"), calls && plural(calls, "tool call"), spent && `${tokens(spent)} tokens`, cost && costText(ended)];
  return html`<div class="column ending sums">${oneLine(figures.filter(Boolean).join(" · "), 200)}</div>`;
}

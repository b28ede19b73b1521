/** What stands behind the last message: that it works, what waits, and how to go on where a turn has ended early. */
import { html, useEffect, useState } from "../html.js";
import { attempt } from "../dialog.js";
import { Icon, IconButton } from "../icons.js";
import { dollars, duration, oneLine, plural, tokens, visible } from "../format.js";
import { endOf } from "./notices.js";

/** A turn runs, and nothing of its reply is here yet. */
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

export function Queued({ queued, session }) {
  const withdraw = () => attempt(() => session.withdraw(queued.number));
  return html`
    <div class="column queued" data-testid="queued">
      <div class="user waiting">
        <p class="author"><${Icon} name="clock" size=${13} /> Waits for the next ${queued.kind === "steer" ? "step" : "turn"}
          <${IconButton} class="small" icon="close" size=${12} label="Take it back" onClick=${withdraw} /></p>
        <div class="typed" dir="auto">${queued.text}</div>
      </div>
    </div>`;
}

/** What a press does, by what was said last: what a model has not finished is not gone on with but asked for anew. */
const DEEDS = { user: "Get an answer", assistant: "Ask again" };

/** How the last turn has ended, if that is worth a word, and a way on. */
export function Ending({ state, session, model }) {
  const { messages, length, ended, running } = state;
  const [busy, setBusy] = useState(false);
  const last = messages.get(length);
  if (running || !last) return null;
  const open = last.role !== "assistant" || last.status === "error" || last.status === "cancelled";
  const words = endOf(ended?.finish);
  if (!open && !words) return html`<${Sum} ended=${ended} />`;
  const goOn = async () => {
    setBusy(true);
    await attempt(() => session.goOn(model));
    setBusy(false);
  };
  const isTold = ended?.finish === "error" || ["cancelled", "error"].includes(last.status);
  const unanswered = ["user", "system"].includes(last.role) ? "Not answered yet." : "The turn ended before there was an answer.";
  const why = isTold ? "" : ended?.finish === "cancelled" ? "You stopped it before there was an answer." : words || unanswered;
  return html`
    <div class="column ending" data-testid="ending">
      ${why && html`<span>${why}</span>`}
      ${open && html`
        <button type="button" class="button" disabled=${busy} onClick=${goOn}>
          <${Icon} name="retry" size=${14} /> ${DEEDS[last.role] ?? "Go on"}
        </button>`}
    </div>`;
}

/** What a turn took, where it was more than one step. */
function Sum({ ended }) {
  if (!ended || !(ended.steps > 1)) return null;
  const { steps, tool_calls: calls = 0, usage, cost } = ended;
  const spent = (usage?.input ?? 0) + (usage?.output ?? 0);
  const figures = [plural(steps, "step"), calls && plural(calls, "tool call"), spent && `${tokens(spent)} tokens`, cost && dollars(cost)];
  return html`<div class="column ending sums">${oneLine(figures.filter(Boolean).join(" · "), 200)}</div>`;
}

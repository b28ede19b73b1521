/** A conversation: its head, its messages from the end backwards, and the field to write in. */
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { attempt, say } from "../dialog.js";
import { Icon } from "../icons.js";
import { isCovered } from "../keys.js";
import { oneLine, visible } from "../format.js";
import { inspectAddress } from "../route.js";
import { info } from "../state.js";
import { opened } from "../tab.js";
import { Composer } from "./composer.js";
import { Gauge } from "./gauge.js";
import { DrawerButton, Head } from "./head.js";
import { Messages } from "./messages.js";
import { isKnown, ModelPicker } from "./models.js";
import { Placeholder } from "./row.js";
import { Session } from "./session.js";

const NEAR = 12;

/** @param {{name: string, message?: number}} props `message` is the one to begin at; 0 is the end */
export function Chat({ name, message = 0 }) {
  const session = useMemo(() => new Session(name), [name]);
  useEffect(() => {
    session.open();
    return () => {
      session.close();
      opened.value = null;
    };
  }, [session]);
  const status = session.status.value;
  if (status === "loading") return html`<${Opening} name=${name} />`;
  if (status !== "ready") return html`<${Failed} name=${name} error=${status} />`;
  return html`<${Conversation} session=${session} message=${message} />`;
}

function Opening({ name }) {
  return html`
    <header class="view-head"><${DrawerButton} /><h1 class="faint">${oneLine(name, 60)}</h1></header>
    <div class="opening" role="status" aria-label="Loading the conversation">
      ${[1, 2, 3].map((each) => html`<${Placeholder} key=${each} />`)}
    </div>`;
}

function Failed({ name, error }) {
  const missing = error.status === 404;
  return html`
    <header class="view-head"><${DrawerButton} /><h1>${oneLine(name, 60)}</h1></header>
    <div class="empty" role="alert">
      <h2>${missing ? "There is no such conversation" : "It could not be opened"}</h2>
      <p>${missing ? "It may have been deleted, or have another name: those there are stand at the side." : visible(error.message)}</p>
      <p>
        <a class="button" href="#/">Begin another one</a>
        ${!missing && html` <button type="button" class="button" onClick=${() => location.reload()}>Try again</button>`}
      </p>
    </div>`;
}

function Conversation({ session, message }) {
  const state = session.state.value;
  const [picked, setPicked] = useState("");
  const [atEnd, setAtEnd] = useState(true);
  const list = useRef(null);
  const model = picked || state.view.model || info.value?.model || "";
  const asked = picked && picked !== state.view.model ? picked : undefined;
  const title = state.view.title || session.name;
  const running = Boolean(state.running);
  const whom = isKnown(model) ? model : "";
  useEffect(() => {
    if (!message || message > session.state.value.length) return;
    session.need(message - 1, message + 1);
    list.current?.scrollTo(message - 1, "center");
  }, [session, message]);
  useEffect(() => session.weigh(whom), [session, whom, state.view, running]);
  const pick = (spec) => {
    setPicked(spec);
    session.dispatch({ type: "weighing" });
  };
  useEffect(() => {
    opened.value = { title: oneLine(title, 60), running };
  }, [title, running]);
  const send = async (input) => {
    list.current?.toEnd();
    await session.send(input, asked);
  };
  const stop = () => attempt(async () => {
    const { cancelled } = await session.cancel();
    if (!cancelled) say("No turn was running.");
  });
  useEffect(() => {
    if (!running) return undefined;
    const onKey = (event) => {
      if (event.key !== "Escape" || event.defaultPrevented || event.isComposing || isCovered()) return;
      event.preventDefault();
      stop();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [session, running]);
  const editLast = () => [...document.querySelectorAll(".row.from-user .edit-button:not(:disabled)")].at(-1)?.click();
  return html`
    <${Head} session=${session} state=${state} title=${title} model=${asked} />
    <${Messages} session=${session} state=${state} list=${list} onEnd=${setAtEnd} model=${asked} />
    <${Spoken} state=${state} />
    <div class="dock">
      ${!atEnd && html`
        <button type="button" class="to-end" aria-label="To the end" onClick=${() => list.current.toEnd()}>
          <${Icon} name="down" />
        </button>`}
      ${session.line.value === "gone" && html`<p class="dock-note" role="status">This conversation is gone: it was deleted elsewhere.</p>`}
      ${session.line.value === "waiting" && state.running && html`<p class="dock-note" role="status">Connecting again…</p>`}
      <${Composer} name=${session.name} running=${running} onSend=${send} onSteer=${(text) => session.steer(text)}
        onFollowUp=${(text) => session.followUp(text)} onStop=${stop} onEditLast=${editLast}>
        <${ModelPicker} value=${model} onChange=${pick} />
        <${Gauge} gauge=${state.gauge} usage=${state.gauge?.usage ?? lastUsage(state)} model=${model}
          href=${lastStep(session, state)} />
      <//>
    </div>`;
}

function lastUsage({ length, messages }) {
  for (let seq = length; seq > length - NEAR && seq > 0; seq -= 1) {
    if (messages.get(seq)?.usage) return messages.get(seq).usage;
  }
  return null;
}

/** Where the last request of this line is looked at; else whatever was asked last, or what would be. */
function lastStep(session, { uids }) {
  const requests = session.timeline.value?.requests ?? [];
  const last = requests.findLast((each) => each.uids.some((uid) => uids.has(uid))) ?? requests.at(-1);
  return last ? inspectAddress(session.name, last.channel, last.request) : inspectAddress(session.name);
}

/** Tells a screen reader what was answered, once it is whole, and that somebody is asked. */
function Spoken({ state }) {
  const waits = state.approvals[0];
  const [said, setSaid] = useState("");
  const before = useRef(state.length);
  const last = state.messages.get(state.length);
  useEffect(() => {
    if (last && state.length > before.current && last.role === "assistant") {
      const text = last.parts.filter((part) => part.type === "text").map((part) => part.text).join(" ");
      if (text) setSaid(`Assistant: ${oneLine(text, 600)}`);
    }
    if (last) before.current = state.length;
  }, [last]);
  const words = waits ? `Your approval is wanted: ${oneLine(waits.what || waits.name, 200)}` : said;
  return html`<div class="off-screen" aria-live="polite" data-testid="spoken">${words}</div>`;
}

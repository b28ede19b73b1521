/** The chat view: header, messages and composer of one conversation. */
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { attempt, notify } from "../dialog.js";
import { Icon } from "../icons.js";
import { isOverlayOpen } from "../shortcuts.js";
import { oneLine, titleLine, visible } from "../format.js";
import { inspectUrl, openedFile } from "../route.js";
import { info, updateConversation } from "../state.js";
import { openConversation } from "../browser_tab.js";
import { Composer } from "./composer.js";
import { ContextMeter } from "./context_meter.js";
import { takeBack } from "./home.js";
import { DrawerButton, ConversationHeader } from "./conversation_header.js";
import { MessageList } from "./message_list.js";
import { isKnownProvider, ModelNote, ModelPicker, usableModel } from "./model_picker.js";
import { Placeholder } from "./message_row.js";
import { compactionText } from "./notices.js";
import { ConversationClient } from "./conversation_client.js";
import { clearHits, createHit } from "./search_hit.js";
import { isWaiting } from "./conversation_state.js";

const NEAR = 12;

/**
 * @param {{name: string, message?: number, text?: string}} props `message` is where to start; 0 is the end. `text` is marked
 *   in that message.
 */
export function Chat({ name, message = 0, text = "" }) {
  const client = useMemo(() => new ConversationClient(name), [name]);
  useLayoutEffect(() => {  // because other effects end a frame after their view: the stream would reconnect meanwhile
    client.open();
    return () => {
      client.close();
      openConversation.value = null;
    };
  }, [client]);
  const status = client.status.value;
  if (status === "loading") return html`<${Opening} name=${name} />`;
  if (status !== "ready") return html`<${Failed} name=${name} error=${status} />`;
  return html`<${Conversation} client=${client} message=${message} text=${text} />`;
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
      <h2>${missing ? "Conversation not found" : "Could not open the conversation"}</h2>
      <p>${missing ? "It may have been deleted or renamed. Choose another one in the sidebar." : visible(error.message)}</p>
      <p>
        <a class="button" href="#/">New conversation</a>
        ${!missing && html` <button type="button" class="button" onClick=${() => location.reload()}>Retry</button>`}
      </p>
    </div>`;
}

function Conversation({ client, message, text }) {
  const state = client.state.value;
  const [picked, setPicked] = useState("");
  const [atEnd, setAtEnd] = useState(true);
  const list = useRef(null);
  const model = picked || usableModel(state.view.model) || info.value?.model || "";
  const asked = picked && picked !== state.view.model ? picked : undefined;
  const title = titleLine(state.view, 60);
  const running = Boolean(state.running);
  const waits = isWaiting(state);
  const known = isKnownProvider(model) ? model : "";
  useEffect(() => {
    if (!message || message > client.state.value.length) return;
    client.need(message - 1, message + 1);
    list.current?.scrollTo(message - 1, "center");
  }, [client, message]);
  const hit = useMemo(() => createHit(message, text), [client, message, text]);
  useEffect(() => clearHits, [hit]);
  useEffect(() => client.estimate(known), [client, known, state.view, running]);
  const pick = (spec) => {
    setPicked(spec);
    client.dispatch({ type: "estimating" });
  };
  useEffect(() => {
    openConversation.value = { name: client.name, title, running, waits };
    updateConversation(client.name, { needs_approval: waits || undefined });
  }, [title, running, waits]);
  const isAnswered = [...state.messages.values()].some((each) => each.role === "assistant");
  useEffect(() => {
    takeBack(client, state.notices, isAnswered);
  }, [client, state.notices, isAnswered]);
  const send = async (input) => {
    list.current?.toEnd();
    await client.send(input, asked);
  };
  const stop = () => attempt(async () => {
    const { cancelled } = await client.cancel();
    if (!cancelled) notify("No turn is running.");
  });
  useEffect(() => {
    if (!running) return undefined;
    const onKey = (event) => {
      if (event.key !== "Escape" || event.defaultPrevented || event.isComposing || isOverlayOpen()) return;
      event.preventDefault();
      stop();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [client, running]);
  const editLast = () => [...document.querySelectorAll(".row.from-user .edit-button:not(:disabled)")].at(-1)?.click();
  return html`
    <${ConversationHeader} client=${client} state=${state} model=${asked} onCompacted=${() => list.current?.toEnd()} />
    <${MessageList} client=${client} state=${state} list=${list} onEnd=${setAtEnd} model=${asked} hit=${hit} />
    <${Announcer} state=${state} />
    <div class="dock">
      ${!atEnd && html`
        <button type="button" class="to-end" aria-label="Go to the end" onClick=${() => list.current.toEnd()}>
          <${Icon} name="down" />
        </button>`}
      ${client.connection.value === "gone" && html`<p class="dock-note" role="status">This conversation was deleted elsewhere.</p>`}
      ${client.connection.value === "waiting" && state.running && html`<p class="dock-note" role="status">Reconnecting…</p>`}
      ${openedFile ? html`<p class="dock-note">This conversation is from an opened file. Import it to continue it.</p>` : html`<${ModelNote} spec=${model} />
      <${Composer} name=${client.name} running=${running} model=${model} onSend=${send} onSteer=${(text) => client.steer(text)}
        onFollowUp=${(text) => client.followUp(text)} onStop=${stop} onEditLast=${editLast}>
        <${ModelPicker} value=${model} onChange=${pick} />
        <${ContextMeter} gauge=${state.gauge} usage=${state.gauge?.usage ?? lastUsage(state)} model=${model}
          href=${lastRequestUrl(client, state)} />
      <//>`}
    </div>`;
}

function lastUsage({ length, messages }) {
  for (let seq = length; seq > length - NEAR && seq > 0; seq -= 1) {
    if (messages.get(seq)?.usage) return messages.get(seq).usage;
  }
  return null;
}

/** Return the inspector URL of the last request of this branch, else of the last request of all. */
function lastRequestUrl(client, { uids }) {
  const requests = client.timeline.value?.requests ?? [];
  const last = requests.findLast((each) => each.uids.some((uid) => uids.has(uid))) ?? requests.at(-1);
  return last ? inspectUrl(client.name, last.channel, last.request) : inspectUrl(client.name);
}

/** Announce complete answers, compactions and pending approvals to screen readers. */
function Announcer({ state }) {
  const waits = state.approvals[0];
  const [answer, setAnswer] = useState("");
  const before = useRef(state.length);
  const last = state.messages.get(state.length);
  useEffect(() => {
    if (last && state.length > before.current && last.role === "assistant") {
      const text = last.parts.filter((part) => part.type === "text").map((part) => part.text).join(" ");
      if (text) setAnswer(`Assistant: ${oneLine(text, 600)}`);
    }
    if (last) before.current = state.length;
  }, [last]);
  const notice = state.notices.at(-1);
  const noticed = useRef(state.last);
  useEffect(() => {
    if (notice?.kind === "compaction" && notice.number > noticed.current) setAnswer(compactionText(notice));
    if (notice) noticed.current = Math.max(noticed.current, notice.number);
  }, [notice]);
  const needed = waits && oneLine(waits.what || waits.name, 200);
  const text = waits ? (waits.question ? needed : `Approval needed: ${needed}`) : answer;
  return html`<div class="off-screen" aria-live="polite" data-testid="spoken">${text}</div>`;
}

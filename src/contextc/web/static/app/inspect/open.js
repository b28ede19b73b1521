/**
 * A file or a pasted request of anybody's making: recognised, counted, held against the rules, repaired, converted. It goes
 * to the server on this machine to be read, and nowhere else; nothing is stored.
 */
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { post } from "../api.js";
import { bytes, number, oneLine, plural } from "../format.js";
import { info } from "../state.js";
import { Budget } from "./budget.js";
import { Findings } from "./findings.js";
import { Head } from "./head.js";
import { JsonView } from "./json.js";
import { LineList, having } from "./lines.js";
import { Convert, Repair } from "./remake.js";
import { Problem, Skeleton } from "./states.js";
import { Tabs } from "./tabs.js";
import { TakeButton } from "./take.js";

const LARGE = 100_000;
const KINDS = { request: "a request", messages: "a list of messages", transcript: "a transcript" };

export function OpenFile() {
  const [given, setGiven] = useState(null);
  const [state, setState] = useState({ data: null, error: null, busy: false });
  const open = async (name, text, more = {}) => {
    setGiven({ name, text });
    setState((before) => ({ data: more.request || more.model ? before.data : null, error: null, busy: true }));
    try {
      setState({ data: await post("open", { name, text, ...more }), error: null, busy: false });
    } catch (error) {
      setState({ data: null, error, busy: false });
    }
  };
  return html`<div class="inspect open-file" data-testid="open-file">
    <${Head} title="Open a file or a request">
      ${given && html`<button type="button" class="button"
          onClick=${() => { setGiven(null); setState({ data: null, error: null, busy: false }); }}>Another one</button>`}
    <//>
    <div class="inspect-body">
      ${!given && html`<${Taking} open=${open} before="" />`}
      ${state.busy && !state.data && html`<${Skeleton} lines=${8} label="Reading" />`}
      ${state.error && html`<${Problem} error=${state.error} />
        <${Taking} open=${open} before=${given.text.length < LARGE ? given.text : ""} />`}
      ${state.data && html`<${Opened} given=${given} data=${state.data}
          again=${(more) => open(given.name, given.text, more)} />`}
    </div>
  </div>`;
}

/** A place to drop a file on, a picker, and a field to paste into. */
function Taking({ open, before }) {
  const [text, setText] = useState(before);
  const [isOver, setIsOver] = useState(false);
  const picker = useRef(null);
  const take = async (file) => file && open(file.name, await file.text());
  useEffect(() => {
    const refuse = (event) => event.preventDefault();
    addEventListener("dragover", refuse);
    addEventListener("drop", refuse);
    return () => {
      removeEventListener("dragover", refuse);
      removeEventListener("drop", refuse);
    };
  }, []);
  return html`<div class="taking">
    <p class="local-note"><span class="tag good">stays here</span> It is read by the server on this machine. Nothing leaves it, and nothing is stored.</p>
    <div class=${`drop ${isOver ? "is-over" : ""}`} data-testid="drop"
        onDragOver=${(event) => { event.preventDefault(); setIsOver(true); }}
      onDragLeave=${() => setIsOver(false)}
          onDrop=${(event) => { event.preventDefault(); setIsOver(false); take(event.dataTransfer.files[0]); }}>
      <p><b>Drop a file here</b></p>
      <p class="soft">a request body, a list of messages, JSON Lines, a HAR recording, a curl command, a transcript of
        Claude Code or Codex, a Vercel chat</p>
      <button type="button" class="button" onClick=${() => picker.current.click()}>Choose a file</button>
      <input type="file" class="off-screen" ref=${picker} tabindex="-1" aria-label="File to open"
          onChange=${(event) => take(event.currentTarget.files[0])} />
    </div>
    <form class="paste" onSubmit=${(event) => { event.preventDefault(); if (text.trim()) open("", text); }}>
      <label for="paste-field">or paste it</label>
      <textarea id="paste-field" class="field" rows="10" spellcheck="false" value=${text}
          onInput=${(event) => setText(event.currentTarget.value)}
        placeholder=${'{"model": "…", "messages": [{"role": "user", "content": "…"}]}'}></textarea>
      <button type="submit" class="button primary" disabled=${!text.trim()}>Open</button>
    </form>
  </div>`;
}

/** @param {{given: object, data: object, again: (more: {request?: number, model?: string}) => void}} props */
function Opened({ given, data, again }) {
  const [tab, setTab] = useState("messages");
  const [goTo, setGoTo] = useState(null);
  const lines = data.lines.map((line, index) => ({ ...line, index }));
  const shown = lines.filter((line) => line.shown).length;
  const body = useMemo(() => asGiven(given.text, data.body), [given, data]);
  const show = (path) => {
    setGoTo({ path });
    setTab("body");
  };
  const tabs = [
    { name: "messages", label: "Messages", note: number(lines.length) }, { name: "body", label: "As JSON" },
    { name: "lint", label: "Rules", note: data.judged ? (data.violations.length ? `${data.violations.length}` : "✓") : "" },
    ...(data.judged ? [{ name: "fix", label: "Repair" }, { name: "convert", label: "Convert" }] : []),
  ];
  return html`
    <section class="opened-head" aria-label="What it is" data-testid="opened">
      <p>${given.name && html`<b>${oneLine(given.name, 80)}</b>, `}${bytes(given.text.length)}: <b>${KINDS[data.kind] ?? data.kind}</b>
        ${" in the format of "}<span class="tag accent">${data.format}</span>
        ${data.model && html` for <span class="tag">${oneLine(data.model, 60)}</span>`}, ${plural(data.tokens, "token")}.</p>
      ${data.requests.length > 1 && html`<${Chooser} data=${data} again=${again} />`}
      ${data.budget && html`<${Budget} budget=${data.budget} isAlone=${true} />`}
      ${data.notes.length > 0 && html`<ul class="repaired">${data.notes.map((each, index) => html`<li
          key=${index}>${oneLine(each, 300)}</li>`)}</ul>`}
      ${!data.budget?.window && html`<${Whose} data=${data} again=${again} />`}
    </section>
    <${Tabs} tabs=${tabs} current=${tab} choose=${setTab} label="Of what was opened">
      ${tab === "messages" && html`<${LineList} key=${data.chosen} identity=${`opened ${data.chosen}`} isAlone=${true}
          counts=${{ lines: lines.length, shown, left: lines.length - shown }}
          ask=${(filter) => async (after, limit) => chosen(lines, filter).slice(after, after + limit)}
          find=${async (filter, words) => having(chosen(lines, filter), words)} />`}
      ${tab === "body" && html`<div class="panel"><${JsonView} text=${body} label="What was opened, as JSON"
          goTo=${goTo}><${TakeButton} get=${() => body}>Copy JSON<//><//></div>`}
      ${tab === "lint" && html`<div class="panel scrolls">${data.judged
        ? html`<${Findings} format=${data.format} violations=${data.violations} show=${show} />`
        : html`<p class="panel-note" data-testid="not-judged">These are messages in the form in which contextc keeps them. No
            provider takes them so, and no rule was asked about them.</p>`}</div>`}
      ${tab === "fix" && html`<${Repair} key=${data.chosen} data=${data} name=${given.name} />`}
      ${tab === "convert" && html`<${Convert} key=${data.chosen} data=${data} name=${given.name} />`}
    <//>`;
}

/** Which of the requests in a log or a recording. */
function Chooser({ data, again }) {
  return html`<label class="inline-label request-choice"><span>Request</span>
    <select class="field" value=${data.chosen} data-testid="request-choice"
        onChange=${(event) => again({ request: Number(event.currentTarget.value) })}>
      ${data.requests.map((each) => html`<option key=${each.number} value=${each.number}
          selected=${each.number === data.chosen}>${listed(each, data.requests.length)}</option>`)}
    </select></label>`;
}

function listed({ number: which, address, model, messages, failed }, total) {
  const place = address.replace(/^https?:\/\//, "");
  const facts = [`${which} of ${total}`, model, plural(messages, "message"), place, failed ? "refused" : ""];
  return oneLine(facts.filter(Boolean).join(" · "), 160);
}

/** Whose window it is to be held against, where it does not say so, or says what nobody knows. */
function Whose({ data, again }) {
  const [model, setModel] = useState("");
  if (data.model) return html`<p class="soft">Nothing is known of this model, so neither is its window.</p>`;
  const known = [...new Set((info.value?.providers ?? []).flatMap((each) => each.models))].sort();
  const ask = (event) => {
    event.preventDefault();
    if (model.trim()) again({ model: model.trim(), ...(data.chosen ? { request: data.chosen } : {}) });
  };
  return html`<form class="whose" onSubmit=${ask}>
    <label class="inline-label"><span>It names no model. Hold it against the window of</span>
      <input class="field" list="whose-models" value=${model} placeholder="a model" data-testid="whose-model"
          onInput=${(event) => setModel(event.currentTarget.value)} /></label>
    <datalist id="whose-models">${known.map((each) => html`<option key=${each} value=${each} />`)}</datalist>
    <button type="submit" class="button" disabled=${!model.trim()}>Show</button>
  </form>`;
}

const chosen = (lines, filter) => lines.filter((line) => filter === "all" || line.shown === (filter === "in"));

/** The text itself where it is what was found, because reading and writing it again would respell its numbers. */
function asGiven(text, body) {
  const found = JSON.stringify(body);
  try {
    return JSON.stringify(JSON.parse(text)) === found ? text : found;
  } catch {
    return found;
  }
}

/**
 * A file or a pasted request of anybody's making: recognised, counted, held against the rules, repaired, converted. It goes
 * to the server on this machine to be read, and nowhere else; nothing is stored.
 */
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { post } from "../api.js";
import { bytes, number, oneLine, plural } from "../format.js";
import { Budget } from "./budget.js";
import { Findings } from "./findings.js";
import { Head } from "./head.js";
import { JsonView } from "./json.js";
import { LineList } from "./lines.js";
import { Convert, Repair } from "./remake.js";
import { Problem, Skeleton } from "./states.js";
import { Tabs } from "./tabs.js";
import { TakeButton } from "./take.js";

const LARGE = 100_000;
const KINDS = { request: "a request", messages: "a list of messages", transcript: "a transcript" };

export function OpenFile() {
  const [given, setGiven] = useState(null);
  const [state, setState] = useState({ data: null, error: null, busy: false });
  const open = async (name, text) => {
    setGiven({ name, text });
    setState({ data: null, error: null, busy: true });
    try {
      setState({ data: await post("open", { name, text }), error: null, busy: false });
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
      ${state.busy && html`<${Skeleton} lines=${8} label="Reading" />`}
      ${state.error && html`<${Problem} error=${state.error} />
        <${Taking} open=${open} before=${given.text.length < LARGE ? given.text : ""} />`}
      ${state.data && html`<${Opened} given=${given} data=${state.data} />`}
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
      <p class="soft">a request body, a list of messages, JSON Lines, a transcript of Claude Code or Codex, a Vercel chat</p>
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

function Opened({ given, data }) {
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
    { name: "lint", label: "Rules", note: data.violations.length ? `${data.violations.length}` : "✓" }, { name: "fix", label: "Repair" },
    { name: "convert", label: "Convert" },
  ];
  return html`
    <section class="opened-head" aria-label="What it is" data-testid="opened">
      <p>${given.name && html`<b>${oneLine(given.name, 80)}</b>, `}${bytes(given.text.length)}: <b>${KINDS[data.kind] ?? data.kind}</b>
        ${" in the format of "}<span class="tag accent">${data.format}</span>
        ${data.model && html` for <span class="tag">${oneLine(data.model, 60)}</span>`}, ${plural(data.tokens, "token")}.</p>
      ${data.budget && html`<${Budget} budget=${data.budget} />`}
      ${data.notes.length > 0 && html`<ul class="repaired">${data.notes.map((each, index) => html`<li
          key=${index}>${oneLine(each, 300)}</li>`)}</ul>`}
      ${!data.budget?.window && html`<p class="soft">The model is not known, so neither is its window.</p>`}
    </section>
    <${Tabs} tabs=${tabs} current=${tab} choose=${setTab} label="Of what was opened">
      ${tab === "messages" && html`<${LineList} identity="opened"
          counts=${{ lines: lines.length, shown, left: lines.length - shown }}
          ask=${(filter) => async (after, limit) => chosen(lines, filter).slice(after, after + limit)} />`}
      ${tab === "body" && html`<div class="panel"><${JsonView} text=${body} label="What was opened, as JSON"
          goTo=${goTo}><${TakeButton} get=${() => body}>Copy JSON<//><//></div>`}
      ${tab === "lint" && html`<div class="panel scrolls"><${Findings} format=${data.format} violations=${data.violations}
          show=${show} /></div>`}
      ${tab === "fix" && html`<${Repair} data=${data} name=${given.name} />`}
      ${tab === "convert" && html`<${Convert} data=${data} name=${given.name} />`}
    <//>`;
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

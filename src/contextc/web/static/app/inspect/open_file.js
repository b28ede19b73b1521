/**
 * View in which a file is opened; and of a file or a pasted text with one request: format detection, token counts, lint,
 * repair and conversion. The content is sent only to the contextc server, and is not stored there. The browser keeps it
 * until it is closed, for a reload.
 */
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { post } from "../api.js";
import { bytes, number, oneLine, plural } from "../format.js";
import { singleRequest, takeFile } from "../opened_file.js";
import { route, setQuery } from "../route.js";
import { info } from "../state.js";
import { Budget } from "./budget.js";
import { Findings } from "./findings.js";
import { InspectorHeader } from "./inspector_header.js";
import { JsonView } from "./json_view.js";
import { forgetFile, hasKeptFile, keepFile, keptFile } from "./kept_file.js";
import { openedLines } from "./line_source.js";
import { LineList } from "./manifest_lines.js";
import { Convert, Repair } from "./repair_convert.js";
import { isRefused, LoadError, Skeleton } from "./placeholders.js";
import { Tabs } from "./tabs.js";
import { CopyButton } from "./copy_download.js";

const LARGE = 100_000;
const KINDS = { request: "a request", messages: "a list of messages", transcript: "a transcript" };

export function OpenFile() {
  const [given, setGiven] = useState(null);
  const [state, setState] = useState({ data: null, error: null, busy: hasKeptFile() });
  const [isKept, setIsKept] = useState(true);
  const open = async (name, text, more = {}) => {
    setGiven({ name, text, more });
    setState((before) => ({ data: more.request || more.model ? before.data : null, error: null, busy: true }));
    try {
      const { request, model } = more;
      setState({ data: await post("open", { name, text, detailed: true, ...(request ? { request } : {}), ...(model ? { model } : {}) }), error: null, busy: false });
    } catch (error) {
      setState({ data: null, error, busy: false });
    }
  };
  /** Open what the user gives: the kept file is replaced, with what was chosen for it. */
  const take = (name, text) => {
    setQuery({ tab: "" });
    return open(name, text);
  };
  const close = () => {
    setGiven(null);
    setState({ data: null, error: null, busy: false });
    setQuery({ tab: "" });
    forgetFile();
  };
  const note = (change) => setGiven((before) => ({ ...before, more: { ...before.more, ...change } }));
  useEffect(() => {
    keptFile().then((file) => {
      if (file) open(file.name, file.text, file.more ?? {});
      else setState((before) => (before.data ? before : { ...before, busy: false }));
    });
  }, []);
  useEffect(() => {
    if (given) keepFile(given).then(setIsKept);
  }, [given]);
  useEffect(() => {
    const request = singleRequest.value;
    if (!request) return;
    singleRequest.value = null;
    take(request.name, request.text);
  }, [singleRequest.value]);
  return html`<div class="inspect open-file" data-testid="open-file">
    <${InspectorHeader} title="Open a file or a request">
      ${given && html`<button type="button" class="button" onClick=${close}
          title="Forgets the file: this browser keeps it only while it is open">Close</button>`}
    <//>
    <div class="inspect-body">
      ${!given && !state.busy && html`<${FileInput} before="" />`}
      ${state.busy && !state.data && html`<${Skeleton} lines=${8} label="Reading" />`}
      ${state.error && html`<${LoadError} error=${state.error} title=${isRefused(state.error) ? "Not a file that can be read" : undefined} />
        <${FileInput} before=${given.text.length < LARGE ? given.text : ""} />`}
      ${state.data && !isKept && html`<p class="panel-note">The browser does not keep this file. It must be opened again after a reload.</p>`}
      ${state.data && html`<${Opened} given=${given} data=${state.data} note=${note}
          reload=${(more) => open(given.name, given.text, { ...given.more, repaired: false, target: "", ...more })} />`}
    </div>
  </div>`;
}

/** Drop area, file picker, and text field. */
function FileInput({ before }) {
  const [text, setText] = useState(before);
  const [isOver, setIsOver] = useState(false);
  const picker = useRef(null);
  const paste = (event) => {
    event.preventDefault();
    if (text.trim()) takeFile(new File([text], ""));
  };
  return html`<div class="taking">
    <p class="local-note"><span class="tag good">Local only</span> The file is read by your contextc server, and sent nowhere else. Recordings and
      transcripts are inspected like your own conversations, and are gone when you close them, unless you import them.</p>
    <div class=${`drop ${isOver ? "is-over" : ""}`} data-testid="drop" onDragOver=${() => setIsOver(true)}
        onDragLeave=${() => setIsOver(false)} onDrop=${() => setIsOver(false)}>
      <p><b>Drop a file here</b></p>
      <p class="soft">also packed with gzip, or several in a zip archive: a HAR recording, a log of requests, a transcript or a database of any agent, an export of contextc,
        a request body, a list of messages, a curl command</p>
      <button type="button" class="button" onClick=${() => picker.current.click()}>Choose a file</button>
      <input type="file" class="off-screen" ref=${picker} tabindex="-1" aria-label="File to open"
          onChange=${(event) => event.currentTarget.files[0] && takeFile(event.currentTarget.files[0])} />
    </div>
    <form class="paste" onSubmit=${paste}>
      <label for="paste-field">or paste text</label>
      <textarea id="paste-field" class="field" rows="10" spellcheck="false" value=${text}
          onInput=${(event) => setText(event.currentTarget.value)}
        placeholder=${'{"model": "…", "messages": [{"role": "user", "content": "…"}]}'}></textarea>
      <button type="submit" class="button primary" disabled=${!text.trim()}>Open</button>
    </form>
  </div>`;
}

/** @param {{given: object, data: object, note: (change: object) => void, reload: (more: {request?: number, model?: string}) => void}} props */
function Opened({ given, data, note, reload }) {
  const setTab = (name) => setQuery({ tab: name === "messages" ? "" : name });
  const [goTo, setGoTo] = useState(null);
  const { lines } = data;
  const source = useMemo(() => openedLines(lines, data.tokens), [data]);
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
  const tab = tabs.some((each) => each.name === route.value.query.tab) ? route.value.query.tab : "messages";
  return html`
    <section class="opened-head" aria-label="Opened file" data-testid="opened">
      <p>${given.name && html`<b>${oneLine(given.name, 80)}</b>, `}${bytes(given.text.length)}: <b>${KINDS[data.kind] ?? data.kind}</b>
        ${" in format "}<span class="tag accent">${data.format}</span>
        ${data.model && html` for <span class="tag">${oneLine(data.model, 60)}</span>`}, ${plural(data.tokens, "token")}.</p>
      ${data.budget && html`<${Budget} budget=${data.budget} isAlone=${true} />`}
      ${data.notes.length > 0 && html`<ul class="repaired">${data.notes.map((each, index) => html`<li
          key=${index}>${oneLine(each, 300)}</li>`)}</ul>`}
      ${!data.budget?.window && html`<${ModelForWindow} data=${data} reload=${reload} />`}
    </section>
    <${Tabs} tabs=${tabs} current=${tab} choose=${setTab} label="Details of the opened file">
      ${tab === "messages" && html`<${LineList} key=${data.chosen} identity=${`opened ${data.chosen}`} isAlone=${true} source=${source}
          shown=${lines.length} />`}
      ${tab === "body" && html`<div class="panel"><${JsonView} text=${body} label="The opened file as JSON"
          goTo=${goTo}><${CopyButton} get=${() => body}>Copy JSON<//><//></div>`}
      ${tab === "lint" && html`<div class="panel scrolls">${data.judged
        ? html`<${Findings} format=${data.format} violations=${data.violations} show=${show} />`
        : html`<p class="panel-note" data-testid="not-judged">These messages are in contextc's own format, which no
            provider accepts. Lint rules do not apply.</p>`}</div>`}
      ${tab === "fix" && html`<${Repair} key=${data.chosen} data=${data} name=${given.name}
          wasRun=${Boolean(given.more.repaired)} onRun=${() => note({ repaired: true })} />`}
      ${tab === "convert" && html`<${Convert} key=${data.chosen} data=${data} name=${given.name}
          before=${given.more.target ?? ""} onRun=${(target) => note({ target })} />`}
    <//>`;
}

/** Selection of a model for the context window, if the request names none or an unknown one. */
function ModelForWindow({ data, reload }) {
  const [model, setModel] = useState("");
  if (data.model) return html`<p class="soft">Unknown model: its context window is not known.</p>`;
  const known = [...new Set((info.value?.providers ?? []).flatMap((each) => each.models))].sort();
  const ask = (event) => {
    event.preventDefault();
    if (model.trim()) reload({ model: model.trim(), ...(data.chosen ? { request: data.chosen } : {}) });
  };
  return html`<form class="whose" onSubmit=${ask}>
    <label class="inline-label"><span>No model is named. Compare with the context window of</span>
      <input class="field" list="whose-models" value=${model} placeholder="a model" data-testid="whose-model"
          onInput=${(event) => setModel(event.currentTarget.value)} /></label>
    <datalist id="whose-models">${known.map((each) => html`<option key=${each} value=${each} />`)}</datalist>
    <button type="submit" class="button" disabled=${!model.trim()}>Show</button>
  </form>`;
}

/** Return the given text if it equals the parsed body: serializing it again would change the spelling of numbers. */
function asGiven(text, body) {
  const found = JSON.stringify(body);
  try {
    return JSON.stringify(JSON.parse(text)) === found ? text : found;
  } catch {
    return found;
  }
}

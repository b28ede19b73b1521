/** Repair of a request, and conversion to another format: the changes, and the result to copy or download. */
import { html, useEffect, useState } from "../html.js";
import { post } from "../api.js";
import { attempt } from "../dialog.js";
import { oneLine, plural } from "../format.js";
import { info } from "../state.js";
import { JsonView } from "./json_view.js";
import { CopyButton, download, fileName } from "./copy_download.js";

/**
 * @param {{data: {body: any, format: string}, name: string, wasRun?: boolean, onRun?: () => void}} props `name` is the file
 *   name. If it `wasRun` before a reload, it runs again.
 */
export function Repair({ data, name, wasRun = false, onRun = () => {} }) {
  const [fixed, setFixed] = useState(null);
  const run = () => attempt(async () => {
    setFixed(await post("fix", { body: data.body, format: data.format }));
    onRun();
  });
  useEffect(() => {
    if (wasRun) run();
  }, []);
  const left = fixed?.violations.map((each) => each.code) ?? [];
  return html`<div class="panel" data-testid="repair">
    <div class="panel-bar">
      <button type="button" class="button primary" onClick=${run}>Repair</button>
      <p class="soft">Changes only what breaks a lint rule, and lists each change.</p>
    </div>
    ${left.length > 0 && html`<p class="panel-note is-bad">${plural(left.length, "finding")} could not be repaired: ${left.join(", ")}.</p>`}
    ${fixed && html`<${RewrittenRequest} body=${fixed.body} file=${fileName("repaired", name || "request.json")} label="The repaired request"
      changes=${fixed.repaired.map((each, index) => html`<${Repaired} key=${index} repair=${each} />`)} none="No repairs needed." />`}
  </div>`;
}

/** @param {{data: {body: any, format: string}, name: string, before?: string, onRun?: (target: string) => void}} props */
export function Convert({ data, name, before = "", onRun = () => {} }) {
  const formats = info.value?.formats ?? [];
  const [chosen, setTarget] = useState(before);
  const target = chosen || (formats.find((each) => each !== data.format) ?? "");
  const [made, setMade] = useState(null);
  const convert = () => attempt(async () => {
    setMade(await post("convert", { body: data.body, source: data.format, target }));
    onRun(target);
  });
  const run = (event) => {
    event.preventDefault();
    convert();
  };
  useEffect(() => {
    if (before) convert();
  }, []);
  return html`<div class="panel" data-testid="convert">
    <form class="panel-bar" onSubmit=${run}>
      <label class="inline-label"><span>Target format</span>
        <select class="field" value=${target} onChange=${(event) => setTarget(event.currentTarget.value)}>
          ${formats.map((each) => html`<option key=${each} value=${each} selected=${each === target}>${each}</option>`)}
        </select></label>
      <button type="submit" class="button primary" disabled=${!target}>Convert</button>
    </form>
    ${made && html`<${RewrittenRequest} body=${made.body} file=${fileName(made.format, name || "request.json")} label=${`The request in format ${made.format}`}
      changes=${made.warnings.map((each, index) => html`<li key=${index}>${oneLine(each, 500)}</li>`)} none="Converted without losses." />`}
  </div>`;
}

function RewrittenRequest({ body, file, label, changes, none }) {
  const text = JSON.stringify(body, null, 2);
  return html`
    <ul class="repaired" aria-label="Changes">${changes.length ? changes : html`<li>${none}</li>`}</ul>
    <${JsonView} text=${text} label=${label}>
      <${CopyButton} get=${() => text}>Copy JSON<//>
      <button type="button" class="button" onClick=${() => download(text, file)}>Download</button>
    <//>`;
}

/** A repaired finding: rule, path, message, and repair. */
function Repaired({ repair }) {
  const { code, path, message, repair: done } = repair;
  return html`<li><b>${code}</b> <code>${oneLine(path, 120)}</code> ${oneLine(message, 300)} <span class="soft">→ ${oneLine(done, 300)}</span></li>`;
}

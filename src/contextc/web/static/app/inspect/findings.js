/** Lint findings of a request: code, path, message, the provider's error text, and the documentation of the rule. */
import { html, useRef, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { plural, visible } from "../format.js";
import { Markdown } from "../markdown.js";
import { useLoad } from "../use_load.js";
import { LoadError, Skeleton } from "./placeholders.js";

/** @param {{name: string, step: object, show: (path: string) => void}} props */
export function LintFindings({ name, step, show }) {
  const path = conversationPath(name, "requests", step.channel, step.request, "lint");
  const { data, error, loading, reload } = useLoad(path, (signal) => get(path, {}, { signal }));
  if (error) return html`<${LoadError} error=${error} reload=${reload} />`;
  if (data === null) return html`<${Skeleton} lines=${4} label="Checking" />`;
  return html`<div class="panel scrolls" aria-busy=${loading ? "true" : undefined}><${Findings} format=${data.format}
      violations=${data.violations} show=${show} /></div>`;
}

/** @param {{format: string, violations: object[], show?: (path: string) => void}} props */
export function Findings({ format, violations, show }) {
  const [rule, setRule] = useState(null);
  const popover = useRef(null);
  const explain = (code) => {
    setRule(code);
    popover.current.showPopover();
  };
  return html`<div class="findings" data-testid="findings">
    <p class="panel-note">${violations.length
      ? html`<b>${plural(violations.length, "finding")}</b> by the lint rules of ${format}.`
      : html`<span class="tag good">✓ no findings</span> All lint rules of ${format} pass.`}</p>
    <ol class="finding-list">
      ${violations.map((each, index) => html`<li key=${index} class="finding">
        <div class="finding-head">
          <button type="button" class="finding-code" onClick=${() => explain(each.code)} aria-haspopup="dialog"
              title="Explain this rule">${each.code}</button>
          ${show && each.path
            ? html`<button type="button" class="finding-path" onClick=${() => show(each.path)}
                title="Show in the request"><code>${visible(each.path)}</code></button>`
            : html`<code class="finding-path">${visible(each.path)}</code>`}
        </div>
        <p>${visible(each.message)}</p>
        ${each.provider && html`<blockquote><span
            class="off-screen">Provider error: </span>${visible(each.provider)}</blockquote>`}
      </li>`)}
    </ol>
    <div popover="auto" ref=${popover} class="rule-page" role="dialog" aria-label=${rule ? `Rule ${rule}` : "Rule"}
        data-testid="rule">
      ${rule && html`<${Rule} key=${rule} code=${rule} close=${() => popover.current.hidePopover()} />`}
    </div>
  </div>`;
}

/** Return the text of a rule without its heading, which is shown above. */
function withoutTitle({ code, title, text }) {
  const lines = text.split("\n");
  while (lines.length && (!lines[0].trim() || lines[0].replace(/^#+\s*/, "").trim() === code || lines[0].trim() === title)) lines.shift();
  return lines.join("\n");
}

function Rule({ code, close }) {
  const { data, error, reload } = useLoad(code, (signal) => get(`rules/${encodeURIComponent(code)}`, {}, { signal }));
  return html`<div class="rule-head"><h3>${code}${data?.title ? `: ${data.title}` : ""}</h3>
      <button type="button" class="icon-button" aria-label="Close" onClick=${close}>×</button></div>
    ${error && html`<${LoadError} error=${error} reload=${reload} />`}
    ${!data && !error && html`<${Skeleton} lines=${5} />`}
    ${data && html`<div class="rule-text"><${Markdown} text=${withoutTitle(data)} /></div>`}`;
}

/** What the rules say of a request: code, place, our words, the provider's own, and the page of the rule. */
import { html, useRef, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { plural, visible } from "../format.js";
import { Markdown } from "../markdown.js";
import { useLoad } from "./load.js";
import { Problem, Skeleton } from "./states.js";

/** @param {{name: string, step: object, show: (path: string) => void}} props */
export function Lint({ name, step, show }) {
  const path = conversationPath(name, "requests", step.channel, step.request, "lint");
  const { data, error, loading, again } = useLoad(path, (signal) => get(path, {}, { signal }));
  if (error) return html`<${Problem} error=${error} again=${again} />`;
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
      ? html`<b>${plural(violations.length, "finding")}</b> by the rules of ${format}.`
      : html`<span class="tag good">✓ no findings</span> Every rule known of ${format} holds.`}</p>
    <ol class="finding-list">
      ${violations.map((each, index) => html`<li key=${index} class="finding">
        <div class="finding-head">
          <button type="button" class="finding-code" onClick=${() => explain(each.code)} aria-haspopup="dialog"
              title="What this rule says">${each.code}</button>
          ${show && each.path
            ? html`<button type="button" class="finding-path" onClick=${() => show(each.path)}
                title="Show it in the request"><code>${visible(each.path)}</code></button>`
            : html`<code class="finding-path">${visible(each.path)}</code>`}
        </div>
        <p>${visible(each.message)}</p>
        ${each.provider && html`<blockquote><span
            class="off-screen">The provider says: </span>${visible(each.provider)}</blockquote>`}
      </li>`)}
    </ol>
    <div popover="auto" ref=${popover} class="rule-page" role="dialog" aria-label=${rule ? `Rule ${rule}` : "Rule"}
        data-testid="rule">
      ${rule && html`<${Rule} key=${rule} code=${rule} close=${() => popover.current.hidePopover()} />`}
    </div>
  </div>`;
}

/** The page of a rule without what stands above it already. */
function withoutTitle({ code, title, text }) {
  const lines = text.split("\n");
  while (lines.length && (!lines[0].trim() || lines[0].replace(/^#+\s*/, "").trim() === code || lines[0].trim() === title)) lines.shift();
  return lines.join("\n");
}

function Rule({ code, close }) {
  const { data, error, again } = useLoad(code, (signal) => get(`rules/${encodeURIComponent(code)}`, {}, { signal }));
  return html`<div class="rule-head"><h3>${code}${data?.title ? `: ${data.title}` : ""}</h3>
      <button type="button" class="icon-button" aria-label="Close" onClick=${close}>×</button></div>
    ${error && html`<${Problem} error=${error} again=${again} />`}
    ${!data && !error && html`<${Skeleton} lines=${5} />`}
    ${data && html`<div class="rule-text"><${Markdown} text=${withoutTitle(data)} /></div>`}`;
}

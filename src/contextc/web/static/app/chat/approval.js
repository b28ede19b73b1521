/**
 * A call that waits for a person: what it would do, and yes or no. Nothing here is shown as it was written: what cannot be
 * seen is spelled out.
 */
import { html, useEffect, useRef, useState } from "../html.js";
import { Code } from "../code.js";
import { attempt } from "../dialog.js";
import { Icon } from "../icons.js";
import { visible } from "../format.js";

export function Approval({ approval, session, first }) {
  const { id, name, arguments: given, what, lines } = approval;
  const [denying, setDenying] = useState(false);
  const [why, setWhy] = useState("");
  const [sent, setSent] = useState(false);
  const field = useRef(null);
  const answer = async (approve) => {
    setSent(true);
    const done = await attempt(() => session.answer(id, approve, approve ? "" : why.trim()).then(() => true));
    if (!done) setSent(false);
  };
  useEffect(() => {
    if (denying) field.current?.focus();
  }, [denying]);
  useEffect(() => {
    if (!first) return undefined;
    const onKey = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog")) return;
      if (event.key === "a") answer(true);
      else if (event.key === "d") setDenying(true);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [first]);
  const shown = lines ? lines.join("\n") : JSON.stringify(given ?? {}, null, 2);
  const language = lines ? (lines.some((line) => /^[+-]|^@@/.test(line)) ? "diff" : "bash") : "json";
  return html`
    <section class="approval" aria-label=${`Approval: ${visible(name)}`} data-testid="approval">
      <h2><${Icon} name="warning" /> <span>${visible(what) || `Run ${visible(name)}?`}</span></h2>
      <p class="faint"><code>${visible(name)}</code> waits for your word.</p>
      <${Code} text=${shown} language=${language} bare limit=${12_000} />
      ${denying && html`
        <form onSubmit=${(event) => { event.preventDefault(); answer(false); }}>
          <label class="labelled"><span>Why not? The model is told.</span>
            <input ref=${field} class="field" value=${why} onInput=${(event) => setWhy(event.target.value)} placeholder="Optional"
              onKeyDown=${(event) => event.key === "Escape" && (event.stopPropagation(), setDenying(false))} />
          </label>
        </form>`}
      <div class="approval-actions">
        <button type="button" class="button primary" disabled=${sent} onClick=${() => answer(true)}>
          Allow ${first && html`<kbd>A</kbd>`}
        </button>
        <button type="button" class="button" disabled=${sent} onClick=${() => (denying ? answer(false) : setDenying(true))}>
          ${denying ? "Deny" : "Deny…"} ${first && !denying && html`<kbd>D</kbd>`}
        </button>
      </div>
    </section>`;
}

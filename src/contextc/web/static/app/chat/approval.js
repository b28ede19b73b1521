/**
 * Approval of a tool call: a preview, and the buttons Allow and Deny. A decision carries the id of the approval and the hash
 * of the preview. Allow needs that the whole preview has been visible. Clicks right after the buttons appear are ignored,
 * because they may have been meant for something else at that place.
 */
import { html, useEffect, useRef, useState } from "../html.js";
import { attempt, notify } from "../dialog.js";
import { Icon } from "../icons.js";
import { visible } from "../format.js";
import { ApprovalPreview } from "./approval_preview.js";
import { RuleForm, useRule } from "./approval_rules.js";

/** Milliseconds that a preview must be visible before it can be answered. */
const SETTLED = 500;
/** Milliseconds between requests for a preview that is not there yet. */
const AGAIN = 2_000;

export function Approval({ approval, client, first }) {
  const { hash, name, arguments: given, what, lines, client: isRunElsewhere } = approval;
  const [denying, setDenying] = useState(false);
  const [why, setWhy] = useState("");
  const [settled, setSettled] = useState("");
  const [read, setRead] = useState("");
  const [sent, setSent] = useState(false);
  const { rule, setRule, open, close, always } = useRule();
  const sending = useRef(false);
  const field = useRef(null);
  const actions = useRef(null);
  const isShown = Boolean(hash) && settled === hash;
  const isRead = isShown && read === hash;
  const answer = async (approve) => {
    if (!isShown || sending.current || (approve && isRunElsewhere)) return;
    if (approve && !isRead) return notify("Scroll to the end of the preview, or show all lines, before you allow it.", { bad: true });
    sending.current = true;
    setSent(true);
    const done = await attempt(() => client.answer(approval, approve, approve ? "" : why.trim(), always ? { always } : {}).then(() => true));
    if (done) return undefined;
    sending.current = false;
    setSent(false);
    return undefined;
  };
  useEffect(() => {
    const timer = hash ? setTimeout(() => setSettled(hash), SETTLED) : setInterval(() => client.refresh(), AGAIN);
    return () => clearTimeout(timer);
  }, [hash]);
  useEffect(() => {
    if (!rule) return undefined;
    const timer = setTimeout(() => actions.current?.scrollIntoView({ block: "nearest" }), 60); // when the list knows the height
    return () => clearTimeout(timer);
  }, [Boolean(rule), rule?.what]);
  useEffect(() => {
    if (denying) field.current?.focus();
  }, [denying]);
  useEffect(() => {
    if (!first) return undefined;
    const onKey = (event) => {
      if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog")) return;
      if (event.key === "a") answer(true);
      else if (event.key === "d") setDenying(true);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });
  const shown = lines ?? JSON.stringify(given ?? {}, null, 2).split("\n");
  return html`
    <div role="group" class="approval" aria-label=${`Approval: ${visible(name)}`} data-testid="approval">
      <h2><${Icon} name="warning" /> <span>${what || `Run ${visible(name)}?`}</span></h2>
      <p class="faint">${isRunElsewhere
        ? html`The turn waits for the result of <code>${visible(name)}</code>, a tool that another client runs.`
        : html`Approve <code>${visible(name)}</code>?`}</p>
      <${ApprovalPreview} key=${hash} lines=${shown} label=${`Preview of ${visible(name)}`} onRead=${() => setRead(hash)} />
      ${rule && html`<${RuleForm} name=${name} given=${given} rule=${rule} setRule=${setRule} />`}
      ${denying && html`
        <form onSubmit=${(event) => { event.preventDefault(); answer(false); }}>
          <label class="labelled"><span>Reason (sent to the model)</span>
            <input ref=${field} class="field" value=${why} onInput=${(event) => setWhy(event.target.value)} placeholder="Optional"
              onKeyDown=${(event) => event.key === "Escape" && (event.stopPropagation(), setDenying(false))} />
          </label>
        </form>`}
      <div class="approval-actions" ref=${actions}>
        ${!isRunElsewhere && html`
          <button type="button" class="button primary" disabled=${!isRead || sent} onClick=${() => answer(true)}>
            ${rule ? "Always allow" : "Allow"} ${first && html`<kbd>A</kbd>`}
          </button>`}
        <button type="button" class="button" disabled=${!isShown || sent} onClick=${() => (denying ? answer(false) : setDenying(true))}>
          ${rule ? "Always deny" : "Deny"}${denying ? "" : "…"} ${first && !denying && html`<kbd>D</kbd>`}
        </button>
        ${!isRunElsewhere && html`
          <button type="button" class="button quiet" aria-expanded=${Boolean(rule)} disabled=${sent} onClick=${rule ? close : open}>
            ${rule ? "Only this call" : "Always…"}
          </button>`}
      </div>
    </div>`;
}

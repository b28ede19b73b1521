/** Another text in the place of one: on a branch of its own, after saying what that costs. */
import { html, useEffect, useRef, useState } from "../html.js";
import { get } from "../api.js";
import { attempt } from "../dialog.js";
import { tokens } from "../format.js";

export function Edit({ message, text, onDone, session, model }) {
  const [value, setValue] = useState(text);
  const [busy, setBusy] = useState(false);
  const [cost, setCost] = useState(null);
  const field = useRef(null);
  useEffect(() => {
    field.current.focus();
    field.current.setSelectionRange(text.length, text.length);
    const stopped = new AbortController();
    const asked = get(session.path("next"), { edit: message.seq, text: "…", model }, { signal: stopped.signal });
    asked.then((next) => setCost(next.cost ?? null), () => {});
    return () => stopped.abort();
  }, []);
  const send = async () => {
    if (!value.trim() || busy) return;
    setBusy(true);
    const done = await attempt(() => session.edit(message.seq, value, model).then(() => true));
    setBusy(false);
    if (done) onDone();
  };
  const onKeyDown = (event) => {
    if (event.isComposing) return;
    if (event.key === "Escape") onDone();
    else if (event.key === "Enter" && !event.shiftKey) send();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const lost = cost && [
    cost.cached_lost > 0 && `${tokens(cost.cached_lost)} cached tokens are read anew`,
    cost.signed_lost > 0 && `${cost.signed_lost} signed thoughts are lost`,
  ].filter(Boolean).join(", ");
  return html`
    <div class="edit" data-testid="edit">
      <label class="off-screen" for=${`edit-${message.seq}`}>Edit message</label>
      <textarea id=${`edit-${message.seq}`} ref=${field} rows=${Math.min(12, value.split("\n").length + 1)} value=${value}
        onInput=${(event) => setValue(event.target.value)} onKeyDown=${onKeyDown} dir="auto"></textarea>
      <div class="edit-foot">
        <span class="faint">Goes on from here on a new branch; what followed stays.${lost ? ` It costs: ${lost}.` : ""}</span>
        <button type="button" class="button quiet" onClick=${onDone}>Cancel</button>
        <button type="button" class="button primary" onClick=${send} disabled=${busy || !value.trim()}>Send</button>
      </div>
    </div>`;
}

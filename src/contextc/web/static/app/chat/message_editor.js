/** Editor of a sent message. The edit goes to a new branch; its cost is shown first. */
import { html, useEffect, useRef, useState } from "../html.js";
import { get } from "../api.js";
import { attempt } from "../dialog.js";
import { plural, tokens } from "../format.js";

export function MessageEditor({ message, text, onDone, client, model }) {
  const [value, setValue] = useState(text);
  const [busy, setBusy] = useState(false);
  const [cost, setCost] = useState(null);
  const field = useRef(null);
  useEffect(() => {
    field.current.focus();
    field.current.setSelectionRange(text.length, text.length);
    const stopped = new AbortController();
    const asked = get(client.path("next"), { edit: message.seq, text: "…", model }, { signal: stopped.signal });
    asked.then((next) => setCost(next.cost ?? null), () => {});
    return () => stopped.abort();
  }, []);
  const send = async () => {
    if (!value.trim() || busy) return;
    setBusy(true);
    const done = await attempt(() => client.edit(message.seq, value, model).then(() => true));
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
    cost.cached_lost > 0 && !cost.cache?.expired && `${tokens(cost.cached_lost)} cached tokens are sent again uncached`,
    cost.signed_lost > 0 && `signed reasoning of ${plural(cost.signed_lost, "message")} is lost`,
  ].filter(Boolean).join(", ");
  return html`
    <div class="edit" data-testid="edit">
      <label class="off-screen" for=${`edit-${message.seq}`}>Edit message</label>
      <textarea id=${`edit-${message.seq}`} ref=${field} rows=${Math.min(12, value.split("\n").length + 1)} value=${value}
        onInput=${(event) => setValue(event.target.value)} onKeyDown=${onKeyDown} dir="auto"></textarea>
      <div class="edit-foot">
        <span class="faint">Continues on a new branch. Later messages are kept on the current one.${lost ? ` Cost: ${lost}.` : ""}</span>
        <button type="button" class="button quiet" onClick=${onDone}>Cancel</button>
        <button type="button" class="button primary" onClick=${send} disabled=${busy || !value.trim()}>Send</button>
      </div>
    </div>`;
}

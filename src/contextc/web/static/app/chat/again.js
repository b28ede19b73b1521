/** The answer once more, by somebody else: whom is asked first. */
import { html, useState } from "../html.js";
import { attempt, Dialog } from "../dialog.js";
import { ModelPicker } from "./models.js";

export function AgainWith({ session, seq, current, onClose }) {
  const [model, setModel] = useState(current);
  const send = () => {
    onClose();
    attempt(() => session.again(seq, model));
  };
  const footer = html`
    <button type="button" class="button quiet" onClick=${onClose}>Cancel</button>
    <button type="button" class="button primary" onClick=${send} disabled=${!model}>Answer again</button>`;
  return html`
    <${Dialog} title="Answer again with another model" onClose=${onClose} footer=${footer} data-testid="again-with">
      <div class="body">
        <p class="soft">The answer that is there stays, on its own branch.</p>
        <${ModelPicker} value=${model} onChange=${setModel} />
      </div>
    <//>`;
}

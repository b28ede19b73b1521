/** Dialog that regenerates an answer with another model. */
import { html, useState } from "../html.js";
import { attempt, Dialog } from "../dialog.js";
import { ModelPicker } from "./model_picker.js";

export function RegenerateDialog({ client, seq, current, onClose }) {
  const [model, setModel] = useState(current);
  const send = () => {
    onClose();
    attempt(() => client.regenerate(seq, model));
  };
  const footer = html`
    <button type="button" class="button quiet" onClick=${onClose}>Cancel</button>
    <button type="button" class="button primary" onClick=${send} disabled=${!model}>Regenerate</button>`;
  return html`
    <${Dialog} title="Regenerate with another model" onClose=${onClose} footer=${footer} data-testid="again-with">
      <div class="body">
        <p class="soft">The current answer is kept on its own branch.</p>
        <${ModelPicker} value=${model} onChange=${setModel} />
      </div>
    <//>`;
}

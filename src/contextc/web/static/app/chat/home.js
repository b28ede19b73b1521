/** Where a conversation begins: a field, and nothing that distracts. It is made when something is said. */
import { html, useState } from "../html.js";
import { conversationPath, post } from "../api.js";
import { Mark } from "../icons.js";
import { oneLine } from "../format.js";
import { chatAddress, go, openAddress } from "../route.js";
import { createConversation, info } from "../state.js";
import { Composer } from "./composer.js";
import { DrawerButton } from "./head.js";
import { textOf } from "./message.js";
import { ModelPicker } from "./models.js";

export function Home() {
  const [model, setModel] = useState("");
  const known = info.value;
  const begin = async (input) => {
    const name = await createConversation(oneLine(typeof input === "string" ? input : textOf(input), 80));
    try {
      await post(conversationPath(name, "turns"), { input, ...(model ? { model } : {}) });
    } finally {
      go(chatAddress(name));
    }
  };
  return html`
    <header class="view-head bare only-narrow">
      <${DrawerButton} />
    </header>
    <div class="home">
      <${Mark} size=${44} />
      <h1>What shall it see?</h1>
      <p class="soft">Talk to a model, and see exactly what it was sent.</p>
      <${Composer} name="" running=${false} onSend=${begin}>
        <${ModelPicker} value=${model || known?.model || ""} onChange=${setModel} />
      <//>
      ${known?.remark && html`<p class="home-remark">${oneLine(known.remark, 240)}</p>`}
      <p class="home-more"><a href=${openAddress()}>Open a request or a transcript</a> of any framework to look into it.</p>
    </div>`;
}

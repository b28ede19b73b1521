/** Start view: a composer for a new conversation. The conversation is created with the first message. */
import { html, useEffect, useState } from "../html.js";
import { conversationPath, post } from "../api.js";
import { Mark } from "../icons.js";
import { notify } from "../dialog.js";
import { oneLine, visible } from "../format.js";
import { chatUrl, navigate, openFileUrl, overviewUrl, searchUrl } from "../route.js";
import { createConversation, dropConversation, info } from "../state.js";
import { Composer } from "./composer.js";
import { DrawerButton } from "./conversation_header.js";
import { keepDraft } from "./drafts.js";
import { textOf } from "./message.js";
import { ModelNote, ModelPicker } from "./model_picker.js";
import { describeFailure } from "./provider_errors.js";

/** The message that began a conversation here `{name, input, model}`, until it is answered; null if there is none. */
let first = null;
/** The model that was chosen for a message that is in the field again. */
let chosenBefore = "";

/**
 * Return to the start view if the first message of a conversation was not answered at all, because the key of its model is
 * missing or was refused. The message is in the field again, for the same model, and nothing of it is stored.
 * @param {ConversationClient} client @param {object[]} notices @param {boolean} isAnswered
 */
export async function takeBack(client, notices, isAnswered) {
  const { name } = client;
  const refused = notices.find((each) => each.kind === "error" && each.errorKind === "auth");
  if (first?.name !== name || (!isAnswered && !refused)) return;
  const { input, model } = first;
  first = null;
  if (isAnswered) return;
  chosenBefore = model;
  const { headline, said, wayOut } = describeFailure(refused);
  keepDraft("", typeof input === "string" ? { text: input, media: [] } : { text: textOf(input), media: input.parts.filter((part) => part.type === "media") });
  client.close();  // before the deletion, which its event stream would be answered with
  navigate("#/", { replace: true });
  await dropConversation(name);
  notify(visible([headline, said, wayOut, "Nothing was stored."].filter(Boolean).join(" ")), { bad: true });
}

/** Return whether the server refused a turn, as without a model, so that nothing of it is stored. */
const isRefusal = (error) => error.status >= 400 && error.status < 500;

export function Home() {
  const [model, setModel] = useState(chosenBefore);
  useEffect(() => { chosenBefore = ""; }, []);
  const known = info.value;
  const begin = async (input) => {
    const name = await createConversation(oneLine(typeof input === "string" ? input : textOf(input), 80));
    try {
      await post(conversationPath(name, "turns"), { input, ...(model ? { model } : {}) });
      first = { name, input, model };
    } catch (error) {
      if (isRefusal(error)) await dropConversation(name);  // the message stays in the field here
      else navigate(chatUrl(name));
      throw error;
    }
    navigate(chatUrl(name));
  };
  return html`
    <header class="view-head bare only-narrow">
      <${DrawerButton} />
    </header>
    <div class="home">
      <${Mark} size=${44} />
      <h1>What do you want to ask?</h1>
      <p class="soft">Chat with a model and inspect exactly what it was sent.</p>
      <${Composer} name="" running=${false} model=${model || known?.model || ""} onSend=${begin}>
        <${ModelPicker} value=${model || known?.model || ""} onChange=${setModel} />
      <//>
      <${ModelNote} spec=${model || known?.model || ""} />
      ${model && model !== known?.model ? html`<p class="home-remark" data-testid="chosen-model">The message goes to ${oneLine(model, 80)}.</p>`
        : known?.remark && html`<p class="home-remark">${oneLine(known.remark, 240)}</p>`}
      <p class="home-more"><a href=${openFileUrl()}>Open a request or a transcript</a> of any framework to inspect it.</p>
      <p class="home-more"><a href=${overviewUrl()}>Overview</a> of cost, cache and findings of all conversations,
        or <a href=${searchUrl()}>search</a> in all messages.</p>
    </div>`;
}

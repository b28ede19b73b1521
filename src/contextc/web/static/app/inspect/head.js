/** The bar on top of the inspector and of an opened file: where one is, the way back, and what can be done. */
import { html } from "../html.js";
import { conversationPath, get } from "../api.js";
import { oneLine } from "../format.js";
import { Icon } from "../icons.js";
import { chatAddress } from "../route.js";
import { conversations, drawer } from "../state.js";
import { useLoad } from "./load.js";

/** Longer than the list of conversations takes to come: what is in it need not be asked for. */
const PATIENCE = 400;

/** What a conversation is called where it is talked in; empty where that is its name. */
function useTitle(name) {
  const listed = conversations.value.items?.find((each) => each.name === name);
  const path = name ? conversationPath(name) : null;
  const { data, of } = useLoad(listed ? null : path, (signal) => get(path, {}, { signal }), { delay: PATIENCE });
  return listed?.title ?? (of === path ? data?.title : "") ?? "";
}

/** @param {{title: string, conversation?: string, again?: () => void, children?: any}} props */
export function Head({ title, conversation, again, children }) {
  const called = useTitle(conversation);
  return html`<header class="inspect-head">
    <button type="button" class="icon-button only-narrow" aria-label="Conversations"
        onClick=${() => (drawer.value = true)}><${Icon} name="menu" /></button>
    ${conversation && html`<a class="icon-button" href=${chatAddress(conversation)} aria-label="Back to the conversation"
        title="Back to the conversation"><${Icon} name="left" /></a>`}
    <h1 dir="auto">${oneLine(called || title, 80)}${called && html` <small class="faint">${oneLine(title, 60)}</small>`}</h1>
    <div class="inspect-tools">${children}
      ${again && html`<button type="button" class="icon-button" aria-label="Load again" title="Load again"
          onClick=${again}><${Icon} name="retry" /></button>`}
    </div>
  </header>`;
}

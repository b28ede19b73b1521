/** The bar on top of the inspector and of an opened file: where one is, the way back, and what can be done. */
import { html } from "../html.js";
import { oneLine } from "../format.js";
import { Icon } from "../icons.js";
import { chatAddress } from "../route.js";
import { drawer } from "../state.js";

/** @param {{title: string, conversation?: string, again?: () => void, children?: any}} props */
export function Head({ title, conversation, again, children }) {
  return html`<header class="inspect-head">
    <button type="button" class="icon-button only-narrow" aria-label="Conversations"
        onClick=${() => (drawer.value = true)}><${Icon} name="menu" /></button>
    ${conversation && html`<a class="icon-button" href=${chatAddress(conversation)} aria-label="Back to the conversation"
        title="Back to the conversation"><${Icon} name="left" /></a>`}
    <h1>${oneLine(title, 80)}</h1>
    <div class="inspect-tools">${children}
      ${again && html`<button type="button" class="icon-button" aria-label="Load again" title="Load again"
          onClick=${again}><${Icon} name="retry" /></button>`}
    </div>
  </header>`;
}

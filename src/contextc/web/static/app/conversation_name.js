/** The name of a conversation beside its title: commands and URLs use it. A click copies it. */
import { html } from "./html.js";
import { copyText } from "./code_block.js";
import { notify } from "./dialog.js";
import { oneLine } from "./format.js";
import { Icon } from "./icons.js";

/** Copy the name of a conversation. */
export async function copyName(name) {
  await copyText(name);
  notify(`Copied the name ${oneLine(name, 80)}`);
}

/** @param {{name: string, title?: string}} props without a title, the name is the heading, and only the icon is shown */
export function ConversationName({ name, title }) {
  return html`<button type="button" class="conversation-name" data-testid="conversation-name" onClick=${() => copyName(name)}
      aria-label=${`Copy the name ${oneLine(name, 120)}`} title=${`Copy the name, for the command line:\n${oneLine(name, 300)}`}>
    ${title && title !== name && html`<code>${oneLine(name, 80)}</code>`}<${Icon} name="copy" size=${13} /></button>`;
}

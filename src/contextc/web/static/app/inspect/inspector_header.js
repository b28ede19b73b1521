/** Header of the inspector and of an opened file: title, back link, and actions. */
import { html } from "../html.js";
import { conversationPath, get } from "../api.js";
import { oneLine } from "../format.js";
import { Icon } from "../icons.js";
import { chatUrl } from "../route.js";
import { conversations, drawer } from "../state.js";
import { useLoad } from "./use_load.js";

/** Milliseconds to wait for the list of conversations, which usually has the title. */
const PATIENCE = 400;

/** Return the title of a conversation; "" if it has none. */
function useTitle(name) {
  const listed = conversations.value.items?.find((each) => each.name === name);
  const path = name ? conversationPath(name) : null;
  const { data, of } = useLoad(listed ? null : path, (signal) => get(path, {}, { signal }), { delay: PATIENCE });
  return listed?.title ?? (of === path ? data?.title : "") ?? "";
}

/** @param {{title: string, conversation?: string, reload?: () => void, children?: any}} props */
export function InspectorHeader({ title, conversation, reload, children }) {
  const shownTitle = useTitle(conversation);
  return html`<header class="inspect-head">
    <button type="button" class="icon-button only-narrow" aria-label="Conversations"
        onClick=${() => (drawer.value = true)}><${Icon} name="menu" /></button>
    ${conversation && html`<a class="icon-button" href=${chatUrl(conversation)} aria-label="Back to the conversation"
        title="Back to the conversation"><${Icon} name="left" /></a>`}
    <h1 dir="auto">${oneLine(shownTitle || title, 80)}${shownTitle && html` <small class="faint">${oneLine(title, 60)}</small>`}</h1>
    <div class="inspect-tools">${children}
      ${reload && html`<button type="button" class="icon-button" aria-label="Refresh" title="Refresh"
          onClick=${reload}><${Icon} name="retry" /></button>`}
    </div>
  </header>`;
}

/** Header of the inspector and of an opened file: title, back link, actions; for a conversation also its figures. */
import { html } from "../html.js";
import { conversationPath, get } from "../api.js";
import { costText, inputText, number, oneLine, percent, plural } from "../format.js";
import { Icon } from "../icons.js";
import { ConversationName } from "../conversation_name.js";
import { chatUrl, route } from "../route.js";
import { conversations, drawer } from "../state.js";
import { notesOf } from "../tags_and_notes.js";
import { useLoad } from "../use_load.js";

/** Return the shown request as CHANNEL/NUMBER, "" if none is selected. */
const noted = () => (route.value.channel && route.value.request ? `${route.value.channel}/${route.value.request}` : "");

/** Milliseconds to wait for the list of conversations, which usually has the title. */
const PATIENCE = 400;

/** Return the title of a conversation; "" if it has none. */
function useTitle(name) {
  const listed = conversations.value.items?.find((each) => each.name === name);
  const path = name ? conversationPath(name) : null;
  const { data, of } = useLoad(listed ? null : path, (signal) => get(path, {}, { signal }), { delay: PATIENCE });
  return listed?.title ?? (of === path ? data?.title : "") ?? "";
}

/**
 * @param {{title: string, conversation?: string, reload?: () => void, second?: any, children?: any}} props `children` are
 *   in the first row, `second` is the second row
 */
export function InspectorHeader({ title, conversation, reload, second, children }) {
  const shownTitle = useTitle(conversation);
  return html`<header class="inspect-head ${second ? "has-figures" : ""}" data-testid="inspect-head">
    <div class="inspect-row">
      <button type="button" class="icon-button only-narrow" aria-label="Conversations"
          onClick=${() => (drawer.value = true)}><${Icon} name="menu" /></button>
      ${conversation && html`<a class="icon-button" href=${chatUrl(conversation)} aria-label="Back to the conversation"
          title="Back to the conversation"><${Icon} name="left" /></a>`}
      <h1 dir="auto">${oneLine(shownTitle || title, 80)}</h1>
      ${conversation && html`<${ConversationName} name=${conversation} title=${shownTitle} />`}
      <div class="inspect-tools">${children}
        ${conversation && html`<button type="button" class="icon-button" aria-label="Notes" title="Notes"
            onClick=${() => (notesOf.value = { name: conversation, request: noted() })}><${Icon} name="file" /></button>`}
        ${reload && html`<button type="button" class="icon-button" aria-label="Refresh" title="Refresh"
            onClick=${reload}><${Icon} name="retry" /></button>`}
      </div>
    </div>
    ${second && html`<div class="inspect-row inspect-figures">${second}</div>`}
  </header>`;
}

/** The tokens of all requests: those that the provider reported, and estimates of the others. */
function TokensIn({ totals }) {
  const note = totals.estimated ? `${totals.input ? `${number(totals.estimated)} of them estimated` : "Estimated"}: no answer reports tokens` : "";
  return html`<span title=${note || `${number(totals.input)} tokens in, ${number(totals.output)} out`}>${inputText(totals)}</span>`;
}

/**
 * Figures of all requests. @param {{totals: object, findings: number|null, showFindings: () => void}} props
 * `findings` is their number; null until it is known
 */
export function RunFigures({ totals, findings, showFindings }) {
  const share = totals.input ? (totals.cache_read ?? 0) / totals.input : null;
  const lost = totals.failed ?? 0;
  const facts = [
    [totals.requests === 1 ? "request" : "requests", "req", number(totals.requests)],
    ["tokens in", "in", html`<${TokensIn} totals=${totals} />`],
    ["from cache", "cached", percent(share)], ["cost", "", costText(totals)],
  ];
  if (lost) facts.push(["failed", "⊘", html`<span title="Failed or stopped">${number(lost)}</span>`]);
  return html`<dl class="totals" data-testid="totals">
    ${facts.map(([label, short, figure]) => html`<div key=${short || label}><dt data-short=${short}>${label}</dt><dd>${figure}</dd></div>`)}
    <div class=${findings ? "has-findings" : ""}><dt>${findings === 1 ? "finding" : "findings"}</dt><dd>${findings === null
      ? html`<span role="status" aria-label="Loading the findings">…</span>`
      : html`<button type="button" class="inline-link" onClick=${showFindings}
          aria-label=${`Show ${plural(findings, "finding")}`}>${number(findings)}</button>`}</dd></div>
  </dl>`;
}

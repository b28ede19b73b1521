/** Header of a conversation: title, running state, branches, and actions. */
import { html } from "../html.js";
import { apiUrl, conversationPath } from "../api.js";
import { attempt, notify, promptForText } from "../dialog.js";
import { Icon, IconButton } from "../icons.js";
import { Menu } from "../menu.js";
import { ago, costText, number, oneLine, plural, titleLine, tokens, visible } from "../format.js";
import { sourceLabel } from "../observed.js";
import { ConversationName, copyName } from "../conversation_name.js";
import { chatUrl, inspectUrl, isPossible, openedFile } from "../route.js";
import { rulesShown } from "./approval_rules.js";
import { isWaiting } from "./conversation_state.js";
import { editTags, notesOf, Tags } from "../tags_and_notes.js";
import { deleteConversation, drawer, forkConversation, renameConversation } from "../state.js";

export function DrawerButton() {
  return html`<${IconButton} icon="menu" label="Conversations" class="only-narrow" onClick=${() => (drawer.value = true)} />`;
}

/** Return what a compaction would replace, and what it costs, as text. */
function previewText({ messages, before, after, summary_cost: now, cost_before: each, cost_after: later, cost_is_lower_bound: isLowerBound }) {
  const size = `A summary of at most ${tokens(after)} tokens would replace ${plural(messages, "message")} with ${tokens(before)} tokens.`;
  if (now === null) return size;
  const text = (cost) => costText({ cost, cost_is_lower_bound: isLowerBound });
  return `${size} It costs ${isLowerBound ? "" : "about "}${text(now)} now; the input of a later request costs ${text(later)} instead of ${text(each)}.`;
}

/** @param {{client: object, state: object, model?: string, onCompacted: () => void}} props */
export function ConversationHeader({ client, state, model, onCompacted }) {
  const { view, running } = state;
  const waits = isWaiting(state);
  const branches = client.branches.value;
  const busy = Boolean(running);
  const compact = () => attempt(async () => {
    const preview = await client.previewCompaction(model);
    if (!preview) return notify("Nothing to compact.");
    const instructions = await promptForText({
      title: "Compact conversation", body: previewText(preview), label: "What the summary should keep (optional)", action: "Compact", optional: true,
    });
    if (instructions === null) return undefined;
    const done = await client.compact(model, instructions);
    if (done.upto) onCompacted();
    else notify("Nothing to compact.");
  });
  const rename = () => renameConversation({ name: client.name, title: view.title }).then(() => client.refresh());
  const items = () => [
    { label: "Rename", icon: "edit", changes: true, act: rename },
    { label: "Tags", icon: "pin", changes: true, act: () => editTags({ name: client.name, tags: view.tags }).then(() => client.refresh()) },
    { label: "Notes", icon: "file", act: () => (notesOf.value = { name: client.name, request: "" }) },
    { label: "Copy name", icon: "copy", act: () => copyName(client.name) },
    { label: "Fork", icon: "fork", changes: true, act: () => forkConversation(client.name) },
    { label: "Export", icon: "download", act: () => location.assign(apiUrl(conversationPath(client.name, "export"))) },
    { label: "Approval rules", icon: "check", changes: true, act: () => (rulesShown.value = true) },
    { label: "Compact conversation", icon: "branch", disabled: busy, changes: true, act: compact },
    { label: "Delete", icon: "trash", danger: true, changes: true, act: () => deleteConversation({ name: client.name, title: view.title }) },
  ].filter(isPossible);
  const lines = () => branches.map((branch, index) => ({
    label: `${index + 1} · ${oneLine(branch.words, 50) || (branch.length > branch.base ? "message without text" : "no message of its own yet")}`,
    note: `${plural(branch.length, "message")} · ${ago(branch.time)}`,
    checked: branch.current,
    disabled: busy || Boolean(openedFile),
    act: () => !branch.current && attempt(() => client.switchTo(branch.number)),
  }));
  return html`
    <header class="view-head">
      <${DrawerButton} />
      <div class="head-title">
        <h1 dir="auto" title=${visible([view.title, client.name].filter(Boolean).join("\n"))}>${titleLine(view)}</h1>
        <${ConversationName} name=${client.name} title=${view.title} />
        <${Tags} tags=${view?.tags} />
        ${view?.observed && html`<span class="tag" data-testid="source">${sourceLabel(view.observed)}</span>`}
        ${view?.caller && html`<a class="button quiet" href=${chatUrl(view.caller)} title=${oneLine(view.caller, 80)}
            data-testid="caller"><${Icon} name="branch" /> Caller</a>`}
        ${waits && html`<span class="tag new" role="status" data-testid="turn-state"><${Icon} name="clock" size=${12} /> needs approval</span>`}
        ${running && !waits && html`
          <span class="dot running" title="A turn is running"></span><span class="off-screen" role="status" data-testid="turn-state">A turn is running</span>`}
      </div>
      ${branches.length > 1 && html`
        <${Menu} label=${`Branches: ${branches.length}`} items=${lines} class="button quiet" data-testid="branches">
          <${Icon} name="branch" /><span>${branches.length}</span>
        <//>`}
      <a class="button quiet" href=${inspectUrl(client.name)} aria-label="Inspect" data-testid="inspect">
        <${Icon} name="eye" /><span class="only-wide">Inspect</span>
      </a>
      <${Menu} label="More" items=${items} />
    </header>`;
}

/** The head of a conversation: its title, that it runs, its branches, and what can be done with the whole of it. */
import { html } from "../html.js";
import { address, conversationPath } from "../api.js";
import { attempt, say } from "../dialog.js";
import { Icon, IconButton } from "../icons.js";
import { Menu } from "../menu.js";
import { ago, number, oneLine, plural, visible } from "../format.js";
import { inspectAddress } from "../route.js";
import { deleteConversation, drawer, forkConversation } from "../state.js";

export function DrawerButton() {
  return html`<${IconButton} icon="menu" label="Conversations" class="only-narrow" onClick=${() => (drawer.value = true)} />`;
}

export function Head({ session, state, title, model }) {
  const { view, running } = state;
  const branches = session.branches.value;
  const busy = Boolean(running);
  const sumUp = () => attempt(async () => {
    const done = await session.compact(model);
    say(done.upto ? `Summed up to message ${number(done.upto)}.` : "There was nothing to sum up.");
  });
  const items = () => [
    { label: "Fork", icon: "fork", act: () => forkConversation(session.name) },
    { label: "Export", icon: "download", act: () => location.assign(address(conversationPath(session.name, "export"))) },
    { label: "Sum up what is old", icon: "branch", disabled: busy, act: sumUp },
    { label: "Delete", icon: "trash", danger: true, act: () => deleteConversation({ name: session.name, title: view.title }) },
  ];
  const lines = () => branches.map((branch, index) => ({
    label: `${index + 1} · ${oneLine(branch.words, 50) || "nothing said yet"}`,
    note: `${plural(branch.length, "message")} · ${ago(branch.created)}`,
    checked: branch.current,
    disabled: busy,
    act: () => !branch.current && attempt(() => session.switchTo(branch.number)),
  })).reverse();
  return html`
    <header class="view-head">
      <${DrawerButton} />
      <div class="head-title">
        <h1 dir="auto" title=${visible(session.name)}>${oneLine(title, 90)}</h1>
        ${running && html`<span class="dot running" title="A turn runs"></span><span class="off-screen" role="status">A turn runs</span>`}
      </div>
      ${branches.length > 1 && html`
        <${Menu} label=${`Branches: ${branches.length}`} items=${lines} class="button quiet" data-testid="branches">
          <${Icon} name="branch" /><span>${branches.length}</span>
        <//>`}
      <a class="button quiet" href=${inspectAddress(session.name)} aria-label="Inspect" data-testid="inspect">
        <${Icon} name="eye" /><span class="only-wide">Inspect</span>
      </a>
      <${Menu} label="More" items=${items} />
    </header>`;
}

/** Keys that work everywhere, and the page that lists all of them. */
import { html } from "./html.js";
import { Dialog } from "./dialog.js";
import { go } from "./route.js";
import { drawer, isNarrow, shortcutsShown } from "./state.js";

const command = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl";

export const KEYS = [
  ["Anywhere", [
    [[command, "K"], "Search conversations"],
    [[command, "Shift", "O"], "New conversation"],
    [["?"], "These shortcuts"],
    [["/"], "To the message field"],
  ]],
  ["Message field", [
    [["Enter"], "Send; while a turn runs, steer it"],
    [["Shift", "Enter"], "New line"],
    [[command, "Enter"], "While a turn runs: queue it for the next turn"],
    [["↑"], "In an empty field: edit the last message"],
  ]],
  ["Conversation", [
    [["J"], "Next message"],
    [["K"], "Message before"],
    [["G"], "To the end"],
    [["Esc"], "Stop the turn"],
    [["A"], "Allow what is asked for"],
    [["D"], "Deny it"],
  ]],
];

/** Whether what is typed goes into a field. */
export const writing = (target) => target.closest?.("input, textarea, select, [contenteditable]");

/** Whether something lies above the page that has the keys for itself: a dialog, a menu, the drawer. */
export const isCovered = () => drawer.value || Boolean(document.querySelector("dialog[open], :popover-open"));

export function focusSearch() {
  if (isNarrow()) drawer.value = true;
  document.getElementById("search")?.focus(); // at once, so that the next letter is not taken for a shortcut
  requestAnimationFrame(() => document.getElementById("search")?.focus());
}

export function newConversation() {
  go("#/");
  requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById("composer")?.focus()));
}

export function listenForKeys() {
  addEventListener("keydown", (event) => {
    const held = event.ctrlKey || event.metaKey;
    const key = event.key.toLowerCase();
    if (held && !event.shiftKey && !event.altKey && key === "k") focusSearch();
    else if (held && event.shiftKey && key === "o") newConversation();
    else if (held || event.altKey || writing(event.target) || document.querySelector("dialog[open]")) return;
    else if (event.key === "?") shortcutsShown.value = true;
    else if (event.key === "/") document.getElementById("composer")?.focus();
    else return;
    event.preventDefault();
  });
}

export function Shortcuts() {
  if (!shortcutsShown.value) return null;
  return html`
    <${Dialog} title="Keyboard shortcuts" onClose=${() => (shortcutsShown.value = false)} data-testid="shortcuts">
      <div class="body shortcuts">
        ${KEYS.map(([where, keys]) => html`
          <section>
            <h3>${where}</h3>
            <dl>${keys.map(([held, what]) => html`
              <div><dt>${held.map((key, index) => html`${index > 0 && " "}<kbd>${key}</kbd>`)}</dt><dd>${what}</dd></div>`)}</dl>
          </section>`)}
      </div>
    <//>`;
}

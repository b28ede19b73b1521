/** Global keyboard shortcuts, and the dialog that lists all shortcuts. */
import { html } from "./html.js";
import { Dialog } from "./dialog.js";
import { Legend } from "./legend.js";
import { navigate } from "./route.js";
import { drawer, isNarrow, shortcutsShown } from "./state.js";

const command = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl";

export const KEYS = [
  ["Anywhere", [
    [[command, "K"], "Search conversations"],
    [[command, "Shift", "O"], "New conversation"],
    [["?"], "Keyboard shortcuts and symbols"],
    [["/"], "Focus the message field"],
  ]],
  ["Message field", [
    [["Enter"], "Send; during a turn: steer it"],
    [["Shift", "Enter"], "New line"],
    [[command, "Enter"], "During a turn: queue for the next turn"],
    [["↑"], "In an empty field: edit the last message"],
  ]],
  ["Conversation", [
    [["J"], "Next message"],
    [["K"], "Previous message"],
    [["G"], "Go to the end"],
    [["Esc"], "Stop the turn"],
    [["A"], "Allow the pending tool call"],
    [["D"], "Deny the pending tool call"],
  ]],
];

/** Return the text field that contains the target, if any. */
export const isTextField = (target) => target.closest?.("input, textarea, select, [contenteditable]");

/** Return true if a dialog, a menu or the drawer is open: they handle keys themselves. */
export const isOverlayOpen = () => drawer.value || Boolean(document.querySelector("dialog[open], :popover-open"));

export function focusSearch() {
  if (isNarrow()) drawer.value = true;
  document.getElementById("search")?.focus(); // now, so that the next letter does not trigger a shortcut
  requestAnimationFrame(() => document.getElementById("search")?.focus());
}

export function newConversation() {
  navigate("#/");
  requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById("composer")?.focus()));
}

/** The first Tab of a loaded page reaches the skip link, also where a field got the focus by itself. */
function beginWithSkipLink() {
  const events = ["keydown", "pointerdown"];
  const first = (event) => {
    for (const name of events) removeEventListener(name, first, true);
    if (event.key !== "Tab" || event.shiftKey || isOverlayOpen()) return;
    event.preventDefault();
    document.querySelector(".skip").focus();
  };
  for (const name of events) addEventListener(name, first, true);
}

export function listenForKeys() {
  beginWithSkipLink();
  addEventListener("keydown", (event) => {
    const held = event.ctrlKey || event.metaKey;
    const key = event.key.toLowerCase();
    if (held && !event.shiftKey && !event.altKey && key === "k") focusSearch();
    else if (held && event.shiftKey && key === "o") newConversation();
    else if (held || event.altKey || isTextField(event.target) || document.querySelector("dialog[open]")) return;
    else if (event.key === "?") shortcutsShown.value = true;
    else if (event.key === "/") document.getElementById("composer")?.focus();
    else return;
    event.preventDefault();
  });
}

export function Shortcuts() {
  if (!shortcutsShown.value) return null;
  return html`
    <${Dialog} title="Keyboard shortcuts and symbols" onClose=${() => (shortcutsShown.value = false)} data-testid="shortcuts">
      <div class="body shortcuts" tabindex="0" role="group" aria-label="Keyboard shortcuts and symbols">
        ${KEYS.map(([where, keys]) => html`
          <section>
            <h3>${where}</h3>
            <dl>${keys.map(([held, what]) => html`
              <div><dt>${held.map((key, index) => html`${index > 0 && " "}<kbd>${key}</kbd>`)}</dt><dd>${what}</dd></div>`)}</dl>
          </section>`)}
        <${Legend} />
      </div>
    <//>`;
}

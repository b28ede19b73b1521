/** Dialogs based on the native <dialog>, which traps the focus and closes on Escape; plus confirmations and notices. */
import { signal } from "@preact/signals";
import { html, useId, useLayoutEffect, useRef, useState } from "./html.js";
import { Icon, IconButton } from "./icons.js";

export function Dialog({ title, onClose, children, footer, class: className = "", "data-testid": testid }) {
  const element = useRef(null);
  const named = useId();
  // Before the page is painted: a key pressed as soon as the dialog is there must reach it.
  useLayoutEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog.showModal();
    dialog.querySelector("[data-focus]")?.focus();
    return () => {
      dialog.close();
      restoreFocus(before, dialog);
    };
  }, []);
  const cancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`
    <dialog ref=${element} class=${className} aria-labelledby=${named} onCancel=${cancel} data-testid=${testid}
      onMouseDown=${(event) => event.target === element.current && onClose()}>
      <header>
        <h2 id=${named}>${title}</h2>
        <${IconButton} icon="close" label="Close" onClick=${onClose} />
      </header>
      ${children}
      ${footer && html`<footer>${footer}</footer>`}
    </dialog>`;
}

/** Restore the focus, unless it has moved elsewhere: a clean-up can run after the next key press. */
export function restoreFocus(element, closed) {
  const now = document.activeElement;
  const stays = now && now !== document.body && !closed.contains(now);
  if (!stays && element?.isConnected) element.focus();
}

const question = signal(null);
const notice = signal(null);

/** Ask the user to confirm an action. @returns {Promise<boolean>} */
export function confirmAction({ title, body, action, danger = true }) {
  return new Promise((resolve) => {
    question.value = { title, body, action, danger, resolve };
  });
}

/** Ask the user for one line of text; with `optional`, it may be empty. @returns {Promise<string|null>} null if cancelled */
export function promptForText({ title, body, label, value = "", action, optional = false, limit }) {
  return new Promise((resolve) => {
    question.value = { title, body, label, value, action, optional, limit, danger: false, resolve };
  });
}

/** Show a short notice. An error, or a notice with a `link` `{href, label}`, stays until it is dismissed. */
export function notify(text, { bad = false, link = null } = {}) {
  const shown = { text, bad, link };
  notice.value = shown;
  if (!bad && !link) setTimeout(() => notice.value === shown && (notice.value = null), 4_000);
}

/** Run an action, and show its error as a notice. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (error.name !== "AbortError") notify(error.message, { bad: true });
    return undefined;
  }
}

export function DialogHost() {
  const asking = question.value;
  return html`
    ${asking && html`<${Question} key=${asking.title} ...${asking} />`}
    <div class="notice-place" role="status">
      ${notice.value && html`
        <div class="notice ${notice.value.bad ? "bad" : ""}" data-testid="notice">
          <${Icon} name=${notice.value.bad ? "warning" : "check"} />
          <span>${notice.value.text}${notice.value.link && html` <a href=${notice.value.link.href} onClick=${() => (notice.value = null)}>${notice.value.link.label}</a>`}</span>
          <${IconButton} class="small" icon="close" size=${14} label="Dismiss" onClick=${() => (notice.value = null)} />
        </div>`}
    </div>`;
}

function Question({ title, body, label, value: before, action, optional, limit, danger, resolve }) {
  const [value, setValue] = useState(before ?? "");
  const close = (answer) => {
    question.value = null;
    resolve(answer);
  };
  const none = label ? null : false;
  const submit = (event) => {
    event.preventDefault();
    close(label ? value.trim() || (optional ? "" : null) : true);
  };
  return html`
    <${Dialog} title=${title} onClose=${() => close(none)} data-testid="question">
      <form onSubmit=${submit}>
        <div class="body">
          ${body && html`<p class="soft">${body}</p>`}
          ${label && html`
            <label class="labelled"><span>${label}</span>
              <input class="field" value=${value} onInput=${(event) => setValue(event.target.value)} maxlength=${limit}
                data-focus spellcheck="false" />
            </label>`}
        </div>
        <footer>
          <button type="button" class="button quiet" onClick=${() => close(none)} data-focus=${!label}>Cancel</button>
          <button type="submit" class="button ${danger ? "danger" : "primary"}">${action}</button>
        </footer>
      </form>
    <//>`;
}

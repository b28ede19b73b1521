/** Placeholders for content that is loading, failed, or empty. */
import { html } from "../html.js";

/** Grey bars while content is loading. */
export function Skeleton({ lines = 4, label = "Loading" }) {
  return html`<div class="bones" role="status" aria-label=${label}>
    ${Array.from({ length: lines }, (_, index) => html`<span key=${index} class=${`bone skeleton bone-${index % 4}`}></span>`)}
  </div>`;
}

/**
 * A loading error with the server's message and a retry button.
 * @param {{error: Error, reload?: () => void, title?: string}} props `title` is for an error that is not about loading
 */
export function LoadError({ error, reload, title = heading(error) }) {
  return html`<div class="inspect-problem" role="alert">
    <p><strong>${title}</strong></p>
    <p>${sentence(error.message)}</p>
    ${reload && html`<button type="button" class="button" onClick=${reload}>Retry</button>`}
  </div>`;
}

/** Return true if the server refused what was typed: the same again would be refused again. */
export const isRefused = (error) => Boolean(error) && error.status >= 400 && error.status < 500;

/** What is wrong with a field, below it. @param {{id: string, error: Error}} props */
export const FieldError = ({ id, error }) => html`<p class="field-error" id=${id} role="alert">${sentence(error.message)}</p>`;

const sentence = (text) => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`;

function heading(error) {
  if (error.status === 0) return "Server unreachable";
  if (error.status === 404) return "Not found";
  if (error.status >= 500) return "Server error";
  return "Could not load";
}

export function EmptyState({ title, children }) {
  return html`<div class="inspect-empty"><h2>${title}</h2>${children}</div>`;
}

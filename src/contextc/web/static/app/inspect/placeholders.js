/** Placeholders for content that is loading, failed, or empty. */
import { html } from "../html.js";

/** Grey bars while content is loading. */
export function Skeleton({ lines = 4, label = "Loading" }) {
  return html`<div class="bones" role="status" aria-label=${label}>
    ${Array.from({ length: lines }, (_, index) => html`<span key=${index} class=${`bone skeleton bone-${index % 4}`}></span>`)}
  </div>`;
}

/** A loading error with the server's message and a retry button. @param {{error: Error, reload?: () => void}} props */
export function LoadError({ error, reload }) {
  return html`<div class="inspect-problem" role="alert">
    <p><strong>${heading(error)}</strong></p>
    <p>${error.message.slice(0, 1).toUpperCase()}${error.message.slice(1)}</p>
    ${reload && html`<button type="button" class="button" onClick=${reload}>Retry</button>`}
  </div>`;
}

function heading(error) {
  if (error.status === 0) return "Server unreachable";
  if (error.status === 404) return "Not found";
  if (error.status >= 500) return "Server error";
  return "Could not load";
}

export function EmptyState({ title, children }) {
  return html`<div class="inspect-empty"><h2>${title}</h2>${children}</div>`;
}

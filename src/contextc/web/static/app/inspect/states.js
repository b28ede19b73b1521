/** What stands where something is not: on its way, failed, or not there at all. */
import { html } from "../html.js";

/** Grey lines in the place of what is on its way. */
export function Skeleton({ lines = 4, label = "Loading" }) {
  return html`<div class="bones" role="status" aria-label=${label}>
    ${Array.from({ length: lines }, (_, index) => html`<span key=${index} class=${`bone skeleton bone-${index % 4}`}></span>`)}
  </div>`;
}

/** An error in the server's words, and the way out. @param {{error: Error, again?: () => void}} props */
export function Problem({ error, again }) {
  return html`<div class="inspect-problem" role="alert">
    <p><strong>${heading(error)}</strong></p>
    <p>${error.message.slice(0, 1).toUpperCase()}${error.message.slice(1)}</p>
    ${again && html`<button type="button" class="button" onClick=${again}>Try again</button>`}
  </div>`;
}

function heading(error) {
  if (error.status === 0) return "The server does not answer";
  if (error.status === 404) return "This is not there";
  if (error.status >= 500) return "The server failed at this";
  return "This could not be shown";
}

export function Empty({ title, children }) {
  return html`<div class="inspect-empty"><h2>${title}</h2>${children}</div>`;
}

/** A text with the search term marked. Case is ignored. */
import { html } from "./html.js";

/** @param {{text: string, wanted: string}} props */
export function MarkedText({ text, wanted }) {
  const term = wanted.trim().replace(/\s+/g, " ").toLowerCase();
  const folded = text.toLowerCase();
  const at = term && folded.length === text.length ? folded.indexOf(term) : -1;
  if (at < 0) return text;
  return html`${text.slice(0, at)}<mark>${text.slice(at, at + term.length)}</mark>${text.slice(at + term.length)}`;
}

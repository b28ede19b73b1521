/** Legend of the signs that are used in a view. */
import { html } from "../html.js";

/** @param {{signs: string[][]}} props pairs of sign and meaning */
export function GlyphLegend({ signs }) {
  if (!signs.length) return null;
  return html`<ul class="glyph-legend" aria-label="Signs" data-testid="glyph-legend">
    ${signs.map(([sign, meaning]) => html`<li key=${sign}><span class="glyph" aria-hidden="true">${sign}</span>${meaning}</li>`)}
  </ul>`;
}

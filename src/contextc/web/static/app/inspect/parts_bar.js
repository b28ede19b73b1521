/**
 * A bar of parts that fill its whole width, with a legend. Parts that lead somewhere are buttons. Every part has a pattern
 * besides its colour. The figures of a part appear when it is hovered or focused.
 */
import { html, useState } from "../html.js";
import { dollars, oneLine, percent } from "../format.js";

/** Parts with a smaller share have no label in the bar. */
const LABELLED = 0.06;

/**
 * @typedef {object} BarPart
 * @property {string} key @property {string} look class of its colour and pattern @property {string} label @property {string} about
 * @property {number} tokens @property {number|null} [cached] @property {number|null} [written] @property {number|null} [uncached]
 * @property {number|null} [cost] @property {() => void} [go] shows its messages @property {boolean} [isChosen]
 */

/** @param {{parts: BarPart[], label: string, figure: (tokens: number) => string, compact?: boolean}} props */
export function PartsBar({ parts, label, figure, compact = false }) {
  const [active, setActive] = useState("");
  const total = parts.reduce((sum, part) => sum + part.tokens, 0) || 1;
  const shown = parts.filter((part) => part.tokens > 0);
  const at = shown.findIndex((part) => part.key === active);
  const before = shown.slice(0, Math.max(0, at)).reduce((sum, part) => sum + part.tokens, 0);
  const leave = () => setActive("");
  return html`<div class="parts">
    <div class="parts-bar" role="group" aria-label=${label} data-testid="budget-bar">
      ${shown.map((part) => {
        const share = part.tokens / total;
        const properties = {
          key: part.key, class: `bar-part ${part.look} ${share < 0.2 ? "is-slim" : ""}`, style: { flexGrow: String(part.tokens) },
          onPointerEnter: () => setActive(part.key), onPointerLeave: leave, "data-part": part.key,
        };
        const text = !compact && share > LABELLED && html`<span class="part-label">${part.label}</span>`;
        return part.go
          ? html`<button type="button" ...${properties} aria-label=${describe(part, share, figure)} aria-pressed=${String(Boolean(part.isChosen))}
              onFocus=${() => setActive(part.key)} onBlur=${leave} onClick=${part.go}>${text}</button>`
          : html`<span ...${properties} role="img" aria-label=${describe(part, share, figure)}>${text}</span>`;
      })}
    </div>
    ${at >= 0 && html`<${Bubble} part=${shown[at]} share=${shown[at].tokens / total} start=${before / total} figure=${figure} />`}
    ${!compact && html`<ul class="budget-legend" aria-hidden="true">
      ${shown.map((part) => html`<li key=${part.key} class=${part.go ? "is-link" : ""} onClick=${part.go}
          onPointerEnter=${() => setActive(part.key)} onPointerLeave=${leave}>
        <span class=${`swatch ${part.look}`}></span><span class="legend-name">${part.label}</span>
        <span class="figure">${figure(part.tokens)}</span><span class="muted">${percent(part.tokens / total)}</span></li>`)}
    </ul>`}
  </div>`;
}

/** Return all figures of a part as text. */
export function describe(part, share, figure) {
  const charged = [[part.cached, "from cache"], [part.written, "written to cache"], [part.uncached, "uncached"]];
  const said = charged.filter(([tokens]) => tokens).map(([tokens, word]) => `${figure(tokens)} ${word}`);
  const facts = [`${figure(part.tokens)} tokens, ${percent(share)}`, ...said];
  if (part.cost != null) facts.push(`≈ ${dollars(part.cost)}`);
  return `${oneLine(part.label, 80)}: ${facts.join("; ")}`;
}

function Bubble({ part, share, start, figure }) {
  const middle = start + share / 2;
  const place = middle > 0.5 ? { right: `${(100 * (1 - Math.min(1, start + share))).toFixed(2)}%` } : { left: `${(100 * start).toFixed(2)}%` };
  const rows = [["from cache", part.cached], ["written to cache", part.written], ["uncached", part.uncached]];
  return html`<div class="part-bubble" style=${place} aria-hidden="true">
    <p><span class=${`swatch ${part.look}`}></span> <b>${oneLine(part.label, 80)}</b></p>
    <p>${figure(part.tokens)} tokens, ${percent(share)}</p>
    ${rows.filter(([, tokens]) => tokens != null).map(([word, tokens]) => html`<p key=${word} class="muted">${figure(tokens)} ${word}</p>`)}
    ${part.cost != null && html`<p>≈ ${dollars(part.cost)}</p>`}
    <p class="muted">${part.about}${part.go ? ` ${part.isChosen ? "Click to show all messages." : "Click to show its messages."}` : ""}</p>
  </div>`;
}

/**
 * The token budget of a request: one bar, and a legend with numbers. Every kind has a pattern besides its colour, so colour
 * is never the only distinction. The compact form is the bar alone.
 */
import { html } from "../html.js";
import { number, percent } from "../format.js";

/**
 * @typedef {object} BudgetFigures
 * @property {number|null} window  the model's context window; null if the model is not known
 * @property {number} system @property {number} tools @property {number} dynamic @property {number} history
 * @property {number} new @property {number} reserve @property {number} margin @property {number} free
 * @property {number} used @property {number} available @property {string} how exact, measured or estimated
 * @property {number|null} limit @property {number} wanted tokens of the messages before trimming
 * @property {number} input tokens of the whole request @property {number|null} room its limit
 */

const KINDS = [
  ["system", "System prompt", "The same in every request until the next cache reset."],
  ["tools", "Tools", "Definitions of the tools."],
  ["history", "Already sent", "Messages that the previous request had too."],
  ["dynamic", "Dynamic fragments", "Prompt fragments that are rendered for each request, such as the time or a todo list."],
  ["new", "New in this request", "Messages that are sent for the first time."],
  ["free", "Free", "Unused tokens."],
  ["margin", "Safety margin", "Kept free, because token counts may be slightly off."],
  ["reserve", "Kept for the answer", "Kept free for the output."],
  ["beyond", "Above the limit", "Part of the context window beyond the configured limit."],
];

const HOW = {
  exact: "exact, with the model's own tokenizer",
  measured: "measured by the provider",
  estimated: "estimated, without the model's own tokenizer",
};

/** Return the kinds that use tokens, with their tokens and share. */
export function budgetSlices(budget) {
  const figures = Object.fromEntries(KINDS.map(([name]) => [name, Math.max(0, budget[name] ?? 0)]));
  const sum = Object.values(figures).reduce((total, figure) => total + figure, 0);
  const whole = Math.max(budget.window ?? 0, sum, 1);
  figures.beyond = budget.window ? whole - sum : 0;
  return KINDS.map(([name, label, about]) => ({ name, label, about, tokens: figures[name], share: figures[name] / whole }))
    .filter((slice) => slice.tokens > 0);
}

const CLOSER = 0.2;
const FREE = new Set(["free", "margin", "reserve", "beyond"]);

function barLabel(budget, shown) {
  const taken = shown.filter((slice) => !FREE.has(slice.name)).reduce((sum, slice) => sum + slice.tokens, 0);
  const of = budget.window ? ` of a context window of ${number(budget.window)}` : "";
  return `${number(taken)} tokens${of}: ${shown.map((slice) => `${slice.label} ${number(slice.tokens)}`).join(", ")}`;
}

/** Labels for a request without a previous one: its messages are neither already sent nor new. */
const ALONE = { history: ["Messages", "All messages of the request."] };

/**
 * @param {{budget: BudgetFigures, compact?: boolean, isAlone?: boolean, children?: any}} props `isAlone`: there is no
 *   previous request; `children` follow the legend
 */
export function Budget({ budget, compact = false, isAlone = false, children }) {
  if (!budget) return null;
  const all = budgetSlices(budget);
  const shown = isAlone
    ? all.map((slice) => (ALONE[slice.name] ? { ...slice, label: ALONE[slice.name][0], about: ALONE[slice.name][1] } : slice))
    : all;
  const bar = html`<div class="budget-bar" role="img" aria-label=${barLabel(budget, shown)} data-testid="budget-bar">
    ${shown.map((slice) => html`<${Slice} key=${slice.name} slice=${slice} share=${compact ? 0 : slice.share} />`)}
  </div>`;
  if (compact) return html`<div class="budget compact">${bar}</div>`;
  return html`<div class="budget" role="group" aria-label="Budget" data-testid="budget">
    ${bar}
    <${Closer} shown=${shown} />
    <${Trimmed} budget=${budget} />
    <ul class="budget-legend">
      ${shown.map(
        (slice) => html`<li key=${slice.name} title=${slice.about}>
          <span class=${`swatch kind-${slice.name}`} aria-hidden="true"></span>
          <span class="legend-name">${slice.label}</span>
          <span class="figure">${number(slice.tokens)}</span>
          <span class="muted">${percent(slice.share)}</span>
        </li>`,
      )}
    </ul>
    <div class="budget-foot"><p class="budget-how muted">${summary(budget)}</p>${children}</div>
  </div>`;
}

function Slice({ slice, share }) {
  return html`<span class=${`budget-part kind-${slice.name} ${share < 0.2 ? "is-slim" : ""}`} title=${title(slice)}
      style=${{ flexGrow: String(slice.tokens) }}>
    ${share > 0.06 && html`<span class="budget-label">${slice.label}</span>`}
  </span>`;
}

/** Enlarged view of the used part, which would be too thin in a large window. */
function Closer({ shown }) {
  const taken = shown.filter((slice) => !FREE.has(slice.name));
  const share = taken.reduce((sum, slice) => sum + slice.share, 0);
  if (share > CLOSER || taken.length < 2) return null;
  return html`<div class="budget-closer" aria-hidden="true">
    <div class="closer-beam" style=${{ clipPath: `polygon(0 0, ${(100 * share).toFixed(2)}% 0, 100% 100%, 0 100%)` }}></div>
    <div class="budget-bar">${taken.map((slice) => html`<${Slice} key=${slice.name} slice=${slice}
        share=${slice.share / share} />`)}</div>
  </div>`;
}

function title(slice) {
  return `${slice.label}: ${number(slice.tokens)} tokens, ${percent(slice.share)}. ${slice.about}`;
}

function summary(budget) {
  const parts = [];
  if (budget.window) parts.push(`Context window ${number(budget.window)}`);
  if (budget.limit) parts.push(`limit ${number(budget.limit)}`);
  if (budget.room) parts.push(`request: ${number(budget.input)} of ${number(budget.room)} (${percent(budget.input / budget.room)})`);
  if (budget.available && budget.used != null) {
    const share = percent(budget.used / budget.available);
    parts.push(`messages: ${number(budget.used)} of ${number(budget.available)} (${share})`);
  }
  parts.push(HOW[budget.how] ?? budget.how);
  return parts.filter(Boolean).join(" · ");
}

/** A second bar, on the scale of the first, for the size of the messages before trimming. */
function Trimmed({ budget }) {
  const { wanted, used, window, available } = budget;
  if (!wanted || wanted <= (used ?? 0)) return null;
  const whole = Math.max(window ?? 0, wanted);
  const kept = Math.min(1, (used ?? 0) / wanted);
  return html`<div class="budget-wanted" data-testid="budget-wanted">
    <div class="wanted-bar" aria-hidden="true" style=${{ width: `${(100 * wanted) / whole}%` }}>
      <span class="wanted-kept" style=${{ width: `${100 * kept}%` }}></span>
    </div>
    <p><span aria-hidden="true">✂ </span>Trimmed: the messages had <b>${number(wanted)}</b> tokens${available ? html`, <b>${number(available)}</b> were available` : ""}.
      ${" "}<b>${number(used)}</b> (${percent(kept)}) were kept.</p>
  </div>`;
}

/**
 * Where the tokens of a window go, as one bar and a legend with figures. Every kind has a pattern besides its colour and
 * its name in the legend, so nothing is told by colour alone. The compact form is the bar by itself, for a gauge.
 */
import { html } from "../html.js";
import { number, percent } from "../format.js";

/**
 * @typedef {object} BudgetFigures
 * @property {number|null} window  the model's window; null where the model is not known
 * @property {number} system @property {number} tools @property {number} dynamic @property {number} history
 * @property {number} new @property {number} reserve @property {number} margin @property {number} free
 * @property {number} used @property {number} available @property {string} how exact, measured or estimated
 * @property {number|null} limit @property {number} wanted what messages would have taken, where they were cut
 * @property {number} input what the whole request takes @property {number|null} room what it may
 */

const KINDS = [
  ["system", "static", "The system prompt: the same in every request of an epoch."],
  ["tools", "tools", "What the tools look like, told to the model."],
  ["history", "history", "Messages that the request before had too."],
  ["dynamic", "dynamic", "Fragments made afresh, such as the time or a list of what is left to do."],
  ["new", "new", "Messages that this request shows for the first time."],
  ["free", "free", "Room that is left."],
  ["margin", "margin", "Kept free, because counting may be a little wrong."],
  ["reserve", "reserve", "Kept free for the answer."],
  ["beyond", "not used", "Of the window, but above the limit that was set."],
];

const HOW = {
  exact: "counted exactly, with the model's own tokenizer",
  measured: "measured: the provider's own figure stands behind it",
  estimated: "estimated: not by the model's own tokenizer",
};

/** The kinds that take something, with their figures and their share of the whole. */
export function slices(budget) {
  const figures = Object.fromEntries(KINDS.map(([name]) => [name, Math.max(0, budget[name] ?? 0)]));
  const sum = Object.values(figures).reduce((total, figure) => total + figure, 0);
  const whole = Math.max(budget.window ?? 0, sum, 1);
  figures.beyond = budget.window ? whole - sum : 0;
  return KINDS.map(([name, label, about]) => ({ name, label, about, tokens: figures[name], share: figures[name] / whole }))
    .filter((slice) => slice.tokens > 0);
}

const CLOSER = 0.2;
const FREE = new Set(["free", "margin", "reserve", "beyond"]);

function inWords(budget, shown) {
  const taken = shown.filter((slice) => !FREE.has(slice.name)).reduce((sum, slice) => sum + slice.tokens, 0);
  const of = budget.window ? ` of a window of ${number(budget.window)}` : "";
  return `${number(taken)} tokens${of}: ${shown.map((slice) => `${slice.label} ${number(slice.tokens)}`).join(", ")}`;
}

/** A request with none before it: its messages are neither history nor new. */
const ALONE = { history: ["messages", "Everything that is said in it."] };

/**
 * @param {{budget: BudgetFigures, compact?: boolean, isAlone?: boolean, children?: any}} props `isAlone`: there is no
 *   request before it; `children` stand at its foot
 */
export function Budget({ budget, compact = false, isAlone = false, children }) {
  if (!budget) return null;
  const all = slices(budget);
  const shown = isAlone
    ? all.map((slice) => (ALONE[slice.name] ? { ...slice, label: ALONE[slice.name][0], about: ALONE[slice.name][1] } : slice))
    : all;
  const bar = html`<div class="budget-bar" role="img" aria-label=${inWords(budget, shown)} data-testid="budget-bar">
    ${shown.map((slice) => html`<${Slice} key=${slice.name} slice=${slice} share=${compact ? 0 : slice.share} />`)}
  </div>`;
  if (compact) return html`<div class="budget compact">${bar}</div>`;
  return html`<div class="budget" role="group" aria-label="Budget" data-testid="budget">
    ${bar}
    <${Closer} shown=${shown} />
    <${Wanted} budget=${budget} />
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
    <div class="budget-foot"><p class="budget-how muted">${said(budget)}</p>${children}</div>
  </div>`;
}

function Slice({ slice, share }) {
  return html`<span class=${`budget-part kind-${slice.name} ${share < 0.2 ? "is-slim" : ""}`} title=${title(slice)}
      style=${{ flexGrow: String(slice.tokens) }}>
    ${share > 0.06 && html`<span class="budget-label">${slice.label}</span>`}
  </span>`;
}

/** What is sent, by itself: in a large window it would be a line too thin to read. */
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

function said(budget) {
  const parts = [];
  if (budget.window) parts.push(`Window ${number(budget.window)}`);
  if (budget.limit) parts.push(`limit ${number(budget.limit)}`);
  if (budget.room) parts.push(`the request takes ${number(budget.input)} of ${number(budget.room)} (${percent(budget.input / budget.room)})`);
  if (budget.available && budget.used != null) {
    const share = percent(budget.used / budget.available);
    parts.push(`messages take ${number(budget.used)} of ${number(budget.available)} available (${share})`);
  }
  parts.push(HOW[budget.how] ?? budget.how);
  return parts.filter(Boolean).join(" · ");
}

/** What the messages would have taken, where they were cut: a second bar on the scale of the first. */
function Wanted({ budget }) {
  const { wanted, used, window, available } = budget;
  if (!wanted || wanted <= (used ?? 0)) return null;
  const whole = Math.max(window ?? 0, wanted);
  const kept = Math.min(1, (used ?? 0) / wanted);
  return html`<div class="budget-wanted" data-testid="budget-wanted">
    <div class="wanted-bar" aria-hidden="true" style=${{ width: `${(100 * wanted) / whole}%` }}>
      <span class="wanted-kept" style=${{ width: `${100 * kept}%` }}></span>
    </div>
    <p><span aria-hidden="true">✂ </span>It was cut: the messages would have taken <b>${number(wanted)}</b> tokens, and
      ${" "}${available ? html`<b>${number(available)}</b> were available` : "there was less room"}. <b>${number(used)}</b>
      ${" "}were kept, ${percent(kept)} of what was wanted.</p>
  </div>`;
}

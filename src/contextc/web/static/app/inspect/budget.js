/**
 * The token budget of a request: a bar of what is sent, a thin gauge of the context window under it, and what was trimmed.
 * Requests that are not stored, such as the next one and opened files, have a bar by state.
 */
import { html } from "../html.js";
import { number, percent } from "../format.js";
import { approximate } from "./causes.js";
import { PartsBar } from "./parts_bar.js";

/**
 * @typedef {object} BudgetFigures
 * @property {number|null} window  the model's context window; null if the model is not known
 * @property {number} system @property {number} tools @property {number} overhead @property {number} dynamic
 * @property {number} history
 * @property {number} new @property {number} reserve @property {number} margin @property {number} free
 * @property {number} used @property {number} available @property {string} how exact, measured or estimated
 * @property {number|null} limit @property {number} wanted tokens of the messages before trimming
 * @property {number} input tokens of the whole request @property {number|null} room its limit
 */

const KINDS = [
  ["system", "System prompt", "The same in every request until the next cache reset."],
  ["tools", "Tools", "Definitions of the tools."],
  ["overhead", "Added by the provider or program", "Counted by the provider, but not in what was recorded."],
  ["history", "Already sent", "Messages that the previous request had too."],
  ["dynamic", "Dynamic fragments", "Prompt fragments that are rendered for each request or turn, such as the time, a todo list, or passages that were found."],
  ["new", "New in this request", "Messages that are sent for the first time."],
];

/** Labels for a request without a previous one: its messages are neither already sent nor new. */
const ALONE = { history: ["Messages", "All messages of the request."] };

const HOW = {
  exact: "exact, with the model's own tokenizer",
  measured: "total measured by the provider, parts estimated",
  estimated: "estimated, without the model's own tokenizer",
};

/**
 * @param {{budget: BudgetFigures, compact?: boolean, isAlone?: boolean, children?: any}} props `isAlone`: there is no
 *   previous request; `children` follow the gauge
 */
export function Budget({ budget, compact = false, isAlone = false, children }) {
  if (!budget) return null;
  const parts = KINDS.map(([name, label, about]) => {
    const [word, meaning] = (isAlone && ALONE[name]) || [label, about];
    return { key: name, look: `kind-${name}`, label: word, about: meaning, tokens: Math.max(0, budget[name] ?? 0) };
  });
  return html`<div class=${`budget ${compact ? "compact" : ""}`} role="group" aria-label="Budget" data-testid="budget">
    <${PartsBar} parts=${parts} label=${`${number(budget.input)} tokens by kind`} figure=${approximate(budget.how)} compact=${compact} />
    <${WindowGauge} budget=${budget} />
    ${!compact && html`<${Trimmed} budget=${budget} />`}
    ${!compact && children && html`<div class="budget-foot">${children}</div>`}
  </div>`;
}

/** Parts of the window, from the left. */
const GAUGE = [
  ["used", "used"], ["free", "free"], ["margin", "safety margin"], ["reserve", "kept for the answer"], ["beyond", "above the limit"],
];

/** The context window as a thin bar: used, free, and kept for the answer. They add up to it. */
export function WindowGauge({ budget }) {
  const figure = budget.how === "estimated" ? approximate("estimated") : number;
  const figures = { used: budget.input, free: budget.free ?? 0, margin: budget.margin, reserve: budget.reserve };
  const sum = Object.values(figures).reduce((total, each) => total + each, 0);
  const whole = Math.max(budget.window ?? 0, sum, 1);
  figures.beyond = budget.window ? whole - sum : 0;
  const shown = GAUGE.map(([name, label]) => ({ name, label, tokens: figures[name] })).filter((each) => each.tokens > 0);
  const rest = shown.filter((each) => each.name !== "used").map((each) => `${number(each.tokens)} ${each.label}`);
  const used = budget.window ? `${figure(budget.input)} of ${number(budget.window)} tokens (${percent(budget.input / budget.window)})`
    : `${figure(budget.input)} tokens`;
  const more = [...(budget.window ? rest : []), budget.limit ? `limit ${number(budget.limit)}` : "", HOW[budget.how] ?? budget.how];
  return html`<div class="window-gauge" data-testid="window-gauge">
    ${budget.window && html`<div class="gauge-track" aria-hidden="true">
      ${shown.map((each) => html`<span key=${each.name} class=${`gauge-part gauge-${each.name}`} data-tokens=${each.tokens}
          title=${`${each.label}: ${number(each.tokens)} tokens`} style=${{ flexGrow: String(each.tokens) }}></span>`)}
    </div>`}
    <p class="budget-how muted"><span class="is-more">${budget.window ? `Context window ${number(budget.window)}` : "Context window unknown"} · </span>used:
      ${" "}${used}<span class="is-more"> · ${more.filter(Boolean).join(" · ")}</span></p>
  </div>`;
}

/** A bar for the size of the messages before trimming, and the part of it that was kept. */
export function Trimmed({ budget }) {
  const { wanted, used, window, available, wanted_is_lower_bound: isLowerBound } = budget;
  if (!wanted || wanted <= (used ?? 0)) return null;
  const whole = Math.max(window ?? 0, wanted);
  const kept = Math.min(1, (used ?? 0) / wanted);
  return html`<div class="budget-wanted" data-testid="budget-wanted">
    <div class="wanted-bar" aria-hidden="true" style=${{ width: `${(100 * wanted) / whole}%` }}>
      <span class="wanted-kept" style=${{ width: `${100 * kept}%` }}></span>
    </div>
    <p><span aria-hidden="true">✂ </span>Trimmed: the messages had ${isLowerBound ? "at least " : ""}<b>${number(wanted)}</b> tokens${available ? html`, <b>${number(available)}</b> were available` : ""}.
      ${" "}<b>${number(used)}</b> (${isLowerBound ? "at most " : ""}${percent(kept)}) were kept.</p>
  </div>`;
}

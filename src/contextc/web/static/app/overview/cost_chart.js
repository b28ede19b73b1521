/** Costs per day as a bar chart; tokens, if no cost is known. A bar selects its day, week or month. */
import { html, useState } from "../html.js";
import { costText, dollars, plural, tokens } from "../format.js";
import { dayName, dayStart, selectDays } from "./selection.js";

const MAX_BARS = 92;
const label = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });

/** Return the bars, without gaps: each with its first and last day and its sums. @param {{day: string, figures: object}[]} days */
export function barsOf(days) {
  if (!days.length) return [];
  const [first, last] = [days[0].day, days.at(-1).day];
  const span = Math.round((dayStart(last) - dayStart(first)) / 86_400_000) + 1;
  const unit = span <= MAX_BARS ? 1 : span <= 7 * MAX_BARS ? 7 : 30;
  const known = new Map(days.map((each) => [each.day, each.figures]));
  const bars = [];
  for (let offset = 0; offset < span; offset += unit) {
    const bar = { from: dayName(dayStart(first, offset)), to: "", cost: 0, cost_is_lower_bound: false, input: 0, requests: 0 };
    for (let index = offset; index < Math.min(span, offset + unit); index += 1) {
      bar.to = dayName(dayStart(first, index));
      const figures = known.get(bar.to);
      if (!figures) continue;
      bar.cost += figures.cost ?? 0;
      bar.cost_is_lower_bound ||= figures.cost_is_lower_bound;
      bar.input += figures.input;
      bar.requests += figures.requests;
    }
    bars.push(bar);
  }
  return bars;
}

const dayLabel = (day) => label.format(new Date(dayStart(day)));
const spanLabel = ({ from, to }) => (from === to ? dayLabel(from) : `${dayLabel(from)} – ${dayLabel(to)}`);

/** @param {{days: object[], hasCost: boolean}} props */
export function CostChart({ days, hasCost }) {
  const bars = barsOf(days);
  const [chosen, setChosen] = useState(-1);
  if (!bars.length) return null;
  const value = (bar) => (hasCost ? bar.cost : bar.input);
  const text = (bar) => `${spanLabel(bar)}: ${hasCost ? costText(bar) : `${tokens(bar.input)} tokens`}, ${plural(bar.requests, "request")}`;
  const highest = Math.max(...bars.map(value));
  const current = chosen >= 0 && chosen < bars.length ? chosen : bars.length - 1;
  const move = (event) => {
    const to = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: bars.length - 1 }[event.key];
    if (to === undefined || to < 0 || to >= bars.length) return;
    event.preventDefault();
    setChosen(to);
    event.currentTarget.children[to].focus();
  };
  const unit = bars[0].from === bars[0].to ? "day" : bars.length > 1 && dayStart(bars[0].to) - dayStart(bars[0].from) < 8 * 86_400_000 ? "week" : "month";
  return html`<figure class="cost-chart" data-testid="cost-chart">
    <figcaption><b>${hasCost ? "Cost" : "Tokens"} per ${unit}</b>
      <span class="soft">highest: ${hasCost ? dollars(highest) : tokens(highest)}</span></figcaption>
    <div class="cost-bars" role="group" aria-label=${`${hasCost ? "Cost" : "Tokens"} per ${unit}. Arrow keys move, Enter selects.`} onKeyDown=${move}>
      ${bars.map((bar, index) => html`<button key=${bar.from} type="button" class="day-bar" tabindex=${index === current ? 0 : -1}
          title=${text(bar)} aria-label=${text(bar)} onFocus=${() => setChosen(index)} onClick=${() => selectDays(bar.from, bar.to)}>
        <span style=${{ height: `${highest ? Math.max(value(bar) ? 2 : 0, (100 * value(bar)) / highest) : 0}%` }}></span>
      </button>`)}
    </div>
    <p class="cost-axis soft" aria-hidden="true"><span>${dayLabel(bars[0].from)}</span><span>${dayLabel(bars.at(-1).to)}</span></p>
  </figure>`;
}

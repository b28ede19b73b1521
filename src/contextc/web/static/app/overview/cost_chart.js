/** Costs by day, hour or model as bars; tokens, if no cost is known. A bar selects its day, week, month or year, or its model. */
import { html, useState } from "../html.js";
import { costText, dollars, inputText, oneLine, plural, tokens } from "../format.js";
import { route, setQuery } from "../route.js";
import { dayName, dayStart, filter, selectDays } from "./selection.js";

const MAX_BARS = 92;
/** What a bar can stand for: its days, and its name. */
const UNITS = [[1, "day"], [7, "week"], [30, "month"], [365, "year"]];
const label = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });

/** Return the bars, without gaps: each with its first and last day and its sums. @param {{day: string, figures: object}[]} days */
export function barsOf(days) {
  if (!days.length) return [];
  const [first, last] = [days[0].day, days.at(-1).day];
  const span = Math.round((dayStart(last) - dayStart(first)) / 86_400_000) + 1;
  const unit = UNITS.find(([length]) => span <= length * MAX_BARS)?.[0] ?? UNITS.at(-1)[0];
  const known = new Map(days.map((each) => [each.day, each.figures]));
  const bars = [];
  for (let offset = 0; offset < span; offset += unit) {
    const bar = { from: dayName(dayStart(first, offset)), to: "", ...NOTHING };
    for (let index = offset; index < Math.min(span, offset + unit); index += 1) {
      bar.to = dayName(dayStart(first, index));
      const figures = known.get(bar.to);
      if (figures) addTo(bar, figures);
    }
    bars.push(bar);
  }
  return bars;
}

const NOTHING = { cost: 0, cost_is_lower_bound: false, input: 0, estimated: 0, requests: 0 };

function addTo(bar, figures) {
  bar.cost += figures.cost ?? 0;
  bar.cost_is_lower_bound ||= figures.cost_is_lower_bound;
  bar.input += figures.input;
  bar.estimated += figures.estimated ?? 0;
  bar.requests += figures.requests;
}

/** Return a bar for each hour of the days that have hours, without gaps. @param {{hour: string, figures: object}[]} hours */
export function hourBarsOf(hours) {
  const known = new Map(hours.map((each) => [each.hour, each.figures]));
  const days = [...new Set(hours.map((each) => each.hour.slice(0, 10)))];
  return days.flatMap((day) => Array.from({ length: 24 }, (_, hour) => {
    const name = `${day}T${String(hour).padStart(2, "0")}`;
    const bar = { from: day, to: day, hour, key: name, ...NOTHING };
    if (known.has(name)) addTo(bar, known.get(name));
    return bar;
  }));
}

/** Return what each bar stands for. */
function unitOf([{ from, to, hour }]) {
  const length = Math.round((dayStart(to) - dayStart(from)) / 86_400_000) + 1;
  return hour !== undefined ? "hour" : UNITS.find(([days]) => length <= days)?.[1];
}

const dayLabel = (day) => label.format(new Date(dayStart(day)));
const spanLabel = ({ from, to, hour }) =>
  (from === to ? `${dayLabel(from)}${hour === undefined ? "" : `, ${hour}:00`}` : `${dayLabel(from)} – ${dayLabel(to)}`);

const SCALES = ["day", "hour", "model"];

/** @param {{data: object}} props the overview of the server */
export function CostChart({ data }) {
  const { days, hours, by_model: models, totals } = data;
  if (!days.length) return null;
  const hasCost = totals.cost !== null;
  const scale = SCALES.includes(route.value.query.by) ? route.value.query.by : days.length === 1 ? "hour" : "day";
  const spans = barsOf(days);
  const bars = scale === "hour" ? hourBarsOf(hours) : spans;
  const titles = { day: unitOf(spans).replace(/^./, (letter) => letter.toUpperCase()), hour: "Hour", model: "Model" };
  return html`<figure class="cost-chart" data-testid="cost-chart">
    <div class="choice" role="group" aria-label="Cost by">
      ${SCALES.map((name) => html`<button key=${name} type="button" aria-pressed=${String(name === scale)}
          onClick=${() => setQuery({ by: name })}>${titles[name]}</button>`)}
    </div>
    ${scale === "model" ? html`<${ModelBars} models=${models} hasCost=${hasCost} />` : html`<${TimeBars} key=${scale} bars=${bars} hasCost=${hasCost} />`}
  </figure>`;
}

const figureText = (figures, hasCost) => (hasCost ? costText(figures) : `${inputText(figures)} tokens`);

/** One bar per model, the most expensive first. A click shows only its requests. */
function ModelBars({ models, hasCost }) {
  const value = ({ figures }) => (hasCost ? figures.cost ?? 0 : figures.input + figures.estimated);
  const highest = Math.max(...models.map(value));
  return html`<figcaption><b>${hasCost ? "Cost" : "Tokens"} per model</b></figcaption>
    <ul class="model-bars" data-testid="model-bars">${models.map((each) => html`<li key=${each.model}>
      <button type="button" onClick=${() => filter({ model: each.model })} title=${`${oneLine(each.model, 200)}: only these requests`}>
        <span class="model-name">${oneLine(each.model, 60)}</span>
        <span class="model-share"><span style=${{ width: `${highest ? (100 * value(each)) / highest : 0}%` }}></span></span>
        <span class="model-figure">${figureText(each.figures, hasCost)} <span class="soft">${plural(each.figures.requests, "request")}</span></span>
      </button></li>`)}</ul>`;
}

/** @param {{bars: object[], hasCost: boolean}} props */
function TimeBars({ bars, hasCost }) {
  const [chosen, setChosen] = useState(-1);
  const value = (bar) => (hasCost ? bar.cost : bar.input + bar.estimated);
  const text = (bar) => `${spanLabel(bar)}: ${figureText(bar, hasCost)}, ${plural(bar.requests, "request")}`;
  const highest = Math.max(...bars.map(value));
  const current = chosen >= 0 && chosen < bars.length ? chosen : bars.length - 1;
  const move = (event) => {
    const to = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: bars.length - 1 }[event.key];
    if (to === undefined || to < 0 || to >= bars.length) return;
    event.preventDefault();
    setChosen(to);
    event.currentTarget.children[to].focus();
  };
  const unit = unitOf(bars);
  const edges = unit === "hour" ? bars.filter(({ hour }) => hour === 0) : [bars[0], bars.at(-1)];
  return html`<figcaption><b>${hasCost ? "Cost" : "Tokens"} per ${unit}</b>
      <span class="soft">highest: ${hasCost ? dollars(highest) : tokens(highest)}</span></figcaption>
    <div class="cost-bars" role="group" aria-label=${`${hasCost ? "Cost" : "Tokens"} per ${unit}. Arrow keys move, Enter selects.`} onKeyDown=${move}>
      ${bars.map((bar, index) => html`<button key=${bar.key ?? bar.from} type="button" class="day-bar" tabindex=${index === current ? 0 : -1}
          title=${text(bar)} aria-label=${text(bar)} onFocus=${() => setChosen(index)} onClick=${() => selectDays(bar.from, bar.to)}>
        <span style=${{ height: `${highest ? Math.max(value(bar) ? 2 : 0, (100 * value(bar)) / highest) : 0}%` }}></span>
      </button>`)}
    </div>
    <p class=${`cost-axis soft${unit === "hour" ? " of-hours" : ""}`} style=${{ "--bars": bars.length }} aria-hidden="true">${edges.map((bar, index) => html`<span
        key=${index}>${dayLabel(index && unit !== "hour" ? bar.to : bar.from)}</span>`)}</p>`;
}

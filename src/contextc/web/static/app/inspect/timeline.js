/**
 * Timeline of a conversation: one column per step, stacked by cache state; below it the cost. The cache share is a line,
 * cache epochs are bands with the reason for each reset, and models are a lane at the bottom.
 */
import { html, useMemo } from "../html.js";
import { GlyphLegend } from "./glyph_legend.js";
import { StepChart } from "./step_chart.js";
import { StepFigures, stepSummary } from "./step_figures.js";
import { eventKind, EVENTS, isFailed } from "./timeline_layout.js";
import { TimelinePlot, SIZES } from "./timeline_plot.js";

const NAMES = { chart: "timeline", slider: "Step", zoom: "Timeline zoom" };

/**
 * @param {{steps: object[], channels: Map<string, object>, current: number,
 *   choose: (index: number) => void, move: (by: number) => void}} props
 */
export function Timeline({ steps, channels, current, choose, move }) {
  const channelOf = (index) => channels.get(steps[index].channel);
  return html`<${StepChart} steps=${steps} current=${current} choose=${choose} move=${move} sizes=${SIZES} names=${NAMES}
    legend=${html`<${Legend} steps=${steps} />`} valueText=${(index) => stepSummary(steps[index], channelOf(index))}
    plot=${(view) => html`<${TimelinePlot} steps=${steps} channels=${channels} ...${view} />`}
    figures=${(index) => html`<${StepFigures} step=${steps[index]} channel=${channelOf(index)} />`} />`;
}

const SERIES = [
  ["read", "from cache"], ["write", "written to cache"], ["fresh", "uncached"], ["output", "output"],
  ["share", "cache share"], ["window", "context window"], ["cost", "cost"],
];

function Legend({ steps }) {
  const kinds = useMemo(() => new Set(steps.map((step) => eventKind(step.why))), [steps]);
  const signs = Object.entries(EVENTS).filter(([kind]) => kinds.has(kind)).map(([, { sign, word }]) => [sign, word]);
  return html`<ul class="timeline-legend" aria-label="Legend">
    ${SERIES.map(([name, label]) => html`<li key=${name}><span class=${`swatch series-${name}`}
        aria-hidden="true"></span>${label}</li>`)}
  </ul>
  <${GlyphLegend} signs=${steps.some(isFailed) ? [...signs, ["⊘", "failed or stopped"]] : signs} />`;
}

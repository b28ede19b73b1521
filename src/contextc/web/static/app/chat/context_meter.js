/**
 * Context meter: what the next request would take of the selected model's context window, including the last answer. The
 * bar is the whole window: system prompt, tool definitions, messages, free space, and at its end what is kept for the answer
 * and as a safety margin. The figures are those of the input. It links to the inspector.
 */
import { html } from "../html.js";
import { costText, number, oneLine, percent, tokens } from "../format.js";

/** Width of the bar in its own units, and the least width of a part. */
const [WIDTH, LEAST] = [100, 1.5];

export function ContextMeter({ gauge, usage, model, href }) {
  if (!gauge?.available) return null;
  const share = Math.min(1, (gauge.used ?? 0) / gauge.available);
  const cached = usage?.input ? (usage.cache_read ?? 0) / usage.input : null;
  const full = share > 0.9 ? "bad" : share > 0.75 ? "warn" : "";
  const words = [
    gauge.why ? oneLine(gauge.why, 200) : `${number(gauge.used)} of ${number(gauge.available)} tokens of ${oneLine(model, 60)} used`,
    gauge.why ? "" : partsText(gauge),
    gauge.window > gauge.available ? `context window ${number(gauge.window)}, the rest is kept for the answer` : "",
    cached ? `${percent(cached)} of the last input was cached` : "",
    gauge.cost ? `${costText(gauge)} so far` : "",
  ].filter(Boolean).join(", ");
  return html`
    <a class="gauge ${full} ${gauge.isOld ? "old" : ""}" href=${href} title=${`${words}. Open the inspector.`} data-testid="gauge">
      <span class="off-screen">Context: ${words}. Open the inspector.</span>
      <${Bar} gauge=${gauge} />
      <span class="gauge-figures">${gauge.why ? "full" : `${tokens(gauge.used)} / ${tokens(gauge.available)} input`}</span>
      ${cached !== null && cached > 0 && html`<span class="gauge-more">${percent(cached)} cached</span>`}
      ${gauge.cost > 0 && html`<span class="gauge-more">${costText(gauge)}</span>`}
    </a>`;
}

/** Return the tokens of each part; null if they are not known. During a turn, messages are what grows. */
function partsOf({ used = 0, available, parts }) {
  if (!parts?.whole) return null;
  const { system, tools, reserve, margin, whole } = parts;
  const messages = Math.max(0, used - system - tools);
  return { system, tools, messages, reserve, margin, free: Math.max(0, available - used), whole };
}

const NAMES = {
  system: "system prompt", tools: "tool definitions", messages: "messages", free: "free", reserve: "kept for the answer", margin: "safety margin",
};

function partsText(gauge) {
  const parts = partsOf(gauge);
  if (!parts) return "";
  return Object.entries(NAMES).filter(([part]) => parts[part] > 0).map(([part, name]) => `${name} ${number(parts[part])}`).join(", ");
}

function Bar({ gauge }) {
  const parts = partsOf(gauge) ?? { messages: gauge.used ?? 0, whole: gauge.available };
  const widthOf = (count) => (count > 0 ? Math.max(LEAST, (WIDTH * count) / parts.whole) : 0);
  let left = 0;
  const segments = ["system", "tools", "messages"].map((part) => {
    const at = { part, left, width: Math.min(widthOf(parts[part]), WIDTH - left) };
    left += at.width;
    return at;
  });
  const kept = widthOf((parts.reserve ?? 0) + (parts.margin ?? 0));
  return html`
    <svg class="gauge-bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
      <rect class="gauge-ground" width="100" height="6" />
      ${segments.map(({ part, left: x, width }) => width > 0 && html`<rect key=${part} class="gauge-fill is-${part}" x=${x} width=${width} height="6" />`)}
      ${kept > 0 && html`<rect class="gauge-kept" x=${WIDTH - kept} y="2" width=${kept} height="2" />`}
    </svg>`;
}

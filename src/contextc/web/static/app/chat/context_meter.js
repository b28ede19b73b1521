/**
 * Context meter: how much of the selected model's context window the next request would use, including the last answer.
 * The limit is that of the input: the context window without the tokens that are kept for the answer. It links to the inspector.
 */
import { html } from "../html.js";
import { dollars, number, oneLine, percent, tokens } from "../format.js";

export function ContextMeter({ gauge, usage, model, href }) {
  if (!gauge?.available) return null;
  const share = Math.min(1, (gauge.used ?? 0) / gauge.available);
  const cached = usage?.input ? (usage.cache_read ?? 0) / usage.input : null;
  const full = share > 0.9 ? "bad" : share > 0.75 ? "warn" : "";
  const words = [
    gauge.why ? oneLine(gauge.why, 200) : `${number(gauge.used)} of ${number(gauge.available)} tokens of ${oneLine(model, 60)} used`,
    gauge.window > gauge.available ? `context window ${number(gauge.window)}, the rest is kept for the answer` : "",
    cached ? `${percent(cached)} of the last input was cached` : "",
    gauge.cost ? `${dollars(gauge.cost)} so far` : "",
  ].filter(Boolean).join(", ");
  return html`
    <a class="gauge ${full} ${gauge.isOld ? "old" : ""}" href=${href} title=${`${words}. Open the inspector.`} data-testid="gauge">
      <span class="off-screen">Context: ${words}. Open the inspector.</span>
      <svg class="gauge-bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        <rect class="gauge-ground" width="100" height="6" rx="3" />
        <rect class="gauge-fill" width=${Math.max(share * 100, 1.5)} height="6" rx="3" />
      </svg>
      <span class="gauge-figures">${gauge.why ? "full" : `${tokens(gauge.used)} / ${tokens(gauge.available)} input`}</span>
      ${cached !== null && cached > 0 && html`<span class="gauge-more">${percent(cached)} cached</span>`}
      ${gauge.cost > 0 && html`<span class="gauge-more">${dollars(gauge.cost)}</span>`}
    </a>`;
}

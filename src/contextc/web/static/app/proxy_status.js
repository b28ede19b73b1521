/** Status of the proxies that record to this store: requests, and gaps in the record. */
import { html } from "./html.js";
import { proxies } from "./change_feed.js";
import { dateTime, number, oneLine, plural } from "./format.js";

const missing = ({ gaps }) => Object.values(gaps).reduce((sum, each) => sum + each, 0);

export function ProxyStatus() {
  const running = proxies.value;
  if (!running.length) return null;
  const recorded = running.reduce((sum, each) => sum + each.recorded, 0);
  const gaps = running.reduce((sum, each) => sum + missing(each), 0);
  const isFailing = running.some((each) => each.error);
  return html`
    <details class="proxy-status" data-testid="proxy-status">
      <summary>
        <span class="dot ${gaps || isFailing ? "bad" : "running"}"></span> Recording · ${plural(recorded, "request")}
        ${gaps > 0 && html` · <strong>${number(gaps)} not recorded</strong>`}
      </summary>
      <ul>${running.map((each) => html`<${Proxy} key=${each.address} proxy=${each} />`)}</ul>
    </details>`;
}

function Proxy({ proxy }) {
  const { address, started, requests, recorded, open, gaps, error } = proxy;
  return html`
    <li>
      <p><code>${oneLine(address, 60)}</code> since ${dateTime(started)}</p>
      <p>${plural(requests, "request")} passed, ${number(recorded)} recorded, ${number(open)} open</p>
      ${Object.entries(gaps).map(([reason, times]) => html`
        <p key=${reason}>${plural(times, "request")} not recorded: ${oneLine(reason, 160)}</p>`)}
      ${error && html`<p>The recorder is waiting: ${oneLine(error, 200)}</p>`}
    </li>`;
}

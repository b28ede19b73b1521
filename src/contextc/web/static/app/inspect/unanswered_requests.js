/**
 * Table of the requests without a complete answer. They are not in the ledger, because it is unknown what the model
 * processed. So no request is compared with them.
 */
import { html } from "../html.js";
import { dateTime, dollars, number, oneLine } from "../format.js";
import { inspectUrl } from "../route.js";

/** Return the number of unanswered requests as a sentence. */
export function unansweredText(count) {
  return count === 1
    ? "1 request was not answered. It does not count as sent to the model."
    : `${number(count)} requests were not answered. They do not count as sent to the model.`;
}

/** @param {{name: string, lost: object[], channels: Map<string, object>, open?: boolean}} props */
export function UnansweredRequests({ name, lost, channels, open = false }) {
  if (!lost.length) return null;
  return html`<details class="unanswered" data-testid="unanswered" open=${open}>
    <summary><span class="unanswered-sign" aria-hidden="true">⊘</span> ${unansweredText(lost.length)}</summary>
    <div class="unanswered-scroll" tabindex="0" role="region" aria-label="Unanswered requests">
      <table>
        <thead><tr><th scope="col">sent</th><th scope="col">model</th><th scope="col">turn, step</th><th
            scope="col">as request</th><th scope="col">how it ended</th><th scope="col">tokens</th><th scope="col">cost</th><th
            scope="col">stored as</th></tr></thead>
        <tbody>${lost.map((each, index) => html`<${Row} key=${index} name=${name} each=${each}
            channel=${channels.get(each.channel)} />`)}</tbody>
      </table>
    </div>
  </details>`;
}

function Row({ name, each, channel }) {
  const { time, turn, step, request, why, usage, seq, number: kept, cost } = each;
  return html`<tr>
    <td>${time ? html`<time datetime=${new Date(time).toISOString()}>${dateTime(time)}</time>` : "unknown"}</td>
    <td><span class=${`channel-letter hue-${channel?.hue ?? 0}`}>${channel?.letter ?? "?"}</span>${oneLine(each.model, 60)}</td>
    <td>${turn == null ? "outside a turn" : `${number(turn)}, ${number(step)}`}</td>
    <td>${kept ? html`<a href=${inspectUrl(name, each.channel, kept)} data-testid="unanswered-link"
        aria-label=${`Inspect unanswered request ${request}`}>${number(request)}</a>` : number(request)}</td>
    <td class="unanswered-why">${oneLine(why, 400)}</td>
    <td>${usage ? `${number(usage.input)} in, ${number(usage.output)} out` : "not reported"}</td>
    <td>${cost == null ? "unknown" : dollars(cost)}</td>
    <td>${seq ? `message ${number(seq)}` : "nothing"}</td>
  </tr>`;
}

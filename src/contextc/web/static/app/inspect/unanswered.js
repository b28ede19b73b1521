/**
 * Requests that were not answered to their end: one line that says how many, and a table of when, whom, and why.
 *
 * They are no requests of the ledger: nobody knows what of them a model has taken in, so nothing is compared with them.
 */
import { html } from "../html.js";
import { dateTime, dollars, number, oneLine } from "../format.js";
import { inspectAddress } from "../route.js";

/** How many, as a sentence. */
export function unansweredInWords(count) {
  return count === 1
    ? "1 request was not answered to its end: it is no part of what a model is taken to know."
    : `${number(count)} requests were not answered to their end: they are no part of what a model is taken to know.`;
}

/** @param {{name: string, lost: object[], channels: Map<string, object>, open?: boolean}} props */
export function Unanswered({ name, lost, channels, open = false }) {
  if (!lost.length) return null;
  return html`<details class="unanswered" data-testid="unanswered" open=${open}>
    <summary><span class="unanswered-sign" aria-hidden="true">⊘</span> ${unansweredInWords(lost.length)}</summary>
    <div class="unanswered-scroll" tabindex="0" role="region" aria-label="Requests that were not answered">
      <table>
        <thead><tr><th scope="col">sent</th><th scope="col">to</th><th scope="col">turn, step</th><th
            scope="col">as request</th><th scope="col">how it ended</th><th scope="col">tokens</th><th scope="col">cost</th><th
            scope="col">what came</th></tr></thead>
        <tbody>${lost.map((each, index) => html`<${Row} key=${index} name=${name} each=${each}
            channel=${channels.get(each.channel)} />`)}</tbody>
      </table>
    </div>
  </details>`;
}

function Row({ name, each, channel }) {
  const { time, turn, step, request, why, usage, seq, number: kept, cost } = each;
  return html`<tr>
    <td>${time ? html`<time datetime=${new Date(time).toISOString()}>${dateTime(time)}</time>` : "not known"}</td>
    <td><span class=${`channel-letter hue-${channel?.hue ?? 0}`}>${channel?.letter ?? "?"}</span>${oneLine(each.model, 60)}</td>
    <td>${turn == null ? "by hand" : `${number(turn)}, ${number(step)}`}</td>
    <td>${kept ? html`<a href=${inspectAddress(name, each.channel, kept)} data-testid="unanswered-link"
        aria-label=${`Look at request ${request}, which was not answered`}>${number(request)}</a>` : number(request)}</td>
    <td class="unanswered-why">${oneLine(why, 400)}</td>
    <td>${usage ? `${number(usage.input)} in, ${number(usage.output)} out` : "not told"}</td>
    <td>${cost == null ? "not known" : dollars(cost)}</td>
    <td>${seq ? `message ${number(seq)}` : "nothing"}</td>
  </tr>`;
}

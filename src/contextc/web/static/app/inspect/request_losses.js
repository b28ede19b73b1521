/** All requests of a cause as a table: the tokens that each lost, its cost, and the sums. */
import { html, useState } from "../html.js";
import { costText, number, plural } from "../format.js";

const MORE = 100;

/** Return what each request lost by a finding: one of its own, or several that lost little each. */
export const lossesOf = ({ losses, evidence: [first], tokens, cost, cost_is_lower_bound }) =>
  (losses?.length ? losses : [{ channel: first?.channel ?? "", request: first?.request ?? 0, tokens, cost, cost_is_lower_bound }]);

/** Return the sums: `cost` is null if none is known. */
export function sumLosses(losses) {
  const known = losses.filter((each) => each.cost !== null);
  const sum = (some, field) => some.reduce((total, each) => total + each[field], 0);
  return { tokens: sum(losses, "tokens"), cost: known.length ? sum(known, "cost") : null, cost_is_lower_bound: losses.some((each) => each.cost_is_lower_bound) };
}

/** Tokens are lost only by a cache miss. Other findings are about tokens that are there. */
export const tokensWord = (code) => (code.startsWith("CAC") ? "tokens lost" : "tokens");

/** A request has at most one cache miss. Other findings can be about several requests, or several about one. */
export const countLosses = (code, count) => plural(count, code.startsWith("CAC") ? "request" : "finding");

/**
 * @param {{code: string, losses: object[], totals: {requests: number, tokens: number, cost: number|null}, columns: string[],
 *   cells: (loss: object) => any[], label: string}} props `cells` returns the first cells of a row, one for each of `columns`
 */
export function LossTable({ code, losses, totals, columns, cells, label }) {
  const [count, setCount] = useState(MORE);
  return html`<div class="loss-scroll" tabindex="0" role="group" aria-label=${label}><table class="loss-table" data-testid="losses">
      <thead><tr>${columns.map((each) => html`<th key=${each} scope="col">${each}</th>`)}<th scope="col">${tokensWord(code)}</th><th scope="col">cost</th></tr></thead>
      <tbody>${losses.slice(0, count).map((each, index) => {
        const [first, ...rest] = cells(each);
        return html`<tr key=${index}><th scope="row">${first}</th>${rest.map((cell, at) => html`<td key=${at} class="loss-place">${cell}</td>`)}
          <td>${each.tokens ? number(each.tokens) : "–"}</td><td>${costText(each)}</td></tr>`;
      })}</tbody>
      <tfoot><tr><th scope="row" colspan=${columns.length}>${countLosses(code, totals.requests)}</th><td>${totals.tokens ? number(totals.tokens) : "–"}</td><td>${costText(totals)}</td></tr></tfoot>
    </table></div>
    ${losses.length > count && html`<button type="button" class="button quiet" onClick=${() => setCount(count + MORE)}>Show
      ${" "}${number(Math.min(MORE, losses.length - count))} more</button>`}
    ${totals.requests > losses.length && html`<p class="soft">Of each conversation, the most expensive ones are listed.</p>`}`;
}

/** The causes of findings in the checked conversations, the most expensive first, and all requests of one of them. */
import { html, useEffect, useRef, useState } from "../html.js";
import { costText, number, oneLine, plural, titleLine, visible } from "../format.js";
import { IconButton } from "../icons.js";
import { countLosses, LossTable } from "../inspect/request_losses.js";
import { OVERLAP } from "../reasons.js";
import { inspectUrl, overviewUrl, setQuery } from "../route.js";
import { byCost, causesOf, checkAll, checked, checking, findingsOf, stopCheck } from "./findings_check.js";
import { PAGE } from "./selection.js";

const MAX_CAUSES = 5;

/** URL of the findings of a conversation: at the most expensive one of a cause, if that is known. */
export const findingsUrl = (name, { channel = "", request = 0, code = "" } = {}) =>
  inspectUrl(name, request ? channel : "", request, { tab: "findings", finding: code });

/** Return true if more conversations are checked than one page has: then the causes are about all of them. */
const isAllChecked = (data) => data.found > PAGE && checked.value.size > PAGE;

/** Return the causes of the checked conversations: of all, or of those on this page. */
function shownCauses(data) {
  const isAll = checking.value?.all || isAllChecked(data);
  return causesOf(isAll ? [...checked.value.keys()] : data.conversations.map((each) => each.conversation.name));
}

/** @param {{query: Record<string, string>, data: object}} props */
export function Causes({ query, data }) {
  const [isAll, setAll] = useState(false);
  const causes = shownCauses(data);
  const costly = causes.filter((each) => each.cost > 0);
  const others = causes.filter((each) => !(each.cost > 0));
  const progress = checking.value;
  const done = data.conversations.filter((each) => findingsOf(each)).length;
  return html`<section class="overview-causes" aria-label="Most expensive causes" data-testid="causes">
    <h2>Most expensive causes</h2>
    ${costly.length > 0 && html`<ol>${(isAll ? costly : costly.slice(0, MAX_CAUSES)).map((each) => html`<${Cause} key=${each.code} cause=${each} query=${query} />`)}</ol>`}
    ${costly.length === 0 && html`<p class="soft">${progress ? "Checking…" : causes.length ? "No finding has a known cost." : "No findings."}</p>`}
    ${costly.length > MAX_CAUSES && html`<button type="button" class="inline-link" aria-expanded=${String(isAll)} onClick=${() => setAll(!isAll)}>${
      isAll ? `Show the ${MAX_CAUSES} most expensive` : `Show all ${number(costly.length)} causes`}</button>`}
    ${costly.length > 0 && html`<p class="soft">A cause leads to all its requests. ${OVERLAP}</p>`}
    ${others.length > 0 && html`<h2>Findings without a known cost</h2>
      <ul data-testid="other-findings">${others.map((each) => html`<${Cause} key=${each.code} cause=${each} query=${query} />`)}</ul>`}
    <div class="overview-progress" role="status">
      ${progress?.error && html`<p class="bad-text">${progress.error.message}</p>`}
      ${progress && !progress.error && html`<progress max=${progress.total} value=${progress.done} aria-label="Checked conversations"></progress>
        <span class="soft">${number(progress.done)} of ${number(progress.total)} checked</span>
        <button type="button" class="button quiet" onClick=${stopCheck}>Stop</button>`}
      ${!progress && html`<span class="soft">${number(done)} of ${number(data.conversations.length)} on this page checked.</span>`}
      ${!progress?.all && data.found > PAGE && html`<button type="button" class="button" onClick=${() => checkAll(query, data.found)}
        >Check all ${number(data.found)}</button>`}
    </div>
  </section>`;
}

function Cause({ cause, query }) {
  const { code, title, count, conversations, cost } = cause;
  return html`<li><span class="card-code">${code}</span> <a href=${overviewUrl({ ...query, cause: code })}
        aria-current=${query.cause === code ? "true" : undefined}>${oneLine(title, 120)}</a>
    <span class="cause-figures">${cost > 0 && html`<b>${costText(cause)}</b>`}
      <span class="soft">${plural(count, "finding")} in ${plural(conversations, "conversation")}</span></span>
  </li>`;
}

/** All requests of one cause in the checked conversations, the most expensive first. */
export function CauseRequests({ code, query, data }) {
  const cause = shownCauses(data).find((each) => each.code === code);
  const box = useRef(null);
  useEffect(() => {
    box.current?.scrollIntoView({ block: "nearest" });
    box.current?.focus({ preventScroll: true });
  }, [Boolean(cause)]);
  if (!cause) return null;
  const losses = cause.parts.flatMap(({ conversation, losses: some }) => some.map((each) => ({ ...each, conversation }))).sort(byCost);
  const cells = ({ conversation, channel, request, would_be: wouldBe }) => [
    html`<a href=${findingsUrl(conversation.name, { channel, request, code })} dir="auto" title=${visible(conversation.name)}>${titleLine(conversation, 60)}</a>
      ${conversation.title && conversation.title !== conversation.name && html`<small class="row-name">${oneLine(conversation.name, 80)}</small>`}`,
    wouldBe ? `${number(wouldBe)} (failed)` : request ? number(request) : "all",
  ];
  return html`<section class="cause-requests" tabindex="-1" ref=${box} aria-label=${`Requests of ${code}`} data-testid="cause-requests">
    <header><h2><span class="card-code">${code}</span> ${oneLine(cause.title, 120)}</h2>
      <${IconButton} icon="close" label="Close the list of requests" onClick=${() => setQuery({ cause: "" })} /></header>
    <p class="soft">${countLosses(code, cause.requests)} in ${plural(cause.conversations, "conversation")}, the most expensive first.</p>
    <${LossTable} code=${code} losses=${losses} totals=${cause} columns=${["conversation", "request"]} cells=${cells} label=${`Requests of ${code}`} />
  </section>`;
}

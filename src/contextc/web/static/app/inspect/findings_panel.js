/**
 * The Findings tab: why the cache missed, what fills the window, what failed, with the words that changed, the cost and a
 * fix. Findings are grouped by cause, the most expensive cause first. Beside them is what was spent on each part of the requests.
 */
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { costText, dollars, number, oneLine, percent, plural, titleLine, tokens } from "../format.js";
import { OVERLAP } from "../reasons.js";
import { inspectUrl, route } from "../route.js";
import { endedWord, errorText } from "../observed.js";
import { causeLabel } from "./causes.js";
import { toValue } from "./diff.js";
import { markOfChange } from "./marked_words.js";
import { EmptyState, LoadError, Skeleton } from "./placeholders.js";
import { countLosses, LossTable, lossesOf, sumLosses, tokensWord } from "./request_losses.js";
import { requestNumber } from "./timeline_layout.js";
import { useLoad } from "../use_load.js";

/** Causes that are no loss: they only explain why nothing could have been better. */
const HARMLESS = new Set(["first_request", "below_minimum"]);
/** Milliseconds to wait after a new request before the findings are computed again. */
const SETTLE = 1_500;
const MORE = 25;
const MOST_PLACES = 6;
const MOST_COSTS = 12;
const MOST_LINKS = 4;
/** Code → text in place of a cost: a request that failed has no usage, and a rule or a remark has no cost. */
const UNPRICED = { FAI001: "", FAI002: "no usage reported", FAI004: "no usage reported", FAI005: "" };

/** Kinds of costs that are rows of a request, which Messages can filter. */
const ROW_COSTS = new Set(["system", "tool", "result", "history", "reasoning", "media"]);

/**
 * Load the findings of a conversation, again after new requests.
 * @param {number} count number of requests
 * @returns {{found: object|null, losses: object[], error: Error|null, reload: () => Promise<void>}} `losses` are the findings
 *   without those that explain something unavoidable
 */
export function useFindings(name, count) {
  const path = conversationPath(name, "findings");
  const wasLoaded = useRef(false);
  const { data, error, reload } = useLoad(`${path} ${count}`, (signal) => get(path, {}, { signal }), {
    delay: wasLoaded.current ? SETTLE : 0,
  });
  wasLoaded.current ||= data !== null;
  const losses = useMemo(() => (data?.findings ?? []).filter(isLoss), [data]);
  return { found: data, losses, error, reload };
}

const isLoss = (finding) => !HARMLESS.has(finding.cause);

/** Return true if any finding costs something. */
export const isCostly = (losses) => losses.some((each) => each.cost > 0);

/** Return the requests that costly findings are about, as keys. */
export const costlyRequests = (losses) =>
  new Set(losses.filter((each) => each.cost > 0 && each.evidence.length).map((each) => key(each.evidence[0])));

const key = ({ channel, request }) => `${channel} ${request}`;

/**
 * Return steps with the causes of their cache misses, so that each has one name. A request with a finding of its own has
 * lost what was cached, also if it began no new epoch.
 */
export function withCauses(steps, losses) {
  const causes = new Map();
  for (const each of losses.filter(({ code, evidence }) => code.startsWith("CAC") && evidence.length)) {
    const found = each.losses?.length ? { cause: each.cause } : { cause: each.cause, reset: true };
    for (const loss of lossesOf(each)) causes.set(key(loss), found);
  }
  return causes.size ? steps.map((step) => (causes.has(key(step)) ? { ...step, ...causes.get(key(step)) } : step)) : steps;
}

/** Compare two findings: the more expensive one is first, and those of unknown cost are last. */
const byCost = (one, other) => (other.cost ?? -1) - (one.cost ?? -1);

/** Return the findings that are about a request, the most expensive first. */
const findingsOf = (findings, step) => findings.filter((each) => isAbout(each, key(step))).sort(byCost);

/** Return true if a finding is about a request, given by its key. */
const isAbout = (finding, wanted) => Boolean(finding?.evidence.some((place) => key(place) === wanted));

/** Return findings with one about a request first, if there is one. */
function ownFirst(group, wanted) {
  const first = group.findIndex((each) => isAbout(each, wanted));
  return first > 0 ? [group[first], ...group.filter((_, index) => index !== first)] : group;
}

/** Group findings by code, in their order: that of the most expensive cause is first. */
const groupByCode = (findings) => [...Map.groupBy(findings, ({ code }) => code).values()];

/**
 * Links to the findings about the selected request.
 * @param {{name: string, step: object, losses: object[], remarks: string[], signedLost: number}} props
 */
export function RequestFindings({ name, step, losses, remarks, signedLost }) {
  const own = findingsOf(losses, step);
  const told = new Set(own.flatMap((each) => each.evidence.map((place) => oneLine(place.after, 140))));
  const rest = remarks.filter((each) => !told.has(oneLine(each, 140)) && !own.some((one) => one.cause === "compiler_remark"));
  if (!own.length && !rest.length && !signedLost) return null;
  const url = (query) => inspectUrl(name, step.channel, step.request, { tab: "findings", ...query });
  return html`<ul class="request-findings" aria-label="Findings of this request" data-testid="request-findings">
    ${own.slice(0, MOST_LINKS).map((each, index) => html`<li key=${index}><a class="finding-link" href=${url({ finding: each.code })} title=${oneLine(each.title, 300)}><span
        class="card-code">${each.code}</span><span class="finding-link-title">${oneLine(namesOf(each)[0], 80)}</span>${each.cost > 0 && html` <b>${costText(each)}</b>`}</a></li>`)}
    ${own.length > MOST_LINKS && html`<li><a class="finding-link" href=${url({})}>${number(own.length - MOST_LINKS)} more</a></li>`}
    ${signedLost > 0 && html`<li class="is-bad">Signed reasoning of ${plural(signedLost, "message")} was lost here.</li>`}
    ${rest.map((each) => html`<li key=${each}><a class="finding-link" href=${url({})} title=${oneLine(each, 400)}>Remark: ${oneLine(each, 80)}</a></li>`)}
  </ul>`;
}

/**
 * @param {{name: string, steps: object[], step: object, channels: Map<string, object>, load: object, focus: string}} props
 *   `load` is from `useFindings`; `focus` is the code of the finding to show first. If the URL names a request, its findings come first
 */
export function FindingsPanel({ name, steps, step, channels, load, focus }) {
  const { found, losses, error, reload } = load;
  const selected = route.value.channel ? key(step) : "";
  const groups = useMemo(() => groupByCode(losses).map((group) => ownFirst(group, selected)), [losses, selected]);
  const shown = useMemo(() => [...groups.filter(([first]) => isAbout(first, selected)).sort(([one], [other]) => byCost(one, other)), ...groups.filter(([first]) => !isAbout(first, selected))],
    [groups, selected]);
  const numbers = useMemo(() => new Map(steps.map((each) => [key(each), each])), [steps]);
  const box = useRef(null);
  useEffect(() => {
    const card = focus ? box.current?.querySelector(`[data-code="${CSS.escape(focus)}"]`) : null;
    card?.scrollIntoView({ block: "start" });
    card?.focus();
  }, [focus, groups]);
  if (error) return html`<${LoadError} error=${error} reload=${reload} />`;
  if (!found) return html`<${Skeleton} lines=${8} label="Loading the findings" />`;
  const place = { name, numbers, channels, shown: oneLine(errorText(step), 4000) };
  const harmless = found.findings.length - losses.length;
  return html`<div class="panel scrolls findings-panel" data-testid="findings-panel" ref=${box}>
    <div class="findings-main">
      ${losses.length === 0 && html`<${EmptyState} title="No findings"><p>Nothing here costs more than necessary, and no
        request failed.</p><//>`}
      <ol class="card-list" aria-label=${selected && isAbout(shown[0]?.[0], selected) ? "Findings, those of this request first" : "Findings, the most expensive cause first"}>
        ${shown.map((group) => html`<${Group} key=${group[0].code} group=${group} place=${place} />`)}
      </ol>
      ${found.more && html`<p class="soft findings-note">There are more findings than the ${number(found.findings.length)} that are listed.</p>`}
      ${harmless > 0 && html`<p class="soft findings-note">${plural(harmless, "cache miss", "cache misses")} could not have been
        avoided: the first request of a prefix, or too few tokens for the cache.</p>`}
      ${losses.length > 0 && html`<p class="soft findings-note">${OVERLAP} The table of what was spent adds up.</p>`}
    </div>
    <${CostTable} costs=${found.costs} name=${name} step=${step} />
  </div>`;
}

/** Findings of one cause: the first one, which is about the selected request or the most expensive. The others are one click away. */
function Group({ group, place }) {
  const [count, setCount] = useState(1);
  const { code } = group[0];
  const sums = sumLosses(group);
  return html`<li class="card-group" data-code=${code} tabindex="-1" data-testid="cause">
    ${group.length > 1 && html`<p class="card-group-head"><span class="card-code">${code}</span>
      <b>${plural(group.length, "finding")}</b> with this cause${sums.cost !== null && html`, together <b>${costText(sums)}</b>`}</p>`}
    <${Finding} finding=${group[0]} place=${place} isAlone=${group.length === 1} />
    <${AllRequests} group=${group} place=${place}>
      ${group.slice(1, count).map((each, index) => html`<${Finding} key=${index} finding=${each} place=${place} />`)}
      ${group.length > count && html`<button type="button" class="button quiet" onClick=${() => setCount(count + MORE)}>Show
        ${" "}${number(Math.min(MORE, group.length - count))} more in detail</button>`}
    <//>
  </li>`;
}

/** The requests of one cause, in their order, with what each lost; `children` are the details of the others. */
function AllRequests({ group, place, children }) {
  const { code } = group[0];
  const losses = useMemo(() => group.flatMap(lossesOf).sort((one, other) => one.request - other.request), [group]);
  if (losses.length < 2) return group.length > 1 ? children : null;
  const totals = { requests: losses.length, ...sumLosses(losses) };
  const cells = (loss) => [loss.request
    ? html`<a href=${inspectUrl(place.name, loss.channel, loss.request, { tab: "findings", finding: code })}>${requestLabel(loss, place)}</a>
      ${code.startsWith("CAC") && html` <a href=${inspectUrl(place.name, loss.channel, loss.request, { tab: "diff" })}
          aria-label=${`Changes of ${requestLabel(loss, place)}`}>changes</a>`}`
    : "the whole conversation"];
  return html`<details class="all-requests" data-testid="all-requests">
    <summary>All ${countLosses(code, losses.length)}${totals.tokens > 0 && `: ${number(totals.tokens)} ${tokensWord(code)}`}</summary>
    <${LossTable} code=${code} losses=${losses} totals=${totals} columns=${["request"]} cells=${cells} label=${`Requests of ${code}`} />
    ${group.length > 1 && html`<div class="other-findings">${children}</div>`}
  </details>`;
}

/** Return the number of a request, with the letter of its model and how it ended. */
function requestLabel(each, { numbers, channels }) {
  const step = numbers.get(key(each));
  const letter = channels.size > 1 ? `${channels.get(each.channel)?.letter ?? "?"} · ` : "";
  return `${letter}request ${number(step ? requestNumber(step) : each.would_be || each.request)}${step?.ended ? ` (${endedWord(step.ended)})` : ""}`;
}

/** `isAlone`: no heading of a group has the code already. */
function Finding({ finding, place, isAlone = false }) {
  const { code, title, cost, fix, confidence, also, vendor, evidence } = finding;
  const isShown = (text) => Boolean(text) && (title.includes(text) || place.shown.startsWith(text.replace(/…$/, "")));
  const tools = evidence.filter((each) => each.name);
  const shown = tools.length ? null : evidence.find((each) => each.before || each.after);
  const [heading, detail] = namesOf(finding);
  const other = evidence.find((each) => each.compared)?.compared;
  return html`<article class="card" data-testid="finding" aria-label=${`${code}: ${oneLine(heading, 160)}`}>
    <div class="card-head">
      <h3>${isAlone && html`<span class="card-code">${code}</span> `}<${WithLink} text=${heading} other=${other} /></h3>
      <p class="card-figures">${cost === null ? html`<span class="faint">${UNPRICED[code] ?? "cost unknown"}</span>` : html`<b>${costText(finding)}</b>`}
        ${finding.tokens > 0 && html`<span>${number(finding.tokens)} tokens</span>`}
        <span class="faint" title="The probability that this is the cause">${confidence >= 1 ? "certain" : `${percent(confidence)} certain`}</span></p>
    </div>
    ${detail && html`<p class="card-detail"><${WithLink} text=${detail} other=${other} /></p>`}
    ${shown && !(code.startsWith("FAI") && isShown(shown.after)) && html`<${Change} evidence=${shown} />`}
    ${tools.map((each, index) => html`<${ToolChange} key=${index} evidence=${each} />`)}
    ${fix && html`<p class="card-fix"><b>Fix:</b> <${Inline} text=${fix} /></p>`}
    ${also.length > 0 && html`<p class="soft">Would have had the same effect alone: ${also.map((each) => each.replaceAll("_", " ")).join(", ")}.</p>`}
    ${vendor && html`<p class="soft">The provider's own reason: <code>${oneLine(vendor, 80)}</code>${finding.vendor_agrees === null
      ? "" : finding.vendor_agrees ? ", which is the same cause" : ", which is another cause"}.</p>`}
    <${Places} finding=${finding} place=${place} />
  </article>`;
}

/** Return the name of the cause, as in the overview, and what this finding says beyond it. */
function namesOf({ title, cause_title: cause }) {
  return !cause || title.startsWith(cause) ? [title, ""] : [cause, title];
}

/** A text that may name another conversation: its name becomes a link with its title. */
function WithLink({ text, other, limit = 300 }) {
  const name = other?.conversation ? [` of ${other.conversation}`, ` as ${other.conversation}`].find((each) => text.includes(each)) : "";
  if (!name) return oneLine(text, limit);
  const at = text.lastIndexOf(name) + 4;
  return html`${oneLine(text.slice(0, at), limit)} <${ConversationLink} other=${other} />${
    oneLine(`|${text.slice(at + other.conversation.length)}`, limit).slice(1)}`;
}

const ConversationLink = ({ other, start = "" }) => html`<a href=${inspectUrl(other.conversation, other.channel, other.request)}
    title=${oneLine(other.conversation, 200)} data-testid="other-conversation">${start}${titleLine({ title: other.title, name: other.conversation }, 60)}</a>`;

/** The words before and after a change; without a change, what was found. */
function Change({ evidence: { before, after, is_change: isChange = true, compared } }) {
  if (!isChange || !before) {
    const facts = [before, after].filter(Boolean);
    return html`<p class="card-change" data-testid="facts">${facts.map((each, index) => html`<span key=${index} class="card-words">${index > 0 && " · "}<${WithLink}
        text=${each} other=${compared} limit=${400} /></span>`)}</p>`;
  }
  return html`<p class="card-change" data-testid="change"><del><span class="off-screen">before: </span>${oneLine(before, 400)}</del>
    <span aria-hidden="true"> → </span>${after
      ? html`<ins><span class="off-screen">after: </span>${oneLine(after, 400)}</ins>`
      : html`<span class="faint">removed</span>`}</p>`;
}

/** A tool that was added, removed or changed: its definition, or the words that changed in it. */
function ToolChange({ evidence: { name, path, before, after } }) {
  const verb = !before ? "added" : !after ? "removed" : "changed";
  const field = verb === "changed" ? path.split("].").at(-1) : "";
  return html`<p class="card-change" data-testid="tool-change"><b>tool ${oneLine(name, 80)} ${verb}</b>${field && !field.includes("[") && ` (${oneLine(field, 60)})`}:
    ${" "}${before && html`<del><span class="off-screen">before: </span>${oneLine(before, 400)}</del>`}${before && after && html`<span aria-hidden="true"> → </span>`}${
      after && html`<ins><span class="off-screen">after: </span>${oneLine(after, 400)}</ins>`}</p>`;
}

/** A text with code between backticks. */
function Inline({ text }) {
  return oneLine(text, 1000).split("`").map((piece, index) => (index % 2 ? html`<code key=${index}>${piece}</code>` : piece));
}

/** Links to the requests and paths that a finding is based on. */
function Places({ finding, place }) {
  const [isAll, setAll] = useState(false);
  const { evidence } = finding;
  if (!evidence.length) return null;
  const some = isAll ? evidence : evidence.slice(0, MOST_PLACES);
  return html`<p class="card-places">${some.map((each, index) => html`<${Place} key=${index} each=${each} code=${finding.code} place=${place} />`)}
    ${evidence.length > some.length && html`<button type="button" class="inline-link" onClick=${() => setAll(true)}>${number(evidence.length - some.length)} more places</button>`}</p>`;
}

function Place({ each, code, place }) {
  const { name } = place;
  const label = requestLabel(each, place);
  const url = (query) => inspectUrl(name, each.channel, each.request, query);
  if (!each.request) return html`<span class="faint">the whole conversation</span>`;
  const marked = each.is_change !== false && each.after ? markOfChange(each.before, each.after) : {};
  const target = each.path ? { tab: "request", path: each.path, ...marked } : { tab: code.startsWith("FAI") ? "reply" : "messages" };
  const other = each.compared;
  const isElsewhere = other && other.conversation !== name;
  return html`<span class="card-place"><a href=${url(target)} data-testid="place">${label}${each.path && html` · <code>${oneLine(each.path, 80)}</code>`}${code === "WIN001" && each.after && ` ${oneLine(each.after.split(": ")[0], 60)}`}</a>
    ${code.startsWith("CAC") && html` <a href=${url({ tab: "diff", to: other ? toValue(name, other) : "" })} aria-label=${`Changes of ${label}`}>changes</a>`}
    ${isElsewhere && html` compared with <${ConversationLink} other=${other} start=${`request ${number(other.request)} of `} />`}</span>`;
}

/** What all requests cost, by the parts that it was spent for. @param {{costs: object, name: string, step: object}} props */
function CostTable({ costs, name, step }) {
  const [isAll, setAll] = useState(false);
  const lines = costs.lines.filter((each) => each.cost !== null || each.tokens > 0);
  if (!lines.length) return null;
  const shown = isAll ? lines : lines.slice(0, MOST_COSTS);
  const whole = costs.cost ?? 0;
  return html`<aside class="costs" aria-label="What was spent" data-testid="costs">
    <h3>What was spent</h3>
    <table>
      <thead><tr><th scope="col">spent for</th><th scope="col">cost</th><th scope="col">share</th><th scope="col">tokens</th><th
          scope="col">from cache</th></tr></thead>
      <tbody>${shown.map((each) => html`<${CostRow} key=${`${each.kind} ${each.name}`} line=${each} whole=${whole} name=${name} step=${step} />`)}</tbody>
      <tfoot><tr><th scope="row">all requests</th><td>${costText(costs)}</td><td></td><td></td><td>${percent(costs.cache_share)}</td></tr></tfoot>
    </table>
    ${lines.length > shown.length && html`<button type="button" class="button quiet" onClick=${() => setAll(true)}>Show all ${number(lines.length)}</button>`}
    ${costs.unpriced > 0 && html`<p class="soft">${plural(costs.unpriced, "request")} of unknown cost not included.</p>`}
    ${costs.rewrite_factor > 1.05 && html`<p class="soft">Rewrite factor ${costs.rewrite_factor.toFixed(1)}: tokens written to the cache (uncached ones, if none were written), divided by the largest request. 1.0 means that everything was paid in full once.</p>`}
  </aside>`;
}

function CostRow({ line, whole, name, step }) {
  const label = causeLabel(line.kind).replaceAll("_", " ");
  const text = line.name ? html`${label} <code>${oneLine(line.name, 40)}</code>` : label;
  const share = whole && line.cost !== null ? line.cost / whole : null;
  const url = inspectUrl(name, step.channel, step.request, { tab: "messages", cause: line.kind, tool: line.name });
  return html`<tr>
    <th scope="row">${ROW_COSTS.has(line.kind) ? html`<a href=${url}>${text}</a>` : text}</th>
    <td>${dollars(line.cost)}</td>
    <td class="cost-share"><span class="cost-bar" aria-hidden="true" style=${{ width: `${(100 * (share ?? 0)).toFixed(1)}%` }}></span><span>${percent(share)}</span></td>
    <td>${tokens(line.tokens)}</td><td>${line.tokens ? percent(line.read / line.tokens) : "–"}</td>
  </tr>`;
}

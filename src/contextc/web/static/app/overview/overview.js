/** Overview of the store: totals, costs per day, the most expensive causes, and all conversations as a sortable table. */
import { html, useEffect, useRef, useState } from "../html.js";
import { get } from "../api.js";
import { onConversationChange } from "../change_feed.js";
import { DrawerButton } from "../chat/conversation_header.js";
import { ago, costText, dateTime, inputText, number, oneLine, outputText, percent, plural, titleLine, tokens, visible } from "../format.js";
import { Icon, IconButton } from "../icons.js";
import { LoadError, Skeleton } from "../inspect/placeholders.js";
import { OVERLAP } from "../reasons.js";
import { sourceLabel, sourceName } from "../observed.js";
import { chatUrl, inspectUrl, route, searchUrl, setQuery } from "../route.js";
import { CostChart } from "./cost_chart.js";
import { CauseRequests, Causes, findingsUrl } from "./causes.js";
import { checkVisible, findingsOf, stopCheck } from "./findings_check.js";
import { filter, PAGE, pageOf, RANGES, serverQuery } from "./selection.js";

const PAUSE = 250;
const COLUMNS = [
  ["name", "Conversation", "up"], ["source", "Source", "up"], ["model", "Model", "up"], ["requests", "Requests", "down"],
  ["tokens", "Tokens in and out", "down"], ["cache", "From cache", "up"], ["cost", "Cost", "down"], ["findings", "Findings", "down"],
  ["time", "Last active", "down"],
];

/** Load the overview, again while the server is still counting, and after changes of the store. */
function useOverview(query) {
  const [state, setState] = useState({ data: null, error: null, isBusy: true });
  const [round, setRound] = useState(0);
  const key = JSON.stringify(serverQuery(query));
  useEffect(() => {
    const stop = new AbortController();
    const load = async () => {
      try {
        let data;
        do {
          data = await get("overview", JSON.parse(key), { signal: stop.signal });
          if (stop.signal.aborted) return;
          setState({ data, error: null, isBusy: data.pending > 0 });
        } while (data.pending);
        checkVisible(data.conversations);
      } catch (error) {
        if (!stop.signal.aborted) setState((before) => ({ ...before, error, isBusy: false }));
      }
    };
    setState((before) => ({ ...before, isBusy: true }));
    load();
    const end = onConversationChange(null, load);
    return () => {
      stop.abort();
      end();
    };
  }, [key, round]);
  return { ...state, reload: () => setRound((each) => each + 1) };
}

export function Overview() {
  const { query } = route.value;
  const { data, error, isBusy, reload } = useOverview(query);
  useEffect(() => stopCheck, []);
  return html`<div class="store-overview" data-testid="overview">
    <header class="view-head">
      <${DrawerButton} />
      <div class="head-title"><h1>Overview</h1></div>
      <${IconButton} icon="retry" label="Refresh" onClick=${reload} />
    </header>
    <div class="overview-body" aria-busy=${isBusy ? "true" : undefined}>
      <${Filters} query=${query} data=${data} />
      ${error && html`<${LoadError} error=${error} reload=${reload} />`}
      ${!data && !error && html`<${Skeleton} lines=${8} />`}
      ${data && html`
        ${data.pending > 0 && html`<p class="overview-note" role="status" data-testid="counting">
          Counting… ${plural(data.pending, "conversation")} left.</p>`}
        <${Totals} data=${data} />
        <div class="overview-charts">
          <${CostChart} data=${data} />
          <${Causes} query=${query} data=${data} />
        </div>
        ${query.cause && html`<${CauseRequests} key=${query.cause} code=${query.cause} query=${query} data=${data} />`}
        <${ConversationTable} query=${query} data=${data} />
        <${Pages} query=${query} found=${data.found} />`}
    </div>
  </div>`;
}

/** @param {{query: Record<string, string>, data: object|null}} props */
function Filters({ query, data }) {
  const timer = useRef(0);
  const [text, setText] = useState(query.q ?? "");
  useEffect(() => setText(query.q ?? ""), [query.q]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const typed = (event) => {
    const { value } = event.currentTarget;
    setText(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => filter({ q: value.trim() }), PAUSE);
  };
  const choice = (name, label, options) => html`<label class="overview-choice"><span>${label}</span>
    <select class="field" value=${query[name] ?? ""} onChange=${(event) => filter({ [name]: event.currentTarget.value })}>
      <option value="" selected=${!query[name]}>All</option>
      ${options.map(({ name: value, conversations }) => html`<option key=${value} value=${value} selected=${value === query[name]}>
        ${oneLine(name === "source" ? sourceName(value) : value, 60)} (${number(conversations)})</option>`)}
    </select></label>`;
  const date = (name, label) => html`<label class="overview-choice"><span>${label}</span>
    <input class="field" type="date" value=${query[name] ?? ""} onChange=${(event) => filter({ [name]: event.currentTarget.value })} /></label>`;
  const isFiltered = ["range", "source", "model", "q", "from", "to"].some((each) => query[each]);
  return html`<form class="overview-filters" role="search" aria-label="Filters" onSubmit=${(event) => event.preventDefault()}>
    <div class="overview-ranges" role="group" aria-label="Time">
      ${RANGES.map(([value, label]) => html`<button key=${value} type="button" class="button" aria-pressed=${(query.range ?? "") === value}
          onClick=${() => filter({ range: value, from: "", to: "" })}>${label}</button>`)}
    </div>
    ${query.range === "custom" && html`${date("from", "From")}${date("to", "To")}`}
    ${choice("source", "Source", data?.sources ?? [])}
    ${choice("model", "Model", data?.models ?? [])}
    <label class="overview-choice grow"><span>Name or title</span>
      <input class="field" type="search" value=${text} onInput=${typed} autocomplete="off" spellcheck="false" /></label>
    ${isFiltered && html`<button type="button" class="button quiet"
        onClick=${() => filter({ range: "", from: "", to: "", source: "", model: "", q: "" })}>Clear filters</button>`}
    ${query.q && html`<a class="button quiet" href=${searchUrl(query.q)}><${Icon} name="search" /> Search in messages</a>`}
  </form>`;
}

function Totals({ data }) {
  const { totals, found } = data;
  const figures = [
    ["Conversations", number(found)], ["Requests", number(totals.requests), totals.failed ? `${number(totals.failed)} failed` : ""],
    ["Tokens in", inputText(totals), inputText(totals, number)], ["Tokens out", outputText(totals), outputText(totals, number)],
    ["From cache", percent(totals.cache_share), `${tokens(totals.cache_read)} tokens`],
    ["Cost", costText(totals), totals.unpriced ? `without ${plural(totals.unpriced, "request")} of unknown price` : ""],
  ];
  return html`<dl class="overview-totals" data-testid="totals">
    ${figures.map(([name, value, note]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd>
      ${note && html`<dd class="soft">${note}</dd>`}</div>`)}
  </dl>`;
}

function ConversationTable({ query, data }) {
  const sort = query.sort || "cost";
  const order = query.order || "down";
  const sortBy = (name, first) => filter({ sort: name, order: name === sort ? (order === "down" ? "up" : "down") : first });
  if (!data.conversations.length) return html`<p class="overview-note" data-testid="nothing">No conversations.</p>`;
  const choose = (event) => {
    const [name, way] = event.currentTarget.value.split(" ");
    filter({ sort: name, order: way });
  };
  return html`<div class="overview-choice only-narrow" data-testid="sort"><span aria-hidden="true">Sort by</span>
    <select class="field" aria-label="Sort by" onChange=${choose}>${COLUMNS.flatMap(([name, label]) => ["down", "up"].map((way) => html`<option
        key=${`${name} ${way}`} value=${`${name} ${way}`} selected=${name === sort && way === order}>${label} ${way === "down" ? "↓" : "↑"}</option>`))}</select></div>
  <div class="overview-scroll" tabindex="0" role="group" aria-label="Conversations, scrolls sideways"><table class="overview-table" data-testid="overview-table">
    <caption class="off-screen">Conversations</caption>
    <thead><tr>${COLUMNS.map(([name, label, first]) => html`<th key=${name} scope="col"
        aria-sort=${name === sort ? (order === "down" ? "descending" : "ascending") : undefined}>
      <button type="button" onClick=${() => sortBy(name, first)}
        title=${name === "findings" ? "Number of findings, and the cost of the most expensive cause. Sorts the conversations that are checked already" : undefined}>${label}<span aria-hidden="true">${
          name === sort ? (order === "down" ? " ↓" : " ↑") : ""}</span></button></th>`)}</tr></thead>
    <tbody>${data.conversations.map((each) => html`<${Row} key=${each.conversation.name} entry=${each} />`)}</tbody>
  </table></div>`;
}

function Row({ entry }) {
  const { conversation, source, models, figures } = entry;
  const { name, spoken, created, running, observed } = conversation;
  const time = spoken || created;
  const found = findingsOf(entry);
  const hasRequests = figures.requests > 0;
  return html`<tr data-testid="overview-row">
    <th scope="row"><a href=${chatUrl(name)} dir="auto" title=${visible(name)}>${titleLine(conversation, 70)}</a>
      ${conversation.title && conversation.title !== name && html`<small class="row-name" data-testid="row-name">${oneLine(name, 80)}</small>`}
      ${running && html` <span class="dot running"></span><span class="soft"> running</span>`}</th>
    <td data-label="Source"><span class="tag">${observed ? sourceLabel(observed) : sourceName(source)}</span></td>
    <td data-label="Model" title=${models.join(", ")}>${oneLine(shortModel(models[0]) || "–", 32)}${models.length > 1 && ` +${models.length - 1}`}</td>
    <td data-label="Requests" class="figure">${hasRequests ? number(figures.requests) : "–"}${figures.failed > 0 && html`<span class="bad-text">, ${number(figures.failed)} failed</span>`}</td>
    <td data-label="Tokens in and out" class="figure" title=${`${inputText(figures, number)} in, ${outputText(figures, number)} out`}>${hasRequests ? inputText({ ...figures, input: figures.input + figures.output }) : "–"}</td>
    <td data-label="From cache" class="figure">${percent(figures.cache_share)}</td>
    <td data-label="Cost" class="figure">${hasRequests ? html`<a href=${inspectUrl(name)} aria-label=${`Inspect: ${costText(figures)}`}>${costText(figures)}</a>` : "–"}</td>
    <td data-label="Findings" class="figure" data-testid="row-findings"><${RowFindings} found=${found} name=${name} hasRequests=${hasRequests} /></td>
    <td data-label="Last active" class="figure"><time title=${dateTime(time)}>${ago(time)}</time></td>
  </tr>`;
}

function RowFindings({ found, name, hasRequests }) {
  if (!hasRequests) return "–";
  if (!found) return html`<span class="soft">…<span class="off-screen">not checked yet</span></span>`;
  if (found.error) return html`<span class="bad-text" title=${oneLine(found.error, 300)}>unreadable</span>`;
  const { count, largest, largest_is_lower_bound: isLowerBound } = found.findings;
  if (!count) return "0";
  const [dearest] = found.causes ?? [];
  const about = `Most expensive cause${dearest ? `: ${oneLine(dearest.title, 120)}` : ""}. ${OVERLAP}`;
  return html`<a href=${findingsUrl(name, dearest)} title=${about}>${number(count)}${largest != null && html` <small
      class="largest-cause">largest cause ${costText({ cost: largest, cost_is_lower_bound: isLowerBound })}</small>`}</a>`;
}

const shortModel = (model) => model?.split(":").slice(1).join(":") || model;

function Pages({ query, found }) {
  const last = Math.max(1, Math.ceil(found / PAGE));
  const page = Math.min(pageOf(query), last);
  if (last === 1) return null;
  const go = (to) => setQuery({ page: to === 1 ? "" : to });
  return html`<nav class="overview-pages" aria-label="Pages">
    <button type="button" class="button" disabled=${page === 1} onClick=${() => go(page - 1)}>Previous</button>
    <span>Page ${number(page)} of ${number(last)}</span>
    <button type="button" class="button" disabled=${page === last} onClick=${() => go(page + 1)}>Next</button>
  </nav>`;
}

/**
 * Composition of a request by cause: a bar whose parts lead to their messages, with the context window as a thin gauge under
 * it. The Composition tab has the same tree as a map and as a table, for one request and for all.
 */
import { html, useMemo } from "../html.js";
import { conversationPath, get } from "../api.js";
import { number, oneLine, plural } from "../format.js";
import { route, setQuery } from "../route.js";
import { Trimmed, WindowGauge } from "./budget.js";
import { CAUSES, approximate, causeLabel, showCause, showLine } from "./causes.js";
import { PartsBar } from "./parts_bar.js";
import { LoadError, Skeleton } from "./placeholders.js";
import { CompositionTable, Treemap } from "./treemap.js";
import { useLoad } from "../use_load.js";

/** The number of shades in which results of different tools are drawn. */
const SHADES = 4;
/** Milliseconds to wait before a composition is fetched, for people who go through requests quickly. */
const PAUSE = 120;
/** Tools whose results have a part of the bar: the largest ones, from a share of the request on. */
const MOST_TOOLS = 6;
const LEAST_SHARE = 0.02;

/** The last answers, because bar and tab show the same. */
const last = new Map();

function load(path) {
  if (!last.has(path)) {
    const promise = get(path);
    if (last.size > 3) last.delete(last.keys().next().value);
    last.set(path, promise);
    promise.catch(() => last.delete(path));
  }
  return last.get(path);
}

/** Fetch the composition of a request. @returns {{data: object|null, error: Error|null, isCurrent: boolean, reload: () => void}} */
function useComposition(name, step) {
  const path = conversationPath(name, "requests", step.channel, step.request, "composition");
  const found = useLoad(path, () => load(path), { delay: last.has(path) ? 0 : PAUSE });
  return { ...found, isCurrent: found.of === path };
}

/** Return the parts of the bar: one per cause, and one per tool for results. */
function barParts(data, query) {
  const part = (key, node, label, tool = "") => ({
    ...node, key, look: `cause-${node.cause}`, label, about: CAUSES[node.cause]?.[1] ?? "",
    isChosen: query.cause === node.cause && (query.tool ?? "") === tool,
    go: node.cause === "overhead" ? undefined : () => choose(node.cause, tool),
  });
  return data.causes.flatMap((node) => {
    if (node.cause !== "result") return [part(node.cause, node, causeLabel(node.cause))];
    const tools = node.children && !node.tool ? node.children : [{ ...node, name: node.tool ?? "" }];
    const isLarge = (each, index) => index < MOST_TOOLS && !each.merged && each.tokens >= LEAST_SHARE * data.tokens;
    const large = tools.filter(isLarge);
    const rest = tools.filter((each, index) => !isLarge(each, index));
    const parts = large.map((each, index) => ({
      ...part(`result ${each.name}`, each, `${oneLine(each.name || "unknown tool", 60)} results`, each.name),
      look: `cause-result shade-${index % SHADES}`,
    }));
    if (rest.length) parts.push(part("result", added(rest, node), large.length ? "other results" : causeLabel("result")));
    return parts;
  });
}

/** Choose a cause as the filter of the messages; the chosen one again removes the filter. */
function choose(cause, tool) {
  const { query } = route.value;
  if ((query.tab ?? "messages") === "messages" && query.cause === cause && (query.tool ?? "") === tool) setQuery({ cause: "", tool: "" });
  else showCause(cause, tool);
}

/** Return the sum of some nodes as one. */
function added(nodes, { cause }) {
  const sum = (field) => (nodes.some((each) => each[field] == null) ? null : nodes.reduce((total, each) => total + each[field], 0));
  return { cause, tokens: sum("tokens"), cached: sum("cached"), written: sum("written"), uncached: sum("uncached"), cost: sum("cost") };
}

/** @param {{name: string, step: object, facts: object, children?: any}} props `facts` is the request from the server */
export function Composition({ name, step, facts, children }) {
  const { data, error, isCurrent, reload } = useComposition(name, step);
  const { cause, tool } = route.value.query;
  const parts = useMemo(() => (data ? barParts(data, { cause, tool }) : []), [data, cause, tool]);
  return html`<div class="composition" role="group" aria-label="Composition" data-testid="budget" aria-busy=${isCurrent ? undefined : "true"}>
    ${error && html`<${LoadError} error=${error} reload=${reload} />`}
    ${data ? html`<${PartsBar} parts=${parts} label=${`${number(data.tokens)} input tokens by cause`} figure=${approximate(data.how)} />`
      : !error && html`<div class="parts"><div class="parts-bar skeleton" role="status" aria-label="Loading the composition"></div>
          <ul class="budget-legend" aria-hidden="true"><li>…</li></ul></div>`}
    <${WindowGauge} budget=${facts.budget} />
    <${Trimmed} budget=${facts.budget} />
    ${children && html`<div class="budget-foot">${children}</div>`}
  </div>`;
}

// ── the tab ────────────────────────────────────────────────────────────────────────────────────────────────────────────

const SCOPES = [["", "This request"], ["run", "All requests"]];
const MEASURES = [["", "Tokens"], ["cost", "Cost"]];
const FORMS = [["", "Map"], ["table", "Table"]];

/** The Composition tab. @param {{name: string, step: object, children?: any}} props */
export function CompositionPanel({ name, step, children }) {
  const { query } = route.value;
  const isRun = query.of === "run";
  return html`<div class="panel scrolls composition-tab" data-testid="composition">
    ${isRun ? html`<${OfRun} name=${name} step=${step} />` : html`<${OfRequest} name=${name} step=${step} />`}
    ${children && !isRun && html`<div class="budget-foot">${children}</div>`}
  </div>`;
}

function OfRequest({ name, step }) {
  const { data, error, isCurrent, reload } = useComposition(name, step);
  const root = useMemo(() => data && requestTree(data), [data]);
  return html`<${Explorer} root=${root} error=${error} reload=${reload} isBusy=${!isCurrent} how=${data?.how} note=${data && requestNote(data)} />`;
}

function OfRun({ name, step }) {
  const path = conversationPath(name, "composition");
  const { data, error, reload } = useLoad(`${path} ${step.channel} ${step.time}`, (signal) => get(path, {}, { signal }));
  const root = useMemo(() => data && runTree(data), [data]);
  const note = data && `${plural(data.requests.length, "request")}. Requests without reported usage are not included. A tile leads to the messages of the selected request.`;
  return html`<${Explorer} root=${root} error=${error} reload=${reload} isBusy=${!data && !error} how="measured" note=${note} />`;
}

/** The tree of a node as a map or as a table, and the controls for both. */
function Explorer({ root, error, reload, isBusy, how, note }) {
  const { query } = route.value;
  const hasCost = root?.cost != null;
  const by = query.by === "cost" && hasCost ? "cost" : "tokens";
  const figure = approximate(how);
  const shown = useMemo(() => root && measured(root, by), [root, by]);
  const place = useMemo(() => (shown ? findPlace(shown, query.in ?? "") : []), [shown, query.in]);
  const node = place[place.length - 1];
  const open = (child) => {
    if (child.children) setQuery({ in: [...place.slice(1), child].map((each) => encodeURIComponent(each.key)).join("/") });
    else if (child.line !== undefined) showLine(child.line);
    else if (child.cause) showCause(child.cause, child.tool ?? "");
  };
  const up = (depth) => setQuery({ in: place.slice(1, depth + 1).map((each) => encodeURIComponent(each.key)).join("/") });
  const properties = { node, by, figure, open, up: place.length > 1 ? () => up(place.length - 2) : null };
  return html`
    <div class="panel-bar">
      <${Choice} label="Scope" name="of" options=${SCOPES} />
      <${Choice} label="Measure" name="by" options=${hasCost ? MEASURES : MEASURES.slice(0, 1)} />
      <${Choice} label="Form" name="as" options=${FORMS} />
    </div>
    ${error && html`<${LoadError} error=${error} reload=${reload} />`}
    ${!root && !error && html`<${Skeleton} lines=${8} label="Loading the composition" />`}
    ${node && html`<div class="explorer" aria-busy=${isBusy ? "true" : undefined}>
      <nav class="crumbs" aria-label="Place in the composition">
        ${place.map((each, depth) => html`<span key=${depth}>${depth > 0 && html`<span aria-hidden="true"> › </span>`}${depth === place.length - 1
          ? html`<b aria-current="page">${each.label}</b>`
          : html`<button type="button" class="inline-link" onClick=${() => up(depth)}>${each.label}</button>`}</span>`)}
      </nav>
      ${query.as === "table" ? html`<${CompositionTable} ...${properties} />` : html`<${Treemap} ...${properties} />`}
      ${note && html`<p class="panel-note muted">${note}</p>`}
    </div>`}`;
}

function Choice({ label, name, options }) {
  const value = route.value.query[name] ?? "";
  return html`<div class="choice" role="group" aria-label=${label}>
    ${options.map(([each, word]) => html`<button key=${each} type="button" aria-pressed=${String(value === each || options.length === 1)}
        onClick=${() => setQuery({ [name]: each })}>${word}</button>`)}
  </div>`;
}

/** Return the nodes from the root to a place. Names that are no longer there end it. */
function findPlace(root, path) {
  const found = [root];
  for (const key of path.split("/").filter(Boolean)) {
    const next = found[found.length - 1].children?.find((each) => encodeURIComponent(each.key) === key && each.children);
    if (!next) break;
    found.push(next);
  }
  return found;
}

/** Return a tree with the value of each node, the largest first. Nodes without a value are left out. */
function measured(node, by) {
  const value = Math.max(0, (by === "cost" ? node.cost : node.tokens) ?? 0);
  if (!node.children) return { ...node, value };
  const children = node.children.filter((each) => by === "cost" || !each.cause.startsWith("answer")).map((each) => measured(each, by));
  children.sort((one, other) => Boolean(one.merged) - Boolean(other.merged) || other.value - one.value);
  return { ...node, value: children.reduce((sum, each) => sum + each.value, 0), children: children.filter((each) => each.value > 0) };
}

function requestTree(data) {
  const answers = data.answer.map((line) => ({ cause: line.kind, name: "", tokens: line.tokens, cost: line.cost }));
  return {
    key: "", label: `Request ${number(data.number)}`, tokens: data.tokens, cost: data.cost, isMeasured: data.how === "measured",
    children: [...data.causes, ...answers].map((each) => labelled(each, 0)),
  };
}

function requestNote(data) {
  if (data.how === "exact") return "";
  return data.how === "measured"
    ? "The total is the provider's own count. The figures of parts are estimated shares of it."
    : "All figures are estimated, because the provider reported no total.";
}

const ROLES = { user: "User", assistant: "Assistant", calls: "Tool calls", system: "System messages", tool: "Other tool messages", other: "Other" };

/** Return a node with a key and a label of its own. */
function labelled(node, depth) {
  const isTool = node.tool && node.tool === node.name;
  const plain = node.cause === "history" && depth === 1 ? ROLES[node.name] ?? node.name : node.name;
  const unnamed = ["tool", "result"].includes(node.cause) && depth === 1 ? "unknown tool" : "(no text)";
  const name = depth === 0 ? causeLabel(node.cause) : node.merged ? `${plural(node.merged, "smaller part")}` : oneLine(plain, 80) || unnamed;
  return {
    ...node, key: depth === 0 ? node.cause : node.merged ? "…" : node.name, label: name, isCode: Boolean(isTool && depth > 0),
    children: node.children?.map((each) => labelled(each, depth + 1)),
  };
}

/** Return the costs of a conversation by cause as a tree: causes, and tools below them. */
function runTree(data) {
  const causes = new Map();
  for (const { kind, name, tokens, read, written, cost } of data.costs.lines) {
    const isAnswer = kind.startsWith("answer");
    const charged = isAnswer ? {} : { cached: read, written, uncached: Math.max(0, tokens - read - written) };
    causes.set(kind, [...(causes.get(kind) ?? []), { cause: kind, name, tool: name || undefined, tokens, cost, ...charged }]);
  }
  const nodes = [...causes].map(([cause, own]) => (own.length === 1 && !own[0].name ? own[0] : { ...added(own, { cause }), name: "", children: own }));
  return {
    key: "", label: "All requests", isMeasured: true, tokens: nodes.reduce((sum, each) => sum + (each.cause.startsWith("answer") ? 0 : each.tokens), 0), cost: data.costs.cost,
    children: nodes.map((each) => labelled(each, 0)),
  };
}

/** Differences between a request and the previous one. Unchanged parts are folded into one row. */
import { html, useMemo } from "../html.js";
import { conversationPath, get } from "../api.js";
import { number, plural, visible } from "../format.js";
import { VirtualList } from "../virtual_list.js";
import { useLoad } from "./use_load.js";
import { EmptyState, LoadError, Skeleton } from "./placeholders.js";

const SIGNS = { added: ["+", "added"], removed: ["−", "removed"], same: [" ", "unchanged"] };

/** @param {{name: string, step: object}} props */
export function Diff({ name, step }) {
  const path = conversationPath(name, "requests", step.channel, step.request, "diff");
  const { data, error, loading, reload } = useLoad(path, (signal) => get(path, {}, { signal }));
  if (error) return html`<${LoadError} error=${error} reload=${reload} />`;
  if (data === null) return html`<${Skeleton} lines=${10} label="Comparing" />`;
  if (data.before === null) {
    return html`<${EmptyState} title="Nothing to compare with"><p>This is the first request to this model.</p><//>`;
  }
  return html`<div class="panel" aria-busy=${loading ? "true" : undefined} data-testid="diff">
    <${Hunks} key=${path} hunks=${data.hunks} before=${data.before} unchanged=${data.unchanged_bytes} isCut=${data.cut} />
  </div>`;
}

function Hunks({ hunks, before, unchanged, isCut }) {
  const rows = useMemo(() => rowsOf(hunks), [hunks]);
  const lines = (kind) => hunks.filter((hunk) => hunk.kind === kind).reduce((sum, hunk) => sum + hunk.count, 0);
  return html`
    <div class="panel-bar"><p>Compared with request ${number(before)}: <b class="added-count">+ ${plural(lines("added"), "line")}</b>,
      ${" "}<b class="removed-count">− ${plural(lines("removed"), "line")}</b>; <b>${number(unchanged)} bytes</b> unchanged.
      ${isCut && " Truncated, because it is long."}</p></div>
    ${hunks.every((hunk) => hunk.kind === "same")
      ? html`<p class="nothing">The requests are identical.</p>`
      : html`<${VirtualList} count=${rows.length} estimate=${21} class="diff-rows" role="list"
          aria-label="Differences from the previous request"
        attributes=${() => ({ role: "listitem" })} row=${(index) => html`<${DiffRow} row=${rows[index]} />`} />`}`;
}

/** Return the rows: a head for every path and its lines; unchanged parts are a head alone. */
function rowsOf(hunks) {
  const rows = [];
  let place = null;
  for (const hunk of hunks) {
    const isFold = hunk.kind === "same" && hunk.lines.length === 0;
    if (isFold) rows.push({ isFold, path: hunk.path, count: hunk.count });
    else if (hunk.path !== place) rows.push({ isHead: true, path: hunk.path });
    place = isFold ? null : hunk.path;
    for (const text of hunk.lines) {
      const isGap = hunk.kind === "same" && text === "…" && hunk.count > hunk.lines.length;
      rows.push({ kind: hunk.kind, text: isGap ? `… ${plural(hunk.count - hunk.lines.length + 1, "line")} unchanged` : text });
    }
  }
  return rows;
}

function DiffRow({ row }) {
  if (row.isFold) {
    return html`<div class="diff-head is-same"><span aria-hidden="true">=</span> ${visible(row.path)} <span
        class="soft">unchanged${row.count > 1 ? `: ${plural(row.count, "message")}` : ""}</span></div>`;
  }
  if (row.isHead) return html`<div class="diff-head">${visible(row.path)}</div>`;
  const [sign, meaning] = SIGNS[row.kind];
  return html`<div class=${`diff-line is-${row.kind}`}><span class="diff-sign" aria-hidden="true">${sign}</span><code><span
      class="off-screen">${meaning}: </span>${visible(row.text)}</code></div>`;
}

/** The exact request body as sent, to read, search, copy and download. */
import { html } from "../html.js";
import { conversationPath, getText } from "../api.js";
import { number } from "../format.js";
import { inspectUrl, navigate, route, setQuery } from "../route.js";
import { JsonView } from "./json_view.js";
import { useLoad } from "../use_load.js";
import { LoadError, Skeleton } from "./placeholders.js";
import { CopyButton, download, fileName } from "./copy_download.js";

/** @param {{name: string, step: object, facts: object, goTo: {path: string}|null}} props */
export function RequestBody({ name, step, facts, goTo }) {
  const path = conversationPath(name, "requests", step.channel, step.request, "body");
  const { data, error, loading, reload } = useLoad(path, (signal) => getText(path, {}, { signal }));
  if (error) return html`<${LoadError} error=${error} reload=${reload} />`;
  if (data === null) return html`<${Skeleton} lines=${12} label="Loading the request" />`;
  const pick = (place, mark) => navigate(inspectUrl(name, step.channel, step.request, { ...route.value.query, tab: "request", path: place, near: "", mark }),
    { replace: true });
  const size = new TextEncoder().encode(data).length;
  return html`<div class="panel" aria-busy=${loading ? "true" : undefined}>
    <p class="panel-note"><b>${number(size)} bytes</b>, exactly as sent, in format <b>${facts.format}</b>.
      ${facts.mode === "resume" && " The provider's session has the rest."} Numbers and names are spelled as sent; white space is added.</p>
    <${JsonView} text=${data} label="The request as JSON" goTo=${goTo} onPick=${pick}
        query=${route.value.query.q} onSearch=${(text) => setQuery({ q: text })}>
      <${CopyButton} get=${() => data}>Copy JSON<//>
      <${CopyButton} get=${() => getText(path, { as: "curl" })}>Copy as curl<//>
      <${CopyButton} get=${() => getText(path, { as: "python" })}>Copy as Python<//>
      <button type="button" class="button" onClick=${() => download(data, fileName(name, step.request) + ".json")}>Download</button>
    <//>
  </div>`;
}

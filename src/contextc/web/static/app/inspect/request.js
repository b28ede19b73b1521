/** The exact request: its bytes as they went out, to read, search, fold and take along. */
import { html } from "../html.js";
import { conversationPath, text } from "../api.js";
import { number } from "../format.js";
import { JsonView } from "./json.js";
import { useLoad } from "./load.js";
import { Problem, Skeleton } from "./states.js";
import { TakeButton, download, fileName } from "./take.js";

/** @param {{name: string, step: object, facts: object, goTo: {path: string}|null}} props */
export function RequestBody({ name, step, facts, goTo }) {
  const path = conversationPath(name, "requests", step.channel, step.request, "body");
  const { data, error, loading, again } = useLoad(path, (signal) => text(path, {}, { signal }));
  if (error) return html`<${Problem} error=${error} again=${again} />`;
  if (data === null) return html`<${Skeleton} lines=${12} label="Loading the request" />`;
  const size = new TextEncoder().encode(data).length;
  return html`<div class="panel" aria-busy=${loading ? "true" : undefined}>
    <p class="panel-note"><b>${number(size)} bytes</b>, as they went out, in the format of <b>${facts.format}</b>.
      ${facts.mode === "resume" && " The session knew the rest."} Numbers and names are spelled as sent; only white space is ours.</p>
    <${JsonView} text=${data} label="The request as JSON" goTo=${goTo}>
      <${TakeButton} get=${() => data}>Copy JSON<//>
      <${TakeButton} get=${() => text(path, { as: "curl" })}>Copy as curl<//>
      <${TakeButton} get=${() => text(path, { as: "python" })}>Copy as Python<//>
      <button type="button" class="button" onClick=${() => download(data, fileName(name, step.request) + ".json")}>Download</button>
    <//>
  </div>`;
}

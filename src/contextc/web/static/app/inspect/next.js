/** What would happen next: the next request, or what it would become after an edit, a rewind or with another model. */
import { html, useId, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { dollars, number, oneLine, plural } from "../format.js";
import { info } from "../state.js";
import { Budget } from "./budget.js";
import { LineList, ONLY, WIDTH, detailed, finder } from "./lines.js";
import { useLoad } from "./load.js";
import { Problem, Skeleton } from "./states.js";

const DEEDS = [["go", "go on as it is"], ["edit", "edit a message"], ["rewind", "go back to a message"]];

/** @param {{name: string, step?: object, seq?: number}} props what goes on, goes on where `step` was asked, after message `seq` */
export function Next({ name, step, seq = 1 }) {
  const id = useId();
  const spec = step?.model ?? "";
  const [form, setForm] = useState({ model: spec, deed: "go", seq, text: "" });
  const [asked, setAsked] = useState(form);
  const query = {
    ...(asked.model === spec ? { channel: step?.channel ?? "" } : { model: asked.model }),
    ...(asked.deed === "edit" ? { edit: asked.seq, text: asked.text } : {}),
    ...(asked.deed === "rewind" ? { rewind: asked.seq } : {}),
  };
  const key = JSON.stringify([name, query]);
  const from = (more, signal) => get(conversationPath(name, "next"), { ...query, ...more }, { signal });
  const { data, error, loading, again } = useLoad(key, (signal) => from({ width: WIDTH }, signal));
  const change = (event) => setForm({ ...form, [event.currentTarget.name]: event.currentTarget.value });
  const submit = (event) => {
    event.preventDefault();
    setAsked({ ...form, seq: Number(form.seq) });
  };
  const models = (info.value?.providers ?? []).flatMap((each) => each.models.map((model) => `${each.name}:${model}`));
  return html`<div class="panel scrolls next" data-testid="next">
    <form class="next-form" onSubmit=${submit}>
      <label class="labelled"><span>With model</span><input class="field" name="model" list=${`${id}-models`}
          value=${form.model} onInput=${change} placeholder=${info.value?.model ?? ""} spellcheck="false"
          autocomplete="off" /></label>
      <datalist id=${`${id}-models`}>${models.slice(0, 400).map((each) => html`<option key=${each} value=${each} />`)}</datalist>
      <label class="labelled"><span>If you</span><select class="field" name="deed" value=${form.deed} onChange=${change}>
        ${DEEDS.map(([value, label]) => html`<option key=${value} value=${value}
            selected=${form.deed === value}>${label}</option>`)}</select></label>
      ${form.deed !== "go" && html`<label class="labelled is-number"><span>Message</span><input class="field" type="number"
          min=${form.deed === "rewind" ? 0 : 1} name="seq" value=${form.seq} onInput=${change} /></label>`}
      ${form.deed === "edit" && html`<label class="labelled is-wide"><span>to say</span><input class="field" name="text"
          value=${form.text} onInput=${change} placeholder="Its new words" /></label>`}
      <button type="submit" class="button primary">What would be sent?</button>
    </form>
    ${error && html`<${Problem} error=${error} again=${again} />`}
    ${!data && !error && html`<${Skeleton} lines=${6} label="Compiling" />`}
    ${data && html`<div class="next-answer" aria-busy=${loading ? "true" : undefined} aria-live="polite">
      <${Verdict} data=${data} asked=${asked} />
      <${Budget} budget=${data.budget} />
      <div class="next-lines"><${LineList} key=${key} identity=${key} counts=${data.counts} shared=${data.shared}
        why=${data.why} ask=${paged(from, data)} find=${finder(from)} detail=${detailed(from)} /></div>
    </div>`}
  </div>`;
}

/** Lines a page at a time: what is shown stands first, then the rest; the first page is in the answer already. */
const paged = (from, data) => (filter) => async (after, limit, signal) => {
  const upto = Math.min(after + limit, filter === "in" ? data.counts.shown : data.counts.lines);
  if (filter !== "out" && upto <= data.lines.length) return data.lines.slice(after, upto);
  const found = await from({ after, limit, only: ONLY[filter], width: WIDTH }, signal);
  return found.lines;
};

function Verdict({ data, asked }) {
  const { cached_lost: lost, signed_lost: signed, dollars: price } = data.cost;
  const facts = [
    `Request ${number(data.request)} for ${oneLine(`${data.provider}:${data.model}`, 60)}`,
    data.mode === "resume" ? "resuming its session" : "with the full context",
    data.why && `a new epoch: ${oneLine(data.why, 80)}`,
  ];
  const more = [
    data.request > 1 && `${number(data.shared.tokens)} tokens would be the same as in the request before.`,
    data.is_new === false && asked.deed === "go" && "There is nothing new to answer yet.",
    ...data.remarks.map((each) => `${each.slice(0, 1).toUpperCase()}${each.slice(1)}.`),
  ];
  const again = price == null ? "" : `: ${dollars(price)} to write them again`;
  return html`<div class=${`verdict ${lost || signed ? "is-costly" : "is-free"}`} data-testid="verdict">
    <p class="verdict-head">${lost > 0
        ? html`<b>${number(lost)} cached tokens would be lost</b>${again}.`
        : html`<b>Nothing that is cached would be lost.</b>`}
      ${signed > 0 && html` <b>Signed reasoning of ${plural(signed, "message")}</b> would be invalid.`}</p>
    <p class="soft">${facts.filter(Boolean).join("; ")}. ${more.filter(Boolean).join(" ")}</p>
  </div>`;
}

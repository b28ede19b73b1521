/** Preview of the next request, also after an edit, a rewind, or with another model. */
import { html, useId, useMemo, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { costText, number, oneLine, plural } from "../format.js";
import { resetLabel } from "../reasons.js";
import { info } from "../state.js";
import { Budget } from "./budget.js";
import { serverLines } from "./line_source.js";
import { LineList } from "./manifest_lines.js";
import { useLoad } from "../use_load.js";
import { FieldError, isRefused, LoadError, Skeleton } from "./placeholders.js";

/** Kinds of errors that are about one field, whatever else was asked for. */
const FIELD_OF = { UnknownModel: "model", InvalidSetting: "model", UnknownMessage: "seq" };

/** Return the field that an error is about; "" if it is about the whole request, such as one that does not fit. */
function fieldOf(error, { action }) {
  if (!isRefused(error) || error.status === 422) return "";
  return FIELD_OF[error.kind] ?? (action === "go" ? "model" : "seq");
}

const ACTIONS = [["go", "continue"], ["edit", "edit a message"], ["rewind", "rewind to a message"]];

/** @param {{name: string, step?: object, seq?: number}} props `step` is the request to continue from, `seq` its last message */
export function NextRequest({ name, step, seq = 1 }) {
  const id = useId();
  const spec = step?.model ?? "";
  const [form, setForm] = useState({ model: spec, action: "go", seq, text: "" });
  const [asked, setAsked] = useState(form);
  const query = {
    ...(asked.model === spec ? { channel: step?.channel ?? "" } : { model: asked.model }),
    ...(asked.action === "edit" ? { edit: asked.seq, text: asked.text } : {}),
    ...(asked.action === "rewind" ? { rewind: asked.seq } : {}),
  };
  const key = JSON.stringify([name, query]);
  const from = (more, signal) => get(conversationPath(name, "next"), { ...query, ...more }, { signal });
  const { data, error, loading, reload } = useLoad(key, (signal) => from({ limit: 1, width: 1 }, signal));
  const source = useMemo(() => serverLines(from), [key]);
  const change = (event) => setForm({ ...form, [event.currentTarget.name]: event.currentTarget.value });
  const submit = (event) => {
    event.preventDefault();
    setAsked({ ...form, seq: Number(form.seq) });
  };
  const wrong = fieldOf(error, asked);
  const wrongId = `${id}-wrong`;
  const field = (name) => ({
    class: "field", name, onInput: change, value: form[name], "aria-invalid": wrong === name ? "true" : undefined,
    "aria-describedby": wrong === name ? wrongId : undefined,
  });
  const told = (name) => wrong === name && html`<${FieldError} id=${wrongId} error=${error} />`;
  const models = (info.value?.providers ?? []).flatMap((each) => each.models.map((model) => `${each.name}:${model}`));
  return html`<div class="panel scrolls next" data-testid="next">
    <form class="next-form" onSubmit=${submit}>
      <div class="with-error"><label class="labelled"><span>With model</span><input ...${field("model")} list=${`${id}-models`}
          placeholder=${info.value?.model ?? ""} spellcheck="false" autocomplete="off" /></label>${told("model")}</div>
      <datalist id=${`${id}-models`}>${models.slice(0, 400).map((each) => html`<option key=${each} value=${each} />`)}</datalist>
      <label class="labelled"><span>If you</span><select class="field" name="action" value=${form.action} onChange=${change}>
        ${ACTIONS.map(([value, label]) => html`<option key=${value} value=${value}
            selected=${form.action === value}>${label}</option>`)}</select></label>
      ${form.action !== "go" && html`<div class="with-error is-number"><label class="labelled"><span>Message</span><input ...${field("seq")}
          type="number" min=${form.action === "rewind" ? 0 : 1} required /></label>${told("seq")}</div>`}
      ${form.action === "edit" && html`<label class="labelled is-wide"><span>New text</span><input
          ...${field("text")} placeholder="Text of the message" required /></label>`}
      <button type="submit" class="button primary">Preview</button>
    </form>
    ${error && !wrong && html`<${LoadError} error=${error} reload=${isRefused(error) ? undefined : reload}
        title=${isRefused(error) ? "This request cannot be sent" : undefined} />`}
    ${!data && !error && html`<${Skeleton} lines=${6} label="Compiling the request" />`}
    ${data && html`<div class="next-answer" aria-busy=${loading ? "true" : undefined} aria-live="polite">
      <${Verdict} data=${data} asked=${asked} />
      <${Budget} budget=${data.budget} />
      <div class="next-lines"><${LineList} key=${key} identity=${key} source=${source} shown=${data.counts.shown}
        shared=${data.shared} why=${data.why} /></div>
    </div>`}
  </div>`;
}

const sentence = (remark) => {
  const text = String(remark ?? "").replace(/\.$/, "");
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`;
};

function Verdict({ data, asked }) {
  const { signed_lost: signed, cache } = data.cost;
  const facts = [
    `Request ${number(data.request)} for ${oneLine(`${data.provider}:${data.model}`, 60)}`,
    data.mode === "resume" ? "resuming its session" : "with the full context",
    data.why && resetLabel(oneLine(data.why, 80)),
  ];
  const more = [
    data.counts.left > 0 && `${plural(data.counts.left, "message")} would be left out.`,
    data.request > 1 && `${number(data.shared.tokens)} tokens are the same as in the previous request.`,
    cache && `Expected from the cache: ${plural(cache.read, "token")}.`,
    data.is_new === false && asked.action === "go" && "No new message to answer.",
    ...data.remarks.map(sentence),
  ];
  const loss = lossOf(data.cost, data.request);
  return html`<div class=${`verdict ${loss.isFree && !signed ? "is-free" : "is-costly"}`} data-testid="verdict">
    <p class="verdict-head"><b>${loss.head}</b>${loss.rest}
      ${signed > 0 && html` <b>Signed reasoning of ${plural(signed, "message")}</b> would become invalid.`}</p>
    <p class="soft">${facts.filter(Boolean).join("; ")}. ${more.filter(Boolean).join(" ")}</p>
  </div>`;
}

const UNITS = [[86_400_000, "day", 2], [3_600_000, "hour", 2], [60_000, "minute", 1], [1_000, "second", 0]];

/** Return a time in its largest unit: 3 days, 5 minutes. A day and an hour count from 2 on. */
function span(milliseconds) {
  const [size, unit] = UNITS.find(([each, , least]) => milliseconds >= each * least);
  return plural(Math.round(milliseconds / size), unit);
}

/** Return what the request would lose, in words. A cache that has expired cannot be lost any more. */
function lossOf({ cached_lost: lost, dollars: price, cost_is_lower_bound: isLowerBound, cache }, request) {
  const again = cache?.paid_again > 0
    ? ` ${plural(cache.paid_again, "token")} ${cache.paid_again === 1 ? "is" : "are"} paid again${cache.dollars ? `, which costs ${costText({ cost: cache.dollars, cost_is_lower_bound: cache.cost_is_lower_bound })} more than reading them` : ""}.` : "";
  if (cache?.expired) {
    return { head: "The provider's cache has expired.", rest: `${again} It was used ${span(cache.idle)} ago, and is kept for ${span(cache.life)}.` };
  }
  if (lost > 0) {
    return { head: `${number(lost)} cached tokens would be lost`, rest: price == null ? "." : `: ${costText({ cost: price, cost_is_lower_bound: isLowerBound })} to write them again.` };
  }
  if (cache?.missed) {
    const { count, code, title } = cache.missed;
    return { head: `Each of the last ${number(count)} requests missed the cache.`, rest: ` ${oneLine(title, 200)} (${code}). If that goes on:${again}` };
  }
  if (request === 1) return { head: "This is the first request of its channel.", rest: " The provider has cached nothing of it.", isFree: true };
  return { head: "No cached tokens would be lost.", rest: "", isFree: true };
}

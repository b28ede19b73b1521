/** The Reply tab: what the model returned, how it ended, how long it took, and further attempts. */
import { html, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { Code } from "../code_block.js";
import { NO_TIME, bytes, costText, dateTime, duration, number, oneLine, plural, readable } from "../format.js";
import { inspectUrl } from "../route.js";
import { useLoad } from "../use_load.js";
import { VirtualList } from "../virtual_list.js";
import { CopyButton, download, fileName } from "./copy_download.js";
import { LoadError, Skeleton } from "./placeholders.js";

/** The most events of a raw response that are shown; all can be downloaded. */
const RAW_EVENTS = 500;

const STATUSES = {
  ok: ["complete", "good"], error: ["failed", "bad"], unfinished: ["broke off", "bad"], unanswered: ["no answer", "bad"],
  unrecorded: ["not recorded", ""],
  stopped: ["stopped", "warn"],
};

/** Return the state of a reply as a word and a colour. */
const statusOf = (status) => STATUSES[status] ?? [status, ""];

/** Return the stop reason, and the provider's own word for it if that is another one. */
export const stopReason = ({ finish, provider_finish: own }) => `${oneLine(finish, 60)}${own ? ` (${oneLine(own, 60)})` : ""}`;

/** @param {{name: string, step: object, load: object}} props `load` is the loaded reply */
export function Reply({ name, step, load }) {
  const { data, error, reload } = load;
  if (step.isStored === false) {
    return html`<div class="panel scrolls reply" data-testid="reply"><p class="panel-note">${oneLine(step.ended, 400)} Neither
      the request nor a reply is stored.</p></div>`;
  }
  if (error) return html`<${LoadError} error=${error} reload=${reload} />`;
  if (!data) return html`<${Skeleton} lines=${6} label="Loading the reply" />`;
  const [word, tone] = statusOf(data.status);
  const { usage } = data;
  const facts = [
    ["status", html`<span class=${`tag ${tone}`}>${word}</span>${data.code ? ` HTTP ${data.code}` : ""}`],
    ["stop reason", data.finish && stopReason(data)],
    ["error type", data.error_type && html`<code>${oneLine(data.error_type, 120)}</code>`],
    ["request id", data.request_id && html`<code>${oneLine(data.request_id, 120)}</code>`],
    ["latency", data.latency != null && duration(data.latency)],
    ["sent", data.began ? dateTime(data.began) : step.observed && NO_TIME],
    ["ended", data.ended && dateTime(data.ended)],
    ["tokens out", usage && `${number(usage.output)}${usage.reasoning ? `, of them ${number(usage.reasoning)} reasoning` : ""}`],
    ["answered by", usage?.model && html`<code>${oneLine(usage.model, 80)}</code>, in place of the requested model`],
    ["billed as", usage && ["tier", "speed", "region"].filter((each) => usage[each]).map((each) => `${each} ${oneLine(usage[each], 40)}`).join(", ")],
    ["further calls", usage?.calls?.length > 0 && usage.calls.map((each) =>
      `${oneLine(each.kind, 40)}: ${each.count ? `${number(each.count)} times` : `${number(each.input ?? 0)} in, ${number(each.output ?? 0)} out`}`).join("; ")],
    ["cost", data.cost != null && `${costText(data)}${usage?.dollars != null ? ", as the provider reports it" : ""}`],
  ].filter(([, value]) => value);
  return html`<div class="panel scrolls reply" data-testid="reply">
    <dl class="reply-facts">${facts.map(([label, value]) => html`<div key=${label}><dt>${label}</dt><dd>${value}</dd></div>`)}</dl>
    ${data.error && html`<section aria-label="Error"><h3>Error</h3><pre class="words is-error" tabindex="0">${readable(data.error)}</pre></section>`}
    <${Attempts} name=${name} step=${step} data=${data} />
    ${data.messages.map((message, index) => html`<${ReplyMessage} key=${message.uid || index} message=${message} />`)}
    ${!data.messages.length && html`<p class="nothing">No part of a reply is stored.</p>`}
    <${Events} data=${data} />
    ${data.messages.length > 0 && html`<details class="reply-rest"><summary>Stored messages as JSON</summary><${Code}
        text=${JSON.stringify(data.messages, null, 2)} language="json" limit=${20000} /></details>`}
    <${RawReply} key=${`${step.channel} ${step.request}`} name=${name} step=${step} />
  </div>`;
}

/** The response as it arrived, event by event. It is loaded when it is opened. */
function RawReply({ name, step }) {
  const [open, setOpen] = useState(false);
  const path = conversationPath(name, "requests", step.channel, step.request, "raw");
  const { data, error } = useLoad(open ? path : null, (signal) => get(path, {}, { signal }));
  const shown = data?.events.slice(0, RAW_EVENTS) ?? [];
  const text = () => data.events.map((each) => each.text).join("");
  return html`<details class="reply-rest" data-testid="raw-reply" onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>Raw response</summary>
    ${error && html`<p class="panel-note">${error.message}</p>`}
    ${data && !data.is_stored && html`<p class="panel-note">The bytes of this response are not kept. The proxy, contextc watch and cc.tap keep them, and
      so does the import of a HAR file. Of contextc's own requests and of other imported files, the messages are stored.</p>`}
    ${data?.is_stored && html`<p class="panel-note">${[
      data.status ? `HTTP ${data.status}` : "", bytes(data.size), plural(data.events.length, "event"),
      data.kept < data.size && `only the first ${bytes(data.kept)} are kept`,
      shown.length < data.events.length && `the first ${number(shown.length)} are shown`].filter(Boolean).join(" · ")}
      ${" "}<${CopyButton} get=${text}>Copy<//>${" "}<button type="button" class="button"
          onClick=${() => download(text(), fileName(name, step.request, "response.txt"), "text/plain")}>Download</button></p>
      <ol class="raw-events">${shown.map((each, index) => html`<li key=${index}>
        <span class="faint">${each.offset == null ? "" : duration(each.offset)}</span><pre class="words">${readable(each.text.trimEnd())}</pre></li>`)}</ol>`}
  </details>`;
}

/** Retries of the same call, and other attempts of the same request. */
function Attempts({ name, step, data }) {
  if (!data.retries.length && !data.attempts.length) return null;
  return html`<section aria-label="Attempts"><h3>Retries and other attempts</h3>
    <ul class="reply-attempts" data-testid="attempts">
      ${data.retries.map((each, index) => html`<li key=${`retry ${index}`}><span class="tag warn">retry ${each.attempt}</span>
        after ${duration(each.seconds * 1000)}: ${oneLine(each.error, 300)}</li>`)}
      ${data.attempts.map((each, index) => html`<li key=${index}><${AttemptLink} name=${name} step=${step} attempt=${each} />
        ${" "}<span class=${`tag ${statusOf(each.status)[1]}`}>${statusOf(each.status)[0]}${each.code ? ` (${each.code})` : ""}</span>
        ${each.time ? ` ${dateTime(each.time)}` : ""}${each.latency != null ? `, ${duration(each.latency)}` : ""}${shortError(each, data)}</li>`)}
    </ul></section>`;
}

/** Return the error of another attempt; its type, or "", if the text is already shown. */
function shortError({ error, error_type: type }, data) {
  const text = type || (error !== data.error && oneLine(error, 300));
  return text ? `: ${text}` : "";
}

function AttemptLink({ name, step, attempt }) {
  if (attempt.number == null) return html`<span>another attempt, not stored</span>`;
  const isCorrected = attempt.corrected;
  const label = isCorrected || attempt.status === "ok" ? `request ${number(attempt.number)}` : "another attempt";
  const what = isCorrected && (attempt.number > step.request ? "corrected retry: " : "corrects the refused ");
  return html`${what}<a href=${inspectUrl(name, step.channel, attempt.number, { tab: "reply" })}>${label}</a>`;
}

function ReplyMessage({ message }) {
  return html`<section class="reply-message" aria-label=${`Message ${message.seq || ""}`}>
    <h3>${message.seq ? `Message ${number(message.seq)}` : "Message"}
      ${message.status && message.status !== "sent" && html` <span class="tag warn">${oneLine(message.status, 30)}</span>`}</h3>
    ${message.redacted && html`<p class="soft">The content was removed.</p>`}
    ${(message.parts ?? []).map((part, index) => html`<${ReplyPart} key=${index} part=${part} />`)}
    ${!message.redacted && !message.parts?.length && html`<p class="soft">Empty.</p>`}
  </section>`;
}

function ReplyPart({ part }) {
  if (part.type === "text") return html`<pre class="words" tabindex="0">${readable(part.text)}</pre>`;
  if (part.type === "reasoning") {
    return html`<div class="part"><span class="tag">reasoning${part.signature ? ", signed" : ""}${part.data ? ", encrypted" : ""}</span>
      ${part.text && html`<pre class="words" tabindex="0">${readable(part.text)}</pre>`}</div>`;
  }
  if (part.type === "tool_call") {
    return html`<div class="part"><span class="tag">call: ${oneLine(part.name)}</span>${part.malformed && html`<span
        class="tag bad">arguments are not valid JSON</span>`}
      <${Code} text=${part.malformed ? part.raw ?? "" : JSON.stringify(part.arguments ?? {}, null, 2)} language="json" limit=${8000} bare /></div>`;
  }
  return html`<div class="part"><span class="tag">${oneLine(part.type ?? "part")}</span><${Code} text=${JSON.stringify(part, null, 2)}
      language="json" limit=${8000} bare /></div>`;
}

/** The stored events of the step. */
function Events({ data }) {
  const { events } = data;
  if (!events.length) return null;
  const first = events[0].time;
  const row = (index) => {
    const { type, time, number: seq, agent, turn, step, ...rest } = events[index];
    return html`<div class="reply-event"><span class="faint">+${duration(Math.max(0, time - first))}</span><span class="tag">${oneLine(type, 40)}</span><code
        >${oneLine(JSON.stringify(rest), 300)}</code></div>`;
  };
  return html`<details class="reply-rest" data-testid="reply-events"><summary>${plural(events.length, "stored event")}${data.more_events ? ", and more" : ""}</summary>
    <${VirtualList} count=${events.length} row=${row} estimate=${24} class="reply-events" role="list" aria-label="Events of the step"
        attributes=${() => ({ role: "listitem" })} /></details>`;
}

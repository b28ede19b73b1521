/** The Session tab: what a model was already sent (the ledger of its channel), and what it was not sent yet. */
import { html, useEffect, useMemo, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { number, oneLine, plural } from "../format.js";
import { resetReason } from "../reasons.js";
import { VirtualList } from "../virtual_list.js";
import { approximate } from "./causes.js";
import { useLoad } from "../use_load.js";
import { channelName } from "./channel_names.js";
import { PageLoader } from "./page_loader.js";
import { EVENTS, eventKind } from "./timeline_layout.js";
import { LoadError, Skeleton } from "./placeholders.js";

/** @param {{name: string, channels: Map<string, object>, current: string, showStep: (channel: string, request: number) => void}} props */
export function LedgerPanel({ name, channels, current, showStep }) {
  const [chosen, setChosen] = useState(current);
  useEffect(() => setChosen(current), [current]);
  const channel = channels.get(chosen);
  return html`<div class="panel ledger" data-testid="ledger">
    <div class="panel-bar">
      <div class="choice" role="group" aria-label="Model">
        ${[...channels.values()].map((each) => html`<button key=${each.id} type="button"
            aria-pressed=${String(each.id === chosen)} onClick=${() => setChosen(each.id)} title=${channelName(each)}>
          <span class=${`channel-letter hue-${each.hue}`}>${each.letter}</span>${oneLine(each.model, 30)}${each.mode === "stateful" && html` <span class="tag accent">session</span>`}
        </button>`)}
      </div>
    </div>
    ${channel && html`<${Ledger} key=${`${name} ${chosen} ${channel.requests}`} name=${name} channel=${channel}
        showStep=${showStep} />`}
  </div>`;
}

function Ledger({ name, channel, showStep }) {
  const path = conversationPath(name, "channels", channel.id, "ledger");
  const { data, error, reload } = useLoad(path, (signal) => get(path, {}, { signal }));
  if (error) return html`<${LoadError} error=${error} reload=${reload} />`;
  if (data === null) return html`<${Skeleton} lines=${8} label="Loading the session" />`;
  const ask = (after, limit, signal) => get(path, { after, limit }, { signal }).then((found) => found.known);
  const isUnsure = data.known.some((each) => !each.acknowledged);
  return html`<div class="ledger-columns">
    <div class="ledger-side">
      <${Session} channel=${channel} data=${data} />
      <${Epochs} epochs=${data.epochs} channel=${channel} showStep=${showStep} />
    </div>
    <div class="ledger-main">
      <section class="ledger-part" aria-label="Not sent yet"><h3><span class="ledger-sign new"
          aria-hidden="true">+</span>${data.new.some((each) => each.before) ? "Not in the last request" : "Not sent yet"}
          ${" "}<span class="soft">${plural(data.new.length, "message")}</span></h3>
        ${data.new.length
          ? html`<${Entries} total=${data.new.length} ask=${async (after, limit) => data.new.slice(after, after + limit)}
              label="Messages not sent yet" />`
          : html`<p class="nothing">All messages were sent.</p>`}
      </section>
      <section class="ledger-part is-known" aria-label="Already sent"><h3><span class="ledger-sign known"
          aria-hidden="true">=</span>Already sent
          <span class="soft">${plural(data.total, "entry", "entries")}${isUnsure ? ", not acknowledged: sent again with the next request" : ""}</span></h3>
        ${data.total > 0 && html`<p class="soft ledger-note" data-testid="ledger-note">Tokens are those of request
          ${" "}${number(data.request)}, as in Messages. ≈ is an estimate of contextc.</p>`}
        ${data.total
          ? html`<${Entries} total=${data.total} ask=${ask} label="Messages already sent" />`
          : html`<p class="nothing">Nothing of this conversation was sent yet.</p>`}
      </section>
    </div>
  </div>`;
}

function Session({ channel, data }) {
  const session = data.session || channel.session;
  const lost = data.lost || channel.lost;
  return html`<section class="ledger-session" aria-label="Session">
    <h3>${channel.mode === "stateful" ? "Provider keeps a session" : "Provider keeps no session"}</h3>
    ${channel.mode === "stateful"
      ? html`<p class="soft">Only new messages are sent while the session exists.</p>`
      : html`<p class="soft">The whole context is sent with each request. The part already sent can be read from the provider's cache.</p>`}
    <dl class="facts">
      <div><dt>model</dt><dd>${channelName(channel)}</dd></div>
      ${session && html`<div><dt>session</dt><dd><code>${oneLine(session, 80)}</code></dd></div>`}
      ${channel.mode === "stateful" && html`<div><dt>next request</dt><dd>${session ? html`<span
          class="tag accent">resume</span> only new messages` : html`<span class="tag">full</span> the whole context`}</dd></div>`}
      <div><dt>requests</dt><dd>${number(channel.requests)}</dd></div>
      ${lost && html`<div><dt>session lost</dt><dd class="is-bad">${oneLine(lost, 200)}</dd></div>`}
      ${channel.unanswered && html`<div><dt>no reply</dt><dd
          class="is-bad">A request was sent, and no reply is stored. ${oneLine(channel.error, 200)}</dd></div>`}
    </dl>
  </section>`;
}

function Epochs({ epochs, channel, showStep }) {
  return html`<section aria-label="Cache resets"><h3>Cache resets</h3>
    <ol class="epochs">
      ${epochs.map((each) => {
        const kind = eventKind(each.why) ?? "change";
        return html`<li key=${`${each.epoch} ${each.request}`}><button type="button"
            onClick=${() => showStep(channel.id, each.request)}>
          <span class=${`epoch-sign mark-${kind}`} aria-hidden="true">${EVENTS[kind].sign}</span>
          <span><b>cache epoch ${number(each.epoch)}</b> from request ${number(each.request)}<br /><span
              class="soft">${oneLine(resetReason(each.why), 120)}</span></span>
        </button></li>`;
      })}
    </ol>
  </section>`;
}

/** Ledger entries, fetched as they come into view. */
function Entries({ total, ask, label }) {
  const [, redraw] = useState(0);
  const pages = useMemo(() => new PageLoader(total, ask, () => redraw((each) => each + 1)), [total]);
  useEffect(() => () => pages.close(), [pages]);
  return html`<${VirtualList} count=${total} estimate=${30} class="ledger-rows" role="list" aria-label=${label}
      style=${{ "--rows": String(total) }}
    onRange=${(first, last) => pages.ensure(first, last)} attributes=${() => ({ role: "listitem" })}
    row=${(index) => html`<${Entry} entry=${pages.get(index)} />`} />`;
}

const estimate = approximate("estimated");

function Entry({ entry }) {
  if (!entry) return html`<div class="ledger-row" aria-hidden="true"><span class="skeleton coming-bar"></span></div>`;
  return html`<div class="ledger-row">
    <span class="line-seq">${entry.seq || ""}</span><span class=${`line-role role-${entry.role}`}>${entry.role}</span>
    <span class="line-text">${entry.kind && entry.kind !== "message" && html`<span
        class="tag">${entry.kind}</span>`} ${oneLine(entry.text, 240)}</span>
    ${entry.before && html`<span class="tag">sent before, on another branch</span>`}
    ${entry.acknowledged === false && html`<span class="tag warn">not acknowledged</span>`}
    <span class="line-tokens">${entry.counted ? `${number(entry.counted)} tokens` : entry.tokens ? `${estimate(entry.tokens)} tokens` : ""}</span>
  </div>`;
}

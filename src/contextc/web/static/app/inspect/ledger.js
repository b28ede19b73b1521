/** What a provider already knows of a conversation, and what it has yet to be shown: the ledger of one channel. */
import { html, useEffect, useMemo, useState } from "../html.js";
import { conversationPath, get } from "../api.js";
import { number, oneLine, plural } from "../format.js";
import { VirtualList } from "../virtual.js";
import { useLoad } from "./load.js";
import { channelName } from "./naming.js";
import { Pages } from "./pages.js";
import { EVENTS, event } from "./scale.js";
import { Problem, Skeleton } from "./states.js";

/** @param {{name: string, channels: Map<string, object>, current: string, showStep: (channel: string, request: number) => void}} props */
export function Ledgers({ name, channels, current, showStep }) {
  const [chosen, setChosen] = useState(current);
  useEffect(() => setChosen(current), [current]);
  const channel = channels.get(chosen);
  return html`<div class="panel ledger" data-testid="ledger">
    <div class="panel-bar">
      <div class="choice" role="group" aria-label="Whose ledger">
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
  const { data, error, again } = useLoad(path, (signal) => get(path, {}, { signal }));
  if (error) return html`<${Problem} error=${error} again=${again} />`;
  if (data === null) return html`<${Skeleton} lines=${8} label="Loading the ledger" />`;
  const ask = (after, limit, signal) => get(path, { after, limit }, { signal }).then((found) => found.known);
  const isUnsure = data.known.some((each) => !each.acknowledged);
  return html`<div class="ledger-columns">
    <div class="ledger-side">
      <${Session} channel=${channel} data=${data} />
      <${Epochs} epochs=${data.epochs} channel=${channel} showStep=${showStep} />
    </div>
    <div class="ledger-main">
      <section class="ledger-part" aria-label="Not shown yet"><h3><span class="ledger-sign new"
          aria-hidden="true">+</span>${data.new.some((each) => each.before) ? "Not in the last request" : "Not shown yet"}
          ${" "}<span class="soft">${plural(data.new.length, "message")}</span></h3>
        ${data.new.length
          ? html`<${Entries} total=${data.new.length} ask=${async (after, limit) => data.new.slice(after, after + limit)}
              label="What it has not been shown yet" />`
          : html`<p class="nothing">It knows everything that was said.</p>`}
      </section>
      <section class="ledger-part is-known" aria-label="Known"><h3><span class="ledger-sign known"
          aria-hidden="true">=</span>Already known
          <span class="soft">${plural(data.total, "entry", "entries")}${isUnsure ? ", not acknowledged: they are told again" : ""}</span></h3>
        ${data.total
          ? html`<${Entries} total=${data.total} ask=${ask} label="What it already knows" />`
          : html`<p class="nothing">It knows nothing of this conversation yet.</p>`}
      </section>
    </div>
  </div>`;
}

function Session({ channel, data }) {
  const session = data.session || channel.session;
  const lost = data.lost || channel.lost;
  return html`<section class="ledger-session" aria-label="Session">
    <h3>${channel.mode === "stateful" ? "It keeps a session" : "It keeps nothing"}</h3>
    ${channel.mode === "stateful"
      ? html`<p class="soft">Only what is new is sent to it, as long as its session holds.</p>`
      : html`<p class="soft">Everything is sent each time. What it “knows” is the prefix that its cache can have.</p>`}
    <dl class="facts">
      <div><dt>channel</dt><dd>${channelName(channel)}</dd></div>
      ${session && html`<div><dt>session</dt><dd><code>${oneLine(session, 80)}</code></dd></div>`}
      ${channel.mode === "stateful" && html`<div><dt>next request</dt><dd>${session ? html`<span
          class="tag accent">resume</span> only what is new` : html`<span class="tag">full</span> the whole context`}</dd></div>`}
      <div><dt>requests</dt><dd>${number(channel.requests)}</dd></div>
      ${lost && html`<div><dt>session lost</dt><dd class="is-bad">${oneLine(lost, 200)}</dd></div>`}
      ${channel.unanswered && html`<div><dt>no reply</dt><dd
          class="is-bad">A request has left and no reply is stored. ${oneLine(channel.error, 200)}</dd></div>`}
    </dl>
  </section>`;
}

function Epochs({ epochs, channel, showStep }) {
  return html`<section aria-label="Epochs"><h3>Epochs</h3>
    <ol class="epochs">
      ${epochs.map((each) => {
        const kind = event(each.why) ?? "change";
        return html`<li key=${`${each.epoch} ${each.request}`}><button type="button"
            onClick=${() => showStep(channel.id, each.request)}>
          <span class=${`epoch-sign mark-${kind}`} aria-hidden="true">${EVENTS[kind].sign}</span>
          <span><b>epoch ${number(each.epoch)}</b> from request ${number(each.request)}<br /><span
              class="soft">${oneLine(each.why, 120)}</span></span>
        </button></li>`;
      })}
    </ol>
  </section>`;
}

/** Entries of a ledger, asked for as they come into view. */
function Entries({ total, ask, label }) {
  const [, redraw] = useState(0);
  const pages = useMemo(() => new Pages(total, ask, () => redraw((each) => each + 1)), [total]);
  useEffect(() => () => pages.close(), [pages]);
  return html`<${VirtualList} count=${total} estimate=${30} class="ledger-rows" role="list" aria-label=${label}
      style=${{ "--rows": String(total) }}
    onRange=${(first, last) => pages.want(first, last)} attributes=${() => ({ role: "listitem" })}
    row=${(index) => html`<${Entry} entry=${pages.get(index)} />`} />`;
}

function Entry({ entry }) {
  if (!entry) return html`<div class="ledger-row" aria-hidden="true"><span class="skeleton coming-bar"></span></div>`;
  return html`<div class="ledger-row">
    <span class="line-seq">${entry.seq || ""}</span><span class=${`line-role role-${entry.role}`}>${entry.role}</span>
    <span class="line-text">${entry.kind && entry.kind !== "message" && html`<span
        class="tag">${entry.kind}</span>`} ${oneLine(entry.text, 240)}</span>
    ${entry.before && html`<span class="tag">shown before, on another branch</span>`}
    ${entry.acknowledged === false && html`<span class="tag warn">not acknowledged</span>`}
    <span class="line-tokens">${entry.tokens ? number(entry.tokens) : ""}</span>
  </div>`;
}

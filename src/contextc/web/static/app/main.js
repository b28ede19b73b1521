/**
 * Entry point of the web UI: mounts the app and picks the view by the URL. The inspector and the file opener load on first use.
 */
import { effect } from "@preact/signals";
import { html, render, useEffect, useState } from "./html.js";
import { reachable, recordingEnded, tokenRequest } from "./api.js";
import { ApprovalRules } from "./chat/approval_rules.js";
import { Chat } from "./chat/chat.js";
import { Home } from "./chat/home.js";
import { Live } from "./chat/live.js";
import { startChangeFeed } from "./change_feed.js";
import { Dialog, DialogHost } from "./dialog.js";
import { Icon } from "./icons.js";
import { listenForKeys, Shortcuts } from "./shortcuts.js";
import { listenForDrops, ReadingDialog } from "./opened_file.js";
import { openedFile, route } from "./route.js";
import { Sidebar } from "./sidebar.js";
import { NotesDialog } from "./tags_and_notes.js";
import { drawer, isNarrow, startAutoRefresh, loadConversations, loadInfo, loadTags } from "./state.js";
import { watchBrowserTab } from "./browser_tab.js";
import { watchUnread } from "./unread.js";

/** A view whose module is loaded on first use. */
function Later({ load, named, ...props }) {
  const [view, setView] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    let wanted = true;
    load().then((module) => wanted && setView(() => module[named]), (failure) => wanted && setError(failure));
    return () => { wanted = false; };
  }, []);
  if (error) return html`<div class="empty"><h2>Could not load this view</h2><p>${error.message}</p></div>`;
  return view ? html`<${view} ...${props} />` : html`<div class="empty" aria-busy="true"><div class="skeleton wide"></div></div>`;
}

const inspector = () => import("./inspect/inspector.js");
const comparison = () => import("./inspect/compare.js");
const opener = () => import("./inspect/open_file.js");
const overview = () => import("./overview/overview.js");
const storeSearch = () => import("./overview/store_search.js");

function View() {
  const { view, name, channel, request, message, since, other, query } = route.value;
  if (view === "chat") return html`<${Chat} key=${name} name=${name} message=${message} text=${query.q ?? ""} />`;
  if (view === "inspect") {
    return html`<${Later} key="inspect" load=${inspector} named="Inspector" name=${name} channel=${channel} request=${request} />`;
  }
  if (view === "compare") return html`<${Later} key="compare" load=${comparison} named="Compare" name=${name} other=${other} />`;
  if (view === "open") return html`<${Later} key="open" load=${opener} named="OpenFile" />`;
  if (view === "overview") return html`<${Later} key="overview" load=${overview} named="Overview" />`;
  if (view === "search") return html`<${Later} key="search" load=${storeSearch} named="StoreSearch" />`;
  if (view === "live") return html`<${Live} since=${since} />`;
  return html`<${Home} />`;
}

function UnreachableBanner() {
  if (recordingEnded.value) {
    return html`
      <div class="banner" role="status" data-testid="ended">
        <${Icon} name="info" />
        <span><code>contextc watch</code> has ended, and this page with it. The recording is stored: <code>contextc serve</code> shows it.</span>
      </div>`;
  }
  if (reachable.value) return null;
  return html`
    <div class="banner" role="alert" data-testid="gone">
      <${Icon} name="warning" />
      <span>The server is unreachable. Retrying…</span>
      <button type="button" class="button" onClick=${() => loadInfo()}>Retry now</button>
    </div>`;
}

/** Return the token of a pasted link, or the pasted text itself. */
function tokenOf(pasted) {
  return URL.canParse(pasted) ? new URL(pasted).searchParams.get("token") ?? pasted : pasted;
}

function TokenDialog() {
  const [token, setToken] = useState("");
  const wanted = tokenRequest.value;
  if (!wanted) return null;
  const submit = (event) => {
    event.preventDefault();
    wanted.answer(tokenOf(token.trim()));
    setToken("");
  };
  return html`
    <${Dialog} title="Authentication required" onClose=${() => wanted.answer("")} data-testid="token-dialog">
      <form onSubmit=${submit}>
        <div class="body">
          <p class="soft">${wanted.again ? "Invalid token. " : ""}Open the link that <code>contextc serve</code> printed
            when it started, or paste its token here. A server that was restarted has a new token.</p>
          <label class="labelled"><span>Token</span>
            <input class="field" type="password" autocomplete="off" value=${token} data-focus
              onInput=${(event) => setToken(event.target.value)} />
          </label>
        </div>
        <footer><button type="submit" class="button primary" disabled=${!token.trim()}>Continue</button></footer>
      </form>
    <//>`;
}

function App() {
  const skip = (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  };
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to main content</a>
    <${UnreachableBanner} />
    <div class="shell ${drawer.value ? "drawer-open" : ""}">
      <${Sidebar} />
      ${drawer.value && html`<div class="scrim" onClick=${() => (drawer.value = false)}></div>`}
      <main id="main" class="view" tabindex="-1" inert=${drawer.value && isNarrow()}><${View} /></main>
    </div>
    <${DialogHost} />
    <${TokenDialog} />
    <${ReadingDialog} />
    <${ApprovalRules} />
    <${NotesDialog} />
    <${Shortcuts} />`;
}

render(html`<${App} />`, document.getElementById("app"));
listenForKeys();
startAutoRefresh();
if (!openedFile) startChangeFeed();  // what was read from a file does not change
listenForDrops();
loadInfo();
loadConversations();
loadTags();
watchBrowserTab();
watchUnread();
effect(() => {
  if (route.value) drawer.value = false;
});

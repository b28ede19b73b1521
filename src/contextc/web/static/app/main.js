/**
 * The page: mounted once, its view chosen by the address. The inspector and the opener are loaded when they are wanted.
 */
import { effect } from "@preact/signals";
import { html, render, useEffect, useState } from "./html.js";
import { reachable, tokenWanted } from "./api.js";
import { Chat } from "./chat/chat.js";
import { Home } from "./chat/home.js";
import { Dialog, Questions } from "./dialog.js";
import { Icon } from "./icons.js";
import { listenForKeys, Shortcuts } from "./keys.js";
import { route } from "./route.js";
import { Sidebar } from "./sidebar.js";
import { drawer, isNarrow, keepFresh, loadConversations, loadInfo } from "./state.js";
import { showRunning } from "./tab.js";

/** A view from a module of its own, loaded on first use. */
function Later({ load, named, ...props }) {
  const [view, setView] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    let wanted = true;
    load().then((module) => wanted && setView(() => module[named]), (failure) => wanted && setError(failure));
    return () => { wanted = false; };
  }, []);
  if (error) return html`<div class="empty"><h2>This view could not be loaded</h2><p>${error.message}</p></div>`;
  return view ? html`<${view} ...${props} />` : html`<div class="empty" aria-busy="true"><div class="skeleton wide"></div></div>`;
}

const inspector = () => import("./inspect/inspector.js");
const opener = () => import("./inspect/open.js");

function View() {
  const { view, name, channel, request, message } = route.value;
  if (view === "chat") return html`<${Chat} key=${name} name=${name} message=${message} />`;
  if (view === "inspect") {
    return html`<${Later} key="inspect" load=${inspector} named="Inspector" name=${name} channel=${channel} request=${request} />`;
  }
  if (view === "open") return html`<${Later} key="open" load=${opener} named="OpenFile" />`;
  return html`<${Home} />`;
}

function Gone() {
  if (reachable.value) return null;
  return html`
    <div class="banner" role="alert" data-testid="gone">
      <${Icon} name="warning" />
      <span>The server does not answer. Trying again…</span>
      <button type="button" class="button" onClick=${() => loadInfo()}>Try now</button>
    </div>`;
}

/** The token of a link that was pasted whole; anything else is the token itself. */
function tokenOf(pasted) {
  return URL.canParse(pasted) ? new URL(pasted).searchParams.get("token") ?? pasted : pasted;
}

function TokenDialog() {
  const [token, setToken] = useState("");
  const wanted = tokenWanted.value;
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
          <p class="soft">${wanted.again ? "That token is not valid. " : ""}Open the link that <code>contextc serve</code> printed
            when it started, or paste its token here. A server that was restarted has a new token.</p>
          <label class="labelled"><span>Token</span>
            <input class="field" type="password" autocomplete="off" value=${token} data-focus
              onInput=${(event) => setToken(event.target.value)} />
          </label>
        </div>
        <footer><button type="submit" class="button primary" disabled=${!token.trim()}>Go on</button></footer>
      </form>
    <//>`;
}

function App() {
  const skip = (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  };
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the conversation</a>
    <${Gone} />
    <div class="shell ${drawer.value ? "drawer-open" : ""}">
      <${Sidebar} />
      ${drawer.value && html`<div class="scrim" onClick=${() => (drawer.value = false)}></div>`}
      <main id="main" class="view" tabindex="-1" inert=${drawer.value && isNarrow()}><${View} /></main>
    </div>
    <${Questions} />
    <${TokenDialog} />
    <${Shortcuts} />`;
}

render(html`<${App} />`, document.getElementById("app"));
listenForKeys();
keepFresh();
loadInfo();
loadConversations();
showRunning();
effect(() => {
  if (route.value) drawer.value = false;
});

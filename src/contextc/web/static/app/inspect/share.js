/** The Share button: copies the link to this view, or downloads the request or the run as one HTML file. */
import { html, useState } from "../html.js";
import { conversationPath, getText } from "../api.js";
import { copyText } from "../code_block.js";
import { attempt, Dialog, notify } from "../dialog.js";
import { number } from "../format.js";
import { Icon } from "../icons.js";
import { Menu } from "../menu.js";
import { inspectUrl, route } from "../route.js";
import { download, fileName } from "./copy_download.js";
import { FieldError } from "./placeholders.js";

/** What can be removed from a file: name, label, and what it means. Keys, tokens and addresses are removed by default. */
const REDACTIONS = [
  ["texts", "Texts", "system prompt, messages, reasoning, arguments of calls, descriptions of tools"],
  ["results", "Tool results", "everything that tools returned"],
  ["files", "Names of files", "paths and file names, everywhere"],
  ["keys", "API keys", "and private keys, where found"],
  ["tokens", "Tokens and passwords", "bearer tokens, passwords in texts and URLs, where found"],
  ["mail", "Mail addresses", "where found"],
];
const DEFAULT = ["keys", "tokens"];

/** @param {{name: string, channel?: string, request?: number, tab?: string}} props the conversation, and the request and the tab that are shown */
export function ShareButton({ name, channel = "", request = 0, tab = "" }) {
  const [isOpen, setOpen] = useState(false);
  const items = [
    { label: "Copy link", icon: "copy", act: async () => {
      const view = request ? inspectUrl(name, channel, request, { ...route.value.query, tab }) : location.hash;  // also when a newer request comes
      await copyText(location.href.split("#")[0] + view);
      notify("Copied the link to this view. It works where this server can be reached.");
    } },
    { label: "Download HTML file…", icon: "download", act: () => setOpen(true) },
  ];
  return html`<${Menu} label="Share" items=${items} class="button has-icon" data-testid="share"><${Icon} name="share" /><span
      class="button-word">Share</span><//>
    ${isOpen && html`<${ShareDialog} name=${name} channel=${channel} request=${request} close=${() => setOpen(false)} />`}`;
}

function ShareDialog({ name, channel, request, close }) {
  const [isRun, setRun] = useState(true);
  const [removed, setRemoved] = useState(DEFAULT);
  const [hasTags, setTags] = useState(true);
  const [hasNotes, setNotes] = useState(false);
  const [pattern, setPattern] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const toggle = (each) => setRemoved(removed.includes(each) ? removed.filter((one) => one !== each) : [...removed, each]);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    const query = { format: "html", redact: removed.join(","), pattern, tags: hasTags, notes: hasNotes, ...(isRun ? {} : { channel, request }) };
    setError(null);
    const text = await attempt(() => getText(conversationPath(name, "export"), query).catch((error) => {
      if (!pattern || error.status !== 400) throw error;
      setError(error);
    }));
    setBusy(false);
    if (text === undefined) return;
    download(text, `${fileName(name, ...(isRun ? [] : [request]))}.html`, "text/html");
    close();
  };
  return html`<${Dialog} title="Download HTML file" onClose=${close} class="share-dialog" data-testid="share-dialog">
    <form onSubmit=${submit}>
      <div class="body share-body">
        <p class="soft">One file that opens in any browser. It needs no server and makes no network requests.
          It contains system prompt, tools, messages, results, replies, findings and costs, as far as they are not removed below.</p>
        ${request > 0 && html`<fieldset><legend>Content</legend>
          <label><input type="radio" name="share-what" checked=${isRun} onChange=${() => setRun(true)} data-focus /> All requests</label>
          <label><input type="radio" name="share-what" checked=${!isRun} onChange=${() => setRun(false)} /> Request ${number(request)} only</label>
        </fieldset>`}
        <fieldset><legend>Also include</legend>
          <label><input type="checkbox" checked=${hasTags} onChange=${() => setTags(!hasTags)} /> <span>Tags</span></label>
          <label><input type="checkbox" checked=${hasNotes} onChange=${() => setNotes(!hasNotes)} />
            <span>Notes <span class="faint">private: left out unless you include them</span></span></label>
        </fieldset>
        <fieldset><legend>Remove from the file</legend>
          ${REDACTIONS.map(([each, label, meaning]) => html`<label key=${each}>
            <input type="checkbox" checked=${removed.includes(each)} onChange=${() => toggle(each)} />
            <span>${label}${meaning && html` <span class="faint">${meaning}</span>`}</span></label>`)}
        </fieldset>
        <label class="labelled"><span>Also remove (regular expression)</span>
          <input class="field" value=${pattern} maxlength="500" spellcheck="false" autocomplete="off"
            aria-invalid=${error ? "true" : undefined} aria-describedby=${error ? "share-wrong" : undefined}
            onInput=${(event) => setPattern(event.currentTarget.value)} data-testid="share-pattern" /></label>
        ${error && html`<${FieldError} id="share-wrong" error=${error} />`}
      </div>
      <footer>
        <button type="button" class="button quiet" onClick=${close}>Cancel</button>
        <button type="submit" class="button primary" disabled=${isBusy} aria-busy=${isBusy ? "true" : undefined}>Download</button>
      </footer>
    </form>
  <//>`;
}

/** The message field. Enter sends. During a turn, Enter steers it, and Ctrl+Enter queues for the next turn. */
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { get } from "../api.js";
import { attempt, notify } from "../dialog.js";
import { Icon, IconButton } from "../icons.js";
import { oneLine } from "../format.js";
import { keepDraft, loadDraft } from "./drafts.js";
import { isTextFile, mediaPartFromFile } from "./media.js";

/** Return the types of attached files that the model does not get. It is only told that they exist. */
function useUnsentTypes(media, model) {
  const [unsent, setUnsent] = useState(new Set());
  const types = [...new Set(media.filter((part) => !isTextFile(part)).map((part) => part.mime_type))].sort();
  useEffect(() => {
    let isCurrent = true;
    const ask = (type) => get("media-support", { type, ...(model ? { model } : {}) })
      .then(({ is_sent: isSent }) => (isSent ? [] : [type]), () => []);
    Promise.all(types.map(ask)).then((found) => {
      if (isCurrent) setUnsent(new Set(found.flat()));
    });
    return () => {
      isCurrent = false;
    };
  }, [types.join(), model]);
  return unsent;
}

/**
 * @param {object} props
 * @param {string} props.name the conversation; "" for a new one
 * @param {boolean} props.running
 * @param {string} [props.model] the model that gets the message; "" for the server's own
 * @param {(input: string|object) => Promise<any>} props.onSend
 * @param {(text: string) => Promise<any>} [props.onSteer]
 * @param {(text: string) => Promise<any>} [props.onFollowUp]
 * @param {() => void} [props.onStop]
 * @param {() => void} [props.onEditLast]
 */
export function Composer({ name, running, model = "", onSend, onSteer, onFollowUp, onStop, onEditLast, children, placeholder = "Message…" }) {
  const [draft] = useState(() => loadDraft(name));
  const [text, setText] = useState(draft.text);
  const [media, setMedia] = useState(draft.media);
  const unsent = useUnsentTypes(media, model);
  const [busy, setBusy] = useState(false);
  const [over, setOver] = useState(false);
  const field = useRef(null);
  const chosen = useRef(null);
  useLayoutEffect(() => {
    const area = field.current;
    const box = area.parentElement;
    box.style.minHeight = `${box.offsetHeight}px`;  // or the messages would scroll while the field is measured
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight + 2, innerHeight * 0.4)}px`;
    box.style.minHeight = "";
  }, [text]);
  useLayoutEffect(() => {
    keepDraft(name, { text, media });
  }, [name, text, media]);
  const write = (value) => {
    keepDraft(name, { text: value, media });  // now: the view may be left before it is rendered again
    setText(value);
  };
  useEffect(() => {
    if (matchMedia("(hover: hover)").matches) field.current.focus({ preventScroll: true });
  }, [name]);

  const empty = !text.trim() && !media.length;
  const submit = async (later = false) => {
    if (empty || busy) return;
    const said = text;
    const shown = media;
    const parts = [...media, ...(text.trim() ? [{ type: "text", text }] : [])];
    if (running && shown.length) {
      notify("Files cannot be attached during a turn. Send them when it has ended.", { bad: true });
      return;
    }
    setBusy(true);
    setText("");
    setMedia([]);
    const work = running ? (later ? onFollowUp : onSteer) : onSend;
    const done = await attempt(() => work(shown.length && !running ? { role: "user", parts } : said).then(() => true));
    setBusy(false);
    if (!done) {
      setText((now) => now || said);
      setMedia((now) => (now.length ? now : shown));
    }
    field.current?.focus({ preventScroll: true });
  };
  const onKeyDown = (event) => {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) submit(event.ctrlKey || event.altKey || event.metaKey);
    else if (event.key === "ArrowUp" && !text && onEditLast) onEditLast();
    else return;
    event.preventDefault();
  };
  const take = (files) => attempt(async () => {
    const parts = await Promise.all([...files].map((file) => mediaPartFromFile(file)));
    setMedia((now) => [...now, ...parts]);
  });
  const onPaste = (event) => {
    if (!event.clipboardData?.files.length) return;
    event.preventDefault();
    take(event.clipboardData.files);
  };
  const onDrop = (event) => {
    setOver(false);
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    take(event.dataTransfer.files);
  };
  const onChosen = (event) => {
    take([...event.target.files]);
    event.target.value = "";
  };
  const held = /Mac|iP/.test(navigator.platform) ? "⌘" : "Ctrl";
  return html`
    <form class="composer ${over ? "over" : ""}" aria-label="Message" onSubmit=${(event) => { event.preventDefault(); submit(); }}
      onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${onDrop}>
      ${media.length > 0 && html`
        <ul class="attached" aria-label="Attached">${media.map((part, index) => html`
          <li class="chip ${unsent.has(part.mime_type) && !isTextFile(part) ? "unsent" : ""}">
            ${part.mime_type.startsWith("image/")
              ? html`<img src=${`data:${part.mime_type};base64,${part.data}`} alt="" />`
              : html`<${Icon} name="file" />`}
            <span>${oneLine(part.name || part.mime_type, 30)}</span>
            ${unsent.has(part.mime_type) && !isTextFile(part) && html`<strong>not sent: this model cannot read it</strong>`}
            <${IconButton} class="small" icon="close" size=${12} label=${`Remove ${oneLine(part.name || "file", 30)}`}
              onClick=${() => setMedia(media.filter((_, at) => at !== index))} />
          </li>`)}</ul>`}
      <label class="off-screen" for="composer">Message</label>
      <textarea id="composer" ref=${field} rows="1" value=${text} placeholder=${running ? "Steer the turn…" : placeholder} dir="auto"
        onInput=${(event) => write(event.target.value)} onKeyDown=${onKeyDown} onPaste=${onPaste} aria-describedby="composer-hint"
        data-testid="composer"></textarea>
      <div class="composer-foot">
        <${IconButton} icon="clip" label="Attach a file" onClick=${() => chosen.current.click()} />
        <input ref=${chosen} type="file" multiple hidden aria-hidden="true" tabindex="-1" onChange=${onChosen} />
        ${children}
        <span class="grow"></span>
        ${running && html`
          <${IconButton} class="stop" icon="stop" label="Stop the turn" title="Stop (Esc)" onClick=${onStop} data-testid="stop" />`}
        ${(!running || !empty) && html`
          <${IconButton} type="submit" class="send" icon="send" label=${running ? "Steer" : "Send"} disabled=${empty || busy}
            data-testid="send" />`}
      </div>
      <p id="composer-hint" class="composer-hint">
        ${running
          ? html`<kbd>Enter</kbd> steers · <kbd>${held}</kbd> <kbd>Enter</kbd> queues for the next turn · <kbd>Esc</kbd> stops`
          : html`<kbd>Enter</kbd> sends · <kbd>Shift</kbd> <kbd>Enter</kbd> new line`}
      </p>
    </form>`;
}

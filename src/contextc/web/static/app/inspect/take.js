/** Taking things along: to the clipboard, or as a file. */
import { html, useState } from "../html.js";
import { copied } from "../code.js";
import { attempt } from "../dialog.js";

/**
 * A button that copies what `get` gives, which may have to be fetched first.
 * @param {{get: () => Promise<string>|string, children: any}} props
 */
export function TakeButton({ get, children }) {
  const [state, setState] = useState("");
  const onClick = async () => {
    setState("busy");
    const text = await attempt(async () => get());
    if (text === undefined) return setState("");
    await copied(text);
    setState("done");
    setTimeout(() => setState(""), 1_600);
    return undefined;
  };
  return html`<button type="button" class="button" onClick=${onClick} aria-busy=${state === "busy" ? "true" : undefined}>
    ${state === "done" ? html`<span role="status">Copied</span>` : children}
  </button>`;
}

/** Give a text to the browser as a file. */
export function download(text, name, type = "application/json") {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A name that any file system takes. */
export const fileName = (...parts) => parts.join("-").replace(/[^\w.-]+/g, "_").slice(0, 120);

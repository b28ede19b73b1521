/** Copy to the clipboard and download as a file. */
import { html, useState } from "../html.js";
import { copyText } from "../code_block.js";
import { attempt } from "../dialog.js";

/**
 * Button that copies the result of `get`, which may be fetched first.
 * @param {{get: () => Promise<string>|string, children: any}} props
 */
export function CopyButton({ get, children }) {
  const [state, setState] = useState("");
  const onClick = async () => {
    setState("busy");
    const text = await attempt(async () => get());
    if (text === undefined) return setState("");
    await copyText(text);
    setState("done");
    setTimeout(() => setState(""), 1_600);
    return undefined;
  };
  return html`<button type="button" class="button" onClick=${onClick} aria-busy=${state === "busy" ? "true" : undefined}>
    ${state === "done" ? html`<span role="status">Copied</span>` : children}
  </button>`;
}

/** Download a text as a file. */
export function download(text, name, type = "application/json") {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Return a file name that is valid on any file system. */
export const fileName = (...parts) => parts.join("-").replace(/[^\w.-]+/g, "_").slice(0, 120);

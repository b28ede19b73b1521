/** Images and files of a message. Only images stored on this server are loaded; others are links. */
import { html, useState } from "../html.js";
import { blobUrl } from "../api.js";
import { Dialog } from "../dialog.js";
import { Icon } from "../icons.js";
import { bytes, oneLine } from "../format.js";
import { safeUrl } from "../safe_url.js";

const RASTER = ["image/png", "image/jpeg", "image/gif", "image/webp"];

export function Media({ part }) {
  const isPicture = RASTER.includes(part.mime_type);
  if (isPicture && (part.blob || part.data)) return html`<${Picture} part=${part} />`;
  const name = oneLine(part.name || part.mime_type, 60);
  const size = part.size ? ` · ${bytes(part.size)}` : "";
  if (part.blob) {
    return html`<a class="chip" href=${blobUrl(part)} download=${part.name || ""}>${chip(name + size)}</a>`;
  }
  const href = part.url ? safeUrl(part.url) : "";
  if (href) return html`<a class="chip" href=${href} target="_blank" rel="noopener noreferrer">${chip(oneLine(part.url, 80))}</a>`;
  return html`<span class="chip">${chip(`${name}${part.file_id ? ` · ${oneLine(part.file_id, 40)}` : ""}${size}`)}</span>`;
}

const chip = (text) => html`<${Icon} name="file" /><span>${text}</span>`;

function Picture({ part }) {
  const [open, setOpen] = useState(false);
  const [broken, setBroken] = useState(false);
  const source = part.blob ? blobUrl(part) : `data:${part.mime_type};base64,${part.data}`;
  const label = oneLine(part.name || "Image", 60);
  if (broken) return html`<a class="chip" href=${source} download=${part.name || ""}>${chip(label)}</a>`;
  return html`
    <button type="button" class="picture" aria-label=${`Open ${label}`} onClick=${() => setOpen(true)} aria-haspopup="dialog">
      <img src=${source} alt=${label} loading="lazy" onError=${() => setBroken(true)} />
    </button>
    ${open && html`
      <${Dialog} title=${label} class="large" onClose=${() => setOpen(false)}>
        <div class="body"><img src=${source} alt=${label} /></div>
      <//>`}`;
}

/** Read a pasted or dropped file as a media part. Files larger than `largest` are rejected. */
export function mediaPartFromFile(file, largest = 20 << 20) {
  const tooLarge = `${file.name || "The file"} is too large: at most ${bytes(largest)}, got ${bytes(file.size)}.`;
  if (file.size > largest) return Promise.reject(new Error(tooLarge));
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onerror = () => reject(new Error(`Could not read ${file.name}.`));
    reader.onload = () => {
      const data = reader.result.slice(reader.result.indexOf(",") + 1);
      resolve({ type: "media", mime_type: file.type || "application/octet-stream", data, ...(file.name ? { name: file.name } : {}) });
    };
    reader.readAsDataURL(file);
  });
}

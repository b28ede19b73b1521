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

const BINARY = ["application/pdf", "application/postscript"];
/** Media parts that are text files. All models get their text. */
const textFiles = new WeakSet();

/** Return true if a part that `mediaPartFromFile` read is a text file. */
export const isTextFile = (part) => textFiles.has(part);

/** Return true if the bytes of a file are text. Browsers have no type for most source files, and wrong ones for some. */
function isText(type, data) {
  if (BINARY.includes(type) || /^image\/(?!svg)/.test(type)) return false;
  if (data[0] === 0xff && data[1] === 0xfe || data[0] === 0xfe && data[1] === 0xff) return true;  // UTF-16
  if (type.startsWith("text/")) return !data.includes(0);
  if (data.some((byte) => byte < 9 || byte === 127 || (byte > 13 && byte < 32 && byte !== 27))) return false;
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(data);
    return true;
  } catch {
    return false;
  }
}

/** Read a pasted or dropped file as a media part. Files larger than `largest` are rejected. */
export async function mediaPartFromFile(file, largest = 20 << 20) {
  if (file.size > largest) {
    throw new Error(`${file.name || "The file"} is too large: at most ${bytes(largest)}, got ${bytes(file.size)}.`);
  }
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onerror = () => reject(new Error(`Could not read ${file.name}.`));
    reader.onload = () => resolve(reader.result);
    reader.readAsDataURL(file);
  });
  const isTextual = isText(file.type, new Uint8Array(await file.arrayBuffer()));
  const type = isTextual && /^(video|audio)\/|^$/.test(file.type) ? "text/plain" : file.type || "application/octet-stream";
  const part = { type: "media", mime_type: type, data: url.slice(url.indexOf(",") + 1), ...(file.name ? { name: file.name } : {}) };
  if (isTextual) textFiles.add(part);
  return part;
}

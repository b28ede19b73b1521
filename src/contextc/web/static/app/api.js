/**
 * HTTP client of the web UI: JSON requests and event streams.
 *
 * Errors are `ApiError`s with the server's message; status 0 means that the server is unreachable. A missing token is
 * requested from the user once, and all pending requests continue with it. A broken stream resumes after the last
 * complete event, so no event is delivered twice or lost.
 */
import { signal } from "@preact/signals";
import { openedFile } from "./route.js";

const ROOT = new URL("api/", document.baseURI);
const BASE = openedFile ? new URL(`files/${openedFile}/`, ROOT) : ROOT;
const TOKEN = "contextc.token";
const SILENCE = 45_000;
const WAITS = [400, 800, 1_600, 3_000, 5_000, 8_000];
/** Milliseconds between two attempts after the announced end of the server. */
export const LONG_WAIT = 300_000;

/** The pending token request `{again, answer(token)}`, or null. `main.js` shows a dialog for it. */
export const tokenRequest = signal(null);

/** True while the server is reachable. Every request and stream sets it. */
export const reachable = signal(true);

/** True if the server has announced its end, because the program that it showed has ended. */
export const recordingEnded = signal(false);

export class ApiError extends Error {
  /** @param {number} status @param {string} kind @param {string} message */
  constructor(status, kind, message) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.kind = kind;
  }
}

/** Return the URL of a path below /api. The parts of `path` must already be percent-encoded. */
export function apiUrl(path, query = {}) {
  const found = new URL(path.replace(/^\/+/, ""), BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") found.searchParams.set(name, String(value));
  }
  return found.href;
}

/** Return `conversations/NAME/…` with every part percent-encoded, because names may contain slashes. */
export function conversationPath(name, ...rest) {
  return ["conversations", name, ...rest].map((each) => encodeURIComponent(each)).join("/");
}

/** Return the URL of the bytes of a media part. */
export function blobUrl(part) {
  return apiUrl(`blobs/${encodeURIComponent(part.blob)}`, { type: part.mime_type });
}

export const get = (path, query, options) => request("GET", path, { query, ...options });
export const post = (path, body = {}, options) => request("POST", path, { body, ...options });
export const patch = (path, body = {}, options) => request("PATCH", path, { body, ...options });
export const remove = (path, options) => request("DELETE", path, options);

/** Requests about opened files. They go to the server itself, also on the page of an opened file. */
export const files = {
  upload: (file) => fileRequest("POST", `files?${new URLSearchParams({ name: file.name })}`, file, "application/octet-stream"),
  get: (id) => fileRequest("GET", `files/${id}`),
  close: (id) => fileRequest("DELETE", `files/${id}`),
  importInto: (id) => fileRequest("POST", `files/${id}/import`, "{}", "application/json"),
};

async function fileRequest(method, path, body, type) {
  const headers = type ? { "Content-Type": type } : {};
  return (await send(new URL(path, ROOT).href, { method, body, headers })).json();
}

/** Fetch a response as text instead of JSON: exact request bodies, curl commands. */
export const getText = (path, query, options) => request("GET", path, { query, as: "text", ...options });

async function request(method, path, { query, body, as = "json", signal: stopped } = {}) {
  const sent = await send(apiUrl(path, query), {
    method,
    body: body === undefined ? undefined : JSON.stringify(body),
    headers: body === undefined ? {} : { "Content-Type": "application/json" },
    signal: stopped,
  });
  return as === "text" ? sent.text() : sent.json();
}

/** Send a request and return a successful response. Ask for a token on status 401. */
async function send(where, options, tries = 0) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(where, { ...options, headers, credentials: "same-origin", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    reachable.value = false;
    throw new ApiError(0, "Unreachable", "The server is unreachable. Check that `contextc serve` is running.");
  }
  reachable.value = true;
  if (response.ok) return response;
  if (response.status === 401 && tries < 3) {
    await tokenGiven(token);
    return send(where, options, tries + 1);
  }
  throw await problem(response);
}

async function problem(response) {
  const body = await response.json().catch(() => null);
  const { kind = "Failed", message = `The server answered ${response.status}.` } = body?.error ?? {};
  return new ApiError(response.status, kind, message);
}

let asking = null;

/** Ask the user for the token, once for all pending requests. It is also set as a cookie, so that images load. */
function tokenGiven(refused) {
  if (sessionStorage.getItem(TOKEN) !== refused) return Promise.resolve();
  asking ??= new Promise((resolve, reject) => {
    tokenRequest.value = {
      again: refused !== null,
      answer: async (token) => {
        asking = null;
        tokenRequest.value = null;
        if (!token) return reject(new ApiError(401, "NoToken", "Authentication required: open the link that `contextc serve` printed when it started."));
        sessionStorage.setItem(TOKEN, token);
        const page = new URL(document.baseURI);
        page.hash = "";
        page.search = `?token=${encodeURIComponent(token)}`;
        await fetch(page, { credentials: "same-origin" }).catch(() => null);
        resolve();
      },
    };
  });
  return asking;
}

/**
 * Follow the events of a conversation.
 *
 * @param {string} name the conversation
 * @param {number} after the number of the last known event
 * @param {(event: {id: string, type: string, data: object}) => void} onEvent called in order
 * @param {{vocabulary?: string, onState?: (state: "open"|"waiting"|"gone", error?: ApiError) => void}} options
 * @returns {{close: () => void, retry: () => void}}
 */
export function followEvents(name, after, onEvent, { vocabulary = "agui", onState = () => {} } = {}) {
  const path = conversationPath(name, "events");
  return followStream((last) => apiUrl(path, { after: last, vocabulary }), String(after), onEvent, onState);
}

/**
 * Follow a stream of server-sent events with fetch, because EventSource cannot send a token.
 *
 * @param {(last: string) => string} url returns the URL that continues after an event
 * @param {string} start the id of the last known event; "" if there is none
 */
export function followStream(url, start, onEvent, onState = () => {}) {
  const closing = new AbortController();
  let last = start;
  let failures = 0;
  let wake = () => {};

  async function once() {
    const watch = new AbortController();
    const stop = () => watch.abort();
    closing.signal.addEventListener("abort", stop);
    let timer = setTimeout(stop, SILENCE);
    try {
      const response = await send(url(last), {
        headers: { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) },
        signal: watch.signal,
      });
      onState("open");
      const read = sseReader((event) => {
        if (event.data !== null) onEvent(event);
        if (event.id !== null) last = event.id;
      });
      const bytes = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await bytes.read();
        if (done) return;
        failures = 0;
        clearTimeout(timer);
        timer = setTimeout(stop, SILENCE);
        read(value);
      }
    } finally {
      clearTimeout(timer);
      closing.signal.removeEventListener("abort", stop);
    }
  }

  async function run() {
    while (!closing.signal.aborted) {
      try {
        await once();
      } catch (error) {
        if (closing.signal.aborted) return;
        if (error instanceof ApiError && [401, 403, 404, 410].includes(error.status)) return onState("gone", error);
        if (!(error instanceof ApiError)) reachable.value = reachable.value && error.name === "AbortError";
      }
      if (closing.signal.aborted) return;
      onState("waiting");
      const usual = WAITS[Math.min(failures, WAITS.length - 1)] * (0.75 + Math.random() / 2);
      const wait = recordingEnded.value ? LONG_WAIT : usual;
      failures += 1;
      await new Promise((resolve) => {
        wake = resolve;
        setTimeout(resolve, wait);
      });
    }
  }

  const retry = () => wake();
  addEventListener("online", retry);
  run();
  return {
    retry,
    close() {
      removeEventListener("online", retry);
      closing.abort();
      wake();
    },
  };
}

/** Return a parser of server-sent events. It takes chunks of text and calls `emit({id, type, data})` for each event. */
export function sseReader(emit) {
  let rest = "";
  let fields = { id: null, type: "message", data: [] };
  const line = (text) => {
    if (text === "") {
      if (fields.data.length || fields.id !== null) emit({ ...fields, data: parsed(fields.data.join("\n")) });
      fields = { id: null, type: "message", data: [] };
    } else if (!text.startsWith(":")) {
      const [, name, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(text);
      if (name === "data") fields.data.push(value ?? "");
      else if (name === "id") fields.id = value ?? "";
      else if (name === "event") fields.type = value ?? "message";
    }
  };
  return (piece) => {
    rest += piece;
    const lines = rest.split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    lines.forEach(line);
  };
}

function parsed(data) {
  try {
    return JSON.parse(data);
  } catch {
    return null;
  }
}

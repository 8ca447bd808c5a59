// Requests to the broker: {"result": …} is returned, {"error": …} thrown as a Failure. All other errors
// become Failures too, so that a view has one kind of error to show.

const PATIENCE_MS = 20_000;
const BACKOFF_MS = [1_000, 2_000, 4_000, 8_000, 15_000, 30_000];

/** An error. `code` is the broker's, or `unreachable` if there was no answer, or `garbled`. */
export class Failure extends Error {
  constructor(status, { code, message, field = "", limit = "", retriable = false, ...rest }) {
    super(message);
    Object.assign(this, { status, code, field, limit, retriable, rest });
  }
}

/** Whether an error only means that the user left the view. */
export const isLeft = (error) => error?.name === "AbortError";

async function ask(method, path, { query = {}, body, signal, patienceMs = PATIENCE_MS } = {}) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  const late = AbortSignal.timeout(patienceMs);
  const signals = signal ? AbortSignal.any([signal, late]) : late;
  const request = { method, signal: signals, headers: { accept: "application/json" }, cache: "no-store" };
  if (body !== undefined) {
    request.headers["content-type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  try {
    const response = await fetch(url, request);
    return await read(response);
  } catch (error) {
    if (error instanceof Failure) throw error;
    if (signal?.aborted) throw new DOMException("left", "AbortError");
    const why = late.aborted ? `no answer within ${patienceMs / 1000} s` : "the broker cannot be reached";
    throw new Failure(0, { code: "unreachable", message: why, retriable: true });
  }
}

async function read(response) {
  const text = await response.text();
  let whole;
  try {
    whole = JSON.parse(text);
  } catch {
    throw new Failure(response.status, { code: "garbled", message: `status ${response.status}, and no JSON` });
  }
  if (whole.error) throw new Failure(response.status, whole.error);
  // An unhealthy broker answers 503, with the usual body.
  if (whole.result === undefined) throw new Failure(response.status, { code: "garbled", message: "no result" });
  return whole.result;
}

/** api.get("/v1/topics", {query, signal}); api.post(path, body, {signal}) and so on. Names in paths: part`…`. */
export const api = {
  get: (path, options) => ask("GET", path, options),
  post: (path, body, options) => ask("POST", path, { ...options, body }),
  put: (path, body, options) => ask("PUT", path, { ...options, body }),
  patch: (path, body, options) => ask("PATCH", path, { ...options, body }),
  remove: (path, options) => ask("DELETE", path, options),
};

/** A path with names in it, escaped: part`/v1/topics/${name}`. */
export function part(texts, ...names) {
  return texts.reduce((path, text, at) => path + encodeURIComponent(names[at - 1]) + text);
}

/**
 * Call `load(signal)` every `everyMs` while the page is visible, with longer pauses after failures. Calls `got(value)` or
 * `failed(error)` with each result. Ends with `signal`. Returns a function that loads at once.
 */
export function watch({ load, everyMs, signal, got, failed }) {
  let timer = 0;
  let failures = 0;
  let asking = false;
  let wanted = false;

  const later = () => {
    clearTimeout(timer);
    if (signal.aborted || document.hidden || everyMs === 0) return;
    const pause = failures ? Math.max(everyMs, BACKOFF_MS[Math.min(failures, BACKOFF_MS.length) - 1]) : everyMs;
    timer = setTimeout(now, failures ? pause * (0.75 + Math.random() / 2) : pause);
  };

  const now = async () => {
    clearTimeout(timer);
    if (signal.aborted) return;
    if (asking) {
      wanted = true;
      return;
    }
    asking = true;
    try {
      const value = await load(signal);
      failures = 0;
      if (!signal.aborted) got(value);
    } catch (error) {
      if (signal.aborted || isLeft(error)) return;
      failures += 1;
      failed(error instanceof Failure ? error : shown(error));
    } finally {
      asking = false;
    }
    if (wanted) {
      wanted = false;
      now();
    } else later();
  };

  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : now()), { signal });
  addEventListener("online", now, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  now();
  return now;
}

/** An error of this page: shown in the console and in the view. */
function shown(error) {
  console.error(error);
  return new Failure(0, { code: "page", message: `an error of this page: ${error.message}` });
}

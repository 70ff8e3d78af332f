// The requests of this page: to /api/v1 of the port that served it, and nowhere else.

const kToken = "precis.token";
const kTenant = "precis.tenant";
const kPageRows = 1000;

// An answer that is no success: its HTTP status, the service's code, and its message.
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let askForToken = null;  // set by onTokenNeeded
let asking = null;       // one dialog at a time

// `ask(reason)` resolves to a token that the user gives.
export function onTokenNeeded(ask) {
  askForToken = ask;
}

export const tenant = () => sessionStorage.getItem(kTenant) ?? "";
export function setTenant(name) {
  sessionStorage.setItem(kTenant, name);
}

const bearer = (token) => (token === null ? {} : { Authorization: `Bearer ${token}` });

// One request tries a new token: several would count as several wrong tokens.
async function newToken(reason) {
  for (;;) {
    const token = await askForToken(reason);
    const answer = await fetch("/api/v1/status", { headers: bearer(token), cache: "no-store" });
    if (answer.status !== 401 && answer.status !== 429) {
      sessionStorage.setItem(kToken, token);
      return;
    }
    reason = (await answer.json().catch(() => ({}))).message ?? "The token is refused.";
  }
}

async function renewToken(used) {
  if (sessionStorage.getItem(kToken) !== used) return;  // another request has got it meanwhile
  asking ??= newToken("").finally(() => { asking = null; });
  await asking;
}

// The answer of the port, which is a success. `path`: below the port's origin.
async function ask(path, { method = "GET", query = {}, headers = {}, body, signal } = {}) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  for (;;) {
    const token = sessionStorage.getItem(kToken);
    const answer = await fetch(url, { method, headers: { ...headers, ...bearer(token) }, body,
                                      signal, cache: "no-store" });
    if (answer.ok) return answer;
    if (answer.status !== 401) {
      const json = await answer.json().catch(() => ({}));
      throw new ApiError(answer.status, json.error ?? "", json.message ?? answer.statusText);
    }
    await renewToken(token);
  }
}

const named = (query, as) => (as === "" ? query : { ...query, tenant: as });

// `as`: the tenant on whose behalf the request is made.
export async function call(path, { method, query = {}, body, as = tenant() } = {}) {
  const json = body === undefined ? {} : { "Content-Type": "application/json" };
  const answer = await ask(`/api/v1/${path}`, { method, query: named(query, as), headers: json,
    body: body === undefined ? undefined : JSON.stringify(body) });
  return answer.json();
}

// The open stream of the tenant's events after a position; `signal` closes it.
export async function eventStream(after, signal) {
  const answer = await ask("/api/v1/events", { query: named({ after }, tenant()), signal,
                                               headers: { Accept: "text/event-stream" } });
  return answer.body;
}

export const metrics = async () => (await ask("/metrics")).text();

// Whether the port may manage tenants: it has asked for a token, or with TLS it may know its
// operators by their certificates.
export const mayManage = () =>
  sessionStorage.getItem(kToken) !== null || location.protocol === "https:";

// The rows of at most `pages` pages of a list, and whether these are all.
export async function list(path, key, pages, { query = {}, onPage = () => {}, as } = {}) {
  const rows = [];
  let after = null;
  for (let page = 0; page < pages; ++page) {
    const asked = after === null ? query : { ...query, after };
    const answer = await call(path, { query: asked, as });
    rows.push(...answer[key]);
    after = answer.next ?? null;
    onPage(rows.length);
    if (after === null) return { rows, all: true };
  }
  return { rows, all: false };
}

// At most 10,000 segments.
export const segments = (onPage) => list("prefixes", "prefixes", 10,
  { query: { limit: kPageRows }, onPage });
export const models = (as) => list("models", "models", 10, { as });
export const sessions = () => list("sessions", "sessions", 10);
export const tenants = (as) => list("tenants", "tenants", 10, { as });

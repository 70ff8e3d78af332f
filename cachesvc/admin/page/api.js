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

export async function call(path, { method = "GET", query = {}, body } = {}) {
  const url = new URL(`/api/v1/${path}`, location.origin);
  const parameters = tenant() === "" ? query : { ...query, tenant: tenant() };
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  for (;;) {
    const token = sessionStorage.getItem(kToken);
    const headers = bearer(token);
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const text = body === undefined ? undefined : JSON.stringify(body);
    const answer = await fetch(url, { method, headers, body: text, cache: "no-store" });
    const json = await answer.json().catch(() => ({}));
    if (answer.ok) return json;
    if (answer.status !== 401) {
      throw new ApiError(answer.status, json.error ?? "", json.message ?? answer.statusText);
    }
    await renewToken(token);
  }
}

// The rows of at most `pages` pages of a list, and whether these are all.
export async function list(path, key, pages, query = {}, onPage = () => {}) {
  const rows = [];
  let after = null;
  for (let page = 0; page < pages; ++page) {
    const answer = await call(path, { query: after === null ? query : { ...query, after } });
    rows.push(...answer[key]);
    after = answer.next ?? null;
    onPage(rows.length);
    if (after === null) return { rows, all: true };
  }
  return { rows, all: false };
}

// At most 10,000 segments.
export const segments = (onPage) => list("prefixes", "prefixes", 10, { limit: kPageRows }, onPage);
export const models = () => list("models", "models", 10);
export const sessions = () => list("sessions", "sessions", 10);

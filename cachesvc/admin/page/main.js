// The page of one precisd: reads its API every 2 seconds and shows it.
import * as api from "./api.js";
import { Budgets } from "./budgets.js";
import { Chart } from "./charts.js";
import { $, el, say } from "./dom.js";
import { Events } from "./events.js";
import { bytes, count, percent, perSecond, plural, rate, recipeName } from "./format.js";
import { showSegment, showSegmentError } from "./heatmap.js";
import { Now } from "./now.js";
import { Ring } from "./ring.js";
import { SegmentTable } from "./segments.js";
import { Tenants } from "./tenants.js";
import { groups, Treemap } from "./treemap.js";

const kPollMs = 2000;
const kRefreshMs = 10000;
const kTenantsInMap = 20;
const kReloadMs = 15000;  // at most this often, and only after something was stored or removed

const ring = new Ring();
const now = new Now();
const table = new SegmentTable({ onSegment: choose, find: async (id) =>
  named(await api.call(`prefixes/${id}`)) });
const map = new Treemap(choose);
const budgets = new Budgets((error) => now.fail("warn", "Up, needs attention", error.message));
const modelName = (model) => stored.modelName.get(model) ?? model.slice(0, 12);
const events = new Events({ modelName, onSegment: choose });
const tenants = new Tenants({ onTenant: showTenant, onChange: showTenantMap });
const charts = [
  new Chart({ title: "Hit rate", series: [{ key: "hits", name: "lookups" },
    { key: "hitTokens", name: "tokens" }], format: percent, most: 1 }),
  new Chart({ title: "Traffic", series: [{ key: "bytesIn", name: "in" },
    { key: "bytesOut", name: "out" }], format: rate, base: 1024, least: 1024 }),
  new Chart({ title: "Share of the KV's bytes that is stored",
    series: [{ key: "kept", name: "all stored" }, { key: "keptNew", name: "new puts" }],
    format: percent, least: 0.1 }),
  new Chart({ title: "Stored bytes", series: [{ key: "stored", name: "stored" }],
    format: bytes, base: 1024, least: 1024 }),
  new Chart({ title: "Puts and gets", series: [{ key: "putsDone", name: "puts" },
    { key: "getsDone", name: "gets" }], format: perSecond }),
  new Chart({ title: "Requests", series: [{ key: "requests", name: "answered" },
    { key: "failed", name: "with an error" }], format: perSecond }),
];
$("charts").append(...charts.map((chart) => chart.node));

let stored = { rows: [], modelName: new Map() };
let loadedAt = 0, loadedFor = "", loading = false;
let begunFor = null;  // the tenant that has answered

// ---- the state, every 2 seconds -----------------------------------------------------------------

async function poll() {
  const of = api.tenant();
  try {
    const status = await api.call("status");  // alone: it finds out whether the port needs a token
    const stats = await api.call("stats");
    if (of !== api.tenant()) return;
    ring.add(Date.now(), stats);
    now.show(status, stats, ring.points);
    if (begunFor !== of) {
      begunFor = of;
      budgets.open();
      events.start();
    }
    const stamp = [of, stats.precis_segments, stats.precis_stored_bytes, stats.precis_sessions,
      stats.precis_models].join();
    if (stamp !== loadedFor && Date.now() - loadedAt >= kReloadMs) reload(stamp);
  } catch (error) {
    ring.addGap(Date.now());
    const answered = error instanceof api.ApiError;
    const recovering = answered && error.status === 503;
    now.fail(answered ? "warn" : "down", recovering ? "Not ready" : answered ? "Refused"
      : "Does not answer", answered ? error.message : "The service cannot be reached.");
  }
  for (const chart of charts) chart.show(ring.points);
}

async function again(act, ms) {
  await act();
  setTimeout(again, ms, act, ms);
}

// ---- models, sessions and segments --------------------------------------------------------------

// Names of models are not unique: those that are not get the beginning of their fingerprint.
function modelLabels(models) {
  const times = new Map();
  for (const { name } of models) times.set(name, (times.get(name) ?? 0) + 1);
  return new Map(models.map(({ name, fingerprint }) => [fingerprint,
    times.get(name) > 1 ? `${name} (${fingerprint.slice(0, 6)})` : name]));
}

// The session that leads to a segment; if several do, how many. A parent ends where its child
// begins, so that each segment comes after its children here.
function sessionNames(rows, sessions) {
  const found = new Map(rows.map((row) => [row.id, { times: 0, name: "" }]));
  const add = (id, { times, name }) => {
    const at = found.get(id);
    if (at !== undefined && times > 0) found.set(id, { times: at.times + times, name });
  };
  for (const { name, tip } of sessions) add(tip, { times: 1, name });
  for (const row of [...rows].sort((a, b) => b.begin - a.begin)) add(row.parent, found.get(row.id));
  return (id) => {
    const { times, name } = found.get(id);
    return times > 1 ? `shared by ${count(times)} sessions` : name;
  };
}

// The row of a segment, with names for its model and session.
function named(row, sessionName = "") {
  return { ...row, modelName: modelName(row.model), sessionName };
}

async function reload(stamp = loadedFor) {
  if (loading) return;
  loading = true;
  $("reload").disabled = true;
  const of = api.tenant();
  try {
    const [models, sessions, segments] = await Promise.all([
      api.models(), api.sessions(), api.segments((read) => {
        if (stored.rows.length === 0) say($("segments-note"), `Reading: ${count(read)} segments`);
      })]);
    if (of !== api.tenant()) return;
    const labels = modelLabels(models.rows);
    const sessionOf = sessionNames(segments.rows, sessions.rows);
    stored = { modelName: labels, rows: [] };
    stored.rows = segments.rows.map((row) => named(row, sessionOf(row.id)));
    table.show(stored.rows, segments.all ? ""
      : `The newest ${count(segments.rows.length)} segments; the service has more. ` +
        "The filter finds any of them by its whole id.");
    showMap();
    budgets.setScopes(models.rows.map((model) => ({ fingerprint: model.fingerprint,
                                                    label: modelName(model.fingerprint) })),
                      sessions.rows);
    loadedFor = stamp;
  } catch (error) {
    say($("segments-note"), `The segments could not be read: ${error.message}`);
  } finally {
    loadedAt = Date.now();
    loading = false;
    $("reload").disabled = false;
  }
}

const kGroups = {
  model: (row) => row.modelName,
  session: (row) => row.sessionName || "no session",
  recipe: recipeName,
};

function showMap() {
  if ($("group").value === "tenant") showTenantMap();
  else map.show(groups(stored.rows, kGroups[$("group").value]));
}

// The map of the tenants that store most. A tenant's models are read when the map shows tenants.
async function showTenantMap() {
  if ($("group").value !== "tenant") return;
  const most = tenants.rows.filter((row) => row.stored > 0).slice(0, kTenantsInMap);
  const read = await Promise.all(most.map(({ name }) => api.models(name))).catch(() => null);
  if ($("group").value !== "tenant" || read === null) return;
  map.show(most.map(({ name, stored: bytesStored, original, segments }, index) => ({
    name, stored: bytesStored, original, segments,
    rows: read[index].rows.map((model) => ({ name: model.name, stored_bytes: model.stored_bytes,
      detail: plural(model.segments, "segment"),
      go: () => {
        $("group").value = "model";
        map.enter(model.name);
        showTenant(name);
      } })) })));
}

function changed({ id, priority, ttl_seconds }) {
  const row = stored.rows.find((each) => each.id === id);
  if (row === undefined) return;
  Object.assign(row, { priority, ttl_seconds });
  table.show(stored.rows, table.note);
}

async function choose(id) {
  table.choose(id);
  const panel = $("segment");
  panel.focus({ preventScroll: true });
  panel.scrollIntoView({ block: "nearest" });
  try {
    const segment = await api.call(`prefixes/${id}`);
    if (table.chosen !== id) return;
    showSegment(segment, modelName(segment.model), changed);
  } catch (error) {
    if (table.chosen === id) showSegmentError(error.message);
  }
}

// ---- token and tenant ---------------------------------------------------------------------------

api.onTokenNeeded((reason) => new Promise((resolve) => {
  const dialog = $("token-dialog");
  say($("token-error"), reason);
  $("token").value = "";
  $("token-form").onsubmit = () => resolve($("token").value);
  dialog.oncancel = (event) => event.preventDefault();  // nothing can be shown without a token
  dialog.showModal();
}));

function showTenant(name) {
  if (name === api.tenant()) return;
  api.setTenant(name);
  $("tenant").value = name;
  ring.clear();
  stored = { rows: [], modelName: new Map() };
  loadedFor = "";
  loadedAt = 0;
  begunFor = null;
  table.clear();
  $("segment-body").replaceChildren(el("p", { class: "empty" },
    "Choose a segment in the table or in the map."));
  budgets.clear();
  events.clear();
  tenants.load();
  poll();
}

$("tenant").value = api.tenant();
$("tenant-form").addEventListener("submit", (event) => {
  event.preventDefault();
  showTenant($("tenant").value.trim());
});
$("group").addEventListener("change", showMap);
$("reload").addEventListener("click", () => reload());

// Reads data that changes seldom.
async function refresh() {
  await tenants.load();
  if (begunFor === api.tenant()) await budgets.refresh().catch(() => {});  // poll() says why
}

// One request comes first: the others would need a token, too.
showMap();
events.clear();
again(poll, kPollMs).then(() => again(refresh, kRefreshMs));

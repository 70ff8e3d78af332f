// What /metrics tells of each tenant, also on a port that does not manage tenants.
import { metrics } from "./api.js";

const kFamilies = {
  precis_stored_bytes: "stored", precis_original_bytes: "original", precis_segments: "segments",
  precis_sessions: "sessions", precis_models: "models",
  precis_lookup_seconds_count: "lookups", precis_get_seconds_count: "gets",
  precis_put_seconds_count: "puts",
};
const kEmpty = Object.fromEntries(Object.values(kFamilies).map((key) => [key, 0]));

const unescaped = (text) => text.replace(/\\(.)/g, (_, each) => (each === "n" ? "\n" : each));

// {name: {stored, original, ...}} of the samples whose only label is a tenant.
export function tenantsOf(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const sample = /^(\w+)\{tenant="((?:[^"\\]|\\.)*)"\} (\S+)$/.exec(line);
    const key = sample === null ? undefined : kFamilies[sample[1]];
    if (key === undefined) continue;
    const name = unescaped(sample[2]);
    if (!found.has(name)) found.set(name, { name, ...kEmpty });
    found.get(name)[key] = Number(sample[3]);
  }
  return found;
}

export const readTenants = async () => tenantsOf(await metrics());

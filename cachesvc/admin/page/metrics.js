// What /metrics tells of each tenant, also on a port that does not manage tenants.
import { metrics } from "./api.js";

const kFamilies = {
  precis_stored_bytes: "stored", precis_original_bytes: "original", precis_segments: "segments",
  precis_sessions: "sessions", precis_models: "models",
  precis_lookup_seconds_count: "lookups", precis_get_seconds_count: "gets",
  precis_put_seconds_count: "puts", precis_hits_total: "hits",
};
const kEmpty = Object.fromEntries(Object.values(kFamilies).map((key) => [key, 0]));

const unescaped = (text) => text.replace(/\\(.)/g, (_, each) => (each === "n" ? "\n" : each));

// {name: {stored, original, ...}} of all tenants. A family that has further labels has no sample
// without them, so the samples are added up; those of models are of other families.
export function tenantsOf(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const sample = /^(\w+)\{tenant="((?:[^"\\]|\\.)*)"(?:,.*)?\} (\S+)$/.exec(line);
    const key = sample === null ? undefined : kFamilies[sample[1]];
    if (key === undefined) continue;
    const name = unescaped(sample[2]);
    if (!found.has(name)) found.set(name, { name, ...kEmpty, isStored: false });
    found.get(name)[key] += Number(sample[3]);
    found.get(name).isStored ||= key === "stored";
  }
  for (const [name, { isStored }] of found) {
    if (!isStored) found.delete(name);  // "other", where what has no row of its own is counted
  }
  return found;
}

export const readTenants = async () => tenantsOf(await metrics());

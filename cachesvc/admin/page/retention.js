// The form for the priority and TTL of a segment.
import * as api from "./api.js";
import { el, say } from "./dom.js";
import { exactDuration, parseDuration } from "./format.js";

const kPriorityMax = 100;
const kHelp = "The priority is 0 to 100; segments with a higher one stay longer when space is " +
  "short. A segment that is not used for its TTL, such as 90 s, 30 min, 12 h or 7 d, loses " +
  "worth. An empty field sets no TTL.";

const denied = new Map();  // a tenant that may not change them, and the service's reason

// onChange: gets the segment as it is after a change.
export function retentionForm(segment, onChange) {
  const priority = el("input", { id: "priority", type: "number", min: 0, max: kPriorityMax,
                                 required: true, value: segment.priority });
  const ttl = el("input", { id: "ttl", autocomplete: "off", placeholder: "none",
    "aria-describedby": "retention-help",
    value: segment.ttl_seconds > 0 ? exactDuration(segment.ttl_seconds) : "" });
  const set = el("button", { id: "retention-set", type: "submit" }, "Set");
  const said = el("p", { id: "retention-said", role: "status" });

  const tell = (text, kind) => {
    said.className = kind;
    say(said, text);
  };
  const deny = (reason) => {
    for (const part of [priority, ttl, set]) part.disabled = true;
    tell(reason, "hint");
  };
  const send = async (event) => {
    event.preventDefault();
    const as = api.tenant();
    try {
      // Clients may have set the other one meanwhile, so only what differs is sent.
      const wanted = { priority: Number(priority.value), ttl_seconds: parseDuration(ttl.value) };
      const body = Object.fromEntries(Object.entries(wanted).filter(([k, v]) => v !== segment[k]));
      if (Object.keys(body).length === 0) return tell("Nothing is changed.", "hint");
      const path = `prefixes/${segment.id}/retention`;
      const { priority: now, ttl_seconds } = await api.call(path, { method: "PUT", body, as });
      Object.assign(segment, { priority: now, ttl_seconds });
      onChange(segment);
      tell("Set.", "good");
    } catch (error) {
      if (error.status !== 403) return tell(error.message, "error");
      denied.set(as, error.message);
      deny(error.message);
    }
  };
  if (denied.has(api.tenant())) deny(denied.get(api.tenant()));
  return el("form", { class: "fields", "aria-label": "What is worth keeping", onsubmit: send },
    el("label", { for: "priority" }, "Priority"), priority,
    el("label", { for: "ttl" }, "TTL"), ttl,
    el("p", { id: "retention-help", class: "hint" }, kHelp),
    el("div", { class: "buttons" }, set), said);
}

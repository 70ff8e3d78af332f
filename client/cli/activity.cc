#include "client/cli/activity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>

#include "client/cli/render.h"
#include "client/cli/table.h"
#include "precis/printable.h"

namespace precis::cli {
namespace {

constexpr std::uint32_t kNewest = 5;
constexpr std::size_t kConsumers = 10;  // more only if the newest segments fit as well

struct RateRow {
  const char* name;
  const char* label;
  bool bytes;
  std::array<const char*, 2> metrics;  // added up; null: none
};
constexpr RateRow kRates[] = {
    {"requests", "requests", false, {"precis_requests_total", nullptr}},
    {"failed", "  failed", false, {"precis_requests_failed_total", nullptr}},
    {"rejected", "  rejected", false, {"precis_requests_rejected_total", nullptr}},
    {"lookups", "lookups", false, {"precis_lookups_total", nullptr}},
    {"hits", "  hits", false, {"precis_lookup_hits_total", nullptr}},
    {"puts", "puts committed", false, {"precis_puts_committed_total", nullptr}},
    {"put_bytes", "  bytes in", true, {"precis_pulled_bytes_total", "precis_in_place_bytes_total"}},
    {"stored_bytes", "  bytes stored", true, {"precis_compressed_out_bytes_total", nullptr}},
    {"gets", "gets", false, {"precis_gets_total", nullptr}},
    {"get_bytes", "  bytes out", true, {"precis_pushed_bytes_total", nullptr}},
    {"trims", "trims", false, {"precis_trims_total", nullptr}},
};

double metric(const Reading& reading, const char* name) {
  const auto found = name ? reading.metrics.find(name) : reading.metrics.end();
  return found == reading.metrics.end() ? 0 : found->second;
}

bool restarted(const Reading& before, const Reading& after) {
  return after.status.uptime_seconds < before.status.uptime_seconds;
}

double change(const Reading& before, const Reading& after, const char* name) {
  const double now = metric(after, name);
  return restarted(before, after) ? now : std::max(0.0, now - metric(before, name));
}

std::optional<double> share(double part, double whole) {
  if (whole <= 0) return {};
  return part / whole;
}

std::string share_text(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f}%", 100 * *share) : "-";
}

std::string number_text(double value, bool bytes) {
  if (bytes) return bytes_text(static_cast<std::uint64_t>(value));
  return value < 100 && value != static_cast<double>(static_cast<std::uint64_t>(value))
             ? fmt::format("{:.1f}", value)
             : count_text(static_cast<std::uint64_t>(value));
}

// "[######      ]", 20 wide.
std::string bar(double part, double whole) {
  constexpr std::size_t kWidth = 20;
  const double filled = whole > 0 ? std::clamp(part / whole, 0.0, 1.0) * kWidth : 0;
  const auto full = static_cast<std::size_t>(filled);
  return fmt::format("[{}{}]", std::string(full, '#'), std::string(kWidth - full, ' '));
}

std::string disk_text(const msg::ServerStatus& s, const DiskUse& all) {
  std::string text =
      fmt::format("stored {}, {} free", stored_text(s, all), bytes_text(s.disk_free_bytes));
  if (s.disk_low) text += ", PUTS ARE BEING REFUSED";
  if (!s.disk_fault.empty()) text += ", FILES ARE MISSING";
  return text;
}

// How many rows of the lists below the rates are shown.
struct Shown {
  std::size_t consumers = 0, newest = 0;
};

// `lines`: how many are left; none: no limit.
Shown shown_rows(std::optional<std::size_t> lines, std::size_t consumers, std::size_t newest) {
  if (!lines) return {std::min(consumers, kConsumers), newest};
  constexpr std::size_t kConsumersHead = 2;  // a blank line, and the names of the columns
  constexpr std::size_t kNewestHead = 3;     // also a title
  const auto less = [](std::size_t from, std::size_t by) { return from > by ? from - by : 0; };
  const std::size_t beside = newest > 0 ? less(*lines, kNewestHead + newest) : *lines;
  const std::size_t most =
      std::max(std::min(kConsumers, less(*lines, kConsumersHead)), less(beside, kConsumersHead));
  Shown shown;
  shown.consumers = std::min(consumers, most);
  const std::size_t taken = shown.consumers > 0 ? kConsumersHead + shown.consumers : 0;
  shown.newest = std::min(newest, less(*lines, taken + kNewestHead));
  return shown;
}

// The first `count` of them. The name of the first column says if there are more.
std::string consumers_text(const Consumers& consumers, std::size_t count, std::size_t columns) {
  std::string name = consumers.are_tenants ? "TENANT" : "MODEL";
  if (count < consumers.rows.size()) {
    name += fmt::format(" ({} of {})", count, consumers.rows.size());
  }
  std::vector<Column> head = {
      {name, false, 0, 12}, {"STORED", true}, {"HITS/S", true}, {"HIT TOKENS/S", true, 1}};
  if (consumers.are_tenants) head.push_back({"PUTS", true, 2});
  const auto rate_text = [](const std::optional<double>& rate) {
    return rate ? number_text(*rate, false) : "-";
  };
  Table table(std::move(head));
  for (const Consumer& row : std::span(consumers.rows).first(count)) {
    std::vector<std::string> cells = {row.name, bytes_text(row.stored_bytes),
                                      rate_text(row.hits_per_second),
                                      rate_text(row.hit_tokens_per_second)};
    if (consumers.are_tenants) cells.push_back(count_text(row.puts));
    table.add(std::move(cells));
  }
  return table.text(columns);
}

}  // namespace

Result<Reading> take_reading(Client& client, bool ask_for_tenants) {
  Reading reading;
  // A refusal comes before the first counters are read, so that no rate includes it.
  if (ask_for_tenants) {
    const auto tenants = client.tenants();
    if (tenants.ok()) {
      reading.consumers = tenant_consumers(*tenants);
    } else if (tenants.status().code() != StatusCode::kPermissionDenied) {
      return tenants.status();
    }
  }
  PRECIS_ASSIGN(const msg::Stats stats, client.stats());
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  reading.at_seconds = std::chrono::duration<double>(now).count();
  for (const msg::Stat& row : stats.rows) reading.metrics[row.name] = row.value;
  reading.disk = disk_use(stats);
  PRECIS_ASSIGN(reading.status, client.status());
  PRECIS_ASSIGN(reading.newest, client.segments({}, kNewest));
  PRECIS_ASSIGN(reading.models, client.models());
  if (!reading.consumers.are_tenants) reading.consumers = model_consumers(reading.models);
  return reading;
}

Activity activity_between(const Reading& before, const Reading& after) {
  Activity activity;
  activity.seconds =
      restarted(before, after) ? after.status.uptime_seconds : after.at_seconds - before.at_seconds;
  const auto changed = [&](const char* name) { return change(before, after, name); };
  for (const RateRow& row : kRates) {
    Activity::Rate rate{row.name, row.label, row.bytes, 0, 0};
    for (const char* const name : row.metrics) {
      rate.total += metric(after, name);
      if (activity.seconds > 0) rate.per_second += changed(name) / activity.seconds;
    }
    activity.rates.push_back(std::move(rate));
  }
  activity.hit_share = share(changed("precis_lookup_hits_total"), changed("precis_lookups_total"));
  activity.hit_token_share =
      share(changed("precis_lookup_hit_tokens_total"), changed("precis_lookup_tokens_total"));
  const double hot = changed("precis_layers_hot_total");
  activity.memory_share = share(hot, hot + changed("precis_layers_cold_total"));
  activity.consumers = after.consumers;
  set_rates(restarted(before, after) ? nullptr : &before.consumers, activity.seconds,
            activity.consumers);
  return activity;
}

Json to_json(const Activity& activity, const Reading& now) {
  const auto or_null = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  Json rates = Json::object(), totals = Json::object();
  for (const Activity::Rate& rate : activity.rates) {
    rates[rate.name] = rate.per_second;
    totals[rate.name] = static_cast<std::uint64_t>(rate.total);
  }
  const auto count = [&](const char* name) {
    return static_cast<std::uint64_t>(metric(now, name));
  };
  Json json = {{"seconds", activity.seconds},
               {"rates", std::move(rates)},
               {"totals", std::move(totals)},
               {"hit_share", or_null(activity.hit_share)},
               {"hit_token_share", or_null(activity.hit_token_share)},
               {"memory_share", or_null(activity.memory_share)},
               {"clients", count("precis_connected_clients")},
               {"open_puts", count("precis_open_puts")},
               {"open_gets", count("precis_open_gets")},
               {"waiting_requests", count("precis_waiting_requests")},
               {"status", to_json(now.status)},
               {"newest", rows_json(now.newest)}};
  json[activity.consumers.are_tenants ? "tenants" : "models"] = consumers_json(activity.consumers);
  return json;
}

std::string activity_text(const Activity& activity, const Reading& now, std::size_t columns,
                          std::size_t lines) {
  const msg::ServerStatus& s = now.status;
  std::string text = fmt::format("{}  tenant {}  up {}\n", printable(s.server), printable(s.tenant),
                                 duration_text(s.uptime_seconds));
  text += fmt::format(
      "memory  {} {} of {}\n",
      bar(static_cast<double>(s.memory_bytes), static_cast<double>(s.memory_limit_bytes)),
      bytes_text(s.memory_bytes), bytes_text(s.memory_limit_bytes));
  const std::uint64_t stored = shares_limit(s, now.disk) ? now.disk.stored_bytes : s.stored_bytes;
  text += fmt::format("disk    {} {}\n",
                      bar(static_cast<double>(stored),
                          static_cast<double>(s.max_disk_bytes > 0 ? s.max_disk_bytes
                                                                   : stored + s.disk_free_bytes)),
                      disk_text(s, now.disk));
  const auto of_now = [&](const char* name, std::string_view thing) {
    return counted(static_cast<std::uint64_t>(metric(now, name)), thing);
  };
  text += fmt::format("now     {}, {}, {}, {} waiting; {}\n",
                      of_now("precis_connected_clients", "client"),
                      of_now("precis_open_puts", "put"), of_now("precis_open_gets", "get"),
                      metric(now, "precis_waiting_requests"), counted(s.segments, "segment"));
  text += fmt::format("hits    {} of lookups, {} of tokens; {} of layers from memory\n\n",
                      share_text(activity.hit_share), share_text(activity.hit_token_share),
                      share_text(activity.memory_share));
  Table table({{""}, {"PER SECOND", true}, {"SINCE THE START", true}});
  for (const Activity::Rate& rate : activity.rates) {
    table.add({rate.label, number_text(rate.per_second, rate.bytes),
               number_text(rate.total, rate.bytes)});
  }
  text += table.text(columns);
  std::optional<std::size_t> left;
  if (lines > 0) {
    const auto used = static_cast<std::size_t>(std::ranges::count(text, '\n'));
    left = lines > used ? lines - used : 0;
  }
  const Shown shown = shown_rows(left, activity.consumers.rows.size(), now.newest.size());
  if (shown.consumers > 0) {
    text += "\n" + consumers_text(activity.consumers, shown.consumers, columns);
  }
  if (shown.newest > 0) {
    const std::span newest = std::span(now.newest).first(shown.newest);
    text += "\nnewest segments\n" + segments_text(newest, now.models, columns);
  }
  return text;
}

}  // namespace precis::cli

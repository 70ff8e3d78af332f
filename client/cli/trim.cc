// precisctl prefix trim: trims one segment, a whole prefix from the root on, or those that a filter
// chooses.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "client/cli/budget_application.h"
#include "client/cli/bulk.h"
#include "client/cli/commands.h"
#include "client/cli/find.h"
#include "client/cli/json.h"
#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "precis/keep.h"

namespace precis::cli {
namespace {

struct Done {
  std::vector<std::pair<SegmentId, msg::Trimmed>> trimmed;
  std::vector<SegmentId> unchanged;  // of `trimmed`: stored no more than `keep`
  std::vector<LeftSegment> left;     // refused: they store less than `keep`
  msg::Trimmed sum;
  Status status;  // kCanceled after Ctrl-C; else the error that ended it early
};

Result<Chosen> chain_of(Client& client, const SegmentId& tip, bool whole) {
  Chosen chosen;
  SegmentId id = tip;
  do {
    PRECIS_ASSIGN(const msg::SegmentInfo info, client.segment(id));
    id = info.parent;
    chosen.segments.push_back(chosen_of(info));
    chosen.stored_bytes += info.stored_bytes;
  } while (whole && !id.is_null());
  std::ranges::reverse(chosen.segments);
  return chosen;
}

Done trim_all(Client& client, const Chosen& chosen, const Budget& keep, Durability durability,
              bool dry_run) {
  Progress progress("trimming", chosen.stored_bytes);
  std::uint64_t seen = 0;  // the stored bytes of all segments that were tried
  Done done;
  for (const ChosenSegment& segment : chosen.segments) {
    if (interrupted()) {
      done.status = Status::canceled("interrupted");
      break;
    }
    const auto trimmed = client.trim_segment(segment.id, keep, durability, dry_run);
    const StatusCode code = trimmed.status().code();
    if (code == StatusCode::kConflict) {
      done.left.push_back({segment.id, trimmed.status()});
    } else if (trimmed.ok()) {
      done.trimmed.emplace_back(segment.id, *trimmed);
      if (trimmed->entries == segment.entries) done.unchanged.push_back(segment.id);
      done.sum.entries += trimmed->entries;
      done.sum.stored_bytes += trimmed->stored_bytes;
      done.sum.freed_bytes += trimmed->freed_bytes;
    } else if (code != StatusCode::kNotFound || chosen.segments.size() == 1) {
      done.status = trimmed.status();
      break;
    }
    seen += segment.stored_bytes;
    progress.show(seen, fmt::format("{} freed", bytes_text(done.sum.freed_bytes)));
  }
  if (done.status.ok() && done.trimmed.empty() && !done.left.empty()) {
    done.status = done.left.front().why;
  }
  return done;
}

Json numbers(const msg::Trimmed& trimmed) {
  return {{"entries", trimmed.entries},
          {"stored_bytes", trimmed.stored_bytes},
          {"freed_bytes", trimmed.freed_bytes}};
}

// The layers' kept score mass: each one's mean over the segments.
std::vector<double> mean_mass(const Done& done) {
  std::vector<double> sums;
  std::vector<std::size_t> counts;
  for (const auto& [id, trimmed] : done.trimmed) {
    sums.resize(std::max(sums.size(), trimmed.kept_mass.size()));
    counts.resize(sums.size());
    for (std::size_t l = 0; l < trimmed.kept_mass.size(); ++l) {
      sums[l] += trimmed.kept_mass[l];
      ++counts[l];
    }
  }
  for (std::size_t l = 0; l < sums.size(); ++l) sums[l] /= static_cast<double>(counts[l]);
  return sums;
}

Json to_json(const Done& done, bool dry_run) {
  Json json = numbers(done.sum);
  json["dry_run"] = dry_run;
  json["segments"] = Json::array();
  for (const auto& [id, trimmed] : done.trimmed) {
    Json row = {{"segment", id.hex()}};
    row.update(numbers(trimmed));
    row["kept_mass"] = trimmed.kept_mass;
    json["segments"].push_back(std::move(row));
  }
  json["left"] = left_json(done.left);
  return json;
}

constexpr const char* kLeast = "its recipe's min_entries is the least";

std::string to_text(const Done& done, const PrefixTrim& how) {
  std::string text = left_text(done.left, "trimmed");
  if (!how.id.empty()) {
    for (const SegmentId& id : done.unchanged) {
      text += fmt::format("not trimmed: segment {} already keeps what {} leaves of it ({})\n",
                          id.hex(), how.keep, kLeast);
    }
  } else if (!done.unchanged.empty()) {
    text += fmt::format("not trimmed: {} that already {} what {} leaves ({})\n",
                        counted(done.unchanged.size(), "segment"),
                        done.unchanged.size() == 1 ? "keeps" : "keep", how.keep, kLeast);
  }
  text += kept_mass_text(mean_mass(done));
  return text + fmt::format("{} {}: {} {}, {} left\n", how.dry_run ? "would trim" : "trimmed",
                            counted(done.trimmed.size() - done.unchanged.size(), "segment"),
                            bytes_text(done.sum.freed_bytes), how.dry_run ? "to be freed" : "freed",
                            bytes_text(done.sum.stored_bytes));
}

// Trims them and prints the result as `how` says.
Status trim_chosen(Context context, const Chosen& chosen, const Budget& keep, Durability durability,
                   const PrefixTrim& how) {
  const Done done = trim_all(context.client, chosen, keep, durability, how.dry_run);
  // An error of the only segment is the whole outcome.
  const bool nothing = chosen.segments.size() == 1 && done.trimmed.empty();
  if (nothing && !done.status.ok()) return done.status;
  context.out += context.json ? json_text(to_json(done, how.dry_run))
                              : to_text(done, how) +
                                    (chosen.more ? "more segments match: run it again\n" : "");
  return done.status;
}

}  // namespace

Status trim_prefix(Context context, const PrefixTrim& how) {
  PRECIS_TRY(check_choice(how.id, how.filter));
  PRECIS_ASSIGN(const Budget keep, parse_keep(how.keep));
  PRECIS_ASSIGN(const Durability durability, parse_durability(how.durability));
  Chosen chosen;
  if (how.id.empty()) {
    if (how.whole) return Status::invalid("--whole goes with the id of a prefix");
    if (!how.dry_run) PRECIS_TRY(check_can_ask(how.yes));
    catch_interrupts();
    PRECIS_ASSIGN(chosen, choose(context.client, how.filter));
    if (!how.dry_run && !chosen.segments.empty()) {
      PRECIS_TRY(
          confirm(fmt::format("Trim {} to {}?", chosen_text(chosen), keep.to_string()), how.yes));
    }
  } else {
    PRECIS_ASSIGN(const SegmentId tip, find_segment(context.client, how.id));
    PRECIS_ASSIGN(chosen, chain_of(context.client, tip, how.whole));
  }
  return trim_chosen(context, chosen, keep, durability, how);
}

}  // namespace precis::cli

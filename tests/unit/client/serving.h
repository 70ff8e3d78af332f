// A script of the fake server: serves every get from given segments, as a good service would, or
// with damage.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <variant>
#include <vector>

#include "tests/unit/client/fake_server.h"
#include "tests/unit/client/stored_prefix.h"

namespace precis::testing {

inline constexpr std::uint32_t kServingSeed = 20250611;

// Serves every get from `segments`, after `damage` has changed each layer.
struct Serving {
  ModelSpec model;
  std::vector<StoredSegment> segments;
  std::vector<std::uint64_t> entries;  // [num_links] the cut
  std::function<void(ServedBytes&)> damage = [](ServedBytes&) {};
  Status verdict = {};  // of the get, after its layers
  std::uint32_t layers_served = UINT32_MAX;

  // Serves by the cut, or by the request's counts; only the heads that the request names.
  ServedBytes serve(const msg::Get& get, std::uint32_t layer) const {
    const std::uint32_t end =
        get.head_count > 0 ? get.head_begin + get.head_count : model.num_kv_heads;
    std::vector<std::vector<std::uint32_t>> counts;
    for (std::size_t link = 0; link < segments.size(); ++link) {
      counts.push_back(get.links[link].counts);
      if (!counts.back().empty()) continue;
      for (const auto& heads : segments[link].entries) {
        for (std::uint32_t h = get.head_begin; h < end; ++h) {
          const auto within = std::ranges::count_if(
              heads[h], [&](const Entry& entry) { return entry.seat <= entries[link]; });
          counts.back().push_back(static_cast<std::uint32_t>(within));
        }
      }
    }
    return serve_counts(model, segments, counts, layer, get.head_begin, end);
  }

  void operator()(FakeServer& server, const msg::Request& request) const {
    const auto& get = std::get<msg::Get>(request.body);
    const std::uint32_t layers = std::min(layers_served, model.num_layers);
    auto left = std::make_shared<std::uint32_t>(layers);
    const auto one_done = [this, &server, id = request.id, left] {
      if (*left > 0 && --*left > 0) return;
      if (verdict.ok()) return server.reply(id, msg::GetDone{});
      server.refuse(id, verdict);
    };
    if (layers == 0) return one_done();
    std::uint64_t offset = 0;
    for (std::uint32_t l = 0; l < layers; ++l) {
      ServedBytes served = serve(get, l);
      served.message.id = request.id;
      served.message.offset = offset;
      const std::uint64_t place = offset;
      offset += served.bytes.size();
      PRECIS_CHECK(offset <= get.destination.size_bytes);
      damage(served);
      server.push(get.destination, place, std::move(served.bytes),
                  [&server, message = served.message, one_done](const Status& status) {
                    PRECIS_CHECK(status.ok());
                    server.send(message);
                    one_done();
                  });
    }
  }
};

inline Serving one_segment(const ModelSpec& model, std::uint64_t entries, std::uint64_t cut) {
  std::mt19937 random(kServingSeed);
  return {model, {random_segment(random, model, 0, 400, entries)}, {cut}};
}
// If `is_coded`, the rows of the second and the third segment are coded.
inline Serving three_segments(const ModelSpec& model, bool is_coded = false) {
  std::mt19937 random(kServingSeed);
  const Encoding second = is_coded ? Encoding::kInt8 : Encoding::kRaw;
  const Encoding third = is_coded ? Encoding::kK6V4 : Encoding::kRaw;
  return {model,
          {random_segment(random, model, 0, 300, 900),
           random_segment(random, model, 300, 310, 7, second),
           random_segment(random, model, 310, 500, 600, third)},
          {900, 7, 600}};
}

}  // namespace precis::testing

#include "cachesvc/pipeline/staged_layer.h"

#include <algorithm>
#include <string>

#include "cachesvc/pipeline/piece_regions.h"
#include "precis/limits.h"

namespace precis {
namespace {

std::string range_text(std::uint32_t begin, std::uint64_t count) {
  return "[" + std::to_string(begin) + ", " + std::to_string(begin + count) + ")";
}

// Whether the piece has observations, which belong to heads and not to its tokens.
bool observes(const msg::PushLayer& piece) { return piece.queries || piece.query_mean; }

// Whether rows begin on cache lines, where kernels read them the fastest.
bool is_aligned(Bytes rows, std::size_t head_stride_bytes) {
  return (reinterpret_cast<std::uintptr_t>(rows.data()) | head_stride_bytes) % kSectionAlign == 0;
}

}  // namespace

// One contiguous run of bytes to be pulled.
struct StagedLayer::Source {
  const RemoteRegion* region;
  std::uint64_t offset;  // in the region
  MutableBytes to;
};

StagedLayer::StagedLayer(const ModelSpec& model, const Recipe& recipe, std::uint32_t layer,
                         std::uint32_t num_tokens)
    : model_(model),
      recipe_(recipe),
      layer_(layer),
      num_tokens_(num_tokens),
      claimed_(model.num_kv_heads),
      observed_(model.num_kv_heads) {}

Status StagedLayer::check_shape(const msg::PushLayer& piece) const {
  const std::string where = "layer " + std::to_string(layer_) + ": ";
  if (piece.dtype != model_.dtype) {
    return Status::invalid(where + "dtype is " + std::string(dtype_name(piece.dtype)) +
                           ", the model's is " + std::string(dtype_name(model_.dtype)));
  }
  if (piece.head_count == 0 ||
      std::uint64_t{piece.head_begin} + piece.head_count > model_.num_kv_heads) {
    return Status::invalid(where + "heads " + range_text(piece.head_begin, piece.head_count) +
                           " must be a part of [0, " + std::to_string(model_.num_kv_heads) + ")");
  }
  if (piece.token_count == 0 ||
      std::uint64_t{piece.token_begin} + piece.token_count > num_tokens_) {
    return Status::invalid(where + "tokens " + range_text(piece.token_begin, piece.token_count) +
                           " must be a part of [0, " + std::to_string(num_tokens_) +
                           "), the tokens of this put");
  }
  if (piece.num_queries > recipe_.queries_max(num_tokens_)) {
    return Status::invalid(where + std::to_string(piece.num_queries) + " queries exceed " +
                           std::to_string(recipe_.queries_max(num_tokens_)));
  }
  if (piece.query_mean.has_value() != piece.query_covariance.has_value()) {
    return Status::invalid(where + "query_mean and query_covariance come together");
  }
  if (begun_ && piece.scores.has_value() != has_scores_) {
    return Status::invalid(where + "some pieces bring scores and some do not");
  }
  const bool repeats = observes(piece) && (num_queries_ != 0 || has_stats_);
  if (repeats && (piece.num_queries != num_queries_ || piece.lse.has_value() != has_lse_ ||
                  piece.query_mean.has_value() != has_stats_)) {
    return Status::invalid(where + "pieces bring " + std::to_string(num_queries_) + " and " +
                           std::to_string(piece.num_queries) +
                           " queries, or a log-sum-exp or statistics with some only; they must "
                           "agree");
  }
  if (piece.queries.has_value() != (piece.num_queries > 0)) {
    return Status::invalid(where + "num_queries is " + std::to_string(piece.num_queries) +
                           (piece.queries ? " but queries came" : " but no queries came"));
  }
  if (piece.lse && !piece.queries) return Status::invalid(where + "lse came without queries");
  return {};
}

Status StagedLayer::claim(const msg::PushLayer& piece) {
  PRECIS_TRY(check_shape(piece));
  PRECIS_TRY(check_regions(model_, layer_, piece));
  const std::uint32_t end = piece.token_begin + piece.token_count;
  for (std::uint32_t h = piece.head_begin; h < piece.head_begin + piece.head_count; ++h) {
    const auto refused = [&](const std::string& why) {
      return Status::invalid("layer " + std::to_string(layer_) + " head " + std::to_string(h) +
                             ": " + why);
    };
    if (claimed_[h].overlaps(piece.token_begin, end)) {
      return refused("tokens " + range_text(piece.token_begin, piece.token_count) +
                     " were pushed before, each may be pushed once");
    }
    if (claimed_[h].count_with(piece.token_begin, end) > limits::kPiecesApartMax) {
      return refused("its tokens came in " + std::to_string(limits::kPiecesApartMax) +
                     " pieces that do not touch, the most there may be; push those between first");
    }
    if (observes(piece) && observed_[h]) return refused("queries were pushed before");
  }
  for (std::uint32_t h = piece.head_begin; h < piece.head_begin + piece.head_count; ++h) {
    claimed_[h].add(piece.token_begin, end);
    if (observes(piece)) observed_[h] = true;
  }
  if (observes(piece)) {
    num_queries_ = piece.num_queries;
    has_lse_ = piece.lse.has_value();
    has_stats_ = piece.query_mean.has_value();
  }
  has_scores_ = piece.scores.has_value();
  begun_ = true;
  return {};
}

void StagedLayer::unclaim(const msg::PushLayer& piece) {
  for (std::uint32_t h = piece.head_begin; h < piece.head_begin + piece.head_count; ++h) {
    claimed_[h].remove(piece.token_begin, piece.token_begin + piece.token_count);
    if (observes(piece)) observed_[h] = false;
  }
  // Unless memory was allocated for them, the next piece may bring other observations or scores.
  const bool observed = std::ranges::find(observed_, true) != observed_.end();
  if (observes(piece) && !observed && observations_ == nullptr) {
    num_queries_ = 0;
    has_lse_ = has_stats_ = false;
  }
  const bool claimed = !std::ranges::all_of(claimed_, [](const auto& all) { return all.empty(); });
  if (!claimed && entries_ == nullptr) begun_ = has_scores_ = false;
}

std::size_t StagedLayer::heads_bytes() const {
  return align_section(std::size_t{model_.num_kv_heads} * num_tokens_ * row_bytes());
}

std::size_t StagedLayer::queries_bytes() const {
  return align_section(std::size_t{model_.num_q_heads} * num_queries_ * row_bytes());
}

std::size_t StagedLayer::lse_bytes() const {
  const std::size_t rows = std::size_t{model_.num_q_heads} * num_queries_;
  return has_lse_ ? align_section(rows * sizeof(float)) : 0;
}

std::size_t StagedLayer::mean_bytes() const {
  const std::size_t rows = std::size_t{model_.num_q_heads} * model_.head_dim;
  return has_stats_ ? align_section(rows * sizeof(float)) : 0;
}

bool StagedLayer::needs(Part part) const {
  return part == Part::kEntries ? entries_ == nullptr
                                : (num_queries_ > 0 || has_stats_) && observations_ == nullptr;
}

std::size_t StagedLayer::size_bytes(Part part) const {
  if (part == Part::kEntries) {
    const std::size_t scores = std::size_t{model_.num_kv_heads} * num_tokens_ * sizeof(float);
    return 2 * heads_bytes() + (has_scores_ ? scores : 0);
  }
  return queries_bytes() + lse_bytes() + mean_bytes() * (1 + std::size_t{model_.head_dim});
}

std::size_t StagedLayer::read_observation_bytes() const {
  StagedLayer read(model_, recipe_, layer_, num_tokens_);
  const std::uint32_t window = recipe_.window == 0 ? num_tokens_ : recipe_.window;
  if (recipe_.needs_queries()) {
    read.num_queries_ = std::min(window, recipe_.queries_max(num_tokens_));
  }
  read.has_lse_ = recipe_.needs_lse();
  read.has_stats_ = recipe_.needs_query_stats();
  return read.size_bytes(Part::kObservations);
}

void StagedLayer::give_memory(Part part, std::unique_ptr<Arena::Buffer> buffer) {
  (part == Part::kEntries ? entries_ : observations_) = std::move(buffer);
}

bool StagedLayer::is_whole(const msg::PushLayer& piece) const {
  return piece.head_count == model_.num_kv_heads && piece.token_count == num_tokens_ &&
         !observes(piece) && !piece.scores;
}

bool StagedLayer::read_in_place(const msg::PushLayer& piece, Connection& from) {
  if (!is_whole(piece)) return false;
  keys_ = {from.read_in_place(piece.keys), piece.keys_head_stride};
  values_ = {from.read_in_place(piece.values), piece.values_head_stride};
  const auto reads = [&](const InPlace& rows) {
    return rows.memory != nullptr && is_aligned(rows.memory->bytes(), rows.head_stride_bytes);
  };
  if (reads(keys_) && reads(values_)) {
    tokens_arrived_ = std::uint64_t{piece.head_count} * piece.token_count;
    return true;
  }
  keys_ = values_ = {};
  return false;
}

std::vector<StagedLayer::Source> StagedLayer::sources(const msg::PushLayer& piece) const {
  std::vector<Source> out;
  // Merges runs that follow each other in source and destination.
  auto add = [&](const RemoteRegion& region, std::uint64_t offset, MutableBytes to) {
    if (!out.empty() && out.back().region == &region &&
        out.back().offset + out.back().to.size() == offset &&
        out.back().to.data() + out.back().to.size() == to.data()) {
      out.back().to = {out.back().to.data(), out.back().to.size() + to.size()};
    } else {
      out.push_back({&region, offset, to});
    }
  };
  const MutableBytes entries = entries_->bytes();
  for (const bool is_value : {false, true}) {
    for (std::uint32_t i = 0; i < piece.head_count; ++i) {
      const std::size_t row = std::size_t{piece.head_begin + i} * num_tokens_ + piece.token_begin;
      add(is_value ? piece.values : piece.keys,
          i * (is_value ? piece.values_head_stride : piece.keys_head_stride),
          entries.subspan((is_value ? heads_bytes() : 0) + row * row_bytes(),
                          piece.token_count * row_bytes()));
    }
  }
  if (piece.scores) {
    for (std::uint32_t i = 0; i < piece.head_count; ++i) {
      const std::size_t row = std::size_t{piece.head_begin + i} * num_tokens_ + piece.token_begin;
      const std::size_t size = piece.token_count * sizeof(float);
      add(*piece.scores, i * size, entries.subspan(2 * heads_bytes() + row * sizeof(float), size));
    }
  }
  if (!observes(piece)) return out;
  const MutableBytes observations = observations_->bytes();
  const std::size_t stats = queries_bytes() + lse_bytes();
  if (piece.query_mean) {
    const std::size_t mean = group() * model_.head_dim * sizeof(float);
    const std::size_t covariance = mean * model_.head_dim;
    add(*piece.query_mean, 0,
        observations.subspan(stats + piece.head_begin * mean, piece.head_count * mean));
    add(*piece.query_covariance, 0,
        observations.subspan(stats + mean_bytes() + piece.head_begin * covariance,
                             piece.head_count * covariance));
  }
  if (!piece.queries) return out;
  const std::size_t rows = std::size_t{piece.head_count} * group() * num_queries_;
  const std::size_t first_row = std::size_t{piece.head_begin} * group() * num_queries_;
  add(*piece.queries, 0, observations.subspan(first_row * row_bytes(), rows * row_bytes()));
  if (piece.lse) {
    add(*piece.lse, 0,
        observations.subspan(queries_bytes() + first_row * sizeof(float), rows * sizeof(float)));
  }
  return out;
}

Task<Result<std::uint64_t>> StagedLayer::pull(msg::PushLayer piece, Connection& from,
                                              const Registration& registration) {
  std::uint64_t bytes = 0;
  InFlight pulls(SIZE_MAX);  // at most the heads of one piece; the transport has its own bound
  for (const Source& source : sources(piece)) {
    co_await pulls.enter();
    bytes += source.to.size();
    const Bytes to[] = {source.to};
    from.pull(*source.region, source.offset, source.to, registration_of(to, registration),
              [&pulls](Status status) { pulls.leave(std::move(status)); });
  }
  PRECIS_CO_TRY(co_await pulls.drain());
  tokens_arrived_ += std::uint64_t{piece.head_count} * piece.token_count;
  if (observes(piece)) observed_arrived_ += piece.head_count;
  co_return bytes;
}

bool StagedLayer::complete() const {
  const bool observed =
      recipe_.needs_queries() || recipe_.needs_query_stats() || num_queries_ > 0 || has_stats_;
  return tokens_arrived_ == std::uint64_t{model_.num_kv_heads} * num_tokens_ &&
         (!observed || observed_arrived_ == model_.num_kv_heads);
}

std::string StagedLayer::missing() const {
  const std::uint64_t all = std::uint64_t{model_.num_kv_heads} * num_tokens_;
  if (tokens_arrived_ < all) {
    std::uint32_t lacking = 0, worst = 0, fewest = num_tokens_;
    for (std::uint32_t h = 0; h < model_.num_kv_heads; ++h) {
      const auto tokens = static_cast<std::uint32_t>(claimed_[h].tokens());
      if (tokens == num_tokens_) continue;
      ++lacking;
      if (tokens >= fewest) continue;
      fewest = tokens;
      worst = h;
    }
    if (lacking == 0) return "tokens are still on their way";
    return "tokens of " + std::to_string(lacking) + " of " + std::to_string(model_.num_kv_heads) +
           " KV heads: head " + std::to_string(worst) + " got " + std::to_string(fewest) + " of " +
           std::to_string(num_tokens_);
  }
  return (recipe_.needs_query_stats() ? "query statistics of only " : "queries of only ") +
         std::to_string(observed_arrived_) + " of " + std::to_string(model_.num_kv_heads) +
         " KV heads";
}

kernels::LayerInput StagedLayer::input(std::uint32_t begin) const {
  auto heads = [&](const std::byte* data, std::uint32_t num_heads, std::uint32_t rows) {
    return HeadsView::packed(data, num_heads, rows, model_.head_dim, model_.dtype);
  };
  auto floats = [&](const std::byte* data, std::size_t count) {
    return std::span<const float>(reinterpret_cast<const float*>(data), count);
  };
  kernels::LayerInput input;
  input.layer = layer_;
  input.num_layers = model_.num_layers;
  input.num_q_heads = model_.num_q_heads;
  input.begin = begin;
  if (keys_.memory) {
    input.keys = heads(keys_.memory->bytes().data(), model_.num_kv_heads, num_tokens_);
    input.keys.head_stride_bytes = keys_.head_stride_bytes;
    input.values = heads(values_.memory->bytes().data(), model_.num_kv_heads, num_tokens_);
    input.values.head_stride_bytes = values_.head_stride_bytes;
    return input;
  }
  const std::byte* entries = entries_->bytes().data();
  input.keys = heads(entries, model_.num_kv_heads, num_tokens_);
  input.values = heads(entries + heads_bytes(), model_.num_kv_heads, num_tokens_);
  if (has_scores_) {
    input.scores =
        floats(entries + 2 * heads_bytes(), std::size_t{model_.num_kv_heads} * num_tokens_);
  }
  if (observations_ == nullptr) return input;
  const std::byte* observations = observations_->bytes().data();
  if (has_stats_) {
    const std::byte* stats = observations + queries_bytes() + lse_bytes();
    const std::size_t means = std::size_t{model_.num_q_heads} * model_.head_dim;
    input.query_mean = floats(stats, means);
    input.query_covariance = floats(stats + mean_bytes(), means * model_.head_dim);
  }
  if (num_queries_ == 0) return input;
  input.queries = heads(observations, model_.num_q_heads, num_queries_);
  if (has_lse_) {
    input.lse =
        floats(observations + queries_bytes(), std::size_t{model_.num_q_heads} * num_queries_);
  }
  return input;
}

}  // namespace precis

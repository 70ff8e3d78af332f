// The checks of a stored segment's row, and the memory that it takes.
#include <string>

#include "cachesvc/base/counted.h"
#include "cachesvc/catalog/segment_tree.h"
#include "precis/limits.h"

namespace precis {
namespace {

Status bad_row(const SegmentRow& row, const std::string& problem) {
  return Status::invalid("segment " + row.id.hex() + ": " + problem);
}

std::string expected(std::string_view field, std::uint64_t is, std::uint64_t must_be) {
  return std::string(field) + " is " + std::to_string(is) + ", must be " + std::to_string(must_be);
}

// Measured with millions of each: a block's digest in its row and its boundary in the index, a
// layer's size and its location in the store, and the rest of a segment.
constexpr std::uint64_t kBlockBytes = 272, kLayerBytes = 160, kSegmentBytes = 2048;
constexpr std::uint64_t kFormerBytes = 96;  // in the row, and in the map of a node-based table

}  // namespace

std::uint64_t kept_bytes(const SegmentRow& row) {
  const std::size_t texts =
      row.tenant.size() + row.adapter.size() + row.recipe.size() + row.preset.size();
  return kSegmentBytes + texts + row.blocks.size() * kBlockBytes +
         2 * row.tail.size() * sizeof(TokenId) + row.layer_bytes.size() * kLayerBytes +
         row.plan.counts.size() * sizeof(std::uint32_t) + row.former.size() * kFormerBytes;
}

Status check_segment_row(const SegmentRow& row, const ModelSpec& model, const SegmentRow* parent) {
  if (row.begin >= row.end || row.end > limits::kPathTokensMax) {
    return bad_row(row, "tokens [" + std::to_string(row.begin) + ", " + std::to_string(row.end) +
                            ") are empty or end past " + std::to_string(limits::kPathTokensMax));
  }
  const std::uint32_t begin = parent ? parent->end : 0;
  if (row.begin != begin) return bad_row(row, expected("begin", row.begin, begin));
  if (parent &&
      (parent->root != row.root || parent->tenant != row.tenant || parent->model != row.model)) {
    return bad_row(row, "its parent " + parent->id.hex() + " has another root");
  }
  const std::uint32_t blocks = row.end / model.block_tokens - row.begin / model.block_tokens;
  if (row.blocks.size() != blocks) {
    return bad_row(row, expected("number of block digests", row.blocks.size(), blocks));
  }
  if (row.tail.size() != row.end % model.block_tokens) {
    return bad_row(
        row, expected("number of tail tokens", row.tail.size(), row.end % model.block_tokens));
  }
  if (const Status form = EntryForm::of(model, row.encoding).validate(); !form.ok()) {
    return bad_row(row, form.message());
  }
  if (row.layer_bytes.size() != model.num_layers) {
    return bad_row(row, expected("number of layers", row.layer_bytes.size(), model.num_layers));
  }
  if (row.plan.num_layers != model.num_layers || row.plan.num_kv_heads != model.num_kv_heads ||
      row.plan.counts.size() != std::size_t{model.num_layers} * model.num_kv_heads) {
    return bad_row(row, "its plan does not have " + counted(model.num_layers, "layer") + " and " +
                            counted(model.num_kv_heads, "KV head"));
  }
  return {};
}

}  // namespace precis

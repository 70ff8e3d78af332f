// Compression without a service: turns the layers of a segment into records, in memory. In the
// library precis_compress.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "precis/kernels.h"
#include "precis/profile.h"
#include "precis/record.h"
#include "precis/view.h"

namespace precis::kernels {

// The records of one layer. Move-only; the views stay valid when it is moved.
struct CompressedLayer {
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{kSectionAlign}); }
  };
  std::unique_ptr<std::byte[], Free> data;
  std::size_t size_bytes = 0;
  std::vector<RecordView> heads;  // [num_kv_heads]
  // [num_kv_heads], each [1, count, head_dim] of the model's dtype: what a reader gets. Coded rows
  // are decoded into `decoded`.
  std::vector<HeadsView> keys, values;
  std::unique_ptr<std::byte[], Free> decoded;

  MutableBytes bytes() const { return {data.get(), size_bytes}; }
};

// Compresses a segment on the CPU, with the same result as a put at position `begin` of the first
// layer. `layers` [num_layers], all with the same number of tokens: keys, values and the other
// inputs of the recipe, which include the model's rope_frequencies for kvdiff and kvprobe,
// and o_proj with its gram. The numbers of layers and heads are taken from the model. `profile` may
// be null if the recipe needs none. `threads` 0: every core. kInvalidArgument: a shape or dtype
// that does not fit the model, or an input that a stage refuses.
Result<std::vector<CompressedLayer>> compress(const ModelSpec& model,
                                              std::span<const LayerInput> layers,
                                              const Recipe& recipe, const Budget& keep,
                                              const Profile* profile = nullptr,
                                              unsigned threads = 0);

}  // namespace precis::kernels

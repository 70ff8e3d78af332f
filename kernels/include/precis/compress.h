// Compression without a service: the layers of a segment in memory become records in memory. In the
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

namespace precis::kernels {

// The records of one layer. Move-only; the views stay valid when it is moved.
struct CompressedLayer {
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{kSectionAlign}); }
  };
  std::unique_ptr<std::byte[], Free> data;
  std::size_t size_bytes = 0;
  std::vector<RecordView> heads;  // [num_kv_heads]

  MutableBytes bytes() const { return {data.get(), size_bytes}; }
};

// Compresses a segment as a put does, on the CPU, and gives the same entries: those of a put
// without a parent if `begin` of the first layer is 0. `layers` [num_layers], all of one length:
// keys, values and what the recipe needs besides; the rest of a LayerInput follows from the model.
// `profile` may be null if the recipe needs none. `threads` 0: every core. kInvalidArgument: a
// shape or dtype that does not fit the model, or what the stages refuse.
Result<std::vector<CompressedLayer>> compress(const ModelSpec& model,
                                              std::span<const LayerInput> layers,
                                              const Recipe& recipe, const Budget& keep,
                                              const Profile* profile = nullptr,
                                              unsigned threads = 0);

}  // namespace precis::kernels

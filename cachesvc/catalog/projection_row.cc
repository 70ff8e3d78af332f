#include "cachesvc/catalog/projection_row.h"

#include <string>

#include "precis/limits.h"

namespace precis {

std::size_t grams_bytes(const ModelSpec& model) {
  return sizeof(float) * model.num_q_heads * model.head_dim * model.head_dim;
}

Status check_projection_row(const StoredProjection& row, const ModelSpec& model) {
  if (row.layer >= model.num_layers) {
    return Status::invalid("layer is " + std::to_string(row.layer) + ", the model has " +
                           std::to_string(model.num_layers));
  }
  if (grams_bytes(model) > limits::kGramsBytesMax) {
    return Status::invalid("the Gram matrices of a layer take " +
                           std::to_string(grams_bytes(model)) + " B, maximum " +
                           std::to_string(limits::kGramsBytesMax));
  }
  const std::uint64_t wanted =
      std::uint64_t{model.num_q_heads} * model.head_dim * row.width * dtype_size_bytes(row.dtype);
  if (row.weights_bytes != wanted) {
    return Status::invalid(
        "the output projection of layer " + std::to_string(row.layer) + " has " +
        std::to_string(row.weights_bytes) + " B, [" + std::to_string(model.num_q_heads) + ", " +
        std::to_string(model.head_dim) + ", " + std::to_string(row.width) + "] of " +
        std::string(dtype_name(row.dtype)) + " takes " + std::to_string(wanted));
  }
  if (row.grams_bytes == grams_bytes(model)) return {};
  return Status::invalid("the Gram matrices of layer " + std::to_string(row.layer) + " have " +
                         std::to_string(row.grams_bytes) + " B, and take " +
                         std::to_string(grams_bytes(model)));
}

}  // namespace precis

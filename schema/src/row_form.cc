#include "precis/row_form.h"

#include <string>

#include "precis/limits.h"

namespace precis {

std::string_view encoding_name(Encoding encoding) {
  switch (encoding) {
    case Encoding::kRaw: return "raw";
    case Encoding::kInt8: return "int8";
    case Encoding::kInt4: return "int4";
  }
  return "unknown";
}

Status RowForm::validate() const {
  if (head_dim == 0 || head_dim > limits::kHeadDimMax) {
    return Status::invalid("head_dim is " + std::to_string(head_dim) + ", must be in [1, " +
                           std::to_string(limits::kHeadDimMax) + "]");
  }
  if (encoding == Encoding::kInt4 && head_dim % 2 != 0) {
    return Status::invalid("encoding=int4 needs an even head_dim, not " + std::to_string(head_dim) +
                           "; use encoding=int8");
  }
  return {};
}

}  // namespace precis

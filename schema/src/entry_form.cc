#include "precis/entry_form.h"

#include <string>

#include "precis/limits.h"
#include "recipe_words.h"

namespace precis {

std::string_view encoding_name(Encoding encoding) { return word_of(kEncodingWords, encoding); }

Status EntryForm::validate() const {
  if (head_dim == 0 || head_dim > limits::kHeadDimMax) {
    return Status::invalid("head_dim is " + std::to_string(head_dim) + ", must be in [1, " +
                           std::to_string(limits::kHeadDimMax) + "]");
  }
  const std::uint32_t divisor = keys().code == RowCode::kInt6     ? 4
                                : values().code == RowCode::kInt4 ? 2
                                                                  : 1;
  if (head_dim % divisor != 0) {
    return Status::invalid("encoding=" + std::string(encoding_name(encoding)) +
                           " needs a head_dim that is a multiple of " + std::to_string(divisor) +
                           ", not " + std::to_string(head_dim) + "; use encoding=int8");
  }
  return {};
}

}  // namespace precis

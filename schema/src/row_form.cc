#include "precis/row_form.h"

#include <string>

#include "precis/limits.h"
#include "recipe_words.h"

namespace precis {

std::string_view encoding_name(Encoding encoding) { return word_of(kEncodingWords, encoding); }

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

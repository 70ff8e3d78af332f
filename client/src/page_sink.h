// Pages of the caller's that a get leaves rows in: by the caller's own calls alone, as rows_out.h
// tells.
#pragma once

#include <cstdint>
#include <vector>

#include "precis/client.h"
#include "precis/pages.h"
#include "precis/status.h"

namespace precis {

class PageSink {
 public:
  // kInvalidArgument naming what does not fit the model, or which page is none.
  // `num_heads`: that the get brings of each layer.
  static Status check(const ModelSpec& model, std::uint32_t num_heads, const PagesOut& pages);
  // Of checked ones; the table is copied.
  explicit PageSink(const PagesOut& pages);

  // The rows of one head to its pages. kInvalidArgument where these hold fewer; then nothing of
  // this head is written.
  Status fill(const HeadEntries& entries, std::uint32_t layer, std::uint32_t head,
              std::uint32_t num_heads) const;

 private:
  PagedRows keys_, values_;
  std::vector<std::uint32_t> table_, starts_;
};

}  // namespace precis

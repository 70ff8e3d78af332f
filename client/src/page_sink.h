// Pages of the caller's that a get leaves rows in: by the caller's own calls alone, as rows_out.h
// tells.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/src/page_movers.h"
#include "precis/client.h"
#include "precis/pages.h"
#include "precis/status.h"

namespace precis {

class PageSink {
 public:
  // `num_heads`: that the get brings of each layer; the table is copied. kInvalidArgument naming
  // what does not fit the model, or which page is none; and as PageMovers::find().
  static Result<PageSink> create(const ModelSpec& model, std::uint32_t num_heads,
                                 const PagesOut& pages, PageMovers& movers);

  // The rows of a layer's heads, all from one buffer, to their pages. kInvalidArgument naming the
  // first head whose pages hold fewer; then nothing of the layer is written. Else the mover's
  // errors.
  Status fill(std::span<const HeadEntries> heads, std::uint32_t layer) const;

  PageMover& mover() const { return *mover_; }

 private:
  PageSink(const PagesOut& pages, std::shared_ptr<PageMover> mover);

  PagedRows keys_, values_;
  std::vector<std::uint32_t> table_, starts_;
  std::shared_ptr<PageMover> mover_;  // shared with other gets and puts
};

}  // namespace precis

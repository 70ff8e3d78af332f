// The caller's pages that a get writes rows to. Only calls of the caller write to them, as in
// rows_out.h.
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
  // `num_heads`: the heads of each layer that this get reads. The table is copied. kInvalidArgument
  // naming the field that does not fit the model, or a page that does not exist; and the errors of
  // PageMovers::find().
  static Result<PageSink> create(const ModelSpec& model, std::uint32_t num_heads,
                                 const PagesOut& pages, PageMovers& movers);

  // Copies the rows of a layer's heads, all from one buffer, to their pages. kInvalidArgument
  // naming the first head whose pages hold fewer rows; then nothing of the layer is written. Also
  // the mover's errors.
  Status fill(std::span<const HeadEntries> heads, std::uint32_t layer) const;

  PageMover& mover() const { return *mover_; }

 private:
  PageSink(const PagesOut& pages, std::shared_ptr<PageMover> mover);

  PagedRows keys_, values_;
  std::vector<std::uint32_t> table_, starts_;
  std::shared_ptr<PageMover> mover_;  // shared with other gets and puts
};

}  // namespace precis

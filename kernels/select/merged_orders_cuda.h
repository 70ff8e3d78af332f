// two_stage and threshold on the device: tokens are ranked by both scores, then the two orders are
// merged.
#pragma once

#include "kernels/select/select_cuda.h"

namespace precis::kernels {

// The ranked part of launch_select() for these selectors. task.order serves as scratch before it is
// written. workspace: 8 B per ranked token.
Status launch_merged_orders(const SelectDevice& task, void* workspace, Stream& stream);

}  // namespace precis::kernels

// two_stage and threshold on the device: ranks tokens by both scores, then merges the two orders.
#pragma once

#include "kernels/select/select_cuda.h"

namespace precis::kernels {

// The ranked part of launch_select() for these selectors. Uses task.order as scratch before writing
// it. workspace: 8 B per ranked token.
Status launch_merged_orders(const SelectDevice& task, void* workspace, Stream& stream);

}  // namespace precis::kernels

// An event in the form of vLLM 0.32 (vllm.distributed.kv_events), in MessagePack: a batch is the
// array [seconds since 1970, [events]], an event a map whose key "type" names its class.
#pragma once

#include <string>

#include "precis/messages.h"

namespace precis::publish {

// A batch of one BlockStored or BlockRemoved. Without events if vLLM has none of this kind, so that
// the numbers of messages have no gap.
//
// Block hashes are the digests of blocks, as bytes. token_ids is empty, because the store keeps no
// tokens. lora_name is the adapter. medium is "STORAGE" for both tiers, because a removal does not
// depend on the tier.
std::string kv_message(const msg::KvEvent& event);

}  // namespace precis::publish

// Conditions on several fields of one struct. Generated readers call these functions once each
// field has been read and is within its own limits. kInvalidArgument names the field.
#pragma once

#include "precis/catalog_row.h"
#include "precis/hint_limits.h"
#include "precis/messages.h"

namespace precis::wire {

Status check(const precis::ModelSpec& model);
Status check(const precis::Plan& plan);
Status check(const precis::RemoteRegion& region);
Status check(const msg::PushProjection& push);
Status check(const msg::BeginPut& put);
Status check(const msg::PushLayer& piece);
Status check(const msg::CommitPut& commit);
Status check(const msg::GetLink& link);
Status check(const msg::Get& get);
Status check(const msg::LayerServed& served);
Status check(const msg::SetRetention& change);
Status check(const msg::PutBegun& begun);
Status check(const msg::SegmentInfo& segment);
Status check(const msg::MatchLink& link);
Status check(const msg::Match& match);
Status check(const msg::PassedMatch& passed);
Status check(const msg::ClusterState& state);
Status check(const precis::SegmentRow& row);
Status check(const precis::StoredTenant& row);

}  // namespace precis::wire

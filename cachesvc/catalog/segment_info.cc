#include "cachesvc/catalog/segment_info.h"

namespace precis {

msg::SegmentInfo segment_info(const SegmentNode& node, std::size_t children, bool with_plan) {
  const SegmentRow& row = *node.row;
  msg::SegmentInfo info;
  info.id = row.id;
  info.parent = row.parent;
  info.model = row.model;
  info.adapter = row.adapter;
  info.begin = row.begin;
  info.end = row.end;
  info.recipe = row.recipe;
  info.preset = row.preset;
  info.encoding = row.encoding;
  info.budget = row.budget;
  info.trimmed = row.trimmed;
  info.parent_read = row.parent_read;
  info.entries = row.plan.total();
  info.whole_entries = row.whole_entries;
  info.whole_begin = row.whole_begin;
  info.whole_end = row.whole_end;
  info.original_bytes = row.original_bytes;
  info.stored_bytes = row.stored_bytes;
  info.compress_seconds = row.compress_seconds;
  info.created_unix_ms = row.created_unix_ms;
  info.prefill_seconds = row.prefill_seconds;
  node.copy_use(info);
  info.children = static_cast<std::uint32_t>(children);
  info.out_of_service = !node.in_service;
  if (with_plan) info.plan = row.plan;
  return info;
}

}  // namespace precis

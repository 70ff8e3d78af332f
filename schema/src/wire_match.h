// Messages of lookups and gets, and the segments and matches in them.
#pragma once

#include "control.capnp.h"
#include "precis/messages.h"

namespace precis::wire {

void write(Lookup::Builder out, const msg::Lookup& in);
void write(Get::Builder out, const msg::Get& in);
void write(SegmentInfo::Builder out, const msg::SegmentInfo& in);
void write(Match::Builder out, const msg::Match& in);

Status read(Lookup::Reader in, msg::Lookup& out);
Status read(Get::Reader in, msg::Get& out);
Status read(SegmentInfo::Reader in, msg::SegmentInfo& out);
Status read(Match::Reader in, msg::Match& out);

}  // namespace precis::wire

// Spans in the JSON form of OTLP 1.x (ExportTraceServiceRequest): ids in hexadecimal digits, 64-bit
// numbers as text.
#pragma once

#include <span>
#include <string>

#include "cachesvc/server/tracer.h"

namespace precis::trace {

// The span of a request is of the kind SERVER, with its labels, amounts and status as attributes
// "precis.NAME". Its stages are spans of the kind INTERNAL without attributes. A
// status is the name of its code alone: messages may have names of files.
std::string otlp_json(std::span<const RequestSpans> requests);

}  // namespace precis::trace

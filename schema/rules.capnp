# The limits and kinds of fields that Cap'n Proto's own types do not state. generate.py reads these
# annotations and writes from them the C++ structs, their checked wire form and their tables of
# fields.
@0xa3c2f71d9e5b6084;

annotation digest(field) :Void;
# Data of exactly 32 bytes.
annotation segmentId(field) :Void;
# Data of exactly 16 bytes, all zero for no segment.
annotation array(field) :Text;
# Data of little-endian elements of this C++ type. atMost bounds their number.
annotation atLeast(field) :UInt32;
annotation atMost(field) :Text;
# The largest value of a number, or the most bytes of a Text or Data, or elements of an array or
# list: constants of limits.h. A Text without it is a name: at most 256 bytes and no control
# characters.
annotation forPeople(field) :Void;
# Text from drivers and file systems, which need not be UTF-8: it is cleaned when it is written.
annotation optional(field) :Void;
# The field may be absent. A number is absent when it has its default value.
annotation checked(struct) :Void;
# After the struct's fields are read, check() in field_checks.h checks them together.
annotation byHand(struct, enum) :Text;
# The C++ type exists in this header of precis/; only its wire form is generated.
annotation call(field) :Text;
# A request: the name of the client's call, for messages to users.
annotation administrative(field) :Void;
# A request that concerns an operator: if it fails, the audit log has it, and the log at info level.
annotation role(field) :Text;
# A request: the least role of a tenant that may send it (precis/role.h). Without it: writer.
annotation cxxNamespace(file) :Text;
# The namespace of the file's C++ structs.

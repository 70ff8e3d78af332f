// Messages of models and their output projections and profiles, and RemoteRegion, the client memory
// that projections and layers of KV are pulled from.
#pragma once

#include "control.capnp.h"
#include "precis/messages.h"

namespace precis::wire {

void write(RemoteRegion::Builder out, const precis::RemoteRegion& in);
void write(RegisterModel::Builder out, const msg::RegisterModel& in);
void write(ListModels::Builder out, const msg::ListModels& in);
void write(PushProjection::Builder out, const msg::PushProjection& in);
void write(AddProfile::Builder out, const msg::AddProfile& in);
void write(ListProfiles::Builder out, const msg::ListProfiles& in);
void write(ShowProfile::Builder out, const msg::ShowProfile& in);
void write(RemoveProfile::Builder out, const msg::RemoveProfile& in);
void write(ModelRow::Builder out, const msg::ModelRow& in);
void write(ProfileRow::Builder out, const msg::ProfileRow& in);

Status read(RemoteRegion::Reader in, precis::RemoteRegion& out);
Status read(RegisterModel::Reader in, msg::RegisterModel& out);
Status read(ListModels::Reader in, msg::ListModels& out);
Status read(PushProjection::Reader in, msg::PushProjection& out);
Status read(AddProfile::Reader in, msg::AddProfile& out);
Status read(ListProfiles::Reader in, msg::ListProfiles& out);
Status read(ShowProfile::Reader in, msg::ShowProfile& out);
Status read(RemoveProfile::Reader in, msg::RemoveProfile& out);
Status read(ModelRow::Reader in, msg::ModelRow& out);
Status read(ProfileRow::Reader in, msg::ProfileRow& out);

}  // namespace precis::wire

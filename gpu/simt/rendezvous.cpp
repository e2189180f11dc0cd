#include "flashmob/gpu/simt/rendezvous.h"

#include "base/check.h"

namespace flashmob::gpu::simt {
namespace {

const char* name_of(Rendezvous::Kind kind) {
  switch (kind) {
    case Rendezvous::Kind::sync:
      return "sync";
    case Rendezvous::Kind::ballot:
      return "ballot";
    case Rendezvous::Kind::shuffle:
      return "shuffle";
    case Rendezvous::Kind::match:
      return "match";
  }
  return "?";
}

}  // namespace

bool Rendezvous::arrive(std::uint32_t lane, std::uint32_t mask, Kind kind, std::uint64_t value, std::uint32_t source) {
  if ((mask >> lane & 1) == 0)
    throw DivergenceError("lane " + std::to_string(lane) + " calls " + name_of(kind) + " with a mask without itself");
  Meeting& meeting = meeting_of(mask);
  if (meeting.arrived == 0) {
    meeting.mask = mask;
    meeting.kind = kind;
  } else if (meeting.kind != kind) {
    throw DivergenceError("lane " + std::to_string(lane) + " comes to " + name_of(kind) + " while others of mask " +
                          std::to_string(mask) + " wait in " + name_of(meeting.kind));
  }
  if (kind == Kind::shuffle && (source >= kWarpLanes || (mask >> source & 1) == 0))
    throw DivergenceError("lane " + std::to_string(lane) + " wants the value of lane " + std::to_string(source) +
                          ", which is not in its mask");
  values_[lane] = value;
  sources_[lane] = source;
  meeting.arrived |= 1u << lane;
  if (meeting.arrived != mask) return false;
  finish(meeting);
  meeting.arrived = 0;
  return true;
}

// The meeting of this mask, or one that nobody waits in.
Rendezvous::Meeting& Rendezvous::meeting_of(std::uint32_t mask) {
  Meeting* free = nullptr;
  for (Meeting& meeting : meetings_) {
    if (meeting.arrived != 0 && meeting.mask == mask) return meeting;
    if (meeting.arrived == 0 && free == nullptr) free = &meeting;
  }
  // A lane is in one meeting at most, so there is one for each lane.
  FLASHMOB_CHECK(free != nullptr);
  return *free;
}

template <class Counts>
std::uint64_t Rendezvous::lanes_with(const Meeting& meeting, Counts&& counts) const {
  std::uint64_t lanes = 0;
  for (std::uint32_t rest = meeting.mask; rest != 0; rest &= rest - 1) {
    const std::uint32_t lane = first_lane(rest);
    if (counts(values_[lane])) lanes |= 1ull << lane;
  }
  return lanes;
}

void Rendezvous::finish(const Meeting& meeting) {
  // All lanes get the same from a ballot: it is counted once.
  const std::uint64_t voted =
      meeting.kind == Kind::ballot ? lanes_with(meeting, [](auto value) { return value != 0; }) : 0;
  for (std::uint32_t rest = meeting.mask; rest != 0; rest &= rest - 1) {
    const std::uint32_t lane = first_lane(rest);
    results_[lane] = meeting.kind == Kind::shuffle ? values_[sources_[lane]]
                     : meeting.kind == Kind::match ? lanes_with(meeting, [&](auto v) { return v == values_[lane]; })
                                                   : voted;
  }
}

}  // namespace flashmob::gpu::simt

// List (Key Value Command Set 1.0, clause 3.3): keys from the one that the command names on, which need not exist;
// without one, all. The order is ours to choose, and is that of their bytes, so that a host finds those with one
// beginning together.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "command_set/host_bytes.h"
#include "command_set/kv_state.h"
#include "command_set/nvm_commands.h"
#include "nvme/kv.h"

namespace flashmob::command_set::kv_commands {

using commands::failed;
using kv::Key;
using nvme::Status;
using Stage = KvProgress::Stage;

namespace {

// How often the index is looked at, and what is cleared behind the keys.
constexpr unsigned kLooksPerStep = 8;
constexpr std::uint32_t kClearBytes = 64 << 10;

// Adds keys to `out`, where `used` bytes are, as many as are looked at in one go. Whether there may be more that fit.
bool add_keys(const KvState& state, std::span<std::byte> out, std::size_t& used, KvProgress& progress) {
  bool more = false;
  std::uint32_t looked_at = 0;
  const bool begins = progress.keys == 0;
  Key from = progress.key;
  const std::lock_guard lock(state.mutex);
  state.store.for_each_from(from, [&](const Key& key) {
    // What the last round ended with.
    if (!begins && looked_at == 0 && key == from) return true;
    const std::size_t bytes = nvme::key_list_entry_bytes(key.length);
    if (bytes > out.size() - used) return more = false;
    const std::uint16_t length = key.length;
    std::memset(&out[used], 0, bytes);
    std::memcpy(&out[used], &length, sizeof(length));
    std::memcpy(&out[used + sizeof(length)], key.bytes.data(), length);
    used += bytes;
    ++progress.keys;
    progress.key = key;
    return !(more = ++looked_at == KvState::kAtOnce);
  });
  return more;
}

void copy_to(HostBytes& host, std::span<const std::byte> bytes) {
  host.take(bytes.size(), [&](std::byte* to, std::uint64_t at, std::uint64_t part) {
    if (to != nullptr) std::memcpy(to, bytes.data() + at, part);
  });
}

Outcome end_list(std::span<const memory::Segment> segments, Namespace& ns, KvProgress& progress) {
  const nvme::KeyListHeader header{progress.keys};
  HostBytes host(segments, 0);
  copy_to(host, std::as_bytes(std::span(&header, 1)));
  const KvState& state = KvState::of(ns);
  progress.outcome.extra_ns = state.config.lookup_ns + progress.keys * state.config.list_key_ns;
  return progress.outcome;
}

}  // namespace

Step begin_list(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, Progress& progress) {
  const std::uint32_t room = nvme::kv_data_bytes(sqe);
  if (room < sizeof(nvme::KeyListHeader) || room > context.limits.max_transfer_bytes ||
      !is_data_pointer_kind_valid(sqe, context.limits.sgl_supported))
    return failed(Status::invalid_field);
  Key from;
  if (nvme::kv_key_bytes(sqe) != 0)
    if (const Status status = key_of(sqe, ns, from); status != Status::success) return failed(status);
  auto& begun = progress.begin<KvProgress>();
  begun.stage = Stage::lists;
  begun.key = from;
  begun.bytes = room;
  begun.done_bytes = sizeof(nvme::KeyListHeader);
  return list_more(sqe, ns, context, begun);
}

// Keys go to the host as they are found, then zeroes behind them, and how many there are comes last.
Step list_more(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context, KvProgress& progress) {
  const Status status = memory::resolve(context.reader, sqe, progress.bytes, memory::Direction::to_host,
                                        context.limits.data_pointer, context.segments);
  if (status != Status::success) return failed(status);
  const std::span<const memory::Segment> segments = context.segments.segments();
  HostBytes host(segments, progress.done_bytes);
  if (progress.stage == Stage::lists) {
    constexpr std::size_t kMostBytes =
        kLooksPerStep * KvState::kAtOnce * nvme::key_list_entry_bytes(nvme::kMaxKeyBytes);
    const std::size_t left = progress.bytes - progress.done_bytes;
    FLASHMOB_CHECK(context.bounce.size() >= std::min(left, kMostBytes));
    const std::span<std::byte> out = context.bounce.first(std::min(left, kMostBytes));
    std::size_t used = 0;
    bool more = true;
    for (unsigned round = 0; round < kLooksPerStep && more; ++round)
      more = add_keys(KvState::of(ns), out, used, progress);
    if (used != 0) copy_to(host, out.first(used));
    progress.done_bytes += static_cast<std::uint32_t>(used);
    if (more) return std::nullopt;
    progress.stage = Stage::clears;
    progress.outcome.host_read_bytes = progress.done_bytes;
    Key from;
    if (nvme::kv_key_bytes(sqe) != 0) key_of(sqe, ns, from);
    ask_for_index(ns, from, progress.done_bytes, progress.outcome);
  }
  const std::uint32_t some = std::min(progress.bytes - progress.done_bytes, kClearBytes);
  if (some != 0)
    host.take(some, [](std::byte* to, std::uint64_t, std::uint64_t part) {
      if (to != nullptr) std::memset(to, 0, part);
    });
  progress.done_bytes += some;
  if (progress.done_bytes != progress.bytes) return std::nullopt;
  return end_list(segments, ns, progress);
}

}  // namespace flashmob::command_set::kv_commands

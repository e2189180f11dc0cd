// The admin half of NvmeDriver: commands in flight, their buffers, and the shorthands built on them.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "driver/driver_state.h"
#include "driver/names.h"
#include "driver/nvme_driver.h"
#include "nvme/opcode.h"

namespace flashmob::driver {
namespace {

constexpr std::size_t kMaxAdminData = std::size_t{1} << 20;
// Log pages are read in pieces of this size, which every controller can transfer whatever its MDTS.
constexpr std::size_t kLogPiece = 4096;
// How often a wait looks whether the controller has died; a register read may trap.
constexpr std::uint64_t kFatalCheckNs = 50'000'000;

nvme::Sqe command(nvme::AdminOpcode opcode) {
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  return sqe;
}

// Counts admin calls on the stack, so that disable() from a callback is caught.
class DepthGuard {
 public:
  explicit DepthGuard(unsigned& depth) : depth_(depth) { ++depth_; }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  unsigned& depth_;
};

}  // namespace

// Buffers are reused, never shared: a callback may run a command while its caller waits for another.
std::unique_ptr<NvmeDriver::Bounce> NvmeDriver::take_bounce(std::size_t bytes) {
  const auto fits = [bytes](const auto& bounce) { return bounce->memory.size() >= bytes; };
  const auto at = std::ranges::find_if(free_bounces_, fits);
  if (at == free_bounces_.end())
    return std::make_unique<Bounce>(device_, std::max(std::bit_ceil(bytes), std::size_t{PrpLists::kPageBytes}));
  auto bounce = std::move(*at);
  free_bounces_.erase(at);
  return bounce;
}

NvmeDriver::AdminSlot* NvmeDriver::free_slot() {
  const auto is_free = [](const auto& slot) { return slot->state == AdminSlot::State::free; };
  const auto at = std::ranges::find_if(admin_slots_, is_free);
  return at == admin_slots_.end() ? nullptr : at->get();
}

void NvmeDriver::release_slot(AdminSlot& slot) {
  if (slot.bounce != nullptr) free_bounces_.push_back(std::move(slot.bounce));
  slot.done = nullptr;
  slot.state = AdminSlot::State::free;
}

// Pumps until ready() holds; throws when the command's time is up or the controller has died.
void NvmeDriver::wait_admin(const nvme::Sqe& sqe, const std::function<bool()>& ready) {
  std::uint64_t checked_ns = waiter_.now_ns();
  const std::uint64_t timeout_ns = is_given_up_ ? 0 : admin_timeout_ns;
  const bool done = wait_until(waiter_, timeout_ns, [&] {
    poll_admin();
    if (ready()) return true;
    const std::uint64_t now_ns = waiter_.now_ns();
    if (now_ns - checked_ns >= kFatalCheckNs) {
      checked_ns = now_ns;
      throw_if_dead(admin_command_name(sqe).c_str());
    }
    return false;
  });
  if (done) return;
  throw_if_dead(admin_command_name(sqe).c_str());
  throw NvmeTimeout(admin_command_name(sqe) + ": no completion within " + std::to_string(timeout_ns / 1'000'000) +
                    " ms");
}

NvmeDriver::AdminSlot& NvmeDriver::start_admin(nvme::Sqe sqe, std::unique_ptr<Bounce> bounce,
                                               std::function<void(AdminResult)> done) {
  FLASHMOB_CHECK(admin_ != nullptr);  // enable() comes first
  AdminSlot* slot = free_slot();
  if (slot == nullptr) wait_admin(sqe, [&] { return (slot = free_slot()) != nullptr; });

  const auto index = static_cast<std::uint16_t>(
      std::ranges::find_if(admin_slots_, [slot](const auto& each) { return each.get() == slot; }) -
      admin_slots_.begin());
  const auto generation = static_cast<std::uint16_t>((slot->cid >> AdminSlot::kIndexBits) + 1);
  slot->cid = static_cast<std::uint16_t>((generation << AdminSlot::kIndexBits) | index);
  slot->state = done ? AdminSlot::State::asynchronous : AdminSlot::State::waited_for;
  slot->finished = false;
  slot->done = std::move(done);
  slot->bounce = std::move(bounce);
  sqe.cid = slot->cid;
  admin_->pair.submit() = sqe;
  admin_->pair.ring_sq();
  return *slot;
}

AdminResult NvmeDriver::admin(nvme::Sqe sqe, std::span<std::byte> data, bool to_host) {
  FLASHMOB_CHECK(admin_ != nullptr && data.size() <= kMaxAdminData);
  const DepthGuard guard(admin_depth_);
  std::unique_ptr<Bounce> bounce;
  if (!data.empty()) {
    bounce = take_bounce(data.size());
    // Zeroes first: a device that transfers less than asked must not show what an earlier command left.
    std::memset(bounce->memory.data(), 0, data.size());
    if (!to_host) std::memcpy(bounce->memory.data(), data.data(), data.size());
    sqe.flags = static_cast<std::uint8_t>(sqe.flags & ~nvme::kFlagPsdtMask);
    bounce->lists.describe(0, sqe, bounce->memory.iova(), data.size());
  }
  AdminSlot& slot = start_admin(sqe, std::move(bounce), nullptr);
  try {
    wait_admin(sqe, [&slot] { return slot.finished; });
  } catch (...) {
    slot.state = AdminSlot::State::abandoned;
    throw;
  }
  if (!data.empty() && to_host) std::memcpy(data.data(), slot.bounce->memory.data(), data.size());
  const AdminResult result = slot.result;
  release_slot(slot);
  return result;
}

std::uint16_t NvmeDriver::admin_async(nvme::Sqe sqe, std::function<void(AdminResult)> done) {
  FLASHMOB_CHECK(done != nullptr);
  const DepthGuard guard(admin_depth_);
  return start_admin(sqe, nullptr, std::move(done)).cid;
}

void NvmeDriver::poll_admin() {
  if (admin_ == nullptr) return;
  const DepthGuard guard(admin_depth_);
  admin_->pair.reap(admin_entries_, [this](const nvme::Cqe& entry) { finish_admin(entry); });
  admin_->pair.ring_cq();
}

void NvmeDriver::finish_admin(const nvme::Cqe& entry) {
  const std::uint16_t cid = entry.cid;
  const AdminResult result{static_cast<std::uint16_t>(entry.status_phase >> 1), entry.dw0};
  const std::size_t index = cid & ((1u << AdminSlot::kIndexBits) - 1);
  AdminSlot* slot = index < admin_slots_.size() ? admin_slots_[index].get() : nullptr;
  if (slot == nullptr || slot->cid != cid || slot->finished || slot->state == AdminSlot::State::free) {
    ++unexpected_completions_;
    return;
  }
  switch (slot->state) {
    case AdminSlot::State::free:
      break;
    case AdminSlot::State::waited_for:
      slot->result = result;
      slot->finished = true;
      break;
    case AdminSlot::State::abandoned:
      release_slot(*slot);
      break;
    case AdminSlot::State::asynchronous: {
      // The slot is free before the callback runs, so that the callback may start the next command in it.
      const auto done = std::move(slot->done);
      release_slot(*slot);
      done(result);
      break;
    }
  }
}

AdminResult NvmeDriver::admin_or_throw(const nvme::Sqe& sqe, std::span<std::byte> data, bool to_host) {
  const AdminResult result = admin(sqe, data, to_host);
  if (nvme::status_of(result.status_field) != nvme::Status::success)
    throw NvmeError(admin_command_name(sqe), result.status_field);
  return result;
}

void NvmeDriver::identify(std::uint8_t cns, std::uint32_t nsid, std::span<std::byte> out, std::uint16_t cntid,
                          std::uint8_t csi) {
  nvme::Sqe sqe = command(nvme::AdminOpcode::identify);
  sqe.nsid = nsid;
  sqe.cdw10 = cns | (std::uint32_t{cntid} << 16);
  sqe.cdw11 = std::uint32_t{csi} << 24;
  // The device always transfers 4096 bytes, also where the caller wants fewer.
  std::array<std::byte, 4096> data;
  FLASHMOB_CHECK(out.size() <= data.size());
  admin_or_throw(sqe, data, true);
  std::copy_n(data.begin(), out.size(), out.begin());
}

void NvmeDriver::log_page(std::uint8_t lid, std::uint32_t nsid, std::uint64_t offset, std::span<std::byte> out,
                          bool retain_async_event) {
  while (!out.empty()) {
    const std::size_t piece = std::min(out.size(), kLogPiece);
    const bool last = piece == out.size();
    // Lengths are counted in dwords; the rest of the last one is dropped.
    std::array<std::byte, kLogPiece> data;
    const auto dwords = static_cast<std::uint32_t>((piece + 3) / 4);
    nvme::Sqe sqe = command(nvme::AdminOpcode::get_log_page);
    sqe.nsid = nsid;
    sqe.cdw10 = lid | (retain_async_event || !last ? 1u << 15 : 0u) | (((dwords - 1) & 0xFFFF) << 16);
    sqe.cdw11 = (dwords - 1) >> 16;
    sqe.cdw12 = static_cast<std::uint32_t>(offset);
    sqe.cdw13 = static_cast<std::uint32_t>(offset >> 32);
    admin_or_throw(sqe, std::span(data).first(dwords * std::size_t{4}), true);
    std::copy_n(data.begin(), piece, out.begin());
    out = out.subspan(piece);
    offset += piece;
  }
}

std::uint32_t NvmeDriver::get_feature(std::uint8_t fid, std::uint8_t select, std::uint32_t cdw11, std::uint32_t nsid) {
  nvme::Sqe sqe = command(nvme::AdminOpcode::get_features);
  sqe.nsid = nsid;
  sqe.cdw10 = fid | (std::uint32_t{select} << 8);
  sqe.cdw11 = cdw11;
  return admin_or_throw(sqe, {}, false).dw0;
}

std::uint32_t NvmeDriver::set_feature(std::uint8_t fid, std::uint32_t cdw11, bool save, std::uint32_t nsid) {
  nvme::Sqe sqe = command(nvme::AdminOpcode::set_features);
  sqe.nsid = nsid;
  sqe.cdw10 = fid | (save ? 1u << 31 : 0u);
  sqe.cdw11 = cdw11;
  return admin_or_throw(sqe, {}, false).dw0;
}

std::uint32_t NvmeDriver::request_queues(std::uint32_t pairs) {
  FLASHMOB_CHECK(pairs >= 1 && pairs <= 65535);
  constexpr std::uint8_t kNumberOfQueues = 0x07;
  const std::uint32_t granted = set_feature(kNumberOfQueues, (pairs - 1) | ((pairs - 1) << 16));
  const std::uint32_t submission = (granted & 0xFFFF) + 1;
  const std::uint32_t completion = (granted >> 16) + 1;
  return std::min({pairs, submission, completion});
}

bool NvmeDriver::abort(std::uint16_t sqid, std::uint16_t cid) {
  nvme::Sqe sqe = command(nvme::AdminOpcode::abort);
  sqe.cdw10 = sqid | (std::uint32_t{cid} << 16);
  return (admin_or_throw(sqe, {}, false).dw0 & 1) == 0;
}

}  // namespace flashmob::driver

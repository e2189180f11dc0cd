#include "initiator/nvme_tcp/tcp_admin_queue.h"

#include <cstring>
#include <utility>

#include "driver/namespaces.h"
#include "nvme/admin_command.h"
#include "nvme/async_event.h"
#include "nvme/fabrics.h"
#include "nvme/features.h"
#include "nvme/identify.h"
#include "nvme/io_commands.h"
#include "nvme/opcode.h"
#include "nvme/zns.h"

namespace flashmob::initiator {

using nvme::AdminOpcode, nvme::Status;

namespace {

bool succeeded(const nvme::Cqe& entry) {
  return nvme::status_of(static_cast<std::uint16_t>(entry.status_phase >> 1)) == Status::success;
}

// 0 where the format's index is out of range, as for a namespace that does not exist.
std::uint32_t block_bytes_of(const nvme::IdentifyNamespace& data) {
  const driver::BlockNamespace ns = driver::namespace_of(0, data);
  if (ns.blocks == 0 || ns.lba_shift < 9 || ns.lba_shift > 24) return 0;
  // On fabrics metadata travels at the end of each block or not at all.
  return (1u << ns.lba_shift) + (ns.extended_metadata ? ns.metadata_bytes : 0u);
}

bool changes_namespaces(AdminOpcode opcode) {
  return opcode == AdminOpcode::format_nvm || opcode == AdminOpcode::namespace_management ||
         opcode == AdminOpcode::namespace_attachment;
}

bool sets_keep_alive(const nvme::Sqe& sqe) {
  return static_cast<AdminOpcode>(sqe.opcode) == AdminOpcode::set_features &&
         static_cast<nvme::Feature>(nvme::feature_id(sqe.cdw10)) == nvme::Feature::keep_alive_timer;
}

}  // namespace

TcpAdminQueue::TcpAdminQueue(fabrics::Stream bytes, const TcpStreamLimits& limits, BlockSizes& sizes,
                             std::uint32_t keep_alive_ms, std::function<void(const nvme::Sqe&)> keep)
    : TcpQueue(std::move(bytes), limits, kOwnSlots),
      sizes_(sizes),
      keep_alive_ns_(std::uint64_t{keep_alive_ms} * 1'000'000),
      keep_(std::move(keep)) {}

TcpQueue::Screening TcpAdminQueue::screen(const nvme::Sqe& sqe) {
  const auto opcode = static_cast<AdminOpcode>(sqe.opcode);
  switch (opcode) {
    case AdminOpcode::create_io_cq:
    case AdminOpcode::create_io_sq:
    case AdminOpcode::delete_io_cq:
    case AdminOpcode::delete_io_sq:
      keep_(sqe);
      return {.verdict = Verdict::keep};
    case AdminOpcode::doorbell_buffer_config:
      return {.verdict = Verdict::refuse, .status = Status::invalid_opcode};
    default:
      break;
  }
  if (sqe.opcode == nvme::kOpcodeFabrics) return {.verdict = Verdict::refuse, .status = Status::invalid_opcode};
  if (changes_namespaces(opcode)) sizes_.forget_all();
  if (changes_namespaces(opcode) || opcode == AdminOpcode::async_event_request || sets_keep_alive(sqe))
    watched_[sqe.cid] = sqe;
  return {.verdict = Verdict::forward, .data = memory::admin_command_data(sqe)};
}

void TcpAdminQueue::observe(const nvme::Cqe& entry) {
  const auto at = watched_.find(entry.cid);
  if (at == watched_.end()) return;
  const nvme::Sqe sqe = at->second;
  watched_.erase(at);
  if (!succeeded(entry)) return;
  const auto opcode = static_cast<AdminOpcode>(sqe.opcode);
  if (opcode == AdminOpcode::async_event_request) {
    const nvme::AsyncEvent event = nvme::decode_async_event(entry.dw0);
    const bool changed = event.type == nvme::AsyncEventType::notice &&
                         event.info == static_cast<std::uint8_t>(nvme::AsyncNoticeInfo::namespace_attribute_changed);
    if (changed) sizes_.forget_all();
  } else if (changes_namespaces(opcode)) {
    sizes_.forget_all();
  } else {
    keep_alive_ns_ = std::uint64_t{sqe.cdw11} * 1'000'000;
    next_keep_alive_ns_ = 0;
  }
}

void TcpAdminQueue::look_up(std::uint32_t nsid, const std::function<void()>& done) {
  const auto [at, fresh] = look_ups_.try_emplace(nsid);
  if (!fresh) return;
  at->second.done = done;
  ask(nsid, nvme::Cns::identify_namespace, nvme::Csi::nvm);
}

void TcpAdminQueue::ask(std::uint32_t nsid, nvme::Cns cns, nvme::Csi csi) {
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(AdminOpcode::identify);
  sqe.nsid = nsid;
  nvme::encode_identify({.cns = static_cast<std::uint8_t>(cns), .csi = static_cast<std::uint8_t>(csi)}, sqe);
  // The map's nodes stay where they are, so the data may come straight into one.
  run_own(sqe, {DataWay::from_device, nvme::kIdentifyBytes}, look_ups_.at(nsid).page.data(),
          [this, nsid, cns](const nvme::Cqe& entry) { answered(nsid, cns, succeeded(entry)); });
}

// Controllers that do not know the newer questions have namespaces of the NVM command set.
void TcpAdminQueue::answered(std::uint32_t nsid, nvme::Cns cns, bool good) {
  LookUp& look_up = look_ups_.at(nsid);
  if (cns == nvme::Cns::identify_namespace) {
    nvme::IdentifyNamespace data;
    std::memcpy(&data, look_up.page.data(), sizeof(data));
    const std::uint32_t bytes = good ? block_bytes_of(data) : 0;
    look_up.format = nvme::lba_format_index(data.flbas);
    look_up.shape.block_bytes = bytes == 0 ? BlockSizes::kAbsent : bytes;
    // One that fails is of a namespace without blocks, perhaps.
    if (bytes != 0 || !good) return ask(nsid, nvme::Cns::namespace_identification_descriptors, nvme::Csi::nvm);
  } else if (cns == nvme::Cns::namespace_identification_descriptors && good) {
    std::array<std::uint8_t, nvme::kIdentifyBytes> descriptors;
    std::memcpy(descriptors.data(), look_up.page.data(), descriptors.size());
    look_up.shape.csi = nvme::command_set_in(descriptors);
    if (look_up.shape.csi == nvme::Csi::key_value) look_up.shape.block_bytes = 1;  // values count bytes
    if (look_up.shape.csi == nvme::Csi::zoned) return ask(nsid, nvme::Cns::csi_namespace, nvme::Csi::zoned);
  } else if (cns == nvme::Cns::csi_namespace && good) {
    nvme::IdentifyNamespaceZoned data;
    std::memcpy(&data, look_up.page.data(), sizeof(data));
    look_up.shape.extension_bytes =
        static_cast<std::uint16_t>(data.lbafe[look_up.format].zdes * nvme::kZoneExtensionUnitBytes);
  }
  sizes_.set(nsid, look_up.shape);
  const std::function<void()> done = std::move(look_up.done);
  look_ups_.erase(nsid);
  done();
}

// Twice as often as the controller asks for, so that one delay does not end the association.
void TcpAdminQueue::tick(std::uint64_t now_ns) {
  if (keep_alive_ns_ == 0 || stream().lost()) return;
  if (next_keep_alive_ns_ == 0) next_keep_alive_ns_ = now_ns + keep_alive_ns_ / 2;
  if (now_ns < next_keep_alive_ns_) return;
  next_keep_alive_ns_ = now_ns + keep_alive_ns_ / 2;
  if (keep_alive_open_) return abandon("the controller does not answer Keep Alive");
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(AdminOpcode::keep_alive);
  keep_alive_open_ = true;
  run_own(sqe, {}, nullptr, [this](const nvme::Cqe&) { keep_alive_open_ = false; });
}

std::uint64_t TcpAdminQueue::deadline_ns() const {
  return keep_alive_ns_ == 0 || stream().lost() ? UINT64_MAX : next_keep_alive_ns_;
}

}  // namespace flashmob::initiator

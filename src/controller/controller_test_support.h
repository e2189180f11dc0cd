// What the controller's tests share: an engine that answers queue operations now or when told to, and a device made of
// a subsystem, one or more controllers and some guest memory. One thread, unless a test starts its own.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "controller/controller.h"
#include "nvme/admin_command.h"
#include "nvme/identify.h"
#include "nvme/opcode.h"

namespace flashmob::controller::testing {

inline constexpr std::uint64_t kGuestBase = 0x100000;
inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint64_t kAdminSq = kGuestBase, kAdminCq = kGuestBase + kPage;
inline constexpr std::uint64_t kData = kGuestBase + 16 * kPage;  // transfers of the tests
inline constexpr std::uint64_t kList = kGuestBase + 8 * kPage;   // their PRP lists
inline constexpr std::uint64_t kUnmapped = 0x7000'0000;

class FakeHost final : public QueueHost {
 public:
  struct Completion {
    std::uint16_t cid;
    std::uint16_t status_field;
    std::uint32_t dw0;
    nvme::Status status() const { return nvme::status_of(status_field); }
  };
  struct Held {
    Controller* controller;
    QueueRequest request;
  };

  void request(Controller& controller, const QueueRequest& request) override {
    requests.push_back(request);
    if (hold) {
      held.push_back({&controller, request});
    } else {
      controller.on_queue_reply({request.ticket, verdict(controller, request), abort_finds});
    }
  }
  void complete_admin(Controller&, std::uint16_t cid, std::uint16_t status_field, std::uint32_t dw0) override {
    completions.push_back({cid, status_field, dw0});
  }
  void features_changed(Controller& controller) override {
    ++feature_changes;
    arbitration = controller.arbitration();
    coalescing = controller.coalescing();
  }
  void run_disk_work(Controller& controller, std::uint64_t ticket, DiskWork work) override {
    auto then = [&controller, ticket](bool good) { controller.on_disk_work(ticket, good); };
    if (hold_disk)
      at_disk.push_back({std::move(work), std::move(then)});
    else
      then(work.run().good);
  }
  void run_change(DiskWork work, std::function<void(bool)> then) override {
    if (hold_disk && work.waits)
      at_disk.push_back({std::move(work), std::move(then)});
    else
      then(work.run().good);
  }
  IoCounters counters(const Controller&) const override { return io; }
  void units_deallocated(std::uint64_t first_unit, std::uint64_t units) override {
    deallocated.emplace_back(first_unit, units);
  }
  nvme::Status set_shadow_doorbells(Controller&, std::uint64_t shadow, std::uint64_t event_index) override {
    shadow_calls.emplace_back(shadow, event_index);
    return shadow_status;
  }

  // Answers the oldest operation that was held back.
  void reply() {
    const Held oldest = held.front();
    held.pop_front();
    oldest.controller->on_queue_reply(
        {oldest.request.ticket, verdict(*oldest.controller, oldest.request), abort_finds});
  }
  void reply_all() {
    while (!held.empty()) reply();
  }

  // The disk is done with the oldest of what waits for it.
  void reply_disk() {
    const AtDisk oldest = std::move(at_disk.front());
    at_disk.pop_front();
    oldest.then(oldest.work.run().good);
  }

  bool knows(const media::Media&) override { return knows_all; }

  bool knows_all = false;    // a command that touches them may be under way
  bool hold = false;         // answer when reply() is called
  bool abort_finds = false;  // Abort finds its command
  bool hold_disk = false;    // the disk is done when reply_disk() is called
  std::deque<Held> held;
  struct AtDisk {
    DiskWork work;
    std::function<void(bool good)> then;
  };
  std::deque<AtDisk> at_disk;
  std::vector<QueueRequest> requests;
  std::vector<Completion> completions;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> shadow_calls;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> deallocated;  // units
  nvme::Status shadow_status = nvme::Status::success;
  IoCounters io;
  int feature_changes = 0;
  Arbitration arbitration;
  Coalescing coalescing;

 private:
  static nvme::Status verdict(Controller& controller, const QueueRequest& request) {
    std::uint64_t iova = 0, bytes = 0;
    if (request.op == QueueOp::create_cq) iova = request.cq.iova, bytes = request.cq.entries * 16ull;
    if (request.op == QueueOp::create_sq) iova = request.sq.iova, bytes = request.sq.entries * 64ull;
    if (bytes == 0) return nvme::Status::success;
    memory::AddressSpace::Reader reader(controller.address_space());
    reader.enter();
    const bool mapped = reader.translate(iova, bytes, request.op == QueueOp::create_cq) != nullptr;
    reader.leave();
    return mapped ? nvme::Status::success : nvme::Status::data_transfer_error;
  }
};

struct DeviceOptions {
  SubsystemConfig subsystem;
  ControllerConfig controller;
  unsigned controllers = 1;
  std::vector<HostRights> rights;  // of the first controllers' hosts; the others may do everything

  DeviceOptions() {
    subsystem.namespaces = {NamespaceConfig{.size_bytes = 1 << 20}};
    subsystem.spare_capacity_bytes = 4 << 20;
    controller.max_queue_pairs = 8;
    controller.max_queue_entries = 256;
    controller.interrupt_vectors = 9;
  }
};

class TestDevice {
 public:
  explicit TestDevice(const DeviceOptions& options = {}) : guest(kGuestBytes), subsystem(options.subsystem, 1, 512) {
    for (unsigned i = 0; i < options.controllers; ++i) {
      ControllerRole role;
      if (i < options.rights.size()) role.rights = options.rights[i];
      all.push_back(std::make_unique<Controller>(subsystem, options.controller, host, role));
      all.back()->address_space().map(kGuestBase, kGuestBytes, guest.data());
    }
  }

  Controller& controller(unsigned i = 0) { return *all[i]; }
  std::uint32_t csts(unsigned i = 0) {
    return static_cast<std::uint32_t>(controller(i).read_register(nvme::kRegCsts, 4));
  }
  void write(std::uint32_t offset, std::uint64_t value, unsigned size = 4) {
    controller().write_register(offset, size, value);
  }
  std::uint64_t poll(unsigned i = 0) { return controller(i).poll(now_ns); }

  static std::uint32_t cc(nvme::Cc fields = {}) {
    fields.iosqes = nvme::kIoSqEntryBytesLog2;
    fields.iocqes = nvme::kIoCqEntryBytesLog2;
    return nvme::encode_cc(fields);
  }
  // Writes what a driver writes; the caller polls.
  void start_enable(unsigned i = 0, nvme::Cc fields = {}) {
    Controller& c = controller(i);
    c.write_register(nvme::kRegAqa, 4, nvme::encode_aqa({.asqs = 31, .acqs = 31}));
    c.write_register(nvme::kRegAsq, 8, kAdminSq);
    c.write_register(nvme::kRegAcq, 8, kAdminCq);
    fields.en = true;
    c.write_register(nvme::kRegCc, 4, cc(fields));
  }
  void enable(unsigned i = 0) {
    start_enable(i);
    poll(i);
  }
  void disable(unsigned i = 0) {
    controller(i).write_register(nvme::kRegCc, 4, cc());
    poll(i);
  }

  // Starts a command; its completion, if it has come, is the last of host.completions.
  void start(nvme::Sqe sqe, std::uint16_t cid, unsigned i = 0) {
    sqe.cid = cid;
    controller(i).execute_admin(sqe, now_ns);
  }
  // Runs a command that completes at once.
  FakeHost::Completion run(nvme::Sqe sqe, unsigned i = 0) {
    const std::size_t before = host.completions.size();
    start(sqe, ++next_cid_, i);
    for (std::size_t n = before; n < host.completions.size(); ++n) {
      if (host.completions[n].cid == next_cid_) return host.completions[n];
    }
    return {0xFFFF, 0x7FFF, 0};  // not completed: equals no status that a test expects
  }

  static nvme::Sqe command(nvme::AdminOpcode opcode, std::uint32_t nsid = 0) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.nsid = nsid;
    return sqe;
  }
  // Points the command to `bytes` bytes at kData.
  void attach_buffer(nvme::Sqe& sqe, std::uint64_t bytes) {
    sqe.prp1 = kData;
    sqe.prp2 = bytes <= kPage ? 0 : kData + kPage;
    if (bytes <= 2 * kPage) return;
    sqe.prp2 = kList;
    for (std::uint64_t page = 1; page * kPage < bytes; ++page) {
      const std::uint64_t entry = kData + page * kPage;
      std::memcpy(at(kList + (page - 1) * 8), &entry, 8);
    }
  }
  std::byte* at(std::uint64_t iova) { return guest.data() + (iova - kGuestBase); }
  template <class T>
  T data(std::uint64_t offset = 0) {
    T value;
    std::memcpy(&value, at(kData + offset), sizeof(T));
    return value;
  }
  template <class T>
  void put(const T& value) {
    std::memcpy(at(kData), &value, sizeof(T));
  }

  FakeHost::Completion identify(nvme::Cns cns, std::uint32_t nsid = 0, std::uint16_t cntid = 0, std::uint8_t csi = 0,
                                unsigned i = 0) {
    nvme::Sqe sqe = command(nvme::AdminOpcode::identify, nsid);
    nvme::encode_identify({.cns = static_cast<std::uint8_t>(cns), .cntid = cntid, .csi = csi}, sqe);
    attach_buffer(sqe, kPage);
    std::memset(at(kData), 0xEE, kPage);
    return run(sqe, i);
  }
  FakeHost::Completion log_page(nvme::LogPage lid, std::uint32_t bytes, nvme::GetLogPage fields = {},
                                std::uint32_t nsid = nvme::kNsidBroadcast, unsigned i = 0) {
    nvme::Sqe sqe = command(nvme::AdminOpcode::get_log_page, nsid);
    fields.lid = static_cast<std::uint8_t>(lid);
    fields.numd = bytes / 4 - 1;
    nvme::encode_get_log_page(fields, sqe);
    attach_buffer(sqe, bytes);
    return run(sqe, i);
  }
  FakeHost::Completion set_feature(nvme::Feature feature, std::uint32_t cdw11, bool save = false,
                                   std::uint32_t nsid = 0) {
    nvme::Sqe sqe = command(nvme::AdminOpcode::set_features, nsid);
    sqe.cdw10 = static_cast<std::uint32_t>(feature) | (save ? nvme::kFeatureSave : 0);
    sqe.cdw11 = cdw11;
    attach_buffer(sqe, 512);
    return run(sqe);
  }
  FakeHost::Completion get_feature(nvme::Feature feature, unsigned select = 0, std::uint32_t cdw11 = 0,
                                   std::uint32_t nsid = 0) {
    nvme::Sqe sqe = command(nvme::AdminOpcode::get_features, nsid);
    sqe.cdw10 = static_cast<std::uint32_t>(feature) | (select << 8);
    sqe.cdw11 = cdw11;
    attach_buffer(sqe, 512);
    return run(sqe);
  }
  FakeHost::Completion create_cq(std::uint16_t qid, std::uint16_t entries = 16) {
    nvme::Sqe sqe = command(nvme::AdminOpcode::create_io_cq);
    nvme::encode_create_io_cq({.qid = qid, .qsize = static_cast<std::uint16_t>(entries - 1)}, sqe);
    sqe.prp1 = kData;
    return run(sqe);
  }
  FakeHost::Completion create_sq(std::uint16_t qid, std::uint16_t cqid, std::uint16_t entries = 16) {
    nvme::Sqe sqe = command(nvme::AdminOpcode::create_io_sq);
    nvme::encode_create_io_sq({.qid = qid, .qsize = static_cast<std::uint16_t>(entries - 1), .cqid = cqid}, sqe);
    sqe.prp1 = kData;
    return run(sqe);
  }
  FakeHost::Completion delete_queue(nvme::AdminOpcode opcode, std::uint16_t qid) {
    nvme::Sqe sqe = command(opcode);
    sqe.cdw10 = qid;
    return run(sqe);
  }

  static constexpr std::size_t kGuestBytes = 512 * kPage;
  memory::HostMemory guest;
  FakeHost host;
  Subsystem subsystem;
  std::vector<std::unique_ptr<Controller>> all;
  std::uint64_t now_ns = 1'000'000'000;

 private:
  std::uint16_t next_cid_ = 1000;
};

}  // namespace flashmob::controller::testing

// The NVMe half of the vfio-user fuzzer's hostile client: commands and doorbells in memory that it shares. One thread.
#pragma once

#include <array>

#include "fuzz/vfio_user_world.h"
#include "nvme/admin_command.h"
#include "nvme/command.h"
#include "nvme/opcode.h"

namespace flashmob::fuzz {

class HostileRings {
 public:
  static constexpr std::uint32_t kPageBytes = 4096;
  static constexpr std::uint32_t kPages = VfioUserFiles::kHostileBytes / kPageBytes;

  explicit HostileRings(SharedFile& file) : file_(file) {}

  // The doorbells, once the device has shown them.
  bool has_doorbells() const { return static_cast<bool>(doorbells_); }
  void map_doorbells(int fd) { doorbells_ = Doorbells(fd); }
  void ring(unsigned index, std::uint32_t value) const {
    if (doorbells_) doorbells_.ring(index, value);
  }
  // The controller was enabled: there are its admin queues, in the first two pages, and no others.
  void begin(std::uint32_t entries) {
    queues_ = {};
    queues_[0].entries = entries;
  }
  void create_queue(std::uint16_t qid, std::uint32_t entries, std::uint16_t flags = 0) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::create_io_cq);
    sqe.prp1 = (2u * qid + 1) * kPageBytes;
    const auto last = static_cast<std::uint16_t>(entries - 1);
    nvme::encode_create_io_cq({.qid = qid, .qsize = last, .ien = (flags & 1) != 0, .iv = qid}, sqe);
    sqe.cid = ++next_cid_;
    write_entry(0, sqe);
    sqe = {};
    sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::create_io_sq);
    sqe.prp1 = 2u * qid * kPageBytes;
    const std::uint16_t cqid = (flags & 2) != 0 ? 1 : qid;
    nvme::encode_create_io_sq({.qid = qid, .qsize = last, .qprio = static_cast<std::uint8_t>(flags & 3), .cqid = cqid},
                              sqe);
    sqe.cid = ++next_cid_;
    write_entry(0, sqe);
    ring_tail(0);
    queues_[qid] = {entries, 0, 0};
  }

  void command(std::uint8_t choice, Input& in) {
    nvme::Sqe sqe{};
    sqe.cid = ++next_cid_;
    if (choice < 32) return admin(choice, in, sqe);
    const unsigned qid = 1 + choice % 4u;
    constexpr nvme::NvmOpcode kOpcodes[] = {nvme::NvmOpcode::read,         nvme::NvmOpcode::write,
                                            nvme::NvmOpcode::write_zeroes, nvme::NvmOpcode::copy,
                                            nvme::NvmOpcode::flush,        nvme::NvmOpcode::compare,
                                            nvme::NvmOpcode::verify,       nvme::NvmOpcode::dataset_management};
    const std::uint8_t shape = in.byte();
    sqe.opcode = (shape & 8) != 0 && choice < 40 ? in.byte() : static_cast<std::uint8_t>(kOpcodes[shape % 8]);
    sqe.nsid = (shape & 16) != 0 ? in.byte() : kHostileNsid;
    if ((shape & 32) != 0) sqe.flags = in.byte();
    data(in, sqe);
    sqe.cdw10 = in.byte();
    sqe.cdw12 = (shape & 64) != 0 ? word(in) : in.byte() % 64u;
    if ((shape & 128) != 0) sqe.cdw11 = word(in);
    // As often as the queue takes it, where many are asked for.
    const unsigned times = choice < 48 ? 1u + in.byte() : 1;
    for (unsigned i = 0; i < times; ++i) {
      sqe.cid = ++next_cid_;
      write_entry(qid, sqe);
    }
    ring_tail(qid);
  }

  // Moves a completion queue's head on, over entries that were posted or that were not.
  void consume(std::uint8_t choice) {
    const unsigned qid = choice % 5u;
    Queue& queue = queues_[qid];
    if (queue.entries == 0) return;
    queue.head = (queue.head + 1 + choice / 16u) % queue.entries;
    ring(2 * qid + 1, queue.head);
  }

 private:
  static constexpr std::uint32_t kFirstDataPage = 10;  // behind five pairs of rings

  struct Queue {
    std::uint32_t entries = 0, tail = 0, head = 0;
  };

  void write_entry(unsigned qid, const nvme::Sqe& sqe) {
    Queue& queue = queues_[qid];
    const std::size_t at = 2 * qid * kPageBytes + queue.tail % (kPageBytes / sizeof(sqe)) * sizeof(sqe);
    if (file_.whole()) std::memcpy(file_.data() + at, &sqe, sizeof(sqe));
    queue.tail = queue.entries == 0 ? 0 : (queue.tail + 1) % queue.entries;
  }
  void ring_tail(unsigned qid) const { ring(2 * qid, queues_[qid].tail); }

  void admin(std::uint8_t choice, Input& in, nvme::Sqe& sqe) {
    using nvme::AdminOpcode;
    constexpr AdminOpcode kOpcodes[] = {AdminOpcode::format_nvm,
                                        AdminOpcode::format_nvm,
                                        AdminOpcode::identify,
                                        AdminOpcode::get_log_page,
                                        AdminOpcode::abort,
                                        AdminOpcode::set_features,
                                        AdminOpcode::get_features,
                                        AdminOpcode::delete_io_sq,
                                        AdminOpcode::delete_io_cq,
                                        AdminOpcode::create_io_cq,
                                        AdminOpcode::create_io_sq,
                                        AdminOpcode::async_event_request,
                                        AdminOpcode::namespace_management,
                                        AdminOpcode::keep_alive,
                                        AdminOpcode::namespace_attachment,
                                        AdminOpcode::doorbell_buffer_config};
    const std::uint8_t shape = in.byte();
    sqe.opcode = (shape & 128) != 0 ? in.byte() : static_cast<std::uint8_t>(kOpcodes[choice % 16]);
    sqe.nsid = (shape & 64) != 0 ? word(in) : shape % 4u;
    data(in, sqe);
    sqe.cdw10 = (shape & 32) != 0 ? word(in) : in.byte();
    sqe.cdw11 = (shape & 16) != 0 ? word(in) : in.byte();
    if ((shape & 8) != 0) sqe.cdw12 = word(in);
    write_entry(0, sqe);
    ring_tail(0);
  }

  // Mostly whole pages of its own, sometimes anything.
  void data(Input& in, nvme::Sqe& sqe) {
    const auto address = [&](std::uint8_t choice) -> std::uint64_t {
      if (choice >= 240) return number(in);
      const std::uint64_t page = kFirstDataPage + choice % (kPages - kFirstDataPage);
      return page * kPageBytes + (choice >= 200 ? in.byte() * 4u : 0);
    };
    sqe.prp1 = address(in.byte());
    sqe.prp2 = address(in.byte());
  }

  SharedFile& file_;
  Doorbells doorbells_;
  std::array<Queue, 5> queues_{};
  std::uint16_t next_cid_ = 0;
};

}  // namespace flashmob::fuzz

// A scripted NVMe function for the driver's own tests: real registers, rings and PRPs, and every fault a test asks for.
//
// It answers admin commands as `on_admin` says and those of queues that were created so as `on_io` says (success by
// default). One thread: tick() is the device's turn, and waiter() makes a driver call it while it waits, on a clock of
// its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "driver/nvme_driver.h"
#include "nvme/opcode.h"
#include "nvme/registers.h"

namespace flashmob::driver {

class FakeNvme final : public PciDevice {
 public:
  using Answer = std::optional<AdminResult>;  // none: silence

  // What the function claims and how it misbehaves.
  nvme::Cap cap{.mqes = 255, .cqr = true, .to = 4, .css = nvme::kCapCssNvm};
  unsigned ready_ticks = 3;  // ticks from CC.EN to CSTS.RDY, either way
  bool never_ready = false;
  bool never_disabled = false;
  bool fatal_on_enable = false;
  unsigned shutdown_ticks = 2;
  bool never_shut_down = false;
  bool gone = false;  // every register reads as all ones
  std::function<Answer(const nvme::Sqe&)> on_admin = [](const nvme::Sqe&) { return AdminResult{0, 0}; };
  std::function<Answer(const nvme::Sqe&)> on_io = [](const nvme::Sqe&) { return AdminResult{0, 0}; };
  std::uint64_t iova_offset = 0;  // of what choose_iova() answers from the memory's address
  std::uint32_t vectors = 16;
  bool resettable = false;  // offers a function level reset

  // What happened.
  std::vector<std::pair<std::uint32_t, std::uint64_t>> register_writes;
  std::vector<nvme::Sqe> admin_commands;
  std::vector<nvme::Sqe> io_commands;
  std::uint64_t now_ns = 1'000;
  std::uint64_t pump_ns = 10'000;
  unsigned wakes = 0;
  unsigned resets = 0;
  std::atomic<std::uint32_t> sleeping_flag{0};

  Waiter waiter() {
    return {[this] {
              now_ns += pump_ns;
              tick();
            },
            [this] { return now_ns; }};
  }

  void tick() {
    follow_enable();
    follow_shutdown();
    if (!ready_ || fatal_) return;
    run_queue(0, on_admin, admin_commands);
    for (const auto& [qid, ring] : std::map(rings_)) {
      if (qid != 0 && ring.sq_entries != 0) run_queue(qid, on_io, io_commands);
    }
  }

  void set_fatal() { fatal_ = true; }
  std::size_t mappings() const { return mappings_.size(); }
  std::uint32_t cc() const { return cc_; }
  // True if the driver has made all of [iova, iova + bytes) reachable.
  bool reaches(std::uint64_t iova, std::uint64_t bytes) { return at(iova, bytes) != nullptr; }

  // Posts one completion to a queue, the admin queue by default, whoever asked for it.
  void complete(std::uint16_t cid, AdminResult result, std::uint16_t qid = 0) {
    Ring& ring = rings_[qid];
    nvme::Cqe entry{};
    entry.dw0 = result.dw0;
    entry.sqhd = static_cast<std::uint16_t>(ring.head);
    entry.cid = cid;
    entry.status_phase = static_cast<std::uint16_t>((result.status_field << 1) | ring.phase);
    std::byte* const to = at(ring.cq + ring.tail * sizeof entry, sizeof entry);
    if (to == nullptr) return fail_transfer();
    std::memcpy(to, &entry, sizeof entry);
    if (++ring.tail == ring.cq_entries) {
      ring.tail = 0;
      ring.phase ^= 1;
    }
  }

  // Moves `data` to or from the buffer that the command's PRPs describe, as a device would: page by page.
  void transfer(const nvme::Sqe& sqe, std::span<std::byte> data, bool to_host) {
    constexpr std::uint64_t kPage = 4096;
    std::uint64_t page = sqe.prp1;
    std::uint64_t list = 0;
    bool first = true;
    while (!data.empty()) {
      const std::size_t piece = std::min<std::size_t>(data.size(), kPage - page % kPage);
      std::byte* const host = at(page, piece);
      if (host == nullptr) return fail_transfer();
      std::memcpy(to_host ? host : data.data(), to_host ? data.data() : host, piece);
      data = data.subspan(piece);
      if (data.empty()) break;
      if (first && data.size() <= kPage) {
        page = sqe.prp2;
      } else {
        if (first) list = sqe.prp2;
        // The last slot of a list page chains to the next page while more than one page of data is left.
        if (list % kPage == kPage - 8 && data.size() > kPage) list = load_list_entry(list);
        page = load_list_entry(list);
        list += 8;
      }
      first = false;
      if (page % kPage != 0) return fail_transfer();
    }
  }
  bool transfer_failed() const { return transfer_failed_; }

  // --- PciDevice ---
  std::uint32_t read32(std::uint32_t offset) override {
    if (gone) return 0xFFFFFFFF;
    switch (offset) {
      case nvme::kRegCc:
        return cc_;
      case nvme::kRegCsts:
        return nvme::encode_csts({.rdy = ready_, .cfs = fatal_, .shst = shutdown_status_});
      case nvme::kRegAqa:
        return aqa_;
      default:
        return 0;
    }
  }
  std::uint64_t read64(std::uint32_t offset) override {
    if (gone) return ~std::uint64_t{0};
    return offset == nvme::kRegCap ? nvme::encode_cap(cap) : 0;
  }
  void write32(std::uint32_t offset, std::uint32_t value) override {
    register_writes.emplace_back(offset, value);
    if (offset == nvme::kRegAqa) aqa_ = value;
    if (offset != nvme::kRegCc) return;
    const nvme::Cc before = nvme::decode_cc(std::exchange(cc_, value));
    const nvme::Cc after = nvme::decode_cc(value);
    if (before.en != after.en) countdown_ = ready_ticks;
    if (before.shn == nvme::kCcShnNone && after.shn != nvme::kCcShnNone) {
      shutdown_status_ = nvme::kCstsShstOccurring;
      shutdown_countdown_ = shutdown_ticks;
    }
  }
  void write64(std::uint32_t offset, std::uint64_t value) override {
    register_writes.emplace_back(offset, value);
    if (offset == nvme::kRegAsq) asq_ = value;
    if (offset == nvme::kRegAcq) acq_ = value;
  }
  std::uint32_t* doorbells() override { return doorbells_.data(); }
  std::size_t doorbell_bytes() const override { return doorbells_.size() * sizeof(std::uint32_t); }
  const std::atomic<std::uint32_t>* sleeping() override { return &sleeping_flag; }
  void wake() override { ++wakes; }
  std::uint64_t choose_iova(const void* host, std::size_t) override {
    return reinterpret_cast<std::uint64_t>(host) + iova_offset;
  }
  void dma_map(std::uint64_t iova, void* host, std::size_t bytes) override {
    mappings_[iova] = {static_cast<std::byte*>(host), bytes};
  }
  void dma_unmap(std::uint64_t iova, std::size_t bytes) override {
    const auto at = mappings_.find(iova);
    if (at == mappings_.end() || at->second.size() != bytes) return fail_transfer();
    mappings_.erase(at);
  }
  void set_interrupt(std::uint16_t, std::function<void()>) override {}
  std::uint32_t interrupt_vectors() const override { return vectors; }
  bool reset() override {
    if (!resettable) return false;
    ++resets;
    forget_queues();
    cc_ = aqa_ = 0;
    ready_ = fatal_ = false;
    shutdown_status_ = nvme::kCstsShstNormal;
    return true;
  }

 private:
  void follow_enable() {
    const bool enable = nvme::decode_cc(cc_).en;
    if (enable == (ready_ || fatal_) || (countdown_ > 0 && --countdown_ > 0)) return;
    if (enable) {
      if (fatal_on_enable) fatal_ = true;
      if (never_ready || fatal_on_enable) return;
      ready_ = true;
      rings_[0] = {asq_, nvme::decode_aqa(aqa_).asqs + 1u, acq_, nvme::decode_aqa(aqa_).acqs + 1u};
    } else if (!never_disabled) {
      ready_ = fatal_ = false;
      shutdown_status_ = nvme::kCstsShstNormal;
      forget_queues();
    }
  }
  void forget_queues() {
    rings_.clear();
    std::fill(doorbells_.begin(), doorbells_.end(), 0);
  }
  void follow_shutdown() {
    if (shutdown_status_ != nvme::kCstsShstOccurring || never_shut_down || --shutdown_countdown_ > 0) return;
    shutdown_status_ = nvme::kCstsShstComplete;
  }
  void run_queue(std::uint16_t qid, const std::function<Answer(const nvme::Sqe&)>& answer_to,
                 std::vector<nvme::Sqe>& seen) {
    const std::uint32_t tail = doorbells_[std::size_t{qid} << (cap.dstrd + 1)];
    for (Ring& ring = rings_[qid]; ring.head != tail;) {
      nvme::Sqe sqe;
      const std::byte* const from = at(ring.sq + ring.head * sizeof sqe, sizeof sqe);
      if (from == nullptr) return fail_transfer();
      std::memcpy(&sqe, from, sizeof sqe);
      if (++ring.head == ring.sq_entries) ring.head = 0;
      seen.push_back(sqe);
      const Answer answer = answer_to(sqe);
      if (!answer) continue;
      if (qid == 0 && answer->status_field == 0) follow_queues(sqe);
      complete(sqe.cid, *answer, qid);
    }
  }
  void follow_queues(const nvme::Sqe& sqe) {
    const auto qid = static_cast<std::uint16_t>(sqe.cdw10);
    const std::uint32_t entries = (sqe.cdw10 >> 16) + 1;
    switch (static_cast<nvme::AdminOpcode>(sqe.opcode)) {
      case nvme::AdminOpcode::create_io_cq:
        rings_[qid] = {0, 0, sqe.prp1, entries};
        break;
      case nvme::AdminOpcode::create_io_sq:
        rings_[qid].sq = sqe.prp1;
        rings_[qid].sq_entries = entries;
        break;
      case nvme::AdminOpcode::delete_io_cq:
        rings_.erase(qid);
        doorbells_[std::size_t{qid} << (cap.dstrd + 1)] = 0;
        break;
      default:
        break;
    }
  }
  // Where the host has what lies at [iova, iova + bytes); nullptr where the driver has not made all of it reachable.
  std::byte* at(std::uint64_t iova, std::uint64_t bytes) {
    auto found = mappings_.upper_bound(iova);
    if (found == mappings_.begin()) return nullptr;
    --found;
    const std::uint64_t offset = iova - found->first;
    return offset + bytes <= found->second.size() ? found->second.data() + offset : nullptr;
  }
  std::uint64_t load_list_entry(std::uint64_t iova) {
    std::uint64_t entry = 0;
    if (const std::byte* const from = at(iova, sizeof entry)) {
      std::memcpy(&entry, from, sizeof entry);
    } else {
      fail_transfer();
    }
    return entry;
  }
  void fail_transfer() { transfer_failed_ = true; }

  std::uint32_t cc_ = 0;
  std::uint32_t aqa_ = 0;
  std::uint64_t asq_ = 0;
  std::uint64_t acq_ = 0;
  bool ready_ = false;
  bool fatal_ = false;
  std::uint8_t shutdown_status_ = nvme::kCstsShstNormal;
  unsigned countdown_ = 0;
  unsigned shutdown_countdown_ = 0;
  struct Ring {
    std::uint64_t sq = 0;
    std::uint32_t sq_entries = 0;
    std::uint64_t cq = 0;
    std::uint32_t cq_entries = 0;
    std::uint32_t head = 0;
    std::uint32_t tail = 0;
    std::uint32_t phase = 1;
  };
  std::map<std::uint16_t, Ring> rings_;  // queue pairs by identifier
  bool transfer_failed_ = false;
  std::vector<std::uint32_t> doorbells_ = std::vector<std::uint32_t>(64);
  std::map<std::uint64_t, std::span<std::byte>> mappings_;  // by iova
};

}  // namespace flashmob::driver

// A scripted NVMe function for the driver's own tests: real registers, rings and PRPs, and every fault a test asks for.
//
// It answers admin commands as `on_admin` says (success by default) and knows no I/O. One thread: tick() is the
// device's turn, and waiter() makes a driver call it while it waits, on a clock of its own.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "driver/nvme_driver.h"
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

  // What happened.
  std::vector<std::pair<std::uint32_t, std::uint64_t>> register_writes;
  std::vector<nvme::Sqe> admin_commands;
  std::uint64_t now_ns = 1'000;
  std::uint64_t pump_ns = 10'000;
  unsigned wakes = 0;
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
    if (ready_ && !fatal_) run_admin_queue();
  }

  void set_fatal() { fatal_ = true; }
  std::size_t mappings() const { return mappings_.size(); }
  std::uint32_t cc() const { return cc_; }
  // True if the driver has made all of [iova, iova + bytes) reachable.
  bool reaches(std::uint64_t iova, std::uint64_t bytes) const {
    auto at = mappings_.upper_bound(iova);
    return at != mappings_.begin() && (--at, iova - at->first + bytes <= at->second);
  }

  // Posts one completion to the admin queue, whoever asked for it.
  void complete(std::uint16_t cid, AdminResult result) {
    nvme::Cqe entry{};
    entry.dw0 = result.dw0;
    entry.sqhd = static_cast<std::uint16_t>(sq_head_);
    entry.cid = cid;
    entry.status_phase = static_cast<std::uint16_t>((result.status_field << 1) | phase_);
    const std::uint64_t at = acq_ + cq_tail_ * sizeof entry;
    if (!reaches(at, sizeof entry)) return fail_transfer();
    std::memcpy(reinterpret_cast<void*>(at), &entry, sizeof entry);
    if (++cq_tail_ == nvme::decode_aqa(aqa_).acqs + 1u) {
      cq_tail_ = 0;
      phase_ ^= 1;
    }
  }

  // Moves `data` to or from the buffer that the command's PRPs describe, as a device would: page by page.
  void transfer(const nvme::Sqe& sqe, std::span<std::byte> data, bool to_host) {
    constexpr std::uint64_t kPage = 4096;
    std::uint64_t at = sqe.prp1;
    std::uint64_t list = 0;
    bool first = true;
    while (!data.empty()) {
      const std::size_t piece = std::min<std::size_t>(data.size(), kPage - at % kPage);
      if (!reaches(at, piece)) return fail_transfer();
      auto* host = reinterpret_cast<std::byte*>(at);
      std::memcpy(to_host ? host : data.data(), to_host ? data.data() : host, piece);
      data = data.subspan(piece);
      if (data.empty()) break;
      if (first && data.size() <= kPage) {
        at = sqe.prp2;
      } else {
        if (first) list = sqe.prp2;
        // The last slot of a list page chains to the next page while more than one page of data is left.
        if (list % kPage == kPage - 8 && data.size() > kPage) list = load_list_entry(list);
        at = load_list_entry(list);
        list += 8;
      }
      first = false;
      if (at % kPage != 0) return fail_transfer();
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
  const std::atomic<std::uint32_t>* sleeping() override { return &sleeping_flag; }
  void wake() override { ++wakes; }
  void dma_map(std::uint64_t iova, void*, std::size_t bytes) override { mappings_[iova] = bytes; }
  void dma_unmap(std::uint64_t iova, std::size_t bytes) override {
    const auto at = mappings_.find(iova);
    if (at == mappings_.end() || at->second != bytes) return fail_transfer();
    mappings_.erase(at);
  }
  void set_interrupt(std::uint16_t, std::function<void()>) override {}

 private:
  void follow_enable() {
    const bool enable = nvme::decode_cc(cc_).en;
    if (enable == (ready_ || fatal_) || (countdown_ > 0 && --countdown_ > 0)) return;
    if (enable) {
      if (fatal_on_enable) fatal_ = true;
      if (never_ready || fatal_on_enable) return;
      ready_ = true;
      sq_head_ = cq_tail_ = 0;
      phase_ = 1;
    } else if (!never_disabled) {
      ready_ = fatal_ = false;
      shutdown_status_ = nvme::kCstsShstNormal;
      doorbells_[0] = doorbells_[1] = 0;
    }
  }
  void follow_shutdown() {
    if (shutdown_status_ != nvme::kCstsShstOccurring || never_shut_down || --shutdown_countdown_ > 0) return;
    shutdown_status_ = nvme::kCstsShstComplete;
  }
  void run_admin_queue() {
    while (sq_head_ != doorbells_[0]) {
      nvme::Sqe sqe;
      const std::uint64_t at = asq_ + sq_head_ * sizeof sqe;
      if (!reaches(at, sizeof sqe)) return fail_transfer();
      std::memcpy(&sqe, reinterpret_cast<const void*>(at), sizeof sqe);
      if (++sq_head_ == nvme::decode_aqa(aqa_).asqs + 1u) sq_head_ = 0;
      admin_commands.push_back(sqe);
      if (const Answer answer = on_admin(sqe)) complete(sqe.cid, *answer);
    }
  }
  std::uint64_t load_list_entry(std::uint64_t at) {
    std::uint64_t entry = 0;
    if (reaches(at, sizeof entry)) {
      std::memcpy(&entry, reinterpret_cast<const void*>(at), sizeof entry);
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
  std::uint32_t sq_head_ = 0;
  std::uint32_t cq_tail_ = 0;
  std::uint32_t phase_ = 1;
  bool transfer_failed_ = false;
  std::vector<std::uint32_t> doorbells_ = std::vector<std::uint32_t>(64);
  std::map<std::uint64_t, std::uint64_t> mappings_;  // iova -> bytes
};

}  // namespace flashmob::driver

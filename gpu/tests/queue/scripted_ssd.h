// An NVMe SSD reduced to its queues, for thousands of short runs: it follows the rules of the rings to the letter,
// checks that the host does, and is as unkind as they allow. Fetches come late and in pieces, answers out of order;
// some blocks are bad; some answers come very late or never.
//
// One namespace of 512-byte blocks (index 0), of which every fourth is bad. It is the World of a FibreDevice and hands
// out the memory that queues and buffers lie in. Deterministic by its seed; for one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "flashmob/gpu/simt/world.h"
#include "host/attach/ssd_queues.h"

namespace flashmob::gpu::testing {

struct Unkindness {
  std::uint64_t shortest_ns = 20;
  std::uint64_t longest_ns = 1'500;
  std::uint32_t late_one_in = 0;  // 0: none; else answered after late_ns
  std::uint64_t late_ns = 60'000;
  std::uint32_t lost_one_in = 0;  // answered when answer_lost() says so
};

class ScriptedSsd final : public simt::World, public QueueMemory {
 public:
  static constexpr std::uint32_t kBlockBytes = 512;
  static constexpr std::uint64_t kBlocks = 256;
  static constexpr bool is_bad(std::uint64_t lba) { return lba % 4 == 3; }

  ScriptedSsd();
  // Forgets everything, memory and queues included.
  void reset(std::uint64_t seed, const Unkindness& unkindness);
  SsdRef attach(const QueueLayout& layout);
  std::byte* allocate(std::size_t bytes) override;

  std::uint64_t now_ns() override { return now_ns_; }
  bool pass(std::uint64_t to_ns) override;
  std::uint64_t next_event_ns() override;
  // Called now and then while time passes: host code beside the SSD.
  std::function<void()> host;

  Queue& queue(std::uint32_t index) { return queues_[index]; }
  void set_abort(bool raised) { abort_->value = raised ? 1 : 0; }
  std::byte* block(std::uint64_t lba) { return media_.data() + lba * kBlockBytes; }
  void answer_lost();
  std::uint64_t fetched() const { return fetched_; }
  std::uint64_t posted() const { return posted_; }
  std::uint64_t lost() const { return lost_; }
  std::uint64_t late() const { return late_; }
  // Everything it was asked has been answered, but for what is lost.
  bool quiet() const { return fetched_ == posted_ + lost_; }
  // What the host has done against the rules.
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  static constexpr std::uint64_t kNever = UINT64_MAX;
  struct Pending {
    std::uint64_t due_ns;
    std::uint32_t queue;
    nvme::Sqe sqe;
  };
  struct Rings {
    std::uint32_t sq_doorbell = 0;
    std::uint32_t cq_doorbell = 0;
    std::uint32_t sq_head = 0;
    std::uint32_t sq_seen = 0;
    std::uint64_t fetch_ns = kNever;
    std::uint32_t cq_tail = 0;
    std::uint32_t cq_head = 0;
    std::uint32_t phase = 1;
    std::vector<bool> in_use;  // by command identifier
    std::uint32_t in_flight = 0;
  };
  bool look(std::uint32_t index);
  bool fetch(std::uint32_t index);
  bool post(const Pending& pending);
  std::uint16_t execute(const nvme::Sqe& sqe);
  void violate(std::uint32_t index, const std::string& what);

  Rng rng_;
  Unkindness unkindness_;
  std::vector<std::byte> arena_;
  std::size_t arena_used_ = 0;
  std::vector<std::byte> media_;
  std::uint64_t now_ns_ = 1;
  std::uint32_t queue_count_ = 0;
  Queue* queues_ = nullptr;
  simt::Word<std::uint32_t, simt::Scope::system>* abort_ = nullptr;
  std::vector<Rings> rings_;
  std::vector<Pending> pending_;
  std::uint64_t fetched_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t late_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace flashmob::gpu::testing

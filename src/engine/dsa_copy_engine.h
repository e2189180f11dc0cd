// A copy engine that hands its copies to Intel's Data Streaming Accelerator, many in a batch, several batches at once.
//
// The scheme is that of SwarmIO (figure 7 of the paper): copies gather in a batch, which is issued when it is full,
// when the device has nothing else to do, or when its first copy has waited for a time-out; the worker goes on
// meanwhile and looks for finished batches when it polls. What the device cannot do, the CPU does, and it is counted: a
// copy that met a missing page is finished, one that failed or was never taken is made. A device that does not answer
// in time, or that answers with nothing but errors, is given up: its queue is closed first, so that it writes no more,
// and the CPU makes all copies from then on.
//
// One per worker, for its thread. Nothing allocates after construction.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "engine/copy_engine.h"
#include "engine/dsa_queue.h"

namespace flashmob::engine::dsa {

struct Options {
  std::uint32_t batch_copies = 16;  // 1...kMaxBatchCopies
  std::uint32_t batches = 32;  // in the queue at once, at most; 1...kMaxBatches
  // An incomplete batch is issued when its first copy is so old.
  std::uint64_t issue_timeout_ns = 2'000;
  // A batch that a full queue has not taken for so long is copied by the CPU.
  std::uint64_t refusal_timeout_ns = 100'000;
  // A batch that is not done after so long is lost, and the device given up.
  std::uint64_t wait_timeout_ns = 50'000'000;
};

class DsaCopyEngine final : public CopyEngine {
 public:
  static constexpr std::uint32_t kMaxBatchCopies = 16;
  static constexpr std::uint32_t kMaxBatches = 32;
  static_assert(kMaxBatchCopies * kMaxBatches == kMaxUnpolled);

  DsaCopyEngine(std::unique_ptr<WorkQueue> queue, const Options& options = {});
  ~DsaCopyEngine() override;

  bool submit(CopyRun& run, std::size_t count, bool streaming) override;
  std::size_t poll(std::span<std::uint32_t> done) override;
  std::string describe() const override;
  CopyCounters counters() const override { return counters_; }

 private:
  struct Batch;

  Batch& batch(std::uint64_t number);
  bool is_idle() const { return issued_ == oldest_; }
  // Every batch is the device's or waits for it: none can be filled.
  bool is_full() const { return sealed_ - oldest_ == kMaxBatches; }
  void add(const Copy& copy, bool streaming, std::uint64_t now_ns);
  void seal(std::uint64_t now_ns);
  void issue_sealed(std::uint64_t now_ns);
  bool issue(Batch& one, std::uint64_t now_ns);
  void retire(std::uint64_t now_ns);
  void finish(Batch& one);
  bool finish_copy(const Copy& copy, const Completion& record);
  void copy_by_cpu(const Copy& copy);
  void copy_batch_by_cpu(Batch& one);
  void give_up();
  void hand_back(std::uint32_t token) { done_[done_count_++ % done_.size()] = token; }

  Options options_;
  std::unique_ptr<WorkQueue> queue_;
  Clock clock_ = Clock::real();  // time-outs are the hardware's, whatever the device's clock
  CopyFunction cpu_copy_;
  std::unique_ptr<CopyEngine> cpu_;  // makes all copies once the device is given up
  // Batches by number: [oldest_, issued_) are the device's, [issued_, sealed_) wait for room in its queue, and number
  // sealed_ is being filled.
  std::unique_ptr<Batch[]> batches_;
  std::uint64_t oldest_ = 0;
  std::uint64_t issued_ = 0;
  std::uint64_t sealed_ = 0;
  std::uint32_t bad_in_a_row_ = 0;
  bool given_up_ = false;
  std::array<std::uint32_t, kMaxUnpolled> done_{};
  std::size_t done_count_ = 0;
  std::size_t done_taken_ = 0;
  std::size_t unpolled_ = 0;
  CopyCounters counters_;
};

// On a queue of this machine. Throws ConfigError where none can be had.
std::unique_ptr<CopyEngine> make_copy_engine();

}  // namespace flashmob::engine::dsa

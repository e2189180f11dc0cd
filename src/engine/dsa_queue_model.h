// A work queue in software, for tests: executes descriptors as Intel's Data Streaming Accelerator does.
//
// Source: Intel DSA Architecture Specification (341204): descriptor formats, completion records, batch, page faults.
// Checks what the device checks, writes records only where the device does, and can be told to meet missing pages, to
// report errors, to take its time, never to finish, and to be full. Executes at once, when run() is called, or on a
// thread of its own. Any thread may call.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/dsa_queue.h"

namespace flashmob::engine::dsa {

enum class Pace { at_once, when_told, own_thread };

// What happens to one memory move.
struct Fate {
  std::optional<Status> error;               // reported, nothing copied
  std::optional<std::uint32_t> fault_after;  // bytes copied before a page is missing
  bool backwards = false;                    // counted from the end of the buffers
  std::chrono::microseconds delay{0};        // before it is executed
};

class ModelQueue final : public WorkQueue {
 public:
  explicit ModelQueue(Pace pace, QueueInfo info = {"wq0.0", true, 32, 1024, 2 << 20})
      : pace_(pace), info_(std::move(info)) {
    if (pace_ == Pace::own_thread) thread_ = std::thread([this] { serve(); });
  }
  ~ModelQueue() override { close(); }

  // --- What the device is to do; set before it is used ---
  std::function<Fate(const Descriptor&)> fate;
  // Descriptors that are taken and then forgotten, counted from the first one submitted.
  std::function<bool(std::uint64_t number)> never_finishes;
  // Answers "full" as long as this is above 0, counting down; negative: for ever.
  std::atomic<int> refuse{0};

  // --- What it saw ---
  std::atomic<std::uint64_t> submitted{0};
  std::atomic<std::uint64_t> refused{0};
  std::atomic<std::uint64_t> moves{0};       // memory moves that succeeded
  std::atomic<std::uint64_t> overflows{0};   // descriptors that a dedicated queue had no room for, and dropped
  std::atomic<bool> closed{false};

  const QueueInfo& info() const override { return info_; }

  bool submit(const Descriptor& descriptor) override {
    {
      const std::lock_guard lock(mutex_);
      const int refusing = refuse.load();
      if (refusing != 0 || (info_.shared && waiting_.size() >= info_.size)) {
        if (refusing > 0) refuse.store(refusing - 1);
        ++refused;
        return false;
      }
      const std::uint64_t number = submitted++;
      if (never_finishes && never_finishes(number)) return true;
      if (waiting_.size() >= info_.size)
        ++overflows;
      else
        waiting_.push_back(descriptor);
    }
    if (pace_ == Pace::at_once) run();
    wake_.notify_one();
    return true;
  }

  // Executes what is waiting, oldest first, at most `most` of them; returns how many.
  std::size_t run(std::size_t most = SIZE_MAX) {
    std::size_t count = 0;
    const std::lock_guard executing(executing_);
    for (; count < most; ++count) {
      Descriptor next;
      {
        const std::lock_guard lock(mutex_);
        if (waiting_.empty()) break;
        next = waiting_.front();
        waiting_.pop_front();
      }
      execute(next);
    }
    return count;
  }

  void close() override {
    {
      const std::lock_guard lock(mutex_);
      closed = true;
      waiting_.clear();
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
    const std::lock_guard executing(executing_);
  }

 private:
  void serve() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return closed || !waiting_.empty(); });
        if (closed) return;
      }
      run(1);
    }
  }

  static void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

  // The record's other fields first, its status last.
  static void report(std::uint64_t address, Status status, const Completion& rest, std::uint8_t extra = 0) {
    Completion& record = *static_cast<Completion*>(pointer(address));
    record.result = rest.result;
    record.completed = rest.completed;
    record.fault_address = rest.fault_address;
    std::atomic_ref<std::uint8_t>(record.status)
        .store(static_cast<std::uint8_t>(static_cast<std::uint8_t>(status) | extra), std::memory_order_release);
  }

  // The status of a descriptor that the device would not even start.
  Status check(const Descriptor& d) const {
    constexpr std::uint32_t kKnown = kFlagRecordAddressValid | kFlagRequestRecord | kFlagCacheControl;
    if ((d.flags() & ~kKnown) != 0) return Status::invalid_flags;
    const bool writes_records = (d.flags() & kFlagRecordAddressValid) != 0 && d.record != 0 && d.record % 32 == 0;
    if (!writes_records || d.reserved != 0 || d.interrupt_handle != 0) return Status::invalid_flags;
    if (d.opcode() == Opcode::batch)
      return d.size >= kMinBatch && d.size <= info_.max_batch && d.source % 64 == 0 ? Status::success
                                                                                    : Status::invalid_size;
    if (d.opcode() != Opcode::memory_move) return Status::unsupported_opcode;
    return d.size != 0 && d.size <= info_.max_transfer_bytes ? Status::success : Status::invalid_size;
  }

  void execute(const Descriptor& d) {
    if (const Status status = check(d); status != Status::success) return report(d.record, status, {});
    if (d.opcode() != Opcode::batch) {
      move(d);
      return;
    }
    const auto* const list = static_cast<const Descriptor*>(pointer(d.source));
    const Fate fate_of_list = fate ? fate(d) : Fate{};
    if (fate_of_list.error) return report(d.record, *fate_of_list.error, {});
    std::uint32_t good = 0;
    for (std::uint32_t i = 0; i < d.size; ++i) {
      const Status status = list[i].opcode() == Opcode::batch ? Status::unsupported_opcode : check(list[i]);
      if (status != Status::success)
        report(list[i].record, status, {});
      else
        good += move(list[i]) ? 1 : 0;
    }
    Completion record;
    record.completed = d.size;
    report(d.record, good == d.size ? Status::success : Status::batch_failed, record);
  }

  bool move(const Descriptor& d) {
    const Fate what = fate ? fate(d) : Fate{};
    if (what.delay.count() != 0) std::this_thread::sleep_for(what.delay);
    if (what.error) {
      report(d.record, *what.error, {});
      return false;
    }
    const std::uint32_t bytes = what.fault_after ? std::min(*what.fault_after, d.size) : d.size;
    const std::uint64_t skip = what.backwards ? d.size - bytes : 0;
    std::memcpy(pointer(d.destination + skip), pointer(d.source + skip), bytes);
    if (bytes != d.size) {
      Completion record;
      record.result = what.backwards ? 1 : 0;
      record.completed = bytes;
      record.fault_address = (d.destination + (what.backwards ? skip - 1 : bytes)) & ~std::uint64_t{4095};
      report(d.record, Status::page_fault, record, kFaultWasWrite);
      return false;
    }
    ++moves;
    if ((d.flags() & kFlagRequestRecord) != 0) report(d.record, Status::success, {});
    return true;
  }

  Pace pace_;
  QueueInfo info_;
  std::mutex mutex_;      // guards waiting_
  std::mutex executing_;  // held while memory is touched
  std::condition_variable wake_;
  std::deque<Descriptor> waiting_;
  std::thread thread_;
};

}  // namespace flashmob::engine::dsa

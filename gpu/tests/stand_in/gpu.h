// The emulated GPU behind cuda_runtime.h: streams and the hardware's queues, multiprocessors that blocks take room on,
// and a thread that lets kernels, as fibres, and copies go on by themselves, as a GPU does. There is one for the
// process.
//
// What it keeps of CUDA's rules:
//   - work begins in the order of its stream; streams that share one of the hardware's queues
//   (CUDA_DEVICE_MAX_CONNECTIONS)
//     wait for whatever stands before them there and cannot begin;
//   - the legacy default stream waits for all blocking streams and they for it, non-blocking streams for neither;
//   - some calls wait for all kernels that run. Where that never ends, the call gives up, which is a finding;
//   - blocks need registers, threads and shared memory of one multiprocessor; a launch fails without them;
//   - an error of a kernel stays.
// Thread rule: as it says at each part; a Lock around everything.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda_runtime.h"
#include "flashmob/gpu/simt/fibre.h"
#include "flashmob/gpu/simt/world.h"
#include "stand_in/controls.h"
#include "stand_in/kernels.h"

namespace flashmob::gpu::stand_in {

class Stream {
 public:
  bool blocking = true;
  std::uint32_t connection = 0;
};
class Event {
 public:
  std::uint64_t recorded = 0;  // number of the latest record; 0: none
  std::uint64_t reached = 0;
};

// Lanes read the host's clock, from another beginning; their turns take the machine's own time, which passes as they
// run.
class MachineTime final : public simt::World {
 public:
  std::uint64_t now_ns() override { return now_ns_; }
  std::uint64_t clock_ns() override;
  bool pass(std::uint64_t to_ns) override {
    now_ns_ = to_ns;
    return false;
  }
  std::uint64_t next_event_ns() override { return UINT64_MAX; }

 private:
  std::uint64_t now_ns_ = 1;
};

// Blocks of less than this are cut from a larger piece and do not begin at a page.
inline constexpr std::size_t kOwnPieceBytes = std::size_t{2} << 20, kInPieceBytes = 512;

class Gpu final : public Controls {
 public:
  static Gpu& get();
  ~Gpu() override;

  // --- Controls ---
  void reset(const Model& model) override;
  std::string take_findings() override;
  std::size_t ranges_held() override;
  std::size_t allocations_held() override;
  bool is_device_memory(const void* data) override;
  void break_device() override;
  void forget_memory() override;

  // The host's turn: the machine stands still between two of its steps while this is held.
  class Lock {
   public:
    explicit Lock(Gpu& gpu);
    ~Lock();

   private:
    friend class Gpu;
    Gpu& gpu_;
    std::unique_lock<std::mutex> lock_;
  };

  // --- With the lock held ---
  const Model& model() const { return model_; }
  cudaError_t error() const { return error_; }
  void find(std::string sentence);

  Stream* make_stream(bool blocking);
  void drop_stream(Stream* stream);
  Stream* legacy() { return &legacy_; }
  // Work that is done `late_ns` after it has begun.
  void enqueue(Stream* stream, std::function<void()> work);
  void record(Stream* stream, Event* event);
  cudaError_t launch(Stream* stream, const Entry& entry, const simt::Shape& shape, void** arguments);
  bool is_idle(const Stream* stream) const;
  std::uint32_t blocks_each(const Entry& entry, const simt::Shape& shape) const;

  // Waits; an error if the device has failed or what it waits for can never be.
  cudaError_t wait_for(Lock& lock, const Stream* stream, const char* call);
  cudaError_t wait_for(Lock& lock, const Event* event, const char* call);
  // As calls do that concern the whole device.
  cudaError_t wait_for_kernels(Lock& lock, const std::string& call);
  // What a launch needs besides room: the code, loaded, and local memory.
  cudaError_t load(Lock& lock, const Entry& entry);
  cudaError_t fit_local_memory(Lock& lock, const Entry& entry);

  // Whether host code sees the GPU's own memory; a new block is to be shown, or hidden, as all are.
  void show_device(bool shown);
  void show_block(std::uintptr_t data, std::size_t bytes) const;
  static void free_block(std::uintptr_t data, std::size_t bytes);
  // Host memory that is registered, and memory that was allocated: address -> bytes.
  std::map<std::uintptr_t, std::size_t> registered, pinned, device;
  std::size_t registered_bytes() const;
  // The part of `map` that holds some of [data, data + bytes).
  static bool meets(const std::map<std::uintptr_t, std::size_t>& map, const void* data, std::size_t bytes);
  cudaMemoryType type_of(const void* data) const;

  unsigned flags = 0;
  std::size_t stack_bytes = 1024;

 private:
  struct Room {  // of a multiprocessor
    std::uint32_t threads, registers, shared_bytes, blocks;
  };
  struct Claim {
    std::size_t multiprocessor;
    Room room;
  };
  struct Op {
    Stream* stream = nullptr;
    std::uint64_t number = 0;
    std::function<void()> work;
    std::uint64_t due_ns = 0;
    Event* event = nullptr;
    const Entry* entry = nullptr;  // of a kernel
    Entry::Start start;
    std::uint64_t kernel = 0;
    std::vector<Claim> claims;
  };

  Gpu();
  void run();
  void step();
  void wake_waiting();
  bool can_begin(const Op& op) const;
  void begin(std::unique_ptr<Op> op);
  bool has_ended(const Op& op) const;
  void release(const Op& op);
  void fail(const std::string& why);
  bool has_work() const;
  bool kernels_run() const;
  std::string kernels_named() const;
  Op& put(Stream* stream);
  Room need_of(const Entry& entry, const simt::Shape& shape) const;
  std::vector<Claim> claim(const Entry& entry, const simt::Shape& shape);
  cudaError_t wait_until(Lock& lock, const std::function<bool()>& done, std::uint64_t patience_ns,
                         const std::string& call);

  std::mutex mutex_;
  std::atomic<std::uint32_t> callers_{0};
  std::atomic<std::uint64_t> asked_{0}, served_{0};  // turns of the lock, which the machine itself does not count
  std::condition_variable work_, stepped_;
  std::uint64_t waiting_ = 0, wakings_ = 0, steps_quiet_ = 0;
  bool changed_ = false;  // something has ended since the last waking
  bool ends_ = false;
  Model model_;
  bool shows_device_ = true;
  MachineTime time_;
  std::unique_ptr<simt::FibreDevice> fibres_;
  Stream legacy_;
  std::set<Stream*> streams_;
  std::uint32_t streams_made_ = 0;
  std::uint64_t ops_ = 0;
  std::map<std::uint32_t, std::deque<std::unique_ptr<Op>>> queues_;  // of the hardware
  std::vector<std::unique_ptr<Op>> active_;
  std::multiset<const Stream*> awaited_;
  std::vector<Room> room_;
  std::set<const Entry*> loaded_;
  std::size_t local_bytes_ = 0;
  cudaError_t error_ = cudaSuccess;
  std::string findings_;
  std::thread thread_;
};

}  // namespace flashmob::gpu::stand_in

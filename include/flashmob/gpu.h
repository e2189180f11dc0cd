// Threads of a GPU that do their own I/O on emulated SSDs: attach, place queues and memory, run kernels, read figures.
//
//   flashmob::gpu::Gpu gpu({device_config}, {.queues = 4, .queue_depth = 256});
//   const auto memory = gpu.allocate(4096 * lanes);
//   gpu.run({.blocks = 8, .block_threads = 128}, ReadOneBlockEach{}, gpu.ssd(0), memory.as<std::byte>());
//
// Kernels are functors over a lane (flashmob/gpu/simt/vocabulary.h). Without a GPU the same calls run them on the CPU,
// as fibres or as threads; backend() says which and why. Mistakes of the caller throw ConfigError with key and fix.
// For one host thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "flashmob/config.h"
#include "flashmob/gpu/simt/cuda_library.h"
#include "flashmob/gpu/simt/fibre.h"
#include "flashmob/gpu/simt/threads.h"
#include "flashmob/gpu/simt/vocabulary.h"
#include "flashmob/gpu/ssd.h"

namespace flashmob::gpu {

enum class Backend : std::uint8_t { fibres, threads, cuda };

// Where memory lies: host memory that the GPU reaches too (pinned), or the GPU's own. On the CPU backends all memory is
// the host's; the placement is kept and reported.
enum class Placement : std::uint8_t { host, device };

struct GpuOptions {
  std::string backend = "auto";  // auto: cuda where there is a GPU, else fibres (threads with the real clock)
  std::string clock = "auto";    // auto: virtual on fibres, real on threads and on a GPU
  std::string service = "kernel";  // who takes completions in: a resident kernel | a host thread | callers that wait
  std::uint32_t queues = 1;        // I/O queue pairs on each SSD, 1...4096
  std::uint32_t queue_depth = 256;  // entries of each ring, 2...65536
  std::string queue_placement =
      "auto";  // device where all engines run on this process's GPU, else host | host | device
  std::uint64_t max_transfer_bytes = 128 << 10;  // most of one command, at most the SSD's own limit; 4096...16 MiB
  std::uint32_t service_blocks = 0;      // service kernel: blocks of 32 threads, 1...64; 0: for as many warps as pay
  std::string schedule = "timed";        // fibres: timed (what would it take?) | random (what could go wrong?)
  std::uint64_t seed = 1;                // fibres: draws the schedule; equal seeds, equal runs

  // Throws ConfigError.
  void validate() const;
};

// What runs kernels, and why it was taken.
struct BackendInfo {
  Backend backend = Backend::fibres;
  std::string name;    // "fibres", "threads" or "cuda"
  std::string device;  // the GPU's or the processor's name
  std::string clock;   // "virtual" or "real"
  std::string reason;  // one sentence
};

// Memory that kernels and SSDs reach at the address that host code sees. Freed with its last copy, which must not
// outlive the Gpu; nothing may use it by then.
class Memory {
 public:
  Memory() = default;
  Memory(std::shared_ptr<std::byte> bytes, std::size_t size, Placement placement)
      : bytes_(std::move(bytes)), size_(size), placement_(placement) {}
  std::byte* data() const { return bytes_.get(); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(bytes_.get());
  }
  std::size_t size() const { return size_; }
  Placement placement() const { return placement_; }

 private:
  std::shared_ptr<std::byte> bytes_;
  std::size_t size_ = 0;
  Placement placement_ = Placement::host;
};

struct SsdInfo {
  std::string profile;
  std::uint32_t queues = 0;
  std::uint32_t queue_depth = 0;
  Placement queue_placement = Placement::host;
  std::uint64_t max_transfer_bytes = 0;
  std::vector<std::uint32_t> lba_bytes;        // by namespace, the first is index 0
  std::vector<std::uint64_t> namespace_bytes;  // ditto
};

struct GpuStats {
  std::uint64_t now_ns = 0;           // of the SSDs' clock
  std::uint64_t submitted = 0;        // commands of kernels, over all SSDs
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;           // completed with an NVMe error
  std::uint64_t in_flight = 0;        // with the SSDs, or about to be
  std::uint64_t doorbells = 0;        // submission doorbells rung; fewer than commands: one thread rings for many
  std::uint64_t unexpected = 0;       // completions that no command had asked for
  std::uint64_t service_passes = 0;   // looks at all queues by the service
  std::uint64_t allocated_bytes = 0;  // by allocate(), alive
  std::string service;                // kernel | host | callers
  bool service_running = false;
};

// See the head of the file. Kernels, SSDs and service belong together: a stopped service is started by the next run().
class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual const BackendInfo& backend() const = 0;
  virtual const GpuOptions& options() const = 0;
  virtual std::uint32_t ssds() const = 0;
  virtual const SsdInfo& ssd_info(std::uint32_t ssd) const = 0;
  // What a kernel needs to use an SSD; pass it by value. What it refers to may lie in a GPU's own memory: host code
  // asks ssd_info().
  virtual SsdRef ssd(std::uint32_t ssd) = 0;

  // Zeroed, page-aligned, reached by every SSD and by host code: an emulated SSD is host code, too, so on a GPU data
  // lie in pinned host memory, and `placement` of what was made says so.
  virtual Memory allocate(std::size_t bytes, Placement placement = Placement::device) = 0;
  // Zeroed and page-aligned, as near to kernels as memory can lie: a GPU's own where there is one, which host code
  // reaches by copy() alone, else as allocate(). `for_ssds`: commands may name it; where an SSD's engine runs on the
  // host it lies in host memory then. `placement` of what was made says which.
  virtual Memory allocate_near(std::size_t bytes, bool for_ssds = false) = 0;
  // Memory of the caller's, reached by kernels and every SSD until the last copy of what is returned is gone. Part of
  // what allocate() gave is reached already and stays so.
  virtual Memory share(void* data, std::size_t bytes) = 0;
  // Between any two kinds of memory, a GPU's own included.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;

  // run() starts the service if it does not run. stop_service() lets commands in flight end first (drain()).
  virtual void start_service() = 0;
  virtual void stop_service() = 0;
  virtual bool service_running() const = 0;
  // Waits until no command of any kernel is in flight. False if some still are after `timeout_ns`.
  virtual bool drain(std::uint64_t timeout_ns = 10'000'000'000) = 0;

  // Through the NVMe driver's own queue, in whole logical blocks. Throws where the SSD answers with an error.
  virtual void write(std::uint32_t ssd, std::uint32_t ns_index, std::uint64_t lba, const void* data,
                     std::uint64_t bytes) = 0;
  virtual void read(std::uint32_t ssd, std::uint32_t ns_index, std::uint64_t lba, void* data, std::uint64_t bytes) = 0;
  // Writes a file (its end padded with zeros to a whole block) and reads it back to compare. Returns the file's size.
  virtual std::uint64_t load_file(std::uint32_t ssd, std::uint32_t ns_index, std::uint64_t lba,
                                  const std::string& path) = 0;

  virtual std::uint64_t now_ns() const = 0;
  // Lets so much of the SSDs' time pass.
  virtual void pass(std::uint64_t duration_ns) = 0;
  virtual GpuStats stats() = 0;

  // An SSD's engine is a kernel of this process's GPU and stays there: calls that wait for all kernels never return.
  virtual bool engine_stays() const = 0;

  // The device of the backend in use, for visit(): a simt::FibreDevice, ThreadDevice or CudaBackend.
  virtual void* device() = 0;

  // Calls visitor(device) with what runs kernels: for launch() and wait() by hand, after start_service(). On a GPU only
  // kernels that were compiled into flashmob's CUDA library can be launched.
  template <class Visitor>
  decltype(auto) visit(Visitor&& visitor) {
    switch (backend().backend) {
      case Backend::threads:
        return visitor(*static_cast<simt::ThreadDevice*>(device()));
      case Backend::cuda:
        return visitor(*static_cast<simt::CudaBackend*>(device()));
      default:
        return visitor(*static_cast<simt::FibreDevice*>(device()));
    }
  }
  // Runs a kernel to its end, the service beside it.
  template <class Functor, class... Args>
  void run(const simt::Shape& shape, Functor functor, Args... args) {
    start_service();
    visit([&](auto& on) { on.run(shape, functor, args...); });
  }
};

// Starts the SSDs and the backend. Throws ConfigError.
std::unique_ptr<Gpu> attach(const std::vector<DeviceConfig>& ssds, const GpuOptions& options = {});

// Attaches to an SSD that another process serves (flashmob/gpu_server.h) at the UNIX socket `path`. The engine is in
// that process, kernels run in this one, on a GPU or on the CPU's fibres or threads, in real time; share() knows
// allocated memory only. Once the server has gone, waits end as aborted and calls throw std::runtime_error. Throws
// ConfigError.
std::unique_ptr<Gpu> attach_remote(const std::string& path, const GpuOptions& options = {});

// Lets SSDs have engine.kind = "gpu" (DeviceConfig): once, before the first one is made.
void enable_engine();

// What backend "auto" would be for a clock (auto | virtual | real), and why.
BackendInfo choose_backend(const std::string& backend = "auto", const std::string& clock = "auto");

}  // namespace flashmob::gpu

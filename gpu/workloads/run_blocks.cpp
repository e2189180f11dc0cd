#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "flashmob/error.h"
#include "workloads/blocks.h"
#include "workloads/workloads.h"

namespace flashmob::gpu::workloads {
namespace {

// As many as are worth having on each backend: a thread of the operating system is dear, a GPU's is not.
std::uint32_t most_threads(Backend backend) {
  switch (backend) {
    case Backend::threads:
      return 64;
    case Backend::cuda:
      return 65536;
    default:
      return 2048;
  }
}

simt::Shape shape_for(Backend backend, std::uint64_t count) {
  const auto threads = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, most_threads(backend)));
  if (threads <= kBlockThreads) return {.blocks = 1, .block_threads = threads};
  return {.blocks = (threads + kBlockThreads - 1) / kBlockThreads, .block_threads = kBlockThreads};
}

void check(const Gpu& gpu, const BlockOptions& options, const std::uint64_t* lbas, std::uint64_t count) {
  const SsdInfo& info = gpu.ssd_info(options.ssd);
  if (options.ns_index >= info.lba_bytes.size())
    throw ConfigError("namespace = " + std::to_string(options.ns_index) + " is not possible: SSD " +
                      std::to_string(options.ssd) + " has " + std::to_string(info.lba_bytes.size()) +
                      ", counted from 0");
  const std::uint64_t blocks = info.namespace_bytes[options.ns_index] / info.lba_bytes[options.ns_index];
  if (options.blocks == 0 || options.blocks > blocks)
    throw ConfigError("blocks = " + std::to_string(options.blocks) + " is not possible: use 1 to " +
                      std::to_string(blocks));
  for (std::uint64_t i = 0; i < count; ++i) {
    if (lbas[i] > blocks - options.blocks)
      throw ConfigError("lbas: " + std::to_string(lbas[i]) + " is beyond the namespace's " + std::to_string(blocks) +
                        " blocks");
  }
}

// What a kernel is given, and the kernel.
template <class Kernel>
class Move final : public BlockMove {
 public:
  Move(Gpu& gpu, const BlockOptions& options, const std::uint64_t* lbas, std::uint64_t count, void* data,
       const simt::CudaStream* stream)
      : gpu_(gpu) {
    check(gpu, options, lbas, count);
    outcome_.backend = gpu.backend().name + ", " + gpu.backend().clock + " clock";
    if (count == 0) return;
    const std::uint64_t block_bytes = gpu.ssd_info(options.ssd).lba_bytes[options.ns_index];
    shared_ = gpu.share(data, count * options.blocks * block_bytes);
    where_ = gpu.allocate_near(count * sizeof(std::uint64_t));
    gpu.copy(where_.data(), lbas, where_.size());
    fault_ = gpu.allocate(sizeof(Fault), Placement::host);
    new (fault_.data()) Fault{};
    BlockPlan plan;
    plan.lbas = where_.as<std::uint64_t>();
    plan.count = count;
    plan.ns_index = options.ns_index;
    plan.blocks = options.blocks;
    plan.data = static_cast<std::byte*>(data);
    plan.fault = fault_.as<Fault>();
    const std::uint64_t most = gpu.ssd_info(options.ssd).max_transfer_bytes / block_bytes;
    outcome_.commands = count * ((options.blocks + most - 1) / most);
    gpu.start_service();
    start_ns_ = gpu.now_ns();
    const simt::Shape shape = shape_for(gpu.backend().backend, count);
    kernel_ = gpu.visit([&](auto& device) -> std::uint64_t {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(device)>, simt::CudaBackend>)
        return device.launch_in(stream, shape, Kernel{}, gpu.ssd(options.ssd), plan);
      else
        return device.launch(shape, Kernel{}, gpu.ssd(options.ssd), plan);
    });
  }
  ~Move() override {
    try {
      wait();
    } catch (const std::exception&) {
      // The GPU has failed, and whoever asks for the outcome is told.
    }
  }

  bool done() override {
    return kernel_ == 0 || gpu_.visit([this](auto& device) { return device.finished(kernel_); });
  }
  Outcome wait() override {
    if (kernel_ == 0) return outcome_;
    gpu_.visit([kernel = std::exchange(kernel_, 0)](auto& device) { device.wait(kernel); });
    outcome_.duration_ns = gpu_.now_ns() - start_ns_;
    outcome_.io_errors = fault_.as<Fault>()->count.value;
    return outcome_;
  }

 private:
  Gpu& gpu_;
  Outcome outcome_;
  Memory shared_, where_, fault_;
  std::uint64_t start_ns_ = 0;
  std::uint64_t kernel_ = 0;  // 0: ended, or never begun
};

}  // namespace

std::unique_ptr<BlockMove> gather_blocks_async(Gpu& gpu, const BlockOptions& options, const std::uint64_t* lbas,
                                               std::uint64_t count, void* data, const simt::CudaStream* stream) {
  return std::make_unique<Move<GatherBlocks>>(gpu, options, lbas, count, data, stream);
}

std::unique_ptr<BlockMove> scatter_blocks_async(Gpu& gpu, const BlockOptions& options, const std::uint64_t* lbas,
                                                std::uint64_t count, const void* data, const simt::CudaStream* stream) {
  return std::make_unique<Move<ScatterBlocks>>(gpu, options, lbas, count, const_cast<void*>(data), stream);
}

Outcome gather_blocks(Gpu& gpu, const BlockOptions& options, const std::uint64_t* lbas, std::uint64_t count,
                      void* data) {
  return gather_blocks_async(gpu, options, lbas, count, data)->wait();
}

Outcome scatter_blocks(Gpu& gpu, const BlockOptions& options, const std::uint64_t* lbas, std::uint64_t count,
                       const void* data) {
  return scatter_blocks_async(gpu, options, lbas, count, data)->wait();
}

}  // namespace flashmob::gpu::workloads

// The CUDA library under CUDA's rules: each test once showed a defect (docs/reference/gpu-cuda.md).
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rules/on_stand_in.h"

namespace flashmob::gpu::rules {
namespace {

using simt::CudaBackend;
using simt::CudaError;
using simt::CudaPlace;

constexpr std::uint32_t kWords = 1024;
alignas(4096) char host_memory[16 * 4096];

class OnBackend : public OnStandIn {
 protected:
  static std::uint32_t* words_of(CudaBackend& device) {
    return static_cast<std::uint32_t*>(device.allocate(CudaPlace::device, kWords * sizeof(std::uint32_t)));
  }
  static HostWord* counter(CudaBackend& device) {
    return static_cast<HostWord*>(device.allocate(CudaPlace::pinned_host, sizeof(HostWord)));
  }
  // How many of the words a kernel sees that are not `value`. Nothing else is asked of the device, which might wait.
  static std::uint32_t others(CudaBackend& device, const std::uint32_t* words, std::uint32_t value, HostWord* count) {
    count->value = 0;
    device.run({}, CountOthers{}, words, kWords, value, count);
    return count->value;
  }
  static std::string refusal(const std::function<void()>& work) {
    try {
      work();
    } catch (const CudaError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(OnBackend, MemoryIsZeroWhenItIsGiven) {
  CudaBackend device;
  HostWord* const count = counter(device);
  EXPECT_EQ(others(device, words_of(device), 0, count), 0u);
}

// CUDA cuts small blocks from larger pieces; an SSD is told of rings and buffers by the page.
TEST_F(OnBackend, MemoryBeginsAtAPage) {
  CudaBackend device;
  for (const CudaPlace place : {CudaPlace::device, CudaPlace::pinned_host})
    for (const std::size_t bytes : {1u, 512u, 4096u, 65536u, 4u << 20})
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(device.allocate(place, bytes)) % 4096, 0u) << bytes;
}

TEST_F(OnBackend, ZeroesDoNotComeAfterWhatAKernelWrites) {
  CudaBackend device;
  std::uint32_t* const words = words_of(device);
  device.run({}, Fill{}, words, kWords, 7u);
  std::vector<std::uint32_t> seen(kWords);
  device.copy(seen.data(), words, kWords * sizeof(std::uint32_t));
  EXPECT_EQ(seen, std::vector<std::uint32_t>(kWords, 7));
}

TEST_F(OnBackend, ACopyFromPageableMemoryIsThereWhenItReturns) {
  CudaBackend device;
  HostWord* const count = counter(device);
  std::uint32_t* const words = words_of(device);
  device.copy(words, std::vector<std::uint32_t>(kWords, 9).data(), kWords * sizeof(std::uint32_t));
  EXPECT_EQ(others(device, words, 9, count), 0u);
}

TEST_F(OnBackend, MemoryIsReleasedBesideAKernelThatStays) {
  CudaBackend device;
  {
    HostWord* const count = counter(device);
    std::uint32_t* const words = words_of(device);
    void* const pinned = device.allocate(CudaPlace::pinned_host, 8192);
    const Lingering service(device);
    const std::size_t held = gpu_->allocations_held();
    device.release(words);
    device.release(pinned);
    // It is given out again, zeroed, so that a program which allocates and frees beside a service does not grow.
    for (int round = 0; round < 4; ++round) {
      std::uint32_t* const again = words_of(device);
      EXPECT_EQ(others(device, again, 0, count), 0u);
      device.run({}, Fill{}, again, kWords, 7u);
      device.release(again);
    }
    EXPECT_LE(gpu_->allocations_held(), held + 1);
  }
  EXPECT_EQ(gpu_->take_findings(), "");
}

TEST_F(OnBackend, ADeviceIsClosedBesideAnothersKernelThatStays) {
  CudaBackend device;
  const Lingering service(device);
  {
    CudaBackend other;
    words_of(other);
    other.share_host_memory(host_memory, 8192);
  }
  EXPECT_EQ(gpu_->take_findings(), "");
}

TEST_F(OnBackend, RangesAreSharedByAsManyAsWantThem) {
  CudaBackend application, engine;
  engine.share_host_memory(host_memory, 4 * 4096);
  application.share_host_memory(host_memory, 4096);
  application.share_host_memory(host_memory + 2 * 4096 + 100, 6 * 4096);
  engine.unshare_host_memory(host_memory, 4 * 4096);
  EXPECT_NE(gpu_->ranges_held(), 0u);
  EXPECT_EQ(refusal([&] { engine.share_host_memory(host_memory, sizeof(host_memory)); }), "");
  application.unshare_host_memory(host_memory, 4096);
  application.unshare_host_memory(host_memory + 2 * 4096 + 100, 6 * 4096);
  engine.unshare_host_memory(host_memory, sizeof(host_memory));
  EXPECT_EQ(gpu_->ranges_held(), 0u);
}

TEST_F(OnBackend, WhatIsPinnedOrTheGpusAlreadyIsSharedAllTheSame) {
  CudaBackend device;
  void* const pinned = device.allocate(CudaPlace::pinned_host, 3 * 4096);
  std::uint32_t* const words = words_of(device);
  device.share_host_memory(pinned, 3 * 4096);
  device.share_host_memory(words, 4096);
  device.unshare_host_memory(pinned, 3 * 4096);
  device.unshare_host_memory(words, 4096);
  device.release(pinned);
}

TEST_F(OnBackend, RangesAreGivenBackOnceNoKernelStays) {
  CudaBackend device;
  device.share_host_memory(host_memory, 8192);
  {
    const Lingering service(device);
    device.unshare_host_memory(host_memory, 8192);
    EXPECT_NE(gpu_->ranges_held(), 0u);
    // The same address may be other memory by now, which the GPU would not see.
    EXPECT_NE(refusal([&] { device.share_host_memory(host_memory + 4096, 8192); }).find("while a kernel was running"),
              std::string::npos);
  }
  EXPECT_EQ(gpu_->ranges_held(), 0u);
  EXPECT_EQ(refusal([&] { device.share_host_memory(host_memory + 4096, 8192); }), "");
}

TEST_F(OnBackend, WhyMemoryCannotBeSharedIsSaid) {
  stand_in::Model small = model();
  small.most_registered_bytes = 2 * 4096;
  gpu_->reset(small);
  {
    CudaBackend device;
    device.share_host_memory(host_memory, 4096);
    const std::string why = refusal([&] { device.share_host_memory(host_memory, sizeof(host_memory)); });
    EXPECT_NE(why.find("65536 bytes"), std::string::npos) << why;
    EXPECT_NE(why.find("out of memory"), std::string::npos) << why;
    // Nothing of it is left.
    device.unshare_host_memory(host_memory, 4096);
    EXPECT_EQ(gpu_->ranges_held(), 0u);
  }
  small.uses_host_pointers = false;
  gpu_->reset(small);
  CudaBackend device;
  EXPECT_NE(refusal([&] { device.share_host_memory(host_memory, 4096); }).find("at the host's address"),
            std::string::npos);
}

TEST_F(OnBackend, KernelsThatStayAreCountedOverAllDevices) {
  stand_in::Model small = model();
  small.multiprocessors = 4;
  small.threads_each = 64;
  gpu_->reset(small);
  CudaBackend first, second;
  ASSERT_EQ(first.resident_blocks<Linger>({}), 8u);
  const Lingering service(first, 4);
  const std::string why = refusal([&] { const Lingering too_many(second, 5); });
  EXPECT_NE(why.find("4 multiprocessors"), std::string::npos) << why;
  // One multiprocessor is left to the application.
  EXPECT_NE(refusal([&] { const Lingering too_many(second, 3); }), "");
  EXPECT_EQ(refusal([&] { const Lingering fits(second, 2); }), "");
}

TEST_F(OnBackend, KernelsAreLoadedWhenTheDeviceIsOpened) {
  CudaBackend device;
  HostWord* const count = counter(device);
  const Lingering service(device);
  std::uint32_t* const words = words_of(device);
  device.run({}, Fill{}, words, kWords, 3u);
  EXPECT_EQ(others(device, words, 3, count), 0u);
  EXPECT_EQ(gpu_->take_findings(), "");
}

TEST_F(OnBackend, LocalMemoryIsThereBeforeAKernelStays) {
  CudaBackend device;
  auto* const sum = static_cast<HostWord*>(device.allocate(CudaPlace::pinned_host, sizeof(HostWord)));
  const Lingering service(device);
  for (int round = 0; round < 3; ++round) device.run({}, Deep{}, sum);
  EXPECT_EQ(gpu_->take_findings(), "");
}

TEST_F(OnBackend, AKernelThatStaysDoesNotBlockOtherStreams) {
  stand_in::Model narrow = model();
  narrow.connections = 1;
  gpu_->reset(narrow);
  CudaBackend device, other;
  const Lingering service(device);
  std::uint32_t* const words = words_of(other);
  const CudaBackend::Kernel kernel = other.launch({}, Fill{}, words, kWords, 3u);
  // Give up after more work than it needs, whatever the machine's speed: kernels of the first device still run.
  for (int tries = 0; tries < 20'000 && !other.finished(kernel); ++tries) std::this_thread::yield();
  EXPECT_TRUE(other.finished(kernel));
}

TEST_F(OnBackend, AFailedDeviceSaysSoAndHangsNowhere) {
  {
    CudaBackend device;
    std::uint32_t* const words = words_of(device);
    device.share_host_memory(host_memory, 4096);
    gpu_->break_device();
    std::uint32_t word = 0;
    EXPECT_NE(refusal([&] { device.run({}, Fill{}, words, kWords, 1u); }).find("unspecified launch failure"),
              std::string::npos);
    EXPECT_NE(refusal([&] { device.copy(&word, words, sizeof(word)); }), "");
    EXPECT_NE(refusal([&] { words_of(device); }), "");
    device.unshare_host_memory(host_memory, 4096);
    device.release(words);
  }
  // As if the process had been started anew.
  gpu_->take_findings();
  gpu_->forget_memory();
}

}  // namespace
}  // namespace flashmob::gpu::rules

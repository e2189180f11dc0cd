// The rules of CUDA that the emulated GPU keeps, each seen by itself.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "rules/kernels.h"
#include "stand_in/gpu.h"
#include "stand_in/kernels.h"

namespace flashmob::gpu::stand_in {
namespace {

using rules::Fill;
using rules::HostWord;
using rules::Linger;

class Rules : public testing::Test {
 protected:
  void SetUp() override { Gpu::get().reset(model()); }
  void TearDown() override {
    stop();
    EXPECT_EQ(Gpu::get().take_findings(), "");
    // A kernel that was told to end may not have, and its words are this object's.
    Gpu::get().reset(model());
  }
  static Model model() {
    Model made;
    made.late_ns = 50'000;
    made.patience_ns = 100'000;
    return made;
  }

  // What may be late is, however long this thread takes between two calls.
  static void reset_late() {
    Model late = model();
    late.late_until_awaited = true;
    Gpu::get().reset(late);
  }

  template <class Functor, class... Args>
  static cudaError_t start(cudaStream_t stream, unsigned blocks, Functor functor, Args... args) {
    void* pointers[] = {&functor, &args...};
    return cudaLaunchKernel(simt::detail::cuda_entry<Functor>(), dim3(blocks), dim3(32), pointers, 0, stream);
  }
  cudaError_t linger(cudaStream_t stream, unsigned blocks = 1) {
    return start(stream, blocks, Linger{}, &began_, &may_end_);
  }
  void await_lingering() {
    while (std::atomic_ref(began_.value).load() == 0) std::this_thread::yield();
  }
  void stop() { std::atomic_ref(may_end_.value).store(1); }
  static cudaStream_t stream(unsigned flags) {
    cudaStream_t made = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&made, flags), cudaSuccess);
    return made;
  }
  static std::string findings() { return Gpu::get().take_findings(); }

  HostWord began_, may_end_;
};

TEST_F(Rules, ARangeIsRegisteredOnce) {
  std::vector<char> memory(5 * 4096);
  char* const page = memory.data() + (4096 - reinterpret_cast<std::uintptr_t>(memory.data()) % 4096) % 4096;
  EXPECT_EQ(cudaHostRegister(page, 2 * 4096, 0), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(page, 2 * 4096, 0), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaHostRegister(page + 4096, 2 * 4096, 0), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaHostRegister(page + 2 * 4096, 4096, 0), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(page), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(page), cudaErrorHostMemoryNotRegistered);
  EXPECT_NE(findings(), "");
  EXPECT_EQ(cudaHostUnregister(page + 2 * 4096), cudaSuccess);
}

TEST_F(Rules, RegisteredMemoryHasALimit) {
  Model small = model();
  small.most_registered_bytes = 8192;
  Gpu::get().reset(small);
  alignas(4096) static char memory[3 * 4096];
  EXPECT_EQ(cudaHostRegister(memory, sizeof(memory), 0), cudaErrorMemoryAllocation);
}

TEST_F(Rules, AMemsetOfTheGpusMemoryComesLateForStreamsThatDoNotWaitForIt) {
  reset_late();
  std::uint32_t* words = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&words), 4096), cudaSuccess);
  EXPECT_EQ(cudaMemset(words, 0, 4096), cudaSuccess);
  const cudaStream_t apart = stream(cudaStreamNonBlocking);
  EXPECT_EQ(start(apart, 1, Fill{}, words, 64u, 7u), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(apart), cudaSuccess);
  EXPECT_EQ(words[5], 7u);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(words[5], 0u);
  EXPECT_EQ(cudaFree(words), cudaSuccess);
}

TEST_F(Rules, BlockingStreamsAndTheDefaultOneWaitForEachOther) {
  std::uint32_t* words = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&words), 4096), cudaSuccess);
  EXPECT_EQ(cudaMemset(words, 0, 4096), cudaSuccess);
  const cudaStream_t with = stream(0);
  EXPECT_EQ(start(with, 1, Fill{}, words, 64u, 7u), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(with), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(words[5], 7u);
  EXPECT_EQ(cudaFree(words), cudaSuccess);
}

TEST_F(Rules, PageableMemoryIsTakenAtOnceAndThereLater) {
  reset_late();
  std::uint32_t* words = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&words), 4096), cudaSuccess);
  std::uint32_t mine = 5;
  EXPECT_EQ(cudaMemcpy(words, &mine, sizeof(mine), cudaMemcpyDefault), cudaSuccess);
  EXPECT_NE(words[0], 5u);
  mine = 6;
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(words[0], 5u);
  EXPECT_EQ(cudaFree(words), cudaSuccess);
}

TEST_F(Rules, WhatWaitsForAKernelThatStaysIsAFinding) {
  char* memory = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), 4096), cudaSuccess);
  ASSERT_EQ(linger(stream(cudaStreamNonBlocking)), cudaSuccess);
  await_lingering();
  EXPECT_EQ(cudaFree(memory), cudaErrorLaunchTimeout);
  EXPECT_NE(findings().find("cudaFree waits for all kernels that run, which would never return"), std::string::npos);
  // Fill has not been loaded yet.
  EXPECT_EQ(start(stream(cudaStreamNonBlocking), 1, Fill{}, reinterpret_cast<std::uint32_t*>(memory), 1u, 1u),
            cudaErrorLaunchTimeout);
  EXPECT_NE(findings().find("the loading of"), std::string::npos);
  stop();
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(Rules, AnEventBehindAKernelStandsInTheWayOfOtherStreams) {
  Model narrow = model();
  narrow.connections = 1;
  narrow.loads_lazily = false;
  Gpu::get().reset(narrow);
  const cudaStream_t staying = stream(cudaStreamNonBlocking), other = stream(cudaStreamNonBlocking);
  std::uint32_t word = 0;
  ASSERT_EQ(linger(staying), cudaSuccess);
  await_lingering();
  EXPECT_EQ(start(other, 1, Fill{}, &word, 1u, 1u), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_EQ(word, 1u);
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, staying), cudaSuccess);
  EXPECT_EQ(start(other, 1, Fill{}, &word, 1u, 2u), cudaSuccess);
  std::this_thread::yield();
  EXPECT_EQ(cudaStreamQuery(other), cudaErrorNotReady);
  EXPECT_EQ(word, 1u);
  stop();
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_EQ(word, 2u);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(Rules, KernelsThatStayTakeTheRoomOfOthers) {
  Model small = model();
  small.multiprocessors = 2;
  small.threads_each = 64;
  Gpu::get().reset(small);
  ASSERT_EQ(linger(stream(cudaStreamNonBlocking), 3), cudaSuccess);
  EXPECT_EQ(linger(stream(cudaStreamNonBlocking), 2), cudaErrorLaunchOutOfResources);
  EXPECT_EQ(linger(stream(cudaStreamNonBlocking), 1), cudaSuccess);
  stop();
}

TEST_F(Rules, AnErrorStays) {
  Gpu::get().break_device();
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 1), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaMalloc(&memory, 1), cudaErrorLaunchFailure);
  Gpu::get().reset(model());
  EXPECT_EQ(cudaMalloc(&memory, 1), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

// What a machine of one address space does not show by itself: host code that reaches for the GPU's memory.
TEST_F(Rules, TheGpusOwnMemoryCanBeHiddenFromHostCode) {
  Model strict = model();
  strict.hides_device_memory = true;
  Gpu::get().reset(strict);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 8192), cudaSuccess);
  EXPECT_DEATH(*static_cast<volatile char*>(data) = 1, "");
  EXPECT_EQ(cudaMemset(data, 7, 8192), cudaSuccess);
  char back = 0;
  EXPECT_EQ(cudaMemcpy(&back, data, 1, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(back, 7);
  EXPECT_DEATH(*static_cast<volatile char*>(data) = 1, "");
  EXPECT_TRUE(Gpu::get().is_device_memory(data));
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

}  // namespace
}  // namespace flashmob::gpu::stand_in

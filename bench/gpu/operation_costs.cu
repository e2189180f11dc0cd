// What the operations that flashmob's device code is made of take on this GPU: one JSON document, which the costs of
// the fibres' timed schedule (simt/fibre.h) and the cost model in docs/reference/gpu-cuda.md are taken from.
//
//   scripts/gpu_first_hour.sh costs          on a machine with a GPU
//
// Latencies are of one lane that does nothing else, each operation waiting for the one before; the median of five
// rounds. Rates are of a full GPU. "near" is the GPU's own memory, "far" the host's, pinned.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda/atomic>
#include <string>
#include <thread>
#include <vector>

namespace {

using Word = std::uint32_t;
constexpr std::uint32_t kTimes = 256;
constexpr std::uint32_t kRounds = 5;

void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(result));
  std::exit(1);
}

__device__ std::uint64_t global_ns() {
  std::uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

template <cuda::thread_scope S>
using Ref = cuda::atomic_ref<Word, S>;
constexpr auto kDevice = cuda::thread_scope_device;
constexpr auto kSystem = cuda::thread_scope_system;

// Each operation takes the word and what the one before gave, always 0, so that it waits for it.
template <cuda::thread_scope S, cuda::std::memory_order O>
struct Load {
  __device__ Word operator()(Word* word, Word last) const { return Ref<S>(word[last]).load(O); }
};
template <cuda::thread_scope S, cuda::std::memory_order O>
struct Store {
  __device__ Word operator()(Word* word, Word last) const {
    Ref<S>(word[last]).store(0, O);
    return last;
  }
};
template <cuda::thread_scope S, cuda::std::memory_order O>
struct Add {
  __device__ Word operator()(Word* word, Word last) const { return Ref<S>(word[last]).fetch_add(0, O); }
};
template <cuda::thread_scope S, cuda::std::memory_order O>
struct Exchange {
  __device__ Word operator()(Word* word, Word last) const { return Ref<S>(word[last]).exchange(0, O); }
};
// A fence has something to wait for only where something was written.
template <cuda::thread_scope S>
struct StoreAndFence {
  __device__ Word operator()(Word* word, Word last) const {
    Ref<kDevice>(word[last]).store(0, cuda::std::memory_order_relaxed);
    cuda::atomic_thread_fence(cuda::std::memory_order_acq_rel, S);
    return last;
  }
};
struct ReadClock {
  __device__ Word operator()(Word*, Word last) const { return last + (global_ns() == 0 ? 1 : 0); }
};
template <std::uint32_t Ns>
struct Sleep {
  __device__ Word operator()(Word*, Word last) const {
    __nanosleep(Ns);
    return last;
  }
};
struct Ballot {
  __device__ Word operator()(Word*, Word last) const { return __ballot_sync(0xFFFFFFFFu, last != 0); }
};
struct Shuffle {
  __device__ Word operator()(Word*, Word last) const { return __shfl_sync(0xFFFFFFFFu, last, 3); }
};
struct Match {
  __device__ Word operator()(Word*, Word last) const { return __match_any_sync(0xFFFFFFFFu, last) + 1; }
};
struct SyncWarp {
  __device__ Word operator()(Word*, Word last) const {
    __syncwarp();
    return last;
  }
};

struct Timed {
  std::uint64_t cycles, ns;
  Word last;
};

template <class Operation>
__global__ void chain(Word* word, Timed* out) {
  const Operation operation;
  Word last = 0;
  for (int i = 0; i < 8; ++i) last = operation(word, last);
  const std::uint64_t start_ns = global_ns();
  const long long start = clock64();
  for (std::uint32_t i = 0; i < kTimes; ++i) last = operation(word, last);
  const long long end = clock64();
  if (threadIdx.x == 0) *out = {static_cast<std::uint64_t>(end - start), global_ns() - start_ns, last};
}

// A walk through memory that no cache holds: each word says where the next one is.
__global__ void lay_walk(std::uint64_t* words, std::uint64_t count, std::uint64_t step) {
  for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    words[i] = (i + step) % count;
}
__global__ void walk(const std::uint64_t* words, std::uint64_t from, Timed* out) {
  std::uint64_t at = from;
  const std::uint64_t start_ns = global_ns();
  const long long start = clock64();
  for (std::uint32_t i = 0; i < kTimes; ++i) at = *static_cast<const volatile std::uint64_t*>(words + at);
  *out = {static_cast<std::uint64_t>(clock64() - start), global_ns() - start_ns, static_cast<Word>(at)};
}

__global__ void clock_steps(std::uint64_t* steps_ns, std::uint32_t count) {
  std::uint64_t last_ns = global_ns();
  for (std::uint32_t i = 0; i < count;) {
    const std::uint64_t now_ns = global_ns();
    if (now_ns != last_ns) steps_ns[i++] = now_ns - last_ns;
    last_ns = now_ns;
  }
}

// Host and GPU answer each other through two words of the host's memory.
__global__ void answer(Word* asked, Word* answered, std::uint32_t times) {
  const std::uint64_t give_up_ns = global_ns() + 5'000'000'000;
  for (Word i = 1; i <= times; ++i) {
    while (Ref<kSystem>(*asked).load(cuda::std::memory_order_acquire) != i)
      if (global_ns() > give_up_ns) return;
    Ref<kSystem>(*answered).store(i, cuda::std::memory_order_release);
  }
}

// Two blocks of the GPU answer each other through its own memory.
__global__ void exchange(Word* words, std::uint32_t times, Timed* out) {
  const bool first = blockIdx.x == 0;
  const std::uint64_t start_ns = global_ns();
  const long long start = clock64();
  for (Word i = 1; i <= times; ++i) {
    if (first) Ref<kDevice>(words[0]).store(i, cuda::std::memory_order_release);
    Word* const other = first ? words + 64 : words;
    while (Ref<kDevice>(*other).load(cuda::std::memory_order_acquire) != i)
      if (global_ns() > start_ns + 5'000'000'000) return;
    if (!first) Ref<kDevice>(words[64]).store(i, cuda::std::memory_order_release);
  }
  if (first) *out = {static_cast<std::uint64_t>(clock64() - start), global_ns() - start_ns, 0};
}

template <cuda::thread_scope S>
__global__ void adds(Word* word, std::uint32_t stride, std::uint32_t times) {
  Word* const mine = word + static_cast<std::uint64_t>(blockIdx.x * blockDim.x + threadIdx.x) * stride;
  for (std::uint32_t i = 0; i < times; ++i) Ref<S>(*mine).fetch_add(1, cuda::std::memory_order_relaxed);
}

// Random pieces of `bytes` by one warp each, as a mover copies a block.
__global__ void copy_pieces(const uint4* from, uint4* to, std::uint64_t pieces, std::uint32_t bytes,
                            std::uint32_t times) {
  const std::uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const std::uint32_t units = bytes / 16;
  std::uint64_t state = warp * 0x9E3779B97F4A7C15ull + 1;
  for (std::uint32_t i = 0; i < times; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const std::uint64_t piece = (state >> 20) % pieces;
    for (std::uint32_t unit = threadIdx.x % 32; unit < units; unit += 32)
      to[std::uint64_t{warp} * units + unit] = from[piece * units + unit];
  }
}

class Report {
 public:
  void add(const std::string& name, double value, const char* unit) {
    std::printf("%s\n  \"%s_%s\": %.6g", first_ ? "" : ",", name.c_str(), unit, value);
    first_ = false;
  }

 private:
  bool first_ = true;
};

struct Memories {
  Word* near = nullptr;
  Word* far = nullptr;
  Timed* out = nullptr;
};

template <class Launch>
double median_ns(const Memories& memories, const Launch& launch) {
  std::vector<double> each;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    launch();
    check(cudaDeviceSynchronize(), "a kernel");
    each.push_back(static_cast<double>(memories.out->ns) / kTimes);
  }
  std::sort(each.begin(), each.end());
  return each[kRounds / 2];
}

template <class Operation>
void measure(Report& report, const Memories& memories, const char* name, bool far = false, int lanes = 1) {
  report.add(
      name,
      median_ns(memories, [&] { chain<Operation><<<1, lanes>>>(far ? memories.far : memories.near, memories.out); }),
      "ns");
}

double seconds_of(const auto& work) {
  cudaEvent_t start, end;
  check(cudaEventCreate(&start), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  work();  // once to warm up
  float best_ms = 1e30f;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    check(cudaEventRecord(start), "cudaEventRecord");
    work();
    check(cudaEventRecord(end), "cudaEventRecord");
    check(cudaEventSynchronize(end), "a kernel");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, end), "cudaEventElapsedTime");
    best_ms = std::min(best_ms, ms);
  }
  return best_ms * 1e-3;
}

void measure_operations(Report& report, const Memories& memories) {
  using cuda::std::memory_order_acq_rel;
  using cuda::std::memory_order_acquire;
  using cuda::std::memory_order_relaxed;
  using cuda::std::memory_order_release;
  measure<Load<kDevice, memory_order_relaxed>>(report, memories, "near_load_relaxed_device");
  measure<Load<kDevice, memory_order_acquire>>(report, memories, "near_load_acquire_device");
  measure<Load<kSystem, memory_order_acquire>>(report, memories, "near_load_acquire_system");
  measure<Store<kDevice, memory_order_relaxed>>(report, memories, "near_store_relaxed_device");
  measure<Store<kDevice, memory_order_release>>(report, memories, "near_store_release_device");
  measure<Store<kSystem, memory_order_release>>(report, memories, "near_store_release_system");
  measure<Add<kDevice, memory_order_relaxed>>(report, memories, "near_add_relaxed_device");
  measure<Add<kDevice, memory_order_acq_rel>>(report, memories, "near_add_acq_rel_device");
  measure<Add<kSystem, memory_order_relaxed>>(report, memories, "near_add_relaxed_system");
  measure<Add<kSystem, memory_order_acq_rel>>(report, memories, "near_add_acq_rel_system");
  measure<Exchange<kDevice, memory_order_acq_rel>>(report, memories, "near_exchange_acq_rel_device");
  measure<StoreAndFence<kDevice>>(report, memories, "near_store_fence_device");
  measure<StoreAndFence<kSystem>>(report, memories, "near_store_fence_system");
  measure<Load<kSystem, memory_order_relaxed>>(report, memories, "far_load_relaxed", true);
  measure<Load<kSystem, memory_order_acquire>>(report, memories, "far_load_acquire", true);
  measure<Store<kSystem, memory_order_relaxed>>(report, memories, "far_store_relaxed", true);
  measure<Store<kSystem, memory_order_release>>(report, memories, "far_store_release", true);
  measure<Add<kSystem, memory_order_relaxed>>(report, memories, "far_add_relaxed", true);
  measure<StoreAndFence<kSystem>>(report, memories, "far_store_fence_system", true);
  measure<ReadClock>(report, memories, "globaltimer_read");
  measure<Sleep<0>>(report, memories, "nanosleep_0");
  measure<Sleep<20>>(report, memories, "nanosleep_20");
  measure<Sleep<100>>(report, memories, "nanosleep_100");
  measure<Sleep<1000>>(report, memories, "nanosleep_1000");
  measure<Ballot>(report, memories, "ballot", false, 32);
  measure<Shuffle>(report, memories, "shuffle", false, 32);
  measure<Match>(report, memories, "match", false, 32);
  measure<SyncWarp>(report, memories, "syncwarp", false, 32);
}

void measure_meetings(Report& report, const Memories& memories) {
  constexpr std::uint32_t kSteps = 1000;
  std::uint64_t* steps_ns = nullptr;
  check(cudaHostAlloc(&steps_ns, kSteps * sizeof(*steps_ns), cudaHostAllocMapped), "cudaHostAlloc");
  clock_steps<<<1, 1>>>(steps_ns, kSteps);
  check(cudaDeviceSynchronize(), "clock_steps");
  std::sort(steps_ns, steps_ns + kSteps);
  report.add("globaltimer_step_least", static_cast<double>(steps_ns[0]), "ns");
  report.add("globaltimer_step_median", static_cast<double>(steps_ns[kSteps / 2]), "ns");

  memories.far[0] = memories.far[64] = 0;
  constexpr std::uint32_t kAnswers = 2000;
  answer<<<1, 1>>>(memories.far, memories.far + 64, kAnswers);
  check(cudaGetLastError(), "answer");
  std::vector<double> trips;
  const auto began = std::chrono::steady_clock::now();
  for (Word i = 1; i <= kAnswers; ++i) {
    const auto start = std::chrono::steady_clock::now();
    std::atomic_ref(memories.far[0]).store(i, std::memory_order_release);
    while (std::atomic_ref(memories.far[64]).load(std::memory_order_acquire) != i)
      if (std::chrono::steady_clock::now() - began > std::chrono::seconds(5)) break;
    trips.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
  }
  check(cudaDeviceSynchronize(), "answer");
  std::sort(trips.begin(), trips.end());
  report.add("host_gpu_round_trip_far", trips[kAnswers / 2], "ns");

  check(cudaMemset(memories.near, 0, 4096), "cudaMemset");
  exchange<<<2, 1>>>(memories.near, kTimes, memories.out);
  check(cudaDeviceSynchronize(), "exchange");
  report.add("block_to_block_round_trip", static_cast<double>(memories.out->ns) / kTimes, "ns");
}

void measure_memory(Report& report, const Memories& memories, std::uint32_t multiprocessors) {
  constexpr std::uint64_t kBytes = std::uint64_t{2} << 30;
  std::byte* near = nullptr;
  std::byte* far = nullptr;
  std::byte* sink = nullptr;
  check(cudaMalloc(&near, kBytes), "cudaMalloc");
  check(cudaHostAlloc(&far, kBytes, cudaHostAllocMapped), "cudaHostAlloc");
  const std::uint32_t blocks = multiprocessors * 8;
  constexpr std::uint32_t kThreads = 256, kPiece = 65536;
  check(cudaMalloc(&sink, std::uint64_t{blocks} * kThreads / 32 * kPiece), "cudaMalloc");
  auto* const words = reinterpret_cast<std::uint64_t*>(near);
  lay_walk<<<blocks, kThreads>>>(words, kBytes / 8, 40503 * 64 + 8);
  check(cudaDeviceSynchronize(), "lay_walk");
  std::uint64_t from = 0;
  report.add("near_load_missing_cache",
             median_ns(memories, [&] { walk<<<1, 1>>>(words, from += 12'345'678 / 64 * 64, memories.out); }), "ns");
  for (const bool is_far : {false, true}) {
    for (const std::uint32_t bytes : {512u, 1024u, 2048u, 4096u, 8192u, 65536u}) {
      const std::uint32_t warps = blocks * kThreads / 32;
      const auto times =
          static_cast<std::uint32_t>((is_far ? kBytes / 2 : 4 * kBytes) / (std::uint64_t{warps} * bytes) + 1);
      const double seconds = seconds_of([&] {
        copy_pieces<<<blocks, kThreads>>>(reinterpret_cast<const uint4*>(is_far ? far : near),
                                          reinterpret_cast<uint4*>(sink), kBytes / bytes, bytes, times);
      });
      report.add(std::string(is_far ? "far" : "near") + "_random_reads_of_" + std::to_string(bytes),
                 static_cast<double>(warps) * times * bytes / seconds, "bytes_per_s");
    }
  }
  constexpr std::uint32_t kAdds = 64;
  const double lanes = static_cast<double>(blocks) * kThreads;
  auto* const counters = reinterpret_cast<Word*>(near);
  report.add("adds_of_all_to_one_word",
             lanes * kAdds / seconds_of([&] { adds<kDevice><<<blocks, kThreads>>>(counters, 0, kAdds); }), "per_s");
  report.add("adds_each_to_a_line",
             lanes * kAdds / seconds_of([&] { adds<kDevice><<<blocks, kThreads>>>(counters, 32, kAdds); }), "per_s");
  report.add("far_adds_each_to_a_line",
             lanes / seconds_of([&] { adds<kSystem><<<blocks, kThreads>>>(reinterpret_cast<Word*>(far), 32, 1); }),
             "per_s");
}

}  // namespace

int main() {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  Memories memories;
  check(cudaMalloc(&memories.near, 1 << 20), "cudaMalloc");
  check(cudaMemset(memories.near, 0, 1 << 20), "cudaMemset");
  check(cudaHostAlloc(&memories.far, 1 << 20, cudaHostAllocMapped), "cudaHostAlloc");
  check(cudaHostAlloc(&memories.out, sizeof(Timed), cudaHostAllocMapped), "cudaHostAlloc");
  std::printf("{\n  \"schema\": \"flashmob-gpu-costs\",\n  \"device\": \"%s\",", properties.name);
  Report report;
  measure_operations(report, memories);
  measure_meetings(report, memories);
  measure_memory(report, memories, static_cast<std::uint32_t>(properties.multiProcessorCount));
  std::printf("\n}\n");
  return 0;
}

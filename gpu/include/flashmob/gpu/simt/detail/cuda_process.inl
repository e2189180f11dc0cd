// What a process has given to its GPU, by whichever of its devices: memory, ranges of the host's memory, and kernels
// that stay. Included by cuda.h.
//
// To free memory, or to give a registered range back, waits for every kernel that runs; where that is a service which
// waits for the host it never ends. So both are put off until no kernel of this process runs; memory is given out again
// meanwhile. A range is registered once, however many want it, because CUDA refuses to do it again.
// Thread rule: any thread; a mutex inside.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace flashmob::gpu::simt::detail {

class CudaProcess {
 public:
  static CudaProcess& get() {
    static auto* const process = new CudaProcess;  // devices may outlive whatever ends with the process
    return *process;
  }

  // Aligned to a page: rings and buffers that an SSD is told of must be.
  void* allocate(CudaPlace place, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    tidy();
    for (auto freed = freed_.begin(); freed != freed_.end(); ++freed) {
      const Block& block = blocks_.at(*freed);
      if (block.place != place || block.bytes < bytes || block.bytes / 2 > bytes) continue;
      void* const data = *freed;
      freed_.erase(freed);
      return data;
    }
    // CUDA cuts small blocks from a larger piece, at multiples of 256 bytes; a large one has pages of its own.
    const std::size_t whole = bytes >= kOwnPieceBytes ? bytes : bytes + kPage;
    void* base = nullptr;
    if (place == CudaPlace::device)
      check_cuda(cudaMalloc(&base, whole), "cudaMalloc");
    else
      check_cuda(cudaHostAlloc(&base, whole, cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
    const std::size_t off = (kPage - reinterpret_cast<std::uintptr_t>(base) % kPage) % kPage;
    if (off + bytes > whole) {
      place == CudaPlace::device ? cudaFree(base) : cudaFreeHost(base);
      throw CudaError("CUDA gave " + std::to_string(bytes) + " bytes that do not begin at a page");
    }
    void* const data = static_cast<std::byte*>(base) + off;
    blocks_[data] = {place, bytes, base};
    return data;
  }

  void release(void* data) {
    const std::lock_guard lock(mutex_);
    freed_.push_back(data);
    tidy();
  }

  void share(const void* owner, void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    tidy();
    const Range wanted = pages(data, bytes);
    for (const Range& given_back : returned_)
      if (given_back.first < wanted.end && wanted.first < given_back.end)
        throw CudaError(
            "memory cannot be shared with the GPU: what was there before was given back while a kernel was "
            "running, and stays with it until none runs; stop services and SSDs on the GPU first");
    std::vector<Range> missing;
    std::uintptr_t at = wanted.first;
    for (const auto& [first, range] : ranges_) {
      if (range.end <= at || first >= wanted.end) continue;
      if (first > at) missing.push_back({at, first});
      at = range.end;
    }
    if (at < wanted.end) missing.push_back({at, wanted.end});
    std::size_t made = 0;
    try {
      for (; made < missing.size(); ++made) add(missing[made], bytes);
    } catch (...) {
      while (made-- != 0) drop(ranges_.find(missing[made].first));
      throw;
    }
    for_parts(wanted, [](Part& part) { ++part.users; });
    shares_.push_back({owner, data, bytes, wanted});
  }

  void unshare(const void* owner, void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto held = std::find_if(shares_.begin(), shares_.end(), [&](const Share& share) {
      return share.owner == owner && share.data == data && share.bytes == bytes;
    });
    if (held != shares_.end()) end_share(held);
    tidy();
  }

  // All that one of the devices has.
  void unshare_all(const void* owner) {
    const std::lock_guard lock(mutex_);
    for (auto share = shares_.begin(); share != shares_.end();)
      share = share->owner == owner ? end_share(share) : std::next(share);
    tidy();
  }

  // Launches with `launch` where the kernel's blocks find room: nothing is freed meanwhile. `need` is the number of
  // multiprocessors that a kernel which stays takes, 0 of another.
  template <class Launch>
  void run(cudaStream_t stream, double need, std::uint32_t multiprocessors, const Launch& launch) {
    const std::lock_guard lock(mutex_);
    double taken = 0;
    for (const auto& [other, held] : running_) taken += held;
    if (need != 0 && taken + need > multiprocessors - 1)
      throw CudaError("kernels that stay on the GPU do not fit: this one takes " + rounded(need) + " of " +
                      std::to_string(multiprocessors) + " multiprocessors, others " + rounded(taken) +
                      ", and the application needs one; use fewer engine.sms, service_blocks or SSDs");
    launch();
    running_[stream] = need;
  }

  void ended(cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    running_.erase(stream);
    tidy();
  }

 private:
  static constexpr std::uintptr_t kPage = 4096;
  static constexpr std::size_t kOwnPieceBytes = std::size_t{2} << 20;

  struct Block {
    CudaPlace place;
    std::size_t bytes;
    void* base;  // as CUDA knows it
  };
  struct Range {
    std::uintptr_t first, end;
  };
  struct Part {
    std::uintptr_t end;
    std::uint32_t users;
    bool ours;  // registered by us
  };
  struct Share {
    const void* owner;
    void* data;
    std::size_t bytes;
    Range range;
  };
  using Parts = std::map<std::uintptr_t, Part>;

  static Range pages(const void* data, std::size_t bytes) {
    const auto first = reinterpret_cast<std::uintptr_t>(data);
    return {first / kPage * kPage, (first + bytes + kPage - 1) / kPage * kPage};
  }
  static std::string rounded(double value) { return std::to_string(static_cast<std::uint64_t>(value + 0.999)); }

  template <class Work>
  void for_parts(const Range& range, const Work& work) {
    for (auto& [first, part] : ranges_)
      if (first < range.end && range.first < part.end) work(part);
  }

  void add(const Range& range, std::size_t asked_bytes) {
    auto* const data = reinterpret_cast<void*>(range.first);
    cudaPointerAttributes attributes{};
    check_cuda(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
    const bool ours = attributes.type == cudaMemoryTypeUnregistered;
    if (ours) {
      const std::string why = "memory cannot be shared with the GPU (" + std::to_string(asked_bytes) + " bytes): ";
      int same = 0;
      check_cuda(cudaDeviceGetAttribute(&same, cudaDevAttrCanUseHostPointerForRegisteredMem, 0),
                 "cudaDeviceGetAttribute");
      if (same == 0) throw CudaError(why + "this GPU does not reach it at the host's address");
      check_cuda(cudaHostRegister(data, range.end - range.first, cudaHostRegisterPortable | cudaHostRegisterMapped),
                 (why + "cudaHostRegister").c_str());
    }
    ranges_[range.first] = {range.end, 0, ours};
  }

  std::vector<Share>::iterator end_share(std::vector<Share>::iterator share) {
    const Range range = share->range;
    const auto next = shares_.erase(share);
    for_parts(range, [](Part& part) { --part.users; });
    for (auto part = ranges_.begin(); part != ranges_.end();) part = part->second.users == 0 ? drop(part) : ++part;
    return next;
  }
  Parts::iterator drop(Parts::iterator part) {
    if (part->second.ours) returned_.push_back({part->first, part->second.end});
    return ranges_.erase(part);
  }

  // Does what was put off, if no kernel runs. What fails here has failed with the GPU.
  void tidy() {
    if (freed_.empty() && returned_.empty()) return;
    for (const auto& [stream, need] : running_)
      if (cudaStreamQuery(stream) == cudaErrorNotReady) return;
    for (void* const data : freed_) {
      const Block& block = blocks_.at(data);
      block.place == CudaPlace::device ? cudaFree(block.base) : cudaFreeHost(block.base);
      blocks_.erase(data);
    }
    for (const Range& range : returned_) cudaHostUnregister(reinterpret_cast<void*>(range.first));
    freed_.clear();
    returned_.clear();
    static_cast<void>(cudaGetLastError());
  }

  std::mutex mutex_;
  std::map<void*, Block> blocks_;
  std::vector<void*> freed_;
  Parts ranges_;  // do not overlap
  std::vector<Share> shares_;
  std::vector<Range> returned_;
  std::map<cudaStream_t, double> running_;
};

}  // namespace flashmob::gpu::simt::detail

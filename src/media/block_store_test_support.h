// A store in memory for tests, which does its work in halves and out of order, and fails when it is told to.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "media/block_store.h"

namespace flashmob::media {

class StoreInMemory final : public BlockStore {
 public:
  StoreInMemory(std::uint64_t size_bytes, std::uint32_t alignment)
      : BlockStore(size_bytes, alignment), bytes(size_bytes) {}

  // What it is to do wrong. Any thread, at any time.
  std::atomic<std::uint64_t> bad_from{0}, bad_to{0};  // transfers that touch these bytes fail
  std::atomic<int> bad_error{EIO};
  std::atomic<int> no_space_back{0};                  // why a port's deallocate() fails
  std::atomic<bool> moves_less{false};                // than it is asked to, now and then
  std::atomic<bool> stands_still{false};              // nothing that a port was asked for gets done
  std::atomic<std::uint64_t> under_way{0}, durable_writes{0}, transfers{0}, reads{0};
  std::atomic<int> waits_ms{0};  // what a transfer takes whose caller waits for it
  std::atomic<std::uint64_t> waited_for{0};  // such transfers
  std::atomic<std::uint64_t> deallocations{0};

  std::unique_ptr<BlockPort> make_port(std::uint32_t) override { return std::make_unique<Port>(*this); }
  int transfer(const BlockRequest& request) override {
    ++waited_for;
    if (waits_ms != 0) std::this_thread::sleep_for(std::chrono::milliseconds(waits_ms));
    if (const int error = error_of(request)) return error;
    move(request, 0, request.bytes);
    return 0;
  }
  int deallocate(std::uint64_t offset, std::uint64_t count) override {
    const std::lock_guard lock(mutex);
    ++deallocations;
    std::memset(bytes.data() + offset, 0, count);
    return 0;
  }
  int flush() override { return flush_error; }
  std::string describe() const override { return "direct:test"; }

  std::mutex mutex;
  std::vector<std::byte> bytes;
  int flush_error = 0;

 private:
  class Port final : public BlockPort {
   public:
    explicit Port(StoreInMemory& store) : store_(store) {}
    void submit(const BlockRequest& request) override {
      ++store_.under_way;
      const bool is_short = store_.moves_less && request.bytes > 4096 && rng_.below(2) == 0;
      work_.push_back({request, 0, is_short ? std::max(4096u, request.bytes / 2 & ~4095u) : request.bytes});
    }
    void kick() override {}
    // Moves half of something.
    std::size_t poll(std::span<BlockDone> done) override {
      if (work_.empty() || store_.stands_still || done.empty()) return 0;
      const std::size_t at = rng_.below(work_.size());
      auto& [request, moved, wanted] = work_[at];
      const int error = store_.error_of(request);
      if (request.data == nullptr) {
        const int refused = error != 0 ? error : store_.no_space_back.load();
        if (refused == 0) store_.deallocate(request.offset, request.bytes);
        return end(at, -refused, done[0]);
      }
      const std::uint32_t half = moved == 0 ? wanted / 2 & ~511u : 0;
      const std::uint32_t some = half != 0 ? half : wanted - moved;
      if (error == 0) store_.move(request, moved, some);
      moved += some;
      if (half != 0) return 0;
      return end(at, error != 0 ? -error : static_cast<std::int32_t>(moved), done[0]);
    }

   private:
    std::size_t end(std::size_t at, std::int32_t result, BlockDone& done) {
      done = {work_[at].request.token, result};
      work_.erase(work_.begin() + static_cast<std::ptrdiff_t>(at));
      --store_.under_way;
      return 1;
    }

    struct Work {
      BlockRequest request;
      std::uint32_t moved;
      std::uint32_t wanted;
    };
    StoreInMemory& store_;
    std::vector<Work> work_;
    Rng rng_{1};
  };

  int error_of(const BlockRequest& request) const {
    return request.offset < bad_to && bad_from < request.offset + request.bytes ? bad_error.load() : 0;
  }
  void move(const BlockRequest& request, std::uint32_t from, std::uint32_t count) {
    const std::lock_guard lock(mutex);
    ++transfers;
    reads += !request.is_write;
    durable_writes += request.is_write && request.durable && from == 0;
    std::byte* const here = bytes.data() + request.offset + from;
    if (request.is_write)
      std::memcpy(here, request.data + from, count);
    else
      std::memcpy(request.data + from, here, count);
  }
};

}  // namespace flashmob::media
